"""Reports on COLMAP models and BAL files: errors, outliers, the estimated noise and data issues."""

import json
from dataclasses import replace
from threading import Barrier, Thread, current_thread

import numpy as np
import pytest

import asker
from asker.applications import bundle, colmap
from asker.applications.bundle.application import BundleAdjustment
from asker.applications.reconstruction import ReprojectionErrors, reprojection_report
from asker.applications.text_report import Table, noise_report, percent
from asker.cli import main
from asker.io.files import FileError
from colmap_models import disturbed, some_model

pytestmark = pytest.mark.slow

NOISE = 1.5


@pytest.fixture(scope="module")
def model():
    """Return a model with noise of 1.5 px, and errors up to 40 px per coordinate in a tenth of the features."""
    return disturbed(some_model(("SIMPLE_RADIAL",), n_images=6, noise=NOISE))


@pytest.fixture(scope="module")
def outcome(model):
    return colmap.refine(model)


def true_outliers(model):
    """Return the mask of observations that `disturbed` has turned into outliers."""
    mask = np.zeros(len(model.images.xys), bool)
    mask[::10] = True
    return mask[model.observations().feature]


def ask(capsys, *arguments):
    """Run a command and return its exit code, output and errors."""
    code = main([str(a) for a in arguments])
    return code, *capsys.readouterr()


# ---- errors


def test_statistics_are_over_the_observations_with_an_error():
    before = np.array([4.0, 1.0, 2.0, np.inf])
    after = np.array([np.inf, 0.5, 1.0, np.inf])
    errors = ReprojectionErrors.of(before, after, np.array([True, True, False, False]))
    assert errors.before == (7 / 3, 2.0, 2.5, 2.5, 1)
    assert errors.after == (0.75, 0.75, 0.5, 0.5, 2)
    assert errors.record()["after"] == {
        "mean": 0.75,
        "median": 0.75,
        "inlier_mean": 0.5,
        "inlier_median": 0.5,
        "n_behind": 2,
    }
    assert "excluded: 1 before, 2 after" in reprojection_report(errors)[-1]


def test_without_finite_errors_the_statistics_are_nan():
    norms = np.full(3, np.inf)
    errors = ReprojectionErrors.of(norms, norms, np.ones(3, bool))
    assert np.isnan(errors.after[:4]).all()
    assert errors.after.n_behind == 3


def test_an_increased_mean_error_is_explained():
    improved = ReprojectionErrors.of(np.ones(5), np.full(5, 0.9), np.ones(5, bool))
    lost = ReprojectionErrors.of(np.ones(5), np.array([0.9, 0.9, 0.9, 0.9, 99.0]), np.ones(5, bool))
    assert len(reprojection_report(improved)) == 2
    assert "The mean rose" in reprojection_report(lost)[2]


def test_the_errors_of_a_model_are_those_of_its_observations(model, outcome):
    for when, one in (("before", model), ("after", outcome.refined)):
        r = colmap.reprojection_norms(one)
        figures, inlier_r = getattr(outcome.errors, when), r[outcome.inliers]
        assert figures == (r.mean(), np.median(r), inlier_r.mean(), np.median(inlier_r), 0)
        assert outcome.record["reprojection_error"][when] == figures._asdict()
    assert len(outcome.norms) == model.n_observations
    assert outcome.errors.after.inlier_mean < outcome.errors.before.inlier_mean


def test_observations_of_a_point_behind_its_camera_are_counted(model):
    xyz = model.points.xyz.copy()
    xyz[3] = 100.0  # in front of some images, behind others
    start = replace(model, points=replace(model.points, xyz=xyz))
    outcome = colmap.refine(start, max_iterations=0)
    r = colmap.reprojection_norms(start)
    lost = np.isinf(r)
    assert 0 < lost.sum() < 6
    assert outcome.errors.before == outcome.errors.after
    assert outcome.errors.after.n_behind == lost.sum()
    assert outcome.errors.after.mean == r[~lost].mean()


def test_the_errors_of_a_bundle_are_those_of_its_observations():
    start = bundle.make_scene(5, 300, outlier_ratio=0.2, start_error=3.0).start
    points = start.points.copy()
    points[7] = (
        2 * bundle.camera_centres(start)[start.camera_index[start.point_index == 7][0]]
    )  # behind at least one camera
    start = replace(start, points=points)
    outcome = bundle.refine(start, max_iterations=4)
    for one, figures in zip((start, outcome.refined), outcome.errors, strict=True):
        r, depth = bundle.reprojection_norms(one, "pixel")
        r, inliers = r[depth > 0], outcome.inliers[depth > 0]
        expected = r.mean(), np.median(r), r[inliers].mean(), np.median(r[inliers])
        np.testing.assert_allclose(figures[:4], expected, rtol=1e-6)
        assert figures.n_behind == np.count_nonzero(depth <= 0)
    assert outcome.errors.before.n_behind > 0


def test_a_mirrored_bundle_is_reflected_by_a_solve():
    """Points and centres reflected at the origin have the same pixels; the refined bundle is reflected back."""
    scene = bundle.make_scene(5, 300).start
    cameras = scene.cameras.copy()
    cameras[:, 3:6] *= -1
    mirrored = replace(scene, cameras=cameras, points=-scene.points)
    for n, n_behind in ((0, 300), (5, 0)):  # without iterations, the bundle is unchanged
        outcome = bundle.refine(mirrored, max_iterations=n)
        _, depth = bundle.reprojection_norms(outcome.refined, "pixel")
        assert np.count_nonzero(depth <= 0) == n_behind
        assert outcome.errors.after.n_behind == n_behind
    assert outcome.errors.before.n_behind == 300


# ---- outliers


def test_outliers_are_detected_from_the_noise_for_any_kernel_width(model, outcome):
    """For τ = 1 fewer than 60 % of the inliers have residuals below τ/√3."""
    noise = outcome.result.noise["SIMPLE_RADIAL"]
    assert noise.sigma == pytest.approx(NOISE, rel=0.2)
    assert outcome.record["inlier_radius"] == pytest.approx(3.717 * noise.sigma, rel=1e-3)
    outliers = true_outliers(model)
    assert outcome.inliers[~outliers].mean() > 0.98
    assert outcome.inliers[outliers].mean() < 0.15
    np.testing.assert_array_equal(outcome.inliers, outcome.norms <= outcome.record["inlier_radius"])
    fixed = colmap.refine(model, tau=1.0)
    assert fixed.record["inlier_radius"] == pytest.approx(3.717 * fixed.result.noise["SIMPLE_RADIAL"].sigma, rel=1e-3)
    assert fixed.inliers[~outliers].mean() > 0.95
    assert fixed.result.within_inflection["SIMPLE_RADIAL"][~outliers].mean() < 0.6


@pytest.mark.parametrize("options", [{}, {"tau": 1.0}], ids=str)
def test_the_inlier_ratio_of_a_bundle_is_the_same_everywhere(options):
    """The mask, the record, both printed lines and the experiment page agree."""
    scene = bundle.make_scene(6, 600, outlier_ratio=0.3, start_error=2.0)
    outcome = bundle.refine(scene.start, **options)
    ratio, r = outcome.inliers.mean(), outcome.record
    assert r["inlier_ratio"] == r["noise"]["reprojection"]["inlier_ratio"] == outcome.result.inlier_ratio == ratio
    application, made = BundleAdjustment(), bundle.bundle_problem(scene.start, asker.SmoothTruncated(1.0))
    items = application.report(scene.start, outcome, bundle.Options())
    table = next(x for x in items if isinstance(x, Table) and x.header[1:] == ("before", "after"))
    assert table.rows[1][-1] == percent(ratio)
    assert f"of {percent(ratio)} of the observations" in noise_report(r, "px")[0]
    solved = asker.solve(made.problem)
    facts = application.evaluate(scene, made, solved, {"tau": 1.0})
    assert facts["inlier_ratio"] == solved.inliers[0].mean()
    norms = np.linalg.norm(solved.residuals[0], axis=1)
    assert facts["within_inflection"] == pytest.approx(np.mean(norms <= 1 / np.sqrt(3)), abs=1e-3)


def test_the_inlier_ratio_of_a_model_is_the_same_everywhere(outcome):
    """The mask, the record, the printed text and the table of images agree."""
    (noise,) = outcome.record["noise"].values()
    ratio = outcome.inliers.mean()
    assert outcome.record["inlier_ratio"] == noise["inlier_ratio"] == outcome.result.noise[0].inlier_ratio == ratio
    assert outcome.images.after.sum() == outcome.result.inliers[0].sum() == outcome.inliers.sum()
    assert f"of {percent(ratio)} of the observations" in noise_report(outcome.record, "px")[0]


def test_exact_observations_are_inliers():
    exact = disturbed(some_model(("SIMPLE_RADIAL",), n_images=6))
    outcome = colmap.refine(exact)
    np.testing.assert_array_equal(outcome.inliers, ~true_outliers(exact))
    assert "no noise: 89.3 % of the observations are fitted exactly" in noise_report(outcome.record, "px")[0]


def test_the_largest_error_replaces_the_inliers(model, outcome):
    wide = replace(outcome, max_error=20.0)
    kept = colmap.reprojection_norms(wide.clean)
    assert outcome.clean.n_observations < wide.clean.n_observations == np.count_nonzero(outcome.norms <= 20)
    assert kept.max() <= 20
    assert outcome.dropped_ratio(20.0) == pytest.approx(1 - len(kept) / model.n_observations)
    for bad in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="max_error must be positive and finite"):
            colmap.refine(model, max_error=bad)


def test_the_command_drops_outliers_by_the_noise_or_by_the_largest_error(model, outcome, tmp_path, capsys):
    colmap.write_model(tmp_path / "m", model)
    drop = ("--output", tmp_path / "out", "--drop-outliers", "--json", tmp_path / "run.json")
    code, text, err = ask(capsys, "solve", tmp_path / "m", *drop)
    assert (code, err) == (0, "")
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["reprojection_error"]["after"]["n_behind"] == 0
    assert colmap.read_model(tmp_path / "out").n_observations == outcome.clean.n_observations
    for words in (
        "Error of all observations: mean ",
        "Error of the inliers: mean ",
        "The estimated noise is ",
        "has an uncertainty of ",
    ):
        assert words in text
    dropped = 100 * (1 - outcome.clean.n_observations / model.n_observations)
    assert f"Warning: --drop-outliers removes {dropped:.3g} % of the observations, more than a tenth." in text
    assert "give a larger --max-error in pixels; to keep all" in text
    code, text, _ = ask(capsys, "solve", tmp_path / "m", *drop, "--max-error", 0.5)
    assert code == 0
    assert json.loads((tmp_path / "run.json").read_text())["max_error"] == 0.5
    assert (colmap.reprojection_norms(colmap.read_model(tmp_path / "out")) <= 0.5).all()
    assert "(4, COLMAP's default, removes " in text
    code, text, _ = ask(capsys, "solve", tmp_path / "m", *drop, "--max-error", 30)
    assert "Warning" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-error", "2"], "--max-error requires --drop-outliers"),
        (["--drop-outliers", "--output", "out", "--max-error", "0"], "--max-error must be positive"),
    ],
)
def test_an_invalid_largest_error_is_rejected(model, tmp_path, capsys, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    colmap.write_model("m", model)
    code, out, err = ask(capsys, "solve", "m", *options)
    assert (code, out) == (2, "")
    assert message in err


# ---- the estimated noise


@pytest.mark.parametrize(
    ("noise", "messages"),
    [
        (
            {},
            [
                "estimated noise is 0.4 px in each coordinate of 90 % of",
                "an uncertainty of 2 % if the solution is correct",
            ],
        ),
        ({"uncertainty": 1e-4}, ["", "an uncertainty of 1 %"]),
        ({"uncertainty": 0.15}, ["", "is rough: it is based on few observations, with an uncertainty of 30 %"]),
        (
            {"border_ratio": 0.2},
            ["", "is doubtful: inliers and outliers overlap, and 20 % have errors of 1"],
        ),
        ({"inlier_ratio": 0.3}, ["", "but most observations are outliers"]),
        ({"tau": 9.0}, ["(--tau 9 would fit it)", ""]),
        ({"sigma": 0.0, "tau": 0.0}, ["There is no noise: 90 % of the observations are fitted exactly."]),
        (
            {"sigma": None},
            ["cannot be estimated, since too few observations agree: all residuals count as noise, tau is 2"],
        ),
    ],
    ids=str,
)
def test_the_noise_is_reported_with_its_uncertainty(noise, messages):
    default = {"sigma": 0.4, "uncertainty": 0.01, "tau": 2.0, "inlier_limit": 1.5, "border_ratio": 0.0}
    record = {"tau": 2.0, "kernel": "smooth-truncated", "finds_noise": True}
    lines = noise_report(record | {"noise": {"reprojection": default | {"inlier_ratio": 0.9} | noise}}, "px")
    assert len(lines) == len(messages)
    for line, words in zip(lines, messages, strict=True):
        assert words in line


@pytest.mark.parametrize(
    ("options", "expected"),
    [((), "estimated noise"), (("--tau", 2), "asker, smooth-truncated kernel, tau 2 px")],
    ids=str,
)
def test_the_command_names_only_what_was_specified(model, tmp_path, capsys, options, expected):
    """Without a kernel the noise is estimated, and neither a method nor a kernel is named."""
    colmap.write_model(tmp_path / "model", model)
    bundle.write_bal(tmp_path / "scene.txt", bundle.make_scene(4, 200, start_error=1.0).start)
    for data, rest in (("model", "refine poses"), ("scene.txt", "pixel camera")):
        code, text, _ = ask(capsys, "solve", tmp_path / data, "--iterations", 3, *options)
        assert code == 0
        assert f"\n{expected}, {rest}" in text
        assert ("kernel" in text) == bool(options)


# ---- data issues


def bundle_with_issues():
    """Return a bundle with an unused camera, unused points, and a repeated observation."""
    clean = bundle.make_scene(3, 150).start
    b = clean.with_observations(clean.camera_index < 2)
    index = np.append(b.camera_index, b.camera_index[:1]), np.append(b.point_index, b.point_index[:1])
    points = np.concatenate([b.points, [[0.0, 0.0, 0.0]]])
    uv = np.concatenate([b.uv, b.uv[:1] + 0.1])
    return bundle.Bundle(b.cameras, points, index[0].astype(np.int32), index[1].astype(np.int32), uv)


def test_issues_of_a_bundle_are_reported_and_rejected_by_strict(tmp_path, capsys):
    data = bundle_with_issues()
    unused = data.n_points - len(np.unique(data.point_index))
    issues = bundle.issues_of(data)
    assert issues == (
        "1 camera without an observation",
        f"{unused} point{'s' if unused > 1 else ''} without an observation",
        "1 repeated observation of a point in an image",
    )
    assert bundle.issues_of(bundle.make_scene(3, 150).start) == ()
    path, record = tmp_path / "a.txt", tmp_path / "run.json"
    bundle.write_bal(path, data)
    method = ("--kernel", "cauchy", "--iterations", "2", "--quiet")
    assert main(["solve", str(path), *method, "--json", str(record)]) == 0
    assert f"Issues in the data (left unchanged): {issues[0]}" in " ".join(capsys.readouterr().out.split())
    assert json.loads(record.read_text())["dirt"] == list(issues)
    assert main(["solve", str(path), *method, "--strict"]) == 2
    assert capsys.readouterr().err == f"asker: {path}: camera 2 has no observation\n"


def test_every_process_reports_the_issues_of_the_whole_bundle(tmp_path, monkeypatch):
    """Two threads take the role of processes and exchange arrays."""
    data, path = bundle_with_issues(), tmp_path / "a.txt"
    bundle.write_bal(path, data)
    barrier, shared = Barrier(2), [np.zeros(0), np.zeros(0)]

    def all_gather(x):
        shared[int(current_thread().name)] = x
        barrier.wait()
        stacked = np.stack(shared)
        barrier.wait()
        return stacked

    monkeypatch.setattr("asker.engines.xla.distributed.all_gather", all_gather)
    issues, errors = {}, {}

    def process(k):
        part = bundle.read_bal_portion(path, k, 2)
        issues[k] = bundle.issues_of(part)
        try:
            bundle.issues_of(part, path, strict=True)
        except FileError as error:
            errors[k] = str(error)

    threads = [Thread(target=process, args=(k,), name=str(k)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert issues == dict.fromkeys(range(2), bundle.issues_of(data))
    assert errors == dict.fromkeys(range(2), f"{path}: camera 2 has no observation")


def test_issues_of_a_colmap_model_are_reported_and_rejected_by_strict(tmp_path, capsys):
    model = some_model(("PINHOLE", "PINHOLE"), n_images=2, n_points=6)
    point_ids = model.images.point_ids.copy()
    first, second = np.flatnonzero(point_ids[: model.images.starts[1]] == point_ids[0])[0], 1
    unused = point_ids[second]
    point_ids[point_ids == unused] = -1
    point_ids[second] = point_ids[first]
    point_ids[model.images.starts[1] :] = -1
    data = replace(model, images=replace(model.images, point_ids=point_ids))
    assert colmap.issues_of(data) == (
        "1 camera without an observation",
        "1 image without an observation",
        "1 point without an observation",
        "1 repeated observation of a point in an image",
    )
    colmap.write_model(tmp_path / "m", data)
    assert main(["solve", str(tmp_path / "m"), "--strict"]) == 2
    assert capsys.readouterr().err == f"asker: {tmp_path / 'm'}: camera 5 has no observation\n"

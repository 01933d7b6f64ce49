"""What is told of reconstructions, COLMAP models and BAL files alike: errors, outliers, and how sure the noise is."""

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
    """A tenth of the features are up to 40 px off in each coordinate, those of the others have a noise of 1.5 px."""
    return disturbed(some_model(("SIMPLE_RADIAL",), n_images=6, noise=NOISE))


@pytest.fixture(scope="module")
def found(model):
    return colmap.refine(model)


def wrong(model):
    """Which observations `disturbed` has put far off."""
    off = np.zeros(len(model.images.xys), bool)
    off[::10] = True
    return off[model.observations().feature]


def ask(capsys, *arguments):
    code = main([str(a) for a in arguments])
    return code, *capsys.readouterr()


# ---- errors


def test_figures_are_of_the_observations_that_have_an_error():
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
    assert "left out: 1 before, 2 after" in reprojection_report(errors)[-1]


def test_where_no_observation_has_an_error_there_is_no_figure():
    nowhere = np.full(3, np.inf)
    errors = ReprojectionErrors.of(nowhere, nowhere, np.ones(3, bool))
    assert np.isnan(errors.after[:4]).all()
    assert errors.after.n_behind == 3


def test_a_mean_that_rose_is_explained():
    calm = ReprojectionErrors.of(np.ones(5), np.full(5, 0.9), np.ones(5, bool))
    lost = ReprojectionErrors.of(np.ones(5), np.array([0.9, 0.9, 0.9, 0.9, 99.0]), np.ones(5, bool))
    assert len(reprojection_report(calm)) == 2
    assert "The mean rose" in reprojection_report(lost)[2]


def test_the_errors_of_a_model_are_those_of_its_observations(model, found):
    seen = model.observations()
    for when, one in (("before", model), ("after", found.refined)):
        r = colmap.reprojection_norms(one)
        figures = getattr(found.errors, when)
        assert figures == (r.mean(), np.median(r), r[found.inliers].mean(), np.median(r[found.inliers]), 0)
        assert found.record["reprojection_error"][when] == figures._asdict()
    assert len(found.norms) == len(seen.point)
    assert found.errors.after.inlier_mean < found.errors.before.inlier_mean


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
    points[7] = 2 * bundle.camera_centres(start)[start.camera_index[start.point_index == 7][0]]  # behind one at least
    start = replace(start, points=points)
    outcome = bundle.refine(start, max_iterations=4)
    for one, figures in zip((start, outcome.refined), outcome.errors, strict=True):
        r, depth = bundle.reprojection_norms(one, "pixel")
        r, inliers = r[depth > 0], outcome.inliers[depth > 0]
        expected = r.mean(), np.median(r), r[inliers].mean(), np.median(r[inliers])
        np.testing.assert_allclose(figures[:4], expected, rtol=1e-6)
        assert figures.n_behind == np.count_nonzero(depth <= 0)
    assert outcome.errors.before.n_behind > 0


def test_a_mirrored_bundle_is_not_behind_its_cameras():
    """Points and centres on the other side of the origin give the same pixels; what is returned is turned back."""
    scene = bundle.make_scene(5, 300).start
    cameras = scene.cameras.copy()
    cameras[:, 3:6] *= -1
    mirrored = replace(scene, cameras=cameras, points=-scene.points)
    for n, n_behind in ((0, 300), (5, 0)):  # what has not moved is returned as it is
        outcome = bundle.refine(mirrored, max_iterations=n)
        _, depth = bundle.reprojection_norms(outcome.refined, "pixel")
        assert np.count_nonzero(depth <= 0) == n_behind
        assert outcome.errors.after.n_behind == n_behind
    assert outcome.errors.before.n_behind == 300


# ---- outliers


def test_outliers_are_found_by_the_noise(model, found):
    """Whatever the width of the kernel: within τ/√3 are little more than half of the right observations."""
    noise = found.result.noise["SIMPLE_RADIAL"]
    assert noise.sigma == pytest.approx(NOISE, rel=0.2)
    assert found.record["inlier_radius"] == pytest.approx(3.717 * noise.sigma, rel=1e-3)
    off = wrong(model)
    assert found.inliers[~off].mean() > 0.98
    assert found.inliers[off].mean() < 0.15
    np.testing.assert_array_equal(found.inliers, found.norms <= found.record["inlier_radius"])
    given = colmap.refine(model, tau=1.0)
    assert given.record["inlier_radius"] == pytest.approx(3.717 * given.result.noise["SIMPLE_RADIAL"].sigma, rel=1e-3)
    assert given.inliers[~off].mean() > 0.95
    assert given.result.within_inflection["SIMPLE_RADIAL"][~off].mean() < 0.6


@pytest.mark.parametrize("given", [{}, {"tau": 1.0}], ids=str)
def test_a_bundle_has_one_share_of_inliers(given):
    """In the mask, in the record, in both lines that are printed, and on the page of a study."""
    scene = bundle.make_scene(6, 600, outlier_ratio=0.3, start_error=2.0)
    outcome = bundle.refine(scene.start, **given)
    share, r = outcome.inliers.mean(), outcome.record
    assert r["inlier_ratio"] == r["noise"]["reprojection"]["inlier_ratio"] == outcome.result.inlier_ratio == share
    room, made = BundleAdjustment(), bundle.bundle_problem(scene.start, asker.SmoothTruncated(1.0))
    told = room.report(scene.start, outcome, bundle.Options())
    table = next(x for x in told if isinstance(x, Table) and x.header[1:] == ("before", "after"))
    assert table.rows[1][-1] == percent(share)
    assert f"of {percent(share)} of the observations" in noise_report(r, "px")[0]
    solved = asker.solve(made.problem)
    facts = room.evaluate(scene, made, solved, {"tau": 1.0})
    assert facts["inlier_ratio"] == solved.inliers[0].mean()
    norms = np.linalg.norm(solved.residuals[0], axis=1)
    assert facts["within_inflection"] == pytest.approx(np.mean(norms <= 1 / np.sqrt(3)), abs=1e-3)


def test_shares_of_reconstructions_are_those_of_the_masks(found):
    """In the record, in what is printed, and in the table of images."""
    (noise,) = found.record["noise"].values()
    share = found.inliers.mean()
    assert found.record["inlier_ratio"] == noise["inlier_ratio"] == found.result.noise[0].inlier_ratio == share
    assert found.images.after.sum() == found.result.inliers[0].sum() == found.inliers.sum()
    assert f"of {percent(share)} of the observations" in noise_report(found.record, "px")[0]


def test_exact_observations_are_inliers():
    exact = disturbed(some_model(("SIMPLE_RADIAL",), n_images=6))
    outcome = colmap.refine(exact)
    np.testing.assert_array_equal(outcome.inliers, ~wrong(exact))
    assert "no noise: 89.3 % of the observations are fitted exactly" in noise_report(outcome.record, "px")[0]


def test_a_largest_error_decides_alone(model, found):
    wide = replace(found, max_error=20.0)
    left = colmap.reprojection_norms(wide.clean)
    assert found.clean.n_observations < wide.clean.n_observations == np.count_nonzero(found.norms <= 20)
    assert left.max() <= 20
    assert found.dropped_ratio(20.0) == pytest.approx(1 - len(left) / model.n_observations)
    for bad in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="max_error must be positive and finite"):
            colmap.refine(model, max_error=bad)


def test_the_command_drops_by_the_noise_or_by_the_largest_error(model, found, tmp_path, capsys):
    colmap.write_model(tmp_path / "m", model)
    drop = ("--output", tmp_path / "out", "--drop-outliers", "--json", tmp_path / "run.json")
    code, text, err = ask(capsys, "solve", tmp_path / "m", *drop)
    assert (code, err) == (0, "")
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["reprojection_error"]["after"]["n_behind"] == 0
    assert colmap.read_model(tmp_path / "out").n_observations == found.clean.n_observations
    for words in ("Error of all observations: mean ", "Error of the inliers: mean ", "The noise is ", "sure to "):
        assert words in text
    gone = 100 * (1 - found.clean.n_observations / model.n_observations)
    assert f"Warning: --drop-outliers removes {gone:.3g} % of the observations, more than a tenth." in text
    assert "give a larger --max-error in pixels; to keep all" in text
    code, text, _ = ask(capsys, "solve", tmp_path / "m", *drop, "--max-error", 0.5)
    assert code == 0
    assert json.loads((tmp_path / "run.json").read_text())["max_error"] == 0.5
    assert (colmap.reprojection_norms(colmap.read_model(tmp_path / "out")) <= 0.5).all()
    assert "(4, COLMAP's own, removes " in text
    code, text, _ = ask(capsys, "solve", tmp_path / "m", *drop, "--max-error", 30)
    assert "Warning" not in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--max-error", "2"], "--max-error goes with --drop-outliers"),
        (["--drop-outliers", "--output", "out", "--max-error", "0"], "--max-error must be positive"),
    ],
)
def test_a_largest_error_that_means_nothing_is_refused(model, tmp_path, capsys, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    colmap.write_model("m", model)
    code, out, err = ask(capsys, "solve", "m", *options)
    assert (code, out) == (2, "")
    assert said in err


# ---- how sure the noise is


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        ({}, ["The noise is 0.4 px in each coordinate of 90 % of the observations.", "That is sure to 2 %, if"]),
        ({"uncertainty": 1e-4}, ["", "sure to 1 %"]),
        ({"uncertainty": 0.15}, ["", "a rough figure: it rests on few observations, and may be 30 % off"]),
        (
            {"border_ratio": 0.2},
            ["", "not sure: inliers and outliers are not clearly apart, and 20 % have errors of 1"],
        ),
        ({"inlier_ratio": 0.3}, ["", "but most observations do not agree with it"]),
        ({"tau": 9.0}, ["(--tau 9 would fit it)", ""]),
        ({"sigma": 0.0, "tau": 0.0}, ["There is no noise: 90 % of the observations are fitted exactly."]),
        ({"sigma": None}, ["cannot be told, since too few observations agree: all residuals count as noise, tau is 2"]),
    ],
    ids=str,
)
def test_the_noise_is_told_with_how_sure_it_is(noise, said):
    usual = {"sigma": 0.4, "uncertainty": 0.01, "tau": 2.0, "inlier_limit": 1.5, "border_ratio": 0.0}
    record = {"tau": 2.0, "kernel": "smooth-truncated", "finds_noise": True}
    told = noise_report(record | {"noise": {"reprojection": usual | {"inlier_ratio": 0.9} | noise}}, "px")
    assert len(told) == len(said)
    for line, words in zip(told, said, strict=True):
        assert words in line


# ---- dirt


def dirty_bundle():
    """The last camera and some points are not seen, and one point is seen twice by a camera."""
    clean = bundle.make_scene(3, 150).start
    chosen = clean.camera_index < 2
    some = clean.with_observations(chosen)
    index = np.append(some.camera_index, some.camera_index[:1]), np.append(some.point_index, some.point_index[:1])
    points = np.concatenate([some.points, [[0.0, 0.0, 0.0]]])
    twice = np.concatenate([some.uv, some.uv[:1] + 0.1])
    return bundle.Bundle(some.cameras, points, index[0].astype(np.int32), index[1].astype(np.int32), twice)


def test_what_no_observation_shows_is_told_and_strict_refuses(tmp_path, capsys):
    dirty = dirty_bundle()
    unseen = dirty.n_points - len(np.unique(dirty.point_index))
    told = bundle.issues_of(dirty)
    assert told == (
        "1 camera without an observation",
        f"{unseen} point{'s' if unseen > 1 else ''} without an observation",
        "1 observation of a point in an image that shows it already",
    )
    assert bundle.issues_of(bundle.make_scene(3, 150).start) == ()
    path, record = tmp_path / "a.txt", tmp_path / "run.json"
    bundle.write_bal(path, dirty)
    method = ("--kernel", "cauchy", "--iterations", "2", "--quiet")
    assert main(["solve", str(path), *method, "--json", str(record)]) == 0
    assert f"Found in the file, and kept: {told[0]}" in " ".join(capsys.readouterr().out.split())
    assert json.loads(record.read_text())["dirt"] == list(told)
    assert main(["solve", str(path), *method, "--strict"]) == 2
    assert capsys.readouterr().err == f"asker: {path}: camera 2 has no observation\n"


def test_each_of_several_processes_tells_the_dirt_of_the_whole(tmp_path, monkeypatch):
    """Two threads in place of processes, which hand each other what they have."""
    dirty, path = dirty_bundle(), tmp_path / "a.txt"
    bundle.write_bal(path, dirty)
    meeting, handed = Barrier(2), [np.zeros(0), np.zeros(0)]

    def of_all(x):
        handed[int(current_thread().name)] = x
        meeting.wait()
        both = np.stack(handed)
        meeting.wait()
        return both

    monkeypatch.setattr("asker.engines.xla.distributed.of_all", of_all)
    told, refused = {}, {}

    def process(k):
        part = bundle.read_bal_portion(path, k, 2)
        told[k] = bundle.issues_of(part)
        try:
            bundle.issues_of(part, path, strict=True)
        except FileError as error:
            refused[k] = str(error)

    threads = [Thread(target=process, args=(k,), name=str(k)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == dict.fromkeys(range(2), bundle.issues_of(dirty))
    assert refused == dict.fromkeys(range(2), f"{path}: camera 2 has no observation")


def test_dirt_of_a_colmap_model_is_told_and_strict_refuses(tmp_path, capsys):
    model = some_model(("PINHOLE", "PINHOLE"), n_images=2, n_points=6)
    point_ids = model.images.point_ids.copy()
    first, second = np.flatnonzero(point_ids[: model.images.starts[1]] == point_ids[0])[0], 1
    gone = point_ids[second]
    point_ids[point_ids == gone] = -1
    point_ids[second] = point_ids[first]
    point_ids[model.images.starts[1] :] = -1
    dirty = replace(model, images=replace(model.images, point_ids=point_ids))
    assert colmap.issues_of(dirty) == (
        "1 camera without an observation",
        "1 image without an observation",
        "1 point without an observation",
        "1 observation of a point in an image that shows it already",
    )
    colmap.write_model(tmp_path / "m", dirty)
    assert main(["solve", str(tmp_path / "m"), "--strict"]) == 2
    assert capsys.readouterr().err == f"asker: {tmp_path / 'm'}: camera 5 has no observation\n"

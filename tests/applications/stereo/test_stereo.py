"""Dense stereo: matching, the energy, errors, images, and the commands."""

import json

import numpy as np
import pytest
from PIL import Image

import asker
from asker.applications.stereo.errors import disparity_errors, visible
from asker.applications.stereo.matching import Matching, Minima, cost_volume, local_minima, match
from asker.applications.stereo.pairs import make_pair
from asker.applications.stereo.problem import energy, stereo_problem
from asker.io.files import FileError
from asker.io.images import read_disparity, read_grey, write_disparity, write_picture


@pytest.fixture(scope="module")
def pair():
    return make_pair(48, 72, max_disparity=12, n_planes=2)


# ---- matching


def test_a_shifted_image_matches_at_its_shift():
    rng = np.random.default_rng(0)
    right = rng.normal(size=(20, 60))
    left = np.roll(right, 7, axis=1)
    for cost in ("zncc", "census", "absolute"):
        volume = cost_volume(left, right, Matching(12, cost, window=3))  # type: ignore[arg-type]
        assert volume.shape == (13, 20, 60)
        assert (np.argmin(volume, axis=0)[2:-2, 16:-2] == 7).all()  # away from the borders
        assert np.isinf(volume[5, :, :5]).all()
        assert np.isfinite(volume[5, :, 5:]).all()


def test_zncc_is_the_correlation_of_two_windows(pair):
    volume = cost_volume(pair.left, pair.right, Matching(12, window=5))
    y, x, d = 20, 40, 6
    a = pair.left[y - 2 : y + 3, x - 2 : x + 3].ravel()
    b = pair.right[y - 2 : y + 3, x - d - 2 : x - d + 3].ravel()
    assert volume[d, y, x] == pytest.approx(1 - np.corrcoef(a, b)[0, 1], abs=1e-6)


@pytest.mark.parametrize("gain", [1e-3, 1.0, 1e4])
def test_zncc_does_not_depend_on_the_unit_of_grey(pair, gain):
    once = cost_volume(pair.left, pair.right, Matching(12))
    again = cost_volume(gain * pair.left, gain * pair.right + 3 * gain, Matching(12))
    finite = np.isfinite(once)
    np.testing.assert_allclose(again[finite], once[finite], atol=1e-4)


def test_minima_are_refined_to_the_vertex_of_a_parabola():
    d = np.arange(10.0)
    volume = np.minimum((d - 2.3) ** 2, 0.5 + (d - 6.6) ** 2)[:, None, None].astype(np.float32)
    estimate = local_minima(volume, 3)
    np.testing.assert_allclose(estimate.disparity[0, 0, :2], [2.3, 6.6], atol=1e-5)
    assert np.isnan(estimate.disparity[0, 0, 2])
    assert estimate.winner[0, 0] == pytest.approx(2.3, abs=1e-5)


def test_minima_are_strict_and_have_two_neighbours():
    flat = local_minima(np.ones((6, 1, 1), dtype=np.float32), 2)
    falling = local_minima(np.arange(6.0)[::-1, None, None].astype(np.float32), 2)
    assert np.isnan(flat.disparity).all()
    assert np.isnan(falling.disparity).all()
    assert falling.winner[0, 0] == 5


@pytest.mark.parametrize("cost", ["zncc", "census", "absolute"])
def test_bands_of_rows_have_the_minima_of_the_whole_volume(pair, monkeypatch, cost):
    matching = Matching(12, cost)
    whole = local_minima(cost_volume(pair.left, pair.right, matching), 2)
    monkeypatch.setattr("asker.applications.stereo.matching.MAX_VOLUME_SIZE", 1)
    bands = match(pair.left, pair.right, matching)
    np.testing.assert_allclose(bands.winner, whole.winner, atol=1e-3)  # running sums round differently
    np.testing.assert_allclose(bands.disparity, whole.disparity, atol=1e-3)


# ---- the energy


def test_the_energy_equals_that_of_the_paper():
    rng = np.random.default_rng(1)
    minima = Minima(rng.uniform(0, 9, (4, 5, 2)), rng.uniform(0, 9, (4, 5)))
    minima.disparity[0, 0, 1] = np.nan
    start = rng.uniform(0, 9, (4, 5))
    data, smoothness = asker.SmoothTruncated(0.7), asker.SmoothTruncated(1.3)
    made = energy(minima, 9, start, eta=4.0, data_kernel=data, smoothness_kernel=smoothness)
    expected = 0.0
    for y in range(4):
        for x in range(5):
            for k in range(2):
                if np.isfinite(minima.disparity[y, x, k]):
                    expected += 4.0 * data.psi((start[y, x] - minima.disparity[y, x, k]) ** 2)
            if x:
                expected += smoothness.psi((start[y, x] - start[y, x - 1]) ** 2)
            if y:
                expected += smoothness.psi((start[y, x] - start[y - 1, x]) ** 2)
    result = asker.solve(made.problem, max_iterations=0)
    assert result.cost == pytest.approx(expected)
    np.testing.assert_array_equal(made.refined(result.values), start)


@pytest.mark.parametrize("start", ["constant", "wta", "random"])
def test_initial_disparities(pair, start):
    made = stereo_problem(pair.left, pair.right, Matching(12), start=start)
    values = made.disparity.rows.reshape(pair.left.shape)
    if start == "constant":
        assert (values == 6).all()
    if start == "wta":
        np.testing.assert_array_equal(values, made.minima.winner)
    if start == "random":
        again = stereo_problem(pair.left, pair.right, Matching(12), start=start, seed=1)
        assert 0 <= values.min() < values.max() <= 12
        assert (again.disparity.rows.ravel() != values.ravel()).any()


def test_minimising_the_energy_improves_on_winner_takes_all(pair):
    minima = match(pair.left, pair.right, Matching(12))
    is_visible = visible(pair.left_truth, pair.right_truth)
    winner = disparity_errors(minima.winner, pair.left_truth, is_visible).bad_1
    for method in ("gnc", "asker"):
        made = energy(minima, 12)
        result = asker.solve(made.problem, asker.METHODS[method](), max_iterations=60)
        bad = disparity_errors(made.refined(result.values), pair.left_truth, is_visible).bad_1
        assert bad < winner, method


# ---- errors and truth


def test_errors_count_known_pixels_only():
    truth = np.array([[1.0, 2.0, np.nan, 4.0]])
    estimate = np.array([[1.4, 3.5, 9.0, np.nan]])
    errors = disparity_errors(estimate, truth)
    assert (errors.bad_0_5, errors.bad_1, errors.bad_2) == (2 / 3, 2 / 3, 1 / 3)
    assert np.isnan(errors.mean_error)
    some = disparity_errors(estimate, truth, np.array([[True, True, False, False]]))
    assert (some.bad_0_5, some.bad_2, some.mean_error) == (0.5, 0.0, pytest.approx(0.95))
    with pytest.raises(asker.ProblemError, match="unknown at every pixel"):
        disparity_errors(estimate, np.full((1, 4), np.nan))
    with pytest.raises(asker.ProblemError, match="shape"):
        disparity_errors(estimate, truth.T)


def test_pixels_behind_a_nearer_plane_are_occluded():
    left, right = np.full((1, 12), 1.0), np.full((1, 12), 1.0)
    left[0, 6:9] = 3.0  # a bar in front covers x = 3, 4, 5 on the right
    right[0, 3:6] = 3.0
    hidden = np.flatnonzero(~visible(left, right)[0])
    assert hidden.tolist() == [0, 4, 5]


def test_a_synthetic_pair_agrees_with_its_disparities():
    pair = make_pair(60, 120, max_disparity=16, noise=0.0, seed=3)
    is_visible = visible(pair.left_truth, pair.right_truth)
    assert 0.6 < is_visible.mean() < 1
    y, x = np.nonzero(is_visible)
    right_x = x - pair.left_truth[y, x]
    low = np.floor(right_x).astype(int)
    inside = (low >= 0) & (low + 1 < 120)
    part = (right_x - low)[inside]
    row, low = y[inside], low[inside]
    matched = (1 - part) * pair.right[row, low] + part * pair.right[row, low + 1]
    errors = np.abs(matched - pair.left[row, x[inside]])
    assert np.median(errors) < 0.03  # linear interpolation of a cubic texture
    assert pair.left_truth.max() <= 16
    with pytest.raises(ValueError, match="too small"):
        make_pair(60, 20, max_disparity=16)


# ---- images


def save(path, array, mode=None):
    Image.fromarray(array, mode).save(path)
    return path


def test_grey_from_every_kind_of_image(tmp_path):
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    rgb = np.repeat(grey[:, :, None], 3, axis=2)
    files = {
        "l.png": grey,
        "rgb.png": rgb,
        "rgba.png": np.concatenate([rgb, np.full((3, 4, 1), 255, np.uint8)], axis=2),
        "la.png": np.stack([grey, np.full_like(grey, 255)], axis=2),
    }
    for name, array in files.items():
        np.testing.assert_allclose(read_grey(save(tmp_path / name, array)), grey, atol=1e-9)
    Image.fromarray(rgb).quantize(256).save(tmp_path / "p.png")
    np.testing.assert_allclose(read_grey(tmp_path / "p.png"), grey, atol=4)
    deep = (grey.astype(np.uint16)) * 200
    np.testing.assert_array_equal(read_grey(save(tmp_path / "deep.png", deep)), deep)


@pytest.mark.parametrize("content", [b"", b"not an image", b"\x89PNG\r\n\x1a\n" + b"\0" * 40])
def test_a_file_that_is_not_an_image_is_rejected(tmp_path, content):
    path = tmp_path / "x.png"
    path.write_bytes(content)
    for read in (read_grey, read_disparity):
        with pytest.raises(FileError, match=r"x\.png: "):
            read(path)
    with pytest.raises(FileError, match="no such file"):
        read_grey(tmp_path / "y.png")


def test_a_truncated_image_is_rejected(tmp_path):
    path = save(tmp_path / "x.png", np.random.default_rng(0).integers(0, 255, (50, 50), dtype=np.uint8))
    path.write_bytes(path.read_bytes()[:-800])
    with pytest.raises(FileError, match="cut short"):
        read_grey(path)


@pytest.mark.parametrize(("name", "tolerance"), [("d.png", 1 / 512), ("d.pfm", 1e-5)])
def test_disparities_are_read_back(tmp_path, name, tolerance):
    truth = np.random.default_rng(0).uniform(0.1, 60, (7, 9))
    truth[2, 3] = np.nan
    write_disparity(tmp_path / name, truth)
    np.testing.assert_allclose(read_disparity(tmp_path / name), truth, atol=tolerance)


def test_a_too_large_disparity_is_rejected_and_zero_is_known(tmp_path):
    with pytest.raises(FileError, match="pfm"):
        write_disparity(tmp_path / "x.png", np.array([[300.0]]))
    write_disparity(tmp_path / "x.png", np.array([[0.0, np.nan]]))
    assert np.isnan(read_disparity(tmp_path / "x.png")).tolist() == [[False, True]]


def test_a_cmyk_image_is_converted(tmp_path):
    Image.new("CMYK", (4, 3), (0, 0, 0, 0)).save(tmp_path / "white.jpg")
    assert read_grey(tmp_path / "white.jpg").min() > 250


@pytest.mark.parametrize(
    "content",
    [
        b"PF\n2 2\n-1\n" + b"\0" * 48,
        b"Pf\n2 2\n-1\n" + b"\0" * 15,
        b"Pf\n0 2\n-1\n",
        b"Pf",
        *(b"Pf\n2 2\n" + scale + b"\n" + bytes(16) for scale in (b"0", b"-1e999")),
    ],
)
def test_an_invalid_pfm_is_rejected(tmp_path, content):
    (tmp_path / "x.pfm").write_bytes(content)
    with pytest.raises(FileError, match=r"x\.pfm"):
        read_disparity(tmp_path / "x.pfm")


def test_a_coloured_disparity_image_is_rejected(tmp_path):
    write_picture(tmp_path / "c.png", np.arange(12.0).reshape(3, 4), 12)
    with pytest.raises(FileError, match="coloured"):
        read_disparity(tmp_path / "c.png")


# ---- bad input


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        (np.zeros((5, 30)), np.zeros((5, 31)), r"left 30×5, right 31×5"),
        (np.zeros((5, 30, 3)), np.zeros((5, 30, 3)), r"shape \(5, 30, 3\)"),
        (np.full((5, 30), np.nan), np.zeros((5, 30)), "NaN or infinity"),
        (np.zeros((5, 30)), np.zeros((5, 30)), "smaller than the window"),
        (np.zeros((9, 9)), np.zeros((9, 9)), "not below the width"),
        (np.zeros((9, 30)), np.zeros((9, 30)), "may lack texture"),
    ],
)
@pytest.mark.parametrize("cost", ["zncc", "census", "absolute"])
def test_invalid_pairs_are_rejected(left, right, said, cost):
    with pytest.raises(asker.ProblemError, match=said):
        stereo_problem(left, right, Matching(10, cost))


@pytest.mark.parametrize(
    "settings", [{"cost": "ssd"}, {"window": 4}, {"window": 0}, {"n_minima": 0}, {"max_disparity": 1}]
)
def test_invalid_settings_are_rejected(settings):
    with pytest.raises(asker.ProblemError, match=next(iter(settings))):
        Matching(**({"max_disparity": 10} | settings))


def test_invalid_initial_disparities_are_rejected(pair):
    with pytest.raises(asker.ProblemError, match="start has shape"):
        stereo_problem(pair.left, pair.right, Matching(12), start=np.zeros((3, 3)))
    with pytest.raises(asker.ProblemError, match="start must be"):
        stereo_problem(pair.left, pair.right, Matching(12), start="somewhere")


# ---- the commands


@pytest.fixture
def folder(tmp_path, pair):
    """Return a folder in the Middlebury layout, with disparities times 8."""
    for name, image in (("im2.png", pair.left), ("im6.png", pair.right)):
        save(tmp_path / name, np.clip(np.rint(255 * image), 0, 255).astype(np.uint8))
    for name, truth in (("disp2.png", pair.left_truth), ("disp6.png", pair.right_truth)):
        save(tmp_path / name, np.rint(8 * truth).astype(np.uint8))
    return tmp_path


def test_stereo_writes_its_outputs(asks, folder, pair):
    out = {name: folder / f"out.{name}" for name in ("png", "pfm", "json")}
    picture = folder / "colours.png"
    code, text, err = asks(
        "stereo", folder / "im2.png", folder / "im6.png", "--max-disparity", 12, "--iterations", 40,
        "--truth", folder / "disp2.png", "--truth-right", folder / "disp6.png", "--scale", 8,
        "--output", out["png"], "--pfm", out["pfm"], "--picture", picture, "--json", out["json"],
    )  # fmt: skip
    assert (code, err) == (0, "")
    run = json.loads(out["json"].read_text())
    estimate = read_disparity(out["pfm"])
    np.testing.assert_allclose(read_disparity(out["png"]), estimate, atol=1 / 500)
    truth = read_disparity(folder / "disp2.png", 8)
    is_visible = visible(truth, read_disparity(folder / "disp6.png", 8))
    assert run["bad_1"] == pytest.approx(disparity_errors(estimate, truth).bad_1, abs=1e-3)
    assert run["bad_1_visible"] == pytest.approx(disparity_errors(estimate, truth, is_visible).bad_1, abs=1e-3)
    assert run["bad_1_visible"] < run["wta_bad_1_visible"]
    assert run["energy"] == run["cost"] < run["initial_cost"]
    assert {"bad_0_5", "bad_2", "mean_error", "bad_1_hidden", "window", "n_minima", "history", "status"} <= run.keys()
    assert Image.open(picture).size == pair.left.shape[::-1]
    assert f"{run['cost']:.7g}" in text


def test_stereo_compare_writes_figures_and_a_table(asks, folder):
    code, text, _ = asks(
        "stereo-compare", folder, "--output", folder / "out", "--max-disparity", 12, "--scale", 8,
        "--iterations", 8, "--methods", "irls,asker",
    )  # fmt: skip
    assert code == 0
    runs = json.loads((folder / "out" / "runs.json").read_text())["runs"]
    assert [r["method"] for r in runs] == ["irls", "asker"]
    assert all(r["mean_energy"] >= r["energy"] for r in runs)
    for name in ("energy.png", "energy-bars.png", "maps.png"):
        assert Image.open(folder / "out" / name).size[0] > 300
    assert "irls" in text
    assert "asker" in text


def test_a_synthetic_pair_is_solved_from_its_files(asks, tmp_path):
    made = tmp_path / "pair"
    assert asks("stereo-generate", made, "--width", 72, "--height", 48, "--max-disparity", 12)[0] == 0
    json_file = tmp_path / "run.json"
    truths = "--truth", made / "disp2.png", "--truth-right", made / "disp6.png"
    settings = "--max-disparity", 12, "--iterations", 40, "--json", json_file
    assert asks("stereo", made / "im2.png", made / "im6.png", *truths, *settings)[0] == 0
    run = json.loads(json_file.read_text())
    assert run["bad_1_visible"] < run["wta_bad_1_visible"]
    assert asks("stereo-generate", made, "--width", 20)[0] == 2


def test_errors_are_one_line_with_exit_code_2(asks, folder):
    good = folder / "im2.png", folder / "im6.png"
    small = save(folder / "small.png", np.zeros((5, 6), np.uint8))
    grey = save(folder / "grey.png", np.zeros((48, 72), np.uint8))
    text = folder / "note.txt"
    text.write_text("hello")
    for arguments, said in (
        ((good[0], small), "differ in size"),
        ((good[0], text), "not an image"),
        ((good[0], folder / "none.png"), "no such file"),
        ((grey, grey), "may lack texture"),
        ((*good, "--max-disparity", 72), "not below the width"),
        ((*good, "--truth", small), "6×5"),
        ((*good, "--truth-right", small), "needs --truth"),
        ((*good, "--start", "wat"), "did you mean wta"),
        ((*good, "--method", "askr"), "did you mean asker"),
        ((*good, "--cost", "ssd"), "--cost"),
        ((*good, "--window", 4), "window"),
        ((*good, "--output", folder / "x.jpg"), ".pfm"),
        ((*good, "--tau", 0), "--tau"),
        ((*good, "--picture", good[1]), "named twice"),
    ):
        code, out, err = asks("stereo", *arguments)
        assert (code, out) == (2, ""), arguments
        assert said in err
        assert err.count("\n") == 1
    code, _, err = asks("stereo-compare", folder / "nowhere")
    assert (code, "no such folder" in err) == (2, True)


def test_a_grey_and_a_coloured_image_are_matched(asks, folder):
    colour = np.asarray(Image.open(folder / "im6.png").convert("RGB"))
    save(folder / "colour.png", colour)
    assert asks("stereo", folder / "im2.png", folder / "colour.png", "--iterations", 20)[0] == 0

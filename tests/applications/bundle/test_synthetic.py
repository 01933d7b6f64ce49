"""Synthetic scenes have the requested properties."""

from functools import cache

import numpy as np
import pytest

from asker.applications.bundle.synthetic import GROUP_CAMERAS, GROUP_SIZE, MAX_TRACK_SPAN, make_scene
from asker.geometry.rotations import matrix_from_angle_axis

KINDS = ["ring", "path"]
scene_of = cache(make_scene)

# The default, few observations per camera, many cameras, and a truncated last track.
SIZES = [(30, 18_000), (20, 1_000), (400, 20_000), (300, 123_457)]
EVERY_SIZE = pytest.mark.parametrize("size", SIZES, ids=str)
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def camera_points(bundle):
    """Return the point of each observation in camera coordinates, (N, 3)."""
    R = matrix_from_angle_axis(bundle.cameras[:, :3])[bundle.camera_index]
    X = bundle.points[bundle.point_index]
    return np.einsum("nij,nj->ni", R, X) + bundle.cameras[bundle.camera_index, 3:6]


def pixels(bundle):
    P = camera_points(bundle)
    return -bundle.cameras[bundle.camera_index, 6:7] * P[:, :2] / P[:, 2:]


def errors(bundle):
    return np.linalg.norm(pixels(bundle) - bundle.uv, axis=1)


@EVERY_KIND
@EVERY_SIZE
def test_sizes_are_exact_and_arrays_fit(kind, size):
    n, N = size
    scene = scene_of(n, N, kind=kind)
    for b in (scene.start, scene.truth):
        assert b.cameras.shape == (n, 9)
        assert b.uv.shape == (N, 2)
        assert b.camera_index.shape == b.point_index.shape == scene.outliers.shape == (N,)
        assert b.camera_index.dtype == b.point_index.dtype == np.int32
        assert b.cameras.dtype == b.points.dtype == b.uv.dtype == np.float64


@EVERY_KIND
@EVERY_SIZE
def test_start_and_truth_share_the_observations(kind, size):
    scene = scene_of(*size, kind=kind)
    for name in ("camera_index", "point_index", "uv"):
        np.testing.assert_array_equal(getattr(scene.start, name), getattr(scene.truth, name))
    np.testing.assert_array_equal(scene.start.cameras[:, 6:], scene.truth.cameras[:, 6:])
    assert np.all(scene.truth.cameras[:, 7:] == 0)


@EVERY_KIND
@EVERY_SIZE
def test_pairs_are_sorted_and_unique(kind, size):
    b = scene_of(*size, kind=kind).truth
    assert np.all(np.diff(b.point_index.astype(int) * b.n_cameras + b.camera_index) > 0)


@EVERY_KIND
@EVERY_SIZE
def test_every_camera_and_every_point_has_enough_observations(kind, size):
    b = scene_of(*size, kind=kind).truth
    assert np.bincount(b.camera_index, minlength=b.n_cameras).min() >= 20
    assert np.bincount(b.point_index, minlength=b.n_points).min() >= 2


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("extra", range(0, 12, 2))
def test_a_ring_of_few_cameras(n, extra):
    b = make_scene(n, 50 * n + extra + (n > 2)).truth
    assert np.bincount(b.camera_index, minlength=n).min() >= 20
    assert np.bincount(b.point_index, minlength=b.n_points).min() >= 2


@EVERY_KIND
@EVERY_SIZE
def test_true_points_are_in_front_and_inside_the_image(kind, size):
    b = scene_of(*size, kind=kind).truth
    assert np.all(camera_points(b)[:, 2] < 0)
    assert np.all(np.abs(pixels(b)) < [800, 600])


@EVERY_KIND
@pytest.mark.parametrize("noise", [0.0, 0.4, 2.0])
def test_inliers_at_the_truth_have_the_noise(kind, noise):
    scene = make_scene(kind=kind, noise=noise)
    r = (pixels(scene.truth) - scene.truth.uv)[~scene.outliers]
    np.testing.assert_allclose(r.std(axis=0), noise, rtol=0.03, atol=1e-9)
    np.testing.assert_allclose(r.mean(axis=0), 0, atol=0.04 * noise + 1e-9)


@EVERY_KIND
@pytest.mark.parametrize("ratio", [0.0, 0.2, 0.5, 0.9])
def test_the_ratio_and_the_size_of_outliers_are_as_requested(kind, ratio):
    scene = make_scene(kind=kind, outlier_ratio=ratio, outlier_size=70.0, noise=0.0)
    assert scene.outliers.mean() == pytest.approx(ratio, abs=1e-3)
    r = (pixels(scene.truth) - scene.truth.uv)[scene.outliers]
    assert np.all(np.abs(r) <= 70 + 1e-9)
    if ratio:
        np.testing.assert_allclose(r.std(axis=0), 70 / np.sqrt(3), rtol=0.05)


@EVERY_KIND
def test_near_outliers_lie_3_to_10_deviations_from_the_true_pixel(kind):
    scene = make_scene(kind=kind, outlier_ratio=0.3, outlier_kind="near", noise=0.7)
    off = (pixels(scene.truth) - scene.truth.uv)[scene.outliers] / 0.7
    assert len(off) == 0.3 * 18_000
    length = np.linalg.norm(off, axis=1)
    assert length.min() >= 3 - 1e-9
    assert length.max() <= 10 + 1e-9
    np.testing.assert_allclose(np.quantile(length, [0.25, 0.5, 0.75]), [4.75, 6.5, 8.25], rtol=0.03)
    np.testing.assert_allclose(off.mean(axis=0), 0, atol=0.3)


@EVERY_KIND
@pytest.mark.parametrize("ratio", [0.0, 0.001, 0.3, 0.7])
def test_grouped_outliers_share_their_error_over_neighbouring_cameras(kind, ratio):
    scene = make_scene(kind=kind, outlier_ratio=ratio, outlier_kind="grouped", outlier_size=90.0, noise=0.0)
    assert scene.outliers.sum() == int(ratio * 18_000)
    b, off = scene.truth, scene.truth.uv - pixels(scene.truth)
    np.testing.assert_allclose(off[~scene.outliers], 0, atol=1e-9)
    assert np.abs(off).max() <= 90
    _, group = np.unique(off[scene.outliers].round(6), axis=0, return_inverse=True)
    if ratio < 0.1:
        return
    assert 20 <= np.median(np.bincount(group.ravel())) <= 40
    camera = b.camera_index[scene.outliers]
    for k in range(20):
        assert np.ptp(camera[group.ravel() == k]) < 3


def test_a_group_has_all_observations_of_a_point_in_its_cameras():
    scene = make_scene(outlier_ratio=0.3, outlier_kind="grouped", noise=0.0)
    b = scene.truth
    key = b.point_index.astype(int) * 1000 + b.camera_index // GROUP_CAMERAS
    some, all_ = (np.bincount(key, scene.outliers), np.bincount(key))
    assert np.count_nonzero((some > 0) & (some < all_)) <= GROUP_SIZE  # the last group may be incomplete


@pytest.mark.parametrize(("law", "beyond"), [("gaussian", 0.0027), ("laplace", 0.0144), ("student", 0.0138)])
def test_noise_has_the_tails_of_its_distribution(law, beyond):
    """The fraction of coordinates beyond three standard deviations agrees with the distribution."""
    exact, scene = (make_scene(noise_law=law, noise=noise, outlier_ratio=0.0) for noise in (0.0, 0.7))
    off = (scene.truth.uv - exact.truth.uv) / 0.7
    assert np.mean(np.abs(off) > 3) == pytest.approx(beyond, rel=0.2)
    assert np.std(off) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("kind", ["near", "grouped"])
def test_kinds_of_outliers_share_the_scene(kind):
    gross, other = (make_scene(outlier_kind=k, outlier_ratio=0.3) for k in ("gross", kind))
    np.testing.assert_array_equal(gross.truth.cameras, other.truth.cameras)
    np.testing.assert_array_equal(gross.truth.points, other.truth.points)
    both = ~gross.outliers & ~other.outliers
    np.testing.assert_array_equal(gross.truth.uv[both], other.truth.uv[both])


@EVERY_KIND
@pytest.mark.parametrize("target", [1.0, 5.0, 24.0, 40.0, 63.0])
@pytest.mark.parametrize("ratio", [0.2, 0.5])
def test_the_initial_median_error_is_as_requested(kind, target, ratio):
    scene = make_scene(kind=kind, start_error=target, outlier_ratio=ratio, seed=3)
    assert np.median(errors(scene.start)[~scene.outliers]) == pytest.approx(target, rel=0.05)
    assert np.mean(camera_points(scene.start)[:, 2] >= 0) < 0.01


@EVERY_KIND
def test_rotations_centres_and_points_are_perturbed(kind):
    scene = make_scene(kind=kind, start_error=24.0)
    R = [matrix_from_angle_axis(b.cameras[:, :3]) for b in (scene.start, scene.truth)]
    centres = [
        np.einsum("nji,nj->ni", Rb, b.cameras[:, 3:6]) for Rb, b in zip(R, (scene.start, scene.truth), strict=True)
    ]
    for a, b in (R, centres, (scene.start.points, scene.truth.points)):
        assert np.all(np.abs(a - b).reshape(len(a), -1).max(axis=1) > 1e-5)


@EVERY_KIND
def test_without_noise_the_start_can_be_the_truth(kind):
    scene = make_scene(kind=kind, noise=0.0, start_error=0.0)
    assert np.median(errors(scene.start)[~scene.outliers]) < 1e-5


@EVERY_KIND
def test_tracks_have_a_long_tail(kind):
    length = np.bincount(scene_of(300, 123_457, kind=kind).truth.point_index)
    assert 4 <= length.mean() <= 8
    assert np.median(length) < length.mean()
    assert np.percentile(length, 99) > 3 * length.mean()
    assert length.max() > 6 * length.mean()


def test_longer_tracks_on_request():
    means = [np.bincount(make_scene(100, mean_track=k).truth.point_index).mean() for k in (3.5, 6.0, 10.0)]
    np.testing.assert_allclose(means, [3.5, 6.0, 10.0], rtol=0.1)


def shared(bundle):
    """Return the numbers of points that pairs of cameras share, (n, n)."""
    seen = np.zeros((bundle.n_points, bundle.n_cameras))
    seen[bundle.point_index, bundle.camera_index] = 1
    return seen.T @ seen


@EVERY_KIND
def test_neighbours_share_points(kind):
    S = shared(scene_of(30, 18_000, kind=kind).truth)
    assert np.all(S[np.arange(30), np.arange(1, 31) % 30] >= 20)


def test_the_camera_graph_of_a_path_is_a_band():
    i = np.arange(400)
    apart = np.abs(i[:, None] - i)
    apart = np.minimum(apart, 400 - apart)
    path, ring = (shared(scene_of(400, 20_000, kind=kind).truth) for kind in ("path", "ring"))
    assert np.all(path[apart >= MAX_TRACK_SPAN] == 0)
    assert np.any(ring[apart >= MAX_TRACK_SPAN] > 0)


@EVERY_KIND
def test_equal_seeds_generate_equal_scenes(kind):
    a, b, c = (make_scene(kind=kind, seed=seed) for seed in (1, 1, 2))
    for name in ("cameras", "points", "camera_index", "point_index", "uv"):
        np.testing.assert_array_equal(getattr(a.start, name), getattr(b.start, name))
        np.testing.assert_array_equal(getattr(a.truth, name), getattr(b.truth, name))
    np.testing.assert_array_equal(a.outliers, b.outliers)
    assert not np.any(a.truth.uv[:100] == c.truth.uv[:100])


@pytest.mark.parametrize(
    "bad",
    [
        {"n_cameras": 1},
        {"n_cameras": -3},
        {"n_cameras": 19, "kind": "path"},
        {"n_observations": 1_499},
        {"n_observations": 0},
        {"kind": "spiral"},
        {"mean_track": 2.9},
        {"mean_track": float("inf")},
        {"noise": -0.1},
        {"noise": float("nan")},
        {"outlier_ratio": -0.1},
        {"outlier_ratio": 1.0},
        {"outlier_size": -1.0},
        {"outlier_kind": "far"},
        {"noise_law": "cauchy"},
        {"noise": 0.0, "outlier_kind": "near"},
        {"start_error": 0.4},
        {"start_error": -1.0},
        {"start_error": float("nan")},
        {"start_error": 1e6},
    ],
    ids=str,
)
def test_an_invalid_argument_is_named_in_the_error(bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))} must"):
        make_scene(**bad)


def test_two_cameras_need_an_even_number_of_observations():
    with pytest.raises(ValueError, match="n_observations must be even"):
        make_scene(2, 101)

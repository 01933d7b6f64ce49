"""Tests of tracks, rays, triangulation and epipolar distances."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from asker.applications.colmap import CAMERA_MODELS
from asker.applications.colmap.cameras import project
from asker.applications.posed import join, matches_from, select_pairs
from asker.applications.posed.correspondences.tracks import Tracks, support
from asker.applications.posed.determined import determined_sets
from asker.applications.posed.rays import directions
from asker.applications.posed.scene import epipolar_distances, norms_of, points_of
from asker.applications.posed.synthetic import disturbed, images_of, make_scene, ring_poses
from asker.applications.posed.triangulation import triangulate
from asker.applications.posed.validation import compare, hold_out

SIGMA = 0.3
PARAMETERS = {
    "f": 500.0, "fx": 500.0, "fy": 510.0, "cx": 320.0, "cy": 240.0, "w": 640.0, "h": 320.0, "omega": 0.6,
    "alpha": 0.5, "beta": 1.1,
}  # fmt: skip


@pytest.mark.parametrize("model", CAMERA_MODELS)
def test_rays_invert_every_camera_model(model):
    rng = np.random.default_rng(0)
    params = np.array([PARAMETERS.get(name, 0.01) for name in CAMERA_MODELS[model].split()])
    d = rng.normal(size=(200, 3)) * [0.3, 0.3, 0.0] + [0, 0, 1]
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    uv = np.stack(project(model, params, *d.T), axis=1)
    np.testing.assert_allclose(directions(model, params, uv), d, atol=1e-6)


def test_tracks_without_conflicts_are_the_connected_components():
    m = make_scene(n=7, wrong_features=0.0).matches
    tracks = join(m)
    n = len(m.xys)
    graph = coo_array((np.ones(len(m.features)), tuple(m.features.T)), shape=(n, n))
    label = connected_components(graph, directed=False)[1][tracks.feature]
    assert len(tracks.feature) == len(np.unique(m.features))
    assert len(set(zip(label.tolist(), tracks.point.tolist(), strict=True))) == tracks.n == len(set(label.tolist()))


def test_conflicting_matches_split_a_track_at_the_weakest():
    rng = np.random.default_rng(1)
    made = make_scene(n=7, seed=1)
    m = made.matches
    image = m.of_feature
    features = m.features.copy()
    swapped = rng.random(len(features)) < 0.1
    for k in np.flatnonzero(swapped):  # a wrong partner in the same image
        same = np.flatnonzero(image == image[features[k, 1]])
        features[k, 1] = rng.choice(same)
    bad = type(m)(m.starts, m.xys, m.pairs, m.pair_starts, features, m.relative_poses)
    tracks = join(bad)
    pairs = np.stack([tracks.point, image[tracks.feature]], axis=1)
    assert len(np.unique(pairs, axis=0)) == len(pairs)  # one feature in each image
    right = made.track[m.features[:, 0]] == made.track[features[:, 1]]
    assert support(bad)[right].mean() > 3 * support(bad)[~right].mean()
    of = np.full(len(m.xys), -1)
    of[tracks.feature] = tracks.point
    joined = of[features[:, 0]] == of[features[:, 1]]
    assert joined[right].mean() > 0.94


def test_triangulation_is_exact_and_tolerates_a_wrong_ray():
    rng = np.random.default_rng(0)
    n, k = 50, 6
    points = rng.uniform(-1, 1, size=(n, 3))
    centres = np.tile(3 * rng.normal(size=(k, 3)), (n, 1))
    point = np.repeat(np.arange(n), k)
    rays = points[point] - centres
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    tracks = Tracks(np.arange(n * k), point)
    np.testing.assert_allclose(triangulate(tracks, centres, rays), points, atol=1e-9)
    rays[::k] = rng.normal(size=(n, 3))
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    error = np.linalg.norm(triangulate(tracks, centres, rays) - points, axis=1)
    assert np.median(error) < 1e-3
    assert (error < 0.1).mean() > 0.9


def test_points_of_almost_parallel_rays_are_in_front_of_the_cameras():
    rng = np.random.default_rng(0)
    centres = np.concatenate([np.zeros((40, 3)), np.tile([1e-3, 0.0, 0.0], (40, 1))]).reshape(2, 40, 3)
    rays = np.tile([0.0, 0.0, 1.0], (2, 40, 1)) + 1e-3 * rng.normal(size=(2, 40, 3))
    wide = np.array([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), np.array([[0.3, 0.0, 1.0], [-0.3, 0.0, 1.0]])
    c = np.concatenate([centres.swapaxes(0, 1).reshape(-1, 3), wide[0]])
    d = np.concatenate([rays.swapaxes(0, 1).reshape(-1, 3), wide[1]])
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    xyz = triangulate(Tracks(np.arange(82), np.repeat(np.arange(41), 2)), c, d)
    assert (xyz[:, 2] > 0).all()


def test_depth_maps_place_points_that_rays_do_not_determine():
    made = make_scene(n=6, sigma=0.0)
    tracks = join(made.matches)
    assert points_of(made.truth, made.matches, tracks) == pytest.approx(
        points_of(replace(made.truth, depths={"000.png": np.full((24, 32), 4.0)}), made.matches, tracks)
    )  # exact rays need no guess
    first = np.flatnonzero(made.matches.of_feature == 0)[:20]
    alone = Tracks(np.repeat(first, 2), np.repeat(np.arange(len(first)), 2))  # one ray twice has no intersection
    xyz = points_of(replace(made.truth, depths={"000.png": np.full((24, 32), 3.0)}), made.matches, alone)
    depth = (xyz @ made.truth.poses[0, :, :3].T + made.truth.poses[0, :, 3])[:, 2]
    np.testing.assert_allclose(depth, 3.0)


def test_epipolar_distances_are_zero_for_exact_matches_and_have_the_noise_of_the_features():
    for sigma in (0.0, SIGMA):
        made = make_scene(n=6, sigma=sigma, n_points=400)
        d = epipolar_distances(made.truth, made.matches, *made.matches.features.T)
        if sigma:
            assert np.sqrt((d**2).mean()) == pytest.approx(sigma, rel=0.1)
        else:
            assert d.max() < 1e-6


def test_held_out_errors_of_the_truth_are_noise_and_judge_starts():
    made = make_scene(n=8, n_points=300)
    held = hold_out(join(made.matches))
    training = made.matches.taken(held.training(made.matches))
    assert not np.isin(training.features, held.feature).any()
    right, wrong = held.norms(made.truth, made.matches), held.norms(disturbed(made.truth), made.matches)
    assert np.median(right) < 5 * SIGMA < np.median(wrong)
    verdict = compare(wrong, right, 5 * SIGMA)
    assert verdict.is_better
    assert not compare(right, wrong, 5 * SIGMA).is_better
    assert not compare(right, right, 5 * SIGMA).is_better


def test_points_have_noise_sized_errors_at_the_true_poses():
    made = make_scene(n=6)
    tracks = join(made.matches)
    xyz = points_of(made.truth, made.matches, tracks)
    assert np.median(norms_of(made.truth, made.matches, tracks, xyz)) < 2 * SIGMA


def test_determined_sets_are_those_that_share_enough_points():
    rng = np.random.default_rng(0)
    image, point = [], []
    for first, n_points, begin in ((0, 60, 0), (3, 50, 60)):  # two sets of three images
        for p in range(n_points):
            image += [first, first + 1, first + 2]
            point += [begin + p] * 3
    for p in (0, 1, 2, 3):  # four points of the first set in an image of its own
        image.append(6)
        point.append(p)
    image, point = np.array(image), np.array(point)
    sets = determined_sets(image, point, np.ones(len(image), bool), 8, p=0.01)
    assert [s.tolist() for s in sets] == [[0, 1, 2], [3, 4, 5]]
    inliers = rng.random(len(image)) < 0.9
    assert determined_sets(image, point, inliers, 8, p=0.01)[0].tolist() == [0, 1, 2]


def test_pairs_are_all_of_few_images_and_neighbours_of_many():
    assert len(select_pairs(images_of(ring_poses(10)))) == 45
    n = 80
    pairs = select_pairs(images_of(ring_poses(n)), n_neighbours=6)
    gap = np.abs(pairs[:, 1] - pairs[:, 0])
    assert (np.minimum(gap, n - gap) <= 12).all()
    assert len(np.unique(pairs)) == n


def test_matches_of_some_images_are_the_same_matches():
    m = make_scene(n=6).matches
    some, features = m.of_images(np.array([1, 2, 4]))
    np.testing.assert_array_equal(m.xys[features], some.xys)
    names = np.array([1, 2, 4])
    of = {tuple(pair): n for pair, n in zip(m.pairs.tolist(), m.counts.tolist(), strict=True)}
    assert all(of[tuple(names[pair])] == n for pair, n in zip(some.pairs, some.counts, strict=True))
    empty = matches_from([np.zeros((0, 2))] * 2, [], [])
    assert join(empty).n == 0

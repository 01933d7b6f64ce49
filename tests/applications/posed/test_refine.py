"""Tests of the refinement of posed images against the truth and the solution from the truth."""

from dataclasses import replace

import numpy as np
import pytest

import asker
from asker.applications import colmap, posed
from asker.applications.colmap.model import camera_poses
from asker.applications.posed import from_model, join, matches_from, refine
from asker.applications.posed.scene import triangulated
from asker.applications.posed.second_start import averaged_rotations
from asker.applications.posed.synthetic import (
    FOCAL,
    centre_error,
    disturbed,
    drifting,
    images_of,
    make_scene,
    mean_radius,
)


def oracle_error(made):
    """The error of the adjustment from the true poses, with the right observations alone."""
    model, _ = triangulated(made.truth, made.right, join(made.right))
    return centre_error(from_model(colmap.refine(model).model), made.truth)


@pytest.mark.parametrize("start", ["random", "drift", "far"])
def test_a_start_is_refined_to_the_solution_from_the_truth(start):
    made = make_scene(n=8, n_points=200)
    begin = {"random": disturbed(made.truth), "drift": drifting(made.truth), "far": disturbed(made.truth, 15.0, 25.0)}
    outcome = refine(begin[start], made.matches, intrinsics="fixed")
    assert outcome.accepted
    assert not len(outcome.undetermined)
    assert centre_error(outcome.refined, made.truth) < max(1.2 * oracle_error(made), 0.02)
    assert outcome.record["sigma"][0] == pytest.approx(0.3, rel=0.25)
    errors = outcome.images.centre_error
    radius = np.linalg.norm(made.truth.centres, axis=1).mean()
    assert 0.2 < centre_error(outcome.refined, made.truth) / (100 * np.sqrt((errors**2).mean()) / radius) < 5


def test_wrong_observations_do_not_disturb_the_poses():
    made = make_scene(n=8, n_points=300, wrong_features=0.15, seed=3)
    outcome = refine(disturbed(made.truth, seed=3), made.matches, intrinsics="fixed")
    assert outcome.accepted
    assert centre_error(outcome.refined, made.truth) < 0.3
    assert centre_error(outcome.refined, made.truth) < 1.5 * oracle_error(made)


def test_a_wrong_focal_length_is_found_if_it_is_free():
    made = make_scene(n=8, n_points=250)
    begin = images_of(disturbed(made.truth, 1.0, 2.0).poses, 1.05 * FOCAL)
    for mode in ("shared", "auto"):
        outcome = refine(begin, made.matches, intrinsics=mode)
        assert outcome.accepted
        assert outcome.record["intrinsics"]["free"] == "focal"
        assert outcome.refined.cameras.params[0][0] == pytest.approx(FOCAL, rel=0.01)
        assert centre_error(outcome.refined, made.truth) < 0.3


def test_right_poses_are_kept_and_the_result_is_refused_if_it_is_no_better():
    made = make_scene(n=6, n_points=80)
    model, _ = triangulated(made.truth, made.matches, join(made.matches))
    best = from_model(colmap.refine(model).model)
    outcome = refine(best, made.matches, intrinsics="fixed")
    assert not outcome.accepted
    assert "no better than by chance" in outcome.reason
    np.testing.assert_array_equal(outcome.refined.poses, best.poses)


def test_matches_without_geometry_are_refused_or_rejected():
    rng = np.random.default_rng(0)
    made = make_scene(n=5, n_points=60)
    keypoints = [rng.uniform([0, 0], [640, 480], size=(60, 2)) for _ in range(5)]
    pairs = [(i, j) for i in range(5) for j in range(i)]
    wrong = matches_from(keypoints, pairs, [np.stack([rng.permutation(60), np.arange(60)], axis=1) for _ in pairs])
    outcome = refine(made.truth, wrong, intrinsics="fixed")
    assert not outcome.accepted
    np.testing.assert_array_equal(outcome.refined.poses, made.truth.poses)


def without_image(m, image):
    """The matches without those of an image."""
    return m.taken(~(m.pairs[m.of_match] == image).any(axis=1))


def test_an_image_without_matches_keeps_its_pose_and_is_named():
    made = make_scene(n=8, n_points=200)
    begin = disturbed(made.truth)
    outcome = refine(begin, without_image(made.matches, 3), intrinsics="fixed")
    assert outcome.accepted
    assert outcome.undetermined.tolist() == [3]
    assert outcome.record["undetermined"] == ["003.png"]
    np.testing.assert_array_equal(outcome.refined.poses[3], begin.poses[3])
    others = np.delete(np.arange(8), 3)
    assert centre_error(outcome.refined.taken(others), made.truth.taken(others)) < 0.2
    assert len(outcome.model.images) == 8


def test_sets_of_images_without_common_points_are_aligned_by_the_given_poses():
    made = make_scene(n=12, n_points=400)
    m = made.matches
    half = m.pairs[m.of_match] < 6
    outcome = refine(disturbed(made.truth, 1.0, 1.0), m.taken(half[:, 0] == half[:, 1]), intrinsics="fixed")
    assert outcome.record["has_prior"]
    for images in (np.arange(6), np.arange(6, 12)):
        assert centre_error(outcome.refined.taken(images), made.truth.taken(images)) < 1.0
    assert not len(outcome.undetermined)
    assert centre_error(outcome.refined, made.truth) < 1.0


def test_two_images_are_refined_up_to_scale():
    poses = make_scene(n=12).truth.poses[:2]
    made = make_scene(n=2, n_points=200, poses=poses)
    outcome = refine(disturbed(made.truth, 2.0, 2.0), made.matches, intrinsics="fixed")
    assert outcome.accepted
    R = outcome.refined.poses[:, :, :3]
    relative = R[1] @ R[0].T
    true = poses[1, :, :3] @ poses[0, :, :3].T
    assert np.degrees(np.linalg.norm(relative - true) / np.sqrt(2)) < 0.2


def test_bad_data_are_rejected_with_the_reason():
    made = make_scene(n=4, n_points=60)
    with pytest.raises(asker.ProblemError, match="no matches"):
        refine(made.truth, made.matches.taken(np.zeros(len(made.matches.features), bool)))
    with pytest.raises(asker.ProblemError, match="at least two images"):
        refine(made.truth.taken([0]), made.matches.of_images(np.array([0]))[0])
    with pytest.raises(asker.ProblemError, match="matches of 4 images were given for 3"):
        refine(made.truth.taken([0, 1, 2]), made.matches)


def test_averaged_rotations_do_not_depend_on_the_start():
    made = make_scene(n=8, n_points=200)
    for degrees in (0.0, 40.0):
        averaged = averaged_rotations(disturbed(made.truth, degrees), made.matches)
        relative = averaged.rotations @ averaged.rotations[0].T
        true = made.truth.poses[:, :, :3] @ made.truth.poses[0, :, :3].T
        assert np.degrees(np.linalg.norm(relative - true, axis=(1, 2)).max() / np.sqrt(2)) < 2.0
    nothing = replace(made.matches, relative_poses=np.full_like(made.matches.relative_poses, np.nan))
    assert averaged_rotations(made.truth, nothing) is None


def test_the_model_has_the_refined_poses_and_inliers_alone():
    made = make_scene(n=6, n_points=120, wrong_features=0.1)
    outcome = refine(disturbed(made.truth), made.matches, intrinsics="fixed")
    np.testing.assert_allclose(camera_poses(outcome.model), outcome.refined.poses, atol=1e-9)
    norms = colmap.reprojection_norms(outcome.model)
    assert norms.max() <= outcome.record["inlier_limit"] * (1 + 1e-6)
    assert 0.9 * outcome.images.after.sum() <= outcome.model.n_observations <= outcome.images.after.sum()
    assert posed.__all__


def test_the_error_of_the_start_is_estimated_and_a_more_accurate_start_is_kept():
    made = make_scene(n=16, n_points=300, sigma=1.0)
    radius = mean_radius(made.truth)
    for percent, accepted in ((3.0, True), (0.05, False)):
        start = disturbed(made.truth, percent / 2, percent)
        outcome = refine(start, made.matches, intrinsics="fixed")
        assert outcome.accepted == accepted, outcome.reason
        if accepted:
            assert outcome.images.start_errors[0] == pytest.approx(0.01 * percent * radius, rel=0.4)
            assert not outcome.images.is_weak.any()
        else:
            np.testing.assert_array_equal(outcome.refined.poses, start.poses)


def test_few_matches_do_not_spoil_accurate_poses():
    made = make_scene(n=10, n_points=60, seed=5)  # too few to determine the poses as well as they are given
    start = disturbed(made.truth, 0.1, 0.2, seed=5)
    outcome = refine(start, made.matches, intrinsics="fixed")
    assert outcome.record["has_prior"] or not outcome.accepted
    assert centre_error(outcome.refined, made.truth) < 1.2 * centre_error(start, made.truth)
    if outcome.accepted:
        errors = outcome.images.start_errors[0] / mean_radius(made.truth)
        assert 0.3 < 100 * errors / centre_error(start, made.truth) < 3

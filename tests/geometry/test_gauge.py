"""Alignment of a reconstruction with its initial cameras, which leaves all reprojections unchanged."""

from dataclasses import replace

import numpy as np
import pytest

import asker
from asker.applications.bundle.bal import Bundle
from asker.applications.bundle.problem import bundle_problem, camera_poses, reprojection_norms
from asker.applications.bundle.synthetic import make_scene
from asker.geometry.gauge import Observed, centres, restore_gauge
from asker.geometry.rotations import matrix_from_angle_axis


def transformed(poses, points, s, Q=None, shift=(0.0, 0.0, 0.0)):
    """Return the same reconstruction in another coordinate frame."""
    Q, shift = np.eye(3) if Q is None else Q, np.asarray(shift)
    R = poses[:, :, :3] @ Q.T
    t = s * poses[:, :, 3] - R @ shift
    return np.concatenate([R, t[:, :, None]], axis=2), s * points @ Q.T + shift


def drifted(bundle, s=0.04):
    Q = matrix_from_angle_axis(np.array([[0.3, -0.8, 1.1]]))[0]
    return transformed(camera_poses(bundle), bundle.points, s, Q, (3.0, -1.0, 2.0))


def all_observations(poses, points):
    """Return the observations of all points in all cameras."""
    camera, point = (x.ravel() for x in np.indices((len(poses), len(points))))
    depth = -(np.einsum("ni,ni->n", poses[camera, 2, :3], points[point]) + poses[camera, 2, 3])
    return Observed(camera, point, depth)


@pytest.mark.parametrize(("n_cameras", "scale"), [(1, 0.04), (2, 0.04), (8, 0.04), (8, -3.0)])
def test_a_drift_is_undone(n_cameras, scale):
    bundle = make_scene(8, 600).truth
    poses, points = drifted(bundle, scale)
    before, poses = camera_poses(bundle)[:n_cameras], poses[:n_cameras]
    aligned, positions = restore_gauge(
        before, poses, points, np.zeros(n_cameras, bool), all_observations(poses, points)
    )
    np.testing.assert_allclose(aligned[:, :, :3], before[:, :, :3], atol=1e-12)
    if n_cameras > 1:  # one camera does not determine the scale
        np.testing.assert_allclose(aligned, before, atol=1e-9)
        np.testing.assert_allclose(positions, bundle.points, atol=1e-9)


@pytest.mark.parametrize("lost", ["one far away", "one without observations"])
def test_an_outlier_camera_does_not_change_the_alignment(lost):
    bundle = make_scene(8, 600).truth
    before = camera_poses(bundle)
    poses, points = drifted(bundle)
    observed = all_observations(poses, points)
    poses[3] = before[3]
    if lost == "one far away":
        poses[3, :, 3] += 1e6
    else:
        observed = Observed(*(x[observed.camera != 3] for x in observed))
    aligned, positions = restore_gauge(before, poses, points, np.zeros(8, bool), observed)
    others = np.arange(8) != 3
    np.testing.assert_allclose(aligned[others], before[others], atol=0.05)
    np.testing.assert_allclose(positions, bundle.points, atol=0.05)
    if lost == "one without observations":
        np.testing.assert_array_equal(aligned[3], before[3])


def test_cameras_with_one_centre_do_not_change_the_scale():
    """The distances of their centres are rounding errors, from which no scale must be estimated."""
    rng = np.random.default_rng(0)
    R = matrix_from_angle_axis(rng.normal(size=(8, 3)))
    centre = np.array([1.3, -2.7, 0.9])
    before = np.concatenate([R, -(R @ centre)[:, :, None]], axis=2)
    after, points = before.copy(), rng.normal(size=(20, 3)) * 5
    after[:, :, 3] += 1e-3 * rng.normal(size=(8, 3))
    _, positions = restore_gauge(before, after, points, np.zeros(8, bool), all_observations(after, points))
    assert np.ptp(positions) == pytest.approx(np.ptp(points), rel=0.01)


def test_a_corrected_mirrored_scene_stays_in_front_of_the_cameras():
    """The initial baseline has the wrong sign; the solve moves the cameras, not the points."""
    rng = np.random.default_rng(0)
    x = np.column_stack([np.arange(3.0), np.zeros(3), np.zeros(3)])
    points = np.column_stack([rng.uniform(-1, 3, 60), rng.uniform(-1, 1, 60), rng.uniform(-8, -5, 60)])
    cameras = np.zeros((3, 9))
    cameras[:, 3:6], cameras[:, 6] = -x, 500.0
    i, j = (a.ravel().astype(np.int32) for a in np.indices((3, 60)))
    truth = Bundle(cameras, points, i, j, np.zeros((180, 2)))
    P = points[j] - x[i]
    truth = replace(truth, uv=-500 * P[:, :2] / P[:, 2:])
    start = replace(truth, cameras=cameras * np.where(np.arange(9) < 6, -0.02, 1.0))
    made = bundle_problem(start, asker.Quadratic())
    result = asker.solve(made.problem, asker.IRLS(), max_iterations=60)
    refined = made.refined(result.values)
    norms, depth = reprojection_norms(refined, "pixel")
    assert result.cost < 1e-9
    assert (depth > 0).all()
    np.testing.assert_allclose(norms, 0, atol=1e-6)


@pytest.mark.parametrize("n_constant", [0, 1, 2])
def test_a_refined_bundle_keeps_its_coordinate_frame(n_constant):
    start = make_scene(8, 600).truth
    made = bundle_problem(start)
    made.cameras.fixed[:n_constant] = True
    before = camera_poses(start)
    c0 = centres(before)[0]
    poses, points = drifted(start) if n_constant == 0 else transformed(before, start.points, 0.1, shift=0.9 * c0)
    if n_constant:
        np.testing.assert_allclose(poses[0], before[0], atol=1e-9)  # one pose is constant, and the scale has drifted
    refined = made.refined({made.cameras: poses, made.points: points})
    if n_constant < 2:
        np.testing.assert_allclose(camera_poses(refined), before, atol=1e-9)
        np.testing.assert_allclose(refined.points, start.points, atol=1e-9)
    else:
        np.testing.assert_allclose(refined.points, points, atol=1e-12)  # the gauge is fixed
    np.testing.assert_allclose(
        reprojection_norms(refined, "pixel")[0], reprojection_norms(start, "pixel")[0], rtol=1e-6, atol=1e-8
    )

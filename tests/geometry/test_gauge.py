"""A reconstruction is returned where its cameras were, and no reprojection changes by that."""

from dataclasses import replace

import numpy as np
import pytest

import asker
from asker.applications.bundle.bal import Bundle
from asker.applications.bundle.problem import bundle_problem, camera_poses, reprojection_norms
from asker.applications.bundle.synthetic import make_scene
from asker.geometry.gauge import Seen, centres, put_back
from asker.geometry.rotations import matrix_from_angle_axis


def moved(poses, points, s, Q=None, shift=(0.0, 0.0, 0.0)):
    """The same reconstruction in another frame."""
    Q, shift = np.eye(3) if Q is None else Q, np.asarray(shift)
    R = poses[:, :, :3] @ Q.T
    t = s * poses[:, :, 3] - R @ shift
    return np.concatenate([R, t[:, :, None]], axis=2), s * points @ Q.T + shift


def drifted(bundle, s=0.04):
    Q = matrix_from_angle_axis(np.array([[0.3, -0.8, 1.1]]))[0]
    return moved(camera_poses(bundle), bundle.points, s, Q, (3.0, -1.0, 2.0))


def everyone(poses, points):
    """Every camera sees every point."""
    camera, point = (x.ravel() for x in np.indices((len(poses), len(points))))
    depth = -(np.einsum("ni,ni->n", poses[camera, 2, :3], points[point]) + poses[camera, 2, 3])
    return Seen(camera, point, depth)


@pytest.mark.parametrize(("n_cameras", "scale"), [(1, 0.04), (2, 0.04), (8, 0.04), (8, -3.0)])
def test_a_drift_is_undone(n_cameras, scale):
    bundle = make_scene(8, 600).truth
    poses, points = drifted(bundle, scale)
    before, poses = camera_poses(bundle)[:n_cameras], poses[:n_cameras]
    found, where = put_back(before, poses, points, np.zeros(n_cameras, bool), everyone(poses, points))
    np.testing.assert_allclose(found[:, :, :3], before[:, :, :3], atol=1e-12)
    if n_cameras > 1:  # one camera says nothing of the scale
        np.testing.assert_allclose(found, before, atol=1e-9)
        np.testing.assert_allclose(where, bundle.points, atol=1e-9)


@pytest.mark.parametrize("lost", ["one far away", "one without observations"])
def test_a_lost_camera_bends_nothing(lost):
    bundle = make_scene(8, 600).truth
    before = camera_poses(bundle)
    poses, points = drifted(bundle)
    seen = everyone(poses, points)
    poses[3] = before[3]
    if lost == "one far away":
        poses[3, :, 3] += 1e6
    else:
        seen = Seen(*(x[seen.camera != 3] for x in seen))
    found, where = put_back(before, poses, points, np.zeros(8, bool), seen)
    others = np.arange(8) != 3
    np.testing.assert_allclose(found[others], before[others], atol=0.05)
    np.testing.assert_allclose(where, bundle.points, atol=0.05)
    if lost == "one without observations":
        np.testing.assert_array_equal(found[3], before[3])


def test_cameras_at_one_place_leave_the_scale():
    """Their centres are rounding; the points must not shrink to it."""
    rng = np.random.default_rng(0)
    R = matrix_from_angle_axis(rng.normal(size=(8, 3)))
    centre = np.array([1.3, -2.7, 0.9])
    before = np.concatenate([R, -(R @ centre)[:, :, None]], axis=2)
    after, points = before.copy(), rng.normal(size=(20, 3)) * 5
    after[:, :, 3] += 1e-3 * rng.normal(size=(8, 3))
    _, where = put_back(before, after, points, np.zeros(8, bool), everyone(after, points))
    assert np.ptp(where) == pytest.approx(np.ptp(points), rel=0.01)


def test_what_a_solve_repaired_stays_in_front():
    """A start whose baseline had the wrong sign: the cameras changed sides, not the scene."""
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


@pytest.mark.parametrize("n_held", [0, 1, 2])
def test_what_is_refined_keeps_its_frame(n_held):
    start = make_scene(8, 600).truth
    made = bundle_problem(start)
    made.cameras.fixed[:n_held] = True
    before = camera_poses(start)
    c0 = centres(before)[0]
    poses, points = drifted(start) if n_held == 0 else moved(before, start.points, 0.1, shift=0.9 * c0)
    if n_held:
        np.testing.assert_allclose(poses[0], before[0], atol=1e-9)  # one pose was held, and the scale drifted
    refined = made.refined({made.cameras: poses, made.points: points})
    if n_held < 2:
        np.testing.assert_allclose(camera_poses(refined), before, atol=1e-9)
        np.testing.assert_allclose(refined.points, start.points, atol=1e-9)
    else:
        np.testing.assert_allclose(refined.points, points, atol=1e-12)  # nothing is free
    np.testing.assert_allclose(
        reprojection_norms(refined, "pixel")[0], reprojection_norms(start, "pixel")[0], rtol=1e-6, atol=1e-8
    )

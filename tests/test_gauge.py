"""A reconstruction is returned where its cameras were, and no reprojection changes by that."""

import numpy as np
import pytest

from asker.datasets import make_scene
from asker.gauge import put_back
from asker.problems.bundle import bundle_problem, camera_centres, camera_poses, reprojection_norms
from asker.rotations import matrix_from_angle_axis


def drifted(bundle, s=0.04):
    """Poses and points of the same reconstruction in another frame."""
    Q, shift = matrix_from_angle_axis(np.array([[0.3, -0.8, 1.1]]))[0], np.array([3.0, -1.0, 2.0])
    poses = camera_poses(bundle)
    R = poses[:, :, :3] @ Q.T
    t = s * poses[:, :, 3] - R @ shift
    return np.concatenate([R, t[:, :, None]], axis=2), s * bundle.points @ Q.T + shift


@pytest.mark.parametrize(("n_cameras", "scale"), [(1, 0.04), (2, 0.04), (8, 0.04), (8, -3.0)])
def test_a_drift_is_undone(n_cameras, scale):
    bundle = make_scene(8, 600).start
    poses, points = (x[:n] for x, n in zip(drifted(bundle, scale), (n_cameras, None), strict=True))
    before = camera_poses(bundle)[:n_cameras]
    found, where = put_back(before, poses, points, np.zeros(n_cameras, bool))
    np.testing.assert_allclose(found[:, :, :3], before[:, :, :3], atol=1e-12)
    if n_cameras > 1:  # one camera says nothing of the scale
        np.testing.assert_allclose(found, before, atol=1e-9)
        np.testing.assert_allclose(where, bundle.points, atol=1e-9)


@pytest.mark.parametrize("n_held", [0, 1, 2])
def test_what_is_refined_keeps_its_frame(n_held):
    start = make_scene(8, 600).start
    made = bundle_problem(start)
    made.cameras.fixed[:n_held] = True
    poses, points = drifted(start)
    if n_held:
        poses, points = camera_poses(start), start.points
        poses[n_held:, :, 3] *= 0.5
    values = {made.cameras: poses, made.points: points}
    refined = made.refined(values)
    given = make_scene(8, 600).start
    raw = put_back(poses, poses, points, np.zeros(8, bool))
    np.testing.assert_array_equal(raw[0], poses)  # nothing has moved
    spread = [np.linalg.norm(c - c.mean(axis=0)) for c in map(camera_centres, (refined, given))]
    if n_held == 0:
        assert spread[0] == pytest.approx(spread[1], rel=1e-9)
        np.testing.assert_allclose(
            reprojection_norms(refined, "pixel")[0], reprojection_norms(given, "pixel")[0], rtol=1e-8
        )
    else:
        np.testing.assert_allclose(camera_poses(refined)[:n_held], camera_poses(given)[:n_held], atol=1e-12)

"""Covariances of a refined COLMAP model: image centres in frames, also with constant rotations or positions."""

import numpy as np
import pytest

import asker
from asker.applications.colmap import colmap_problem
from asker.applications.colmap.rigs import composed, rigs_of, sensor_poses
from asker.applications.colmap.uncertainty import data_covariances
from asker.kernels.kernels import SmoothTruncated
from colmap_models import rig_model

pytestmark = pytest.mark.slow


def centres(poses):
    return -np.einsum("nji,nj->ni", poses[:, :, :3], poses[:, :, 3])


@pytest.mark.parametrize("hold", [(), ("rotations",), ("positions",)])
def test_the_covariance_of_a_centre_follows_from_that_of_its_frame(hold):
    """The Jacobians are central differences of image centres."""
    model = rig_model(noise=0.3)
    made = colmap_problem(model, SmoothTruncated(3.0), hold=hold)
    result = asker.solve(made.problem, asker.IRLS(), max_iterations=20)
    refined = made.refined(result.values)
    covariances = data_covariances(made, result, refined)
    poses, frame_covariances = covariances.result[made.poses], covariances.arrays["pose_covariances"]
    (frame, sensor), manifold, h = made.members, made.poses.manifold, 1e-6
    sensors = sensor_poses(rigs_of(refined))[sensor]
    rows = manifold.pack(poses)
    G = np.empty((len(refined.images), 3, manifold.tangent))
    for k in range(manifold.tangent):
        step = h * np.eye(manifold.tangent)[k]
        ends = []
        for sign in (1, -1):
            moved = manifold.unpack(np.array([manifold.retract(row, sign * step) for row in rows]))
            ends.append(centres(composed(sensors, moved[frame])))
        G[:, :, k] = (ends[0] - ends[1]) / (2 * h)
    expected = G @ frame_covariances[frame] @ G.swapaxes(1, 2)
    np.testing.assert_allclose(covariances.arrays["centre_covariances"], expected, rtol=1e-4, atol=1e-12)
    assert len(covariances.errors("centre")) == len(refined.images) > len(poses)

"""Errors of a reconstruction with respect to ground truth."""

from dataclasses import replace

import numpy as np
import pytest

from asker.applications.bundle.synthetic import make_scene
from asker.applications.bundle.truth_errors import errors
from asker.geometry.rotations import angle_axis_from_matrix, matrix_from_angle_axis


@pytest.fixture(scope="module")
def scene():
    return make_scene(8, 400)


def moved(bundle, s, R, t):
    """Return the reconstruction transformed by X' = s R X + t."""
    Rs = matrix_from_angle_axis(bundle.cameras[:, :3]) @ R.T
    cameras = bundle.cameras.copy()
    cameras[:, :3] = angle_axis_from_matrix(Rs)
    cameras[:, 3:6] = s * bundle.cameras[:, 3:6] - np.einsum("nij,j->ni", Rs, t)
    return replace(bundle, cameras=cameras, points=s * bundle.points @ R.T + t)


def test_errors_do_not_depend_on_the_frame(scene):
    R = matrix_from_angle_axis(np.array([[0.4, -2.0, 1.1]]))[0]
    frame = (3.7, R, np.array([10.0, -4.0, 2.0]))
    assert errors(moved(scene.truth, *frame), scene.truth) == pytest.approx((0, 0), abs=1e-9)
    there = errors(scene.start, scene.truth)
    assert errors(moved(scene.start, *frame), scene.truth) == pytest.approx(there)
    assert min(there) > 1e-4


def test_lost_cameras_do_not_affect_the_errors(scene):
    cameras = scene.truth.cameras.copy()
    cameras[:3, 3:6] += 100.0
    assert errors(replace(scene.truth, cameras=cameras), scene.truth) == pytest.approx((0, 0), abs=1e-9)

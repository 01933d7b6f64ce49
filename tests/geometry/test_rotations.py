"""Laws of the conversions between angle-axis vectors and rotation matrices."""

import numpy as np
import pytest

from asker.geometry.rotations import angle_axis_from_matrix, matrix_from_angle_axis


def axes(n=500, seed=0):
    d = np.random.default_rng(seed).normal(size=(n, 3))
    d[:6] = np.vstack([np.eye(3), -np.eye(3)])
    return d / np.linalg.norm(d, axis=1, keepdims=True)


ANGLES = [0.0, 1e-300, 1e-12, 1e-8, 1e-4, 0.1, 1.0, np.pi / 2, 2.0, 3.0, np.pi - 1e-6, np.pi - 1e-12]


@pytest.mark.parametrize("angle", ANGLES)
def test_round_trips_return_the_vector(angle):
    v = angle * axes()
    back = angle_axis_from_matrix(matrix_from_angle_axis(v))
    assert np.abs(back - v).max() <= 1e-14 * angle


def test_round_trips_for_random_angles():
    v = axes(20_000) * np.random.default_rng(1).uniform(0, 3.14, (20_000, 1))
    np.testing.assert_allclose(angle_axis_from_matrix(matrix_from_angle_axis(v)), v, rtol=0, atol=1e-14)


@pytest.mark.parametrize("angle", [np.pi, np.pi + 1e-9, 4.0, 2 * np.pi, 30.0])
def test_angles_past_pi_give_the_same_rotation_with_a_short_vector(angle):
    R = matrix_from_angle_axis(angle * axes())
    v = angle_axis_from_matrix(R)
    assert np.all(np.linalg.norm(v, axis=1) <= np.pi + 1e-15)
    np.testing.assert_allclose(matrix_from_angle_axis(v), R, rtol=0, atol=1e-14)


@pytest.mark.parametrize("axis", np.vstack([np.eye(3), [[0.6, 0.8, 0.0], [-0.6, 0.0, 0.8]]]))
def test_a_half_turn_is_twice_the_projection_on_its_axis_less_one(axis):
    R = 2 * np.outer(axis, axis) - np.eye(3)
    v = angle_axis_from_matrix(R[None])[0]
    np.testing.assert_allclose(np.abs(v @ axis), np.pi, rtol=1e-15)
    np.testing.assert_allclose(np.cross(v, axis), 0, atol=1e-15)


@pytest.mark.parametrize("angle", ANGLES)
def test_the_matrix_is_a_rotation_that_keeps_the_axis(angle):
    d = axes()
    R = matrix_from_angle_axis(angle * d)
    np.testing.assert_allclose(R @ R.transpose(0, 2, 1), np.broadcast_to(np.eye(3), R.shape), atol=1e-14)
    np.testing.assert_allclose(np.linalg.det(R), 1, rtol=1e-14)
    np.testing.assert_allclose(np.einsum("nij,nj->ni", R, d), d, atol=1e-14)
    np.testing.assert_allclose(np.trace(R, axis1=1, axis2=2), 1 + 2 * np.cos(angle), atol=1e-14)


def test_a_quarter_turn_about_z_takes_x_to_y():
    R = matrix_from_angle_axis([[0.0, 0.0, np.pi / 2]])[0]
    np.testing.assert_allclose(R @ [1, 0, 0], [0, 1, 0], atol=1e-15)


def test_the_derivative_at_zero_is_the_cross_product():
    v, x, h = axes(50), axes(50, seed=2), 1e-7
    turned = np.einsum("nij,nj->ni", matrix_from_angle_axis(h * v), x)
    np.testing.assert_allclose((turned - x) / h, np.cross(v, x), atol=1e-6)


def test_empty_arrays_are_accepted():
    assert matrix_from_angle_axis(np.zeros((0, 3))).shape == (0, 3, 3)
    assert angle_axis_from_matrix(np.zeros((0, 3, 3))).shape == (0, 3)


@pytest.mark.parametrize("shape", [(3,), (2, 4), (1, 2, 3)])
def test_a_wrong_shape_is_rejected_with_the_name_of_the_argument(shape):
    with pytest.raises(ValueError, match="v must"):
        matrix_from_angle_axis(np.zeros(shape))
    with pytest.raises(ValueError, match="R must"):
        angle_axis_from_matrix(np.zeros(shape))

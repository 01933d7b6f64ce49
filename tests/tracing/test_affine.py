"""Detection of affine residual functions."""

import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.problem.vector_problem import Functions, dense_problem


def factors(residual, *, dim=3, data=True, **options):
    x = asker.Variables(np.ones((4, dim)), name="x", **options)
    values = np.ones((4, dim)) if data else ()
    return asker.Factors(residual, x[np.arange(4)], data=values, kernel=asker.SmoothTruncated(1.0))


@pytest.mark.parametrize(
    "residual",
    [
        lambda x, a: x - a,
        lambda x, a: a @ x - 1.0,
        lambda x, a: x[0] * a[0] + x[1] - a[1] ** 2,
        lambda x, a: jnp.stack([x[2], -x[0]]) / jnp.exp(a[0]),
        lambda x, a: jnp.where(a > 0, x, 2 * x),
        lambda x, a: jnp.outer(a, x).sum(axis=0) * 3,
        lambda x, a: a,
        lambda x, a: jnp.concatenate([x, a])[1:4],
        lambda x, a: jnp.cross(x, a),
    ],
)
def test_affine(residual):
    assert factors(residual).is_linear


@pytest.mark.parametrize(
    "residual",
    [
        lambda x, a: x * x - a,
        lambda x, a: x @ x - 1.0,
        lambda x, a: jnp.sin(x) - a,
        lambda x, a: a / x,
        lambda x, a: jnp.where(x > 0, x, 2 * x),
        lambda x, a: jnp.abs(x - a),
        lambda x, a: jnp.maximum(x, a),
        lambda x, a: jnp.linalg.norm(x - a),
        lambda x, a: a[jnp.argmax(x)],
        lambda x, a: x.astype(int).astype(float) - a,
    ],
)
def test_not_affine(residual):
    assert not factors(residual).is_linear


def test_linearity_depends_on_manifolds_fixed_variables_and_tracing():
    x = asker.Variables(np.tile(np.eye(3), (2, 1, 1)), asker.SO3, name="x")
    turned = asker.Factors(lambda R, a: R @ a, x[np.arange(2)], data=np.ones((2, 3)))
    assert not turned.is_linear
    constant = asker.Variables(np.tile(np.eye(3), (2, 1, 1)), asker.SO3, fixed=True)
    y = asker.Variables(np.zeros((2, 3)))
    assert asker.Factors(lambda R, y: R @ y, constant[np.arange(2)], y[np.arange(2)]).is_linear
    y = asker.Variables(np.zeros((2, 3)))
    batched = asker.Factors(lambda y: y, y[np.arange(2)], jacobian=lambda y: np.tile(np.eye(3), (2, 1, 1)))
    assert not batched.is_linear
    parts = asker.Variables((np.zeros((2, 3)), np.zeros(2)), asker.Product(asker.Euclidean(3), asker.Euclidean(())))
    assert asker.Factors(lambda xs: xs[0] * 2 + xs[1], parts[np.arange(2)]).is_linear
    assert not asker.Factors(lambda xs: xs[0] * xs[1], parts[np.arange(2)]).is_linear
    affine = factors(lambda x, a: x - a, data=True)
    assert affine.is_linear
    assert asker.Problem(affine).is_linear
    assert not asker.Problem(affine, turned).is_linear


def test_robust_linear_regression_is_independent_of_the_start():
    rng = np.random.default_rng(0)
    A, truth = rng.normal(size=(300, 4)), np.array([1.0, -2.0, 0.5, 3.0])
    b = A @ truth + rng.normal(0, 0.02, 300)
    b[:180] = rng.uniform(-8, 8, 180)
    assert dense_problem(Functions(lambda x: A @ x - b, np.zeros(4), "jax")).is_linear
    assert not dense_problem(Functions(lambda x: A @ jnp.exp(x) - b, np.zeros(4))).is_linear
    for start in (np.zeros(4), -20 * truth):
        result = asker.least_squares(lambda x: jnp.asarray(A) @ x - b, start, loss=asker.SmoothTruncated(0.1))
        np.testing.assert_allclose(result.x, truth, atol=0.02)

"""Derivatives that are not finite although the residuals are: messages name the observation."""

import jax.numpy as jnp
import numpy as np
import pytest

import asker

ZEROS = np.zeros(30, int)


def distance(p, q):
    return jnp.linalg.norm(p - q)


def problem(kernel, start=(0.0, 0.0), jacobian=None):
    rng = np.random.default_rng(0)
    q = rng.normal(size=(30, 2))
    q[7] = 0
    p = asker.Variables([start], name="place")
    residual = distance if jacobian is None else (lambda p, q: np.linalg.norm(p - q, axis=1))
    return asker.Problem(asker.Factors(residual, p[ZEROS], data=q, kernel=kernel, jacobian=jacobian))


@pytest.mark.parametrize("engine", ["cpu", pytest.param("xla", marks=pytest.mark.filterwarnings("ignore:engine xla"))])
@pytest.mark.parametrize("kernel", [asker.SmoothTruncated(3.0), asker.Huber(1.0)], ids=repr)
def test_an_infinite_derivative_at_the_start_is_an_error_that_names_the_observation(kernel, engine):
    with pytest.raises(asker.ProblemError, match=r"distance: .*observation 7 with respect to place\[0\] is not finite"):
        asker.solve(problem(kernel), engine=engine)


def test_a_jacobian_of_the_user_that_is_not_finite_is_reported():
    def jacobian(p, q):
        J = (p - q) / np.maximum(np.linalg.norm(p - q, axis=1), 1e-9)[:, None]
        J[11:13] = np.inf
        return J.reshape(30, 1, 2)

    with pytest.raises(asker.ProblemError, match="observation 11 and 1 more with respect to place"):
        asker.solve(problem(asker.Huber(1.0), (3.0, 3.0), jacobian))


def test_an_infinite_derivative_at_the_end_is_a_doubt():
    def jacobian(x, y):
        J = np.stack([np.ones(30), np.zeros(30)], axis=1)
        J[4, 1] = np.where(np.abs(x[0, 0] - 2.0) < 1e-3, np.nan, 0.0)
        return J.reshape(30, 1, 2)

    x = asker.Variables([[5.0, 0.0]], name="x")
    factors = asker.Factors(
        lambda x, y: x[:, 0] - y, x[ZEROS], data=np.full(30, 1.9999), kernel=asker.Quadratic(), jacobian=jacobian
    )
    result = asker.solve(asker.Problem(factors), tol=0, max_iterations=50)
    assert any("observation 4 with respect to x[0] is not finite" in doubt for doubt in result.doubts)
    assert "not finite" in str(result)


def test_an_infinite_derivative_is_reported_if_the_noise_scale_is_unknown():
    with pytest.raises(asker.ProblemError, match="observation 7 with respect to place"):
        asker.solve(problem(None, (0.0, 0.0)), max_iterations=5)

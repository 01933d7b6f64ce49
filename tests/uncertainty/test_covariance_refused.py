"""Errors of covariances: each message states its reason; a problem solved by conjugate gradients is factorised once."""

from dataclasses import replace

import numpy as np
import pytest

import asker
from asker.engines import inverse_blocks
from asker.engines.cpu import linearized_problem
from asker.kernels.kernels import Quadratic, SmoothTruncated
from asker.problem.problem import Portion
from asker.uncertainty.weak_variables import group_supports


def off(x, y):
    return x - y


def slope(x, y):
    return np.broadcast_to(np.eye(2), (len(y), 2, 2))


def between(x, y, d):
    return y - x - d


def slopes(x, y, d):
    eye = np.broadcast_to(np.eye(2), (len(d), 2, 2))
    return -eye, eye


def solved(y, kernel, n=None, **more):
    """Solve for points that are measured directly: each once, or n points in turn."""
    n = len(y) if n is None else n
    x = asker.Variables(np.zeros((n, 2)), name="x")
    factors = asker.Factors(off, x[np.arange(len(y)) % n], data=(y,), kernel=kernel, jacobian=slope, name="measured")
    return asker.solve(asker.Problem(factors), asker.IRLS(), max_iterations=20, **more)


def test_nothing_within_the_noise():
    y = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(asker.ProblemError, match="no observation is within the noise: nothing supports the result"):
        solved(y, SmoothTruncated(3.0), n=1).covariance("x", sigma=1e-9)


def test_too_few_inliers_and_no_noise_at_all():
    y = np.random.default_rng(0).normal(size=(5, 2))
    with pytest.raises(asker.ProblemError, match=r"measured: .*: 5 inliers leave 0 degrees of freedom"):
        solved(y, Quadratic()).covariance("x")
    exact = solved(np.zeros((40, 2)), Quadratic(), n=1)
    with pytest.raises(asker.ProblemError, match=r"measured: .*all inliers fit exactly"):
        exact.covariance("x")
    assert exact.covariance("x", sigma=2.0).blocks[0] == pytest.approx(4 / 40 * np.eye(2))


def test_too_many_undetermined_directions(monkeypatch):
    """The problem has several pairs of points, each free to move as a whole."""
    monkeypatch.setattr(inverse_blocks, "MAX_DIRECTIONS", 20)
    x, y = (asker.Variables(np.zeros((15, 2)), name=name) for name in "xy")
    d = np.random.default_rng(0).normal(size=(45, 2))
    slots = x[np.arange(45) % 15], y[np.arange(45) % 15]
    factors = asker.Factors(between, *slots, data=(d,), kernel=Quadratic(), jacobian=slopes)
    loose = asker.solve(asker.Problem(factors), asker.IRLS(), max_iterations=3)
    with pytest.raises(asker.ProblemError, match="there is no covariance: the data leave more than 20 directions"):
        loose.covariance("x")


def test_a_problem_solved_by_conjugate_gradients_is_factorised_once_or_rejected(monkeypatch):
    y = np.random.default_rng(0).normal(size=(60, 2))
    result = solved(y, Quadratic(), n=3, linear_solver="cg")
    assert result.linear_solver == "cg"
    r = result.residuals[0]
    assert result.covariance("x").blocks[1] == pytest.approx((r**2).sum() / (120 - 6) / 20 * np.eye(2))
    monkeypatch.setattr(linearized_problem, "choose_solver", lambda structure: "cg")  # as for a matrix of 2e9 numbers
    with pytest.raises(asker.ProblemError, match="which has 6 unknowns and is too dense"):
        replace(result).covariance("x")


def test_a_portion_of_a_problem_has_no_covariance():
    result = solved(np.random.default_rng(0).normal(size=(60, 2)), Quadratic(), n=3)
    (x,), (f,) = result.problem.variables, result.problem.factors
    part = Portion(x, np.arange(3), 6, (np.arange(60),), (120,))
    of_many = replace(result, problem=asker.Problem(f, portion=part))
    with pytest.raises(asker.ProblemError, match="covariances need the whole problem"):
        of_many.covariance("x")
    with pytest.raises(asker.ProblemError, match="needs the whole problem"):
        group_supports(of_many)


@pytest.mark.parametrize("weight", [1e-3, 1e-6])
def test_variances_dominated_by_rounding_are_an_error(weight):
    """The variances were once 0, or 300 in place of 0.005."""
    rng, n = np.random.default_rng(0), 120
    x = asker.Variables(np.zeros((2, 1)), name="x")
    first, second = x[np.zeros(n, dtype=int)], x[np.ones(n, dtype=int)]
    near = asker.Factors(lambda x, d: x - d, first, data=rng.normal(0, 0.03, n), weight=weight, kernel=Quadratic())
    data = rng.normal(0, 60, n)
    apart = asker.Factors(lambda x, y, d: 20 * (x - y) - d, first, second, data=data, kernel=Quadratic())
    result = asker.solve(asker.Problem(near, apart))
    with pytest.raises(asker.ProblemError, match="rounding hides"):
        result.interval("x")


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_groups_of_different_noise_have_the_variances_of_separate_problems(scale):
    """Kernels whose expected curvature is not 1 were rejected if the noise scales differ by orders of magnitude."""
    rng, n = np.random.default_rng(0), 120
    index, sizes = np.zeros(n, dtype=int), (0.03, 0.03 * scale)

    def group(v, size):
        return asker.Factors(lambda x, d: x - d, v[index], data=data[size], kernel=SmoothTruncated(2.5 * size))

    data = {size: rng.normal(0, size, n) for size in sizes}
    both = [asker.Variables(np.zeros((1, 1)), name=name) for name in "xy"]
    result = asker.solve(asker.Problem(*map(group, both, sizes)), asker.IRLS())
    for v, size in zip(both, sizes, strict=True):
        x = asker.Variables(np.zeros((1, 1)), name="x")
        alone = asker.solve(asker.Problem(group(x, size)), asker.IRLS())
        np.testing.assert_allclose(result.standard_errors(v), alone.standard_errors(x), rtol=0.02)

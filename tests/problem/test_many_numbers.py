"""Residuals of many numbers: the solution agrees with that of separate observations, and a warning names the engine."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.engines.sparsity import MOST_DERIVATIVES

NOT_COMPILED = f"more than {MOST_DERIVATIVES} are not compiled: XLA computes them"


def curves(n, p):
    rng = np.random.default_rng(p)
    t, true = np.linspace(0.0, 3.0, p), rng.uniform(0.5, 1.5, (n, 2))
    return t, true, true[:, :1] * np.exp(-true[:, 1:] * t) + 0.01 * rng.normal(size=(n, p))


def of_whole_curves(n, p, **options):
    t, true, y = curves(n, p)
    v = asker.Variables(true + 0.1, name="curves")
    factors = asker.Factors(lambda x, y: x[0] * jnp.exp(-x[1] * t) - y, v[np.arange(n)], data=y, **options)
    return asker.Problem(factors)


def of_single_numbers(n, p, **options):
    t, true, y = curves(n, p)
    v = asker.Variables(true + 0.1, name="curves")
    data = np.tile(t, n), y.ravel()
    index = np.repeat(np.arange(n), p)
    return asker.Problem(asker.Factors(lambda x, t, y: x[0] * jnp.exp(-x[1] * t) - y, v[index], data=data, **options))


@pytest.mark.parametrize(("engine", "p"), [("cpu", 1500), ("cpu", 20_000), ("xla", 1500)])
def test_residuals_of_whole_curves_agree_with_those_of_single_points(engine, p):
    kernel = asker.Quadratic(tau=1.0)
    with pytest.warns(UserWarning, match=NOT_COMPILED) if engine == "cpu" else warnings.catch_warnings():
        result = asker.solve(of_whole_curves(12, p, kernel=kernel), engine=engine)
    expected = asker.solve(of_single_numbers(12, p, kernel=kernel))
    np.testing.assert_allclose(result["curves"], expected["curves"], rtol=1e-8)
    assert result.cost == pytest.approx(expected.cost, rel=1e-9)
    if p == 1500:
        errors = (r.standard_errors("curves") for r in (result, expected))
        np.testing.assert_allclose(*errors, rtol=1e-6)


def test_whole_curves_are_fitted_if_the_noise_scale_is_unknown():
    problem = of_whole_curves(12, 1500)
    with pytest.warns(UserWarning, match=NOT_COMPILED):
        result = asker.solve(problem)
    assert np.abs(result["curves"] - curves(12, 1500)[1]).max() < 0.01
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asker.solve(problem)  # the warning is issued once


@pytest.mark.parametrize("d", [40, 400])
def test_means_of_long_vectors(d):
    rng = np.random.default_rng(d)
    true, i = rng.normal(size=(5, d)), np.arange(30) % 5
    y = true[i] + 0.1 * rng.normal(size=(30, d))
    v = asker.Variables(np.zeros((5, d)), name="vectors")
    factors = asker.Factors(lambda x, y: x - y, v[i], data=y, kernel=asker.Quadratic(tau=1.0), name="means")
    with pytest.warns(
        UserWarning, match=f"means: an observation has {d} residuals with {d} unknowns, .*{NOT_COMPILED}"
    ):
        result = asker.solve(asker.Problem(factors))
    np.testing.assert_allclose(result["vectors"], [y[i == k].mean(axis=0) for k in range(5)], rtol=1e-7, atol=1e-9)


def test_a_long_computation_is_run_by_xla():
    """The residual integrates an equation of motion over thousands of steps."""

    def falling(x, y):
        def step(state, _):
            height, speed = state
            return (height + 1e-3 * speed, speed - 1e-3 * (9.81 + x[1] * speed)), None

        (height, _), _ = jax.lax.scan(step, (x[0], 0.0 * x[0]), None, length=3000)
        return jnp.stack([height - y[0], x[0] - y[1]])

    v = asker.Variables([[100.0, 0.1]], name="ball")
    data = np.array([[61.0, 100.0]])
    factors = asker.Factors(falling, v[[0]], data=data, kernel=asker.Quadratic(tau=1.0))
    with pytest.warns(UserWarning, match="operations, too many to compile; XLA runs it instead"):
        result = asker.solve(asker.Problem(factors))
    assert result.cost < 1e-12


def test_vectors_with_outliers_are_estimated_if_the_noise_scale_is_unknown():
    """The search solves many small problems at once, with variables too long to be eliminated."""
    rng = np.random.default_rng(0)
    true, i = rng.normal(size=(4, 40)), np.arange(40) % 4
    y = true[i] + 0.1 * rng.normal(size=(40, 40))
    y[:8] += rng.uniform(2, 4, (8, 40))
    v = asker.Variables(np.zeros((4, 40)), name="vectors")
    with pytest.warns(UserWarning, match=NOT_COMPILED):
        result = asker.solve(asker.Problem(asker.Factors(lambda x, y: x - y, v[i], data=y)))
    assert np.abs(result["vectors"] - true).max() < 0.2

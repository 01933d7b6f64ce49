"""Exchanges change the inlier set until Ψ no longer decreases."""

import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.engines.cpu.engine import CpuEngine
from asker.engines.xla.engine import XlaEngine

N = 21


def between(a, b, measured):
    return b - a - measured


def drifted(loops, far=18.0):
    """Return a chain whose odometry drifts by 1 in each step.

    `loops` correct loop closures measure 0 between its ends, and a false one measures `far`.
    """
    x = asker.Variables(np.arange(N, dtype=float)[:, None], fixed=np.arange(N) == 0, name="x")
    k = np.arange(N - 1)
    odometry = asker.Factors(between, x[k], x[k + 1], data=np.ones(N - 1), kernel=asker.Quadratic(), name="odometry")
    first, last, measured = np.zeros(loops + 1, int), np.full(loops + 1, N - 1), np.r_[np.zeros(loops), far]
    kernel = asker.SmoothTruncated(5.0)
    return asker.Problem(
        odometry, asker.Factors(between, x[first], x[last], data=measured, kernel=kernel, name="loops")
    )


@pytest.mark.parametrize("engine", ["cpu", "xla"])
def test_rejected_observations_become_inliers(engine):
    problem = drifted(loops=4)
    caught = asker.solve(problem, asker.IRLS(), engine=engine)
    assert caught.within_inflection["loops"].tolist() == [False] * 4 + [True]
    result = asker.solve(problem, asker.Exchanges(), engine=engine)
    assert result.within_inflection["loops"].tolist() == [True] * 4 + [False]
    assert result.cost < caught.cost
    assert result.status is asker.Status.CONVERGED


def test_false_inliers_are_rejected():
    """All loop closures are inliers at the start, where the correct and the false ones deform the chain together."""
    problem = drifted(loops=4, far=7.0)
    start = asker.Problem(*(f.under(asker.Quadratic()) for f in problem.factors))
    bent = asker.solve(start, asker.IRLS()).values["x"]
    problem.variables[0].rows[:] = bent
    assert asker.solve(problem, asker.Exchanges()).inliers["loops"].tolist() == [True] * 4 + [False]


def test_without_outliers_it_is_a_descent():
    problem = drifted(loops=0, far=20.0)
    plain, found = (asker.solve(problem, strategy) for strategy in (asker.IRLS(), asker.Exchanges()))
    assert found.cost == pytest.approx(plain.cost, abs=1e-9)


def test_the_run_ends_after_trials_without_a_decrease():
    """All loop closures contradict each other, so that no trial decreases Ψ."""
    problem = drifted(loops=0)
    odometry = problem.factors[0]
    n = 100
    x = problem.variables[0]
    far = 100.0 * np.arange(1, n + 1)
    many = asker.Factors(
        between, x[np.zeros(n, int)], x[np.full(n, N - 1)], data=far, kernel=asker.SmoothTruncated(1.0)
    )
    short, long = (
        asker.solve(asker.Problem(odometry, many), asker.Exchanges(patience=k), max_iterations=10_000) for k in (5, 50)
    )
    assert short.iterations < long.iterations / 5
    assert short.cost == pytest.approx(long.cost)


@pytest.mark.parametrize("engine", [CpuEngine, XlaEngine])
def test_the_cost_is_always_that_of_the_point(engine):
    made = engine(drifted(loops=3), "auto", True, True)
    strategy = asker.Exchanges()
    state = strategy.init(made, made.start(), 100)
    for _ in range(40):
        state = strategy.step(made, state)
        assert state.cost == pytest.approx(asker.IRLS().init(made, state.point, 0).cost)


def bend(x, measured):
    """Return residuals with a poor minimum next to each good one; no step leads from one minimum to another."""
    return jnp.stack([x[0] - measured, 4 * jnp.sin(3 * x[0])])


@pytest.mark.parametrize(("to", "ends_at"), [(np.pi, np.pi), (50.0, 0.0)])
def test_a_trial_starts_at_another_point_if_the_inliers_fit_better_there(to, ends_at):
    """Three observations are near π and one is at 0, the start: least squares with any of them stays near 0."""
    x = asker.Variables(np.zeros((1, 1)), name="x")
    data = np.array([0.0, np.pi, np.pi + 0.01, np.pi - 0.01])
    problem = asker.Problem(
        asker.Factors(bend, x[np.zeros(4, int)], data=data, kernel=asker.SmoothTruncated(1.0), name="seen")
    )
    asked = []

    def restart(weights):
        asked.append(weights[0])
        return (np.array([[to]]),)

    found = asker.solve(problem, asker.Exchanges(restart=restart), max_iterations=500)
    assert found["x"].item() == pytest.approx(ends_at, abs=0.05)
    assert asked[0].tolist() == [1.0, 0.0, 0.0, 100.0]  # the rejected observation with the smallest residual is added
    assert asker.solve(problem, asker.Exchanges(), max_iterations=500)["x"].item() == pytest.approx(0.0, abs=0.05)

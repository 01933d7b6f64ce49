"""Exchanges revise which observations are refused."""

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
    """A chain whose odometry drifts by 1 in each step; `loops` say that its ends are at one place, one that they are
    `far` apart."""
    x = asker.Variables(np.arange(N, dtype=float)[:, None], fixed=np.arange(N) == 0, name="x")
    k = np.arange(N - 1)
    odometry = asker.Factors(between, x[k], x[k + 1], data=np.ones(N - 1), kernel=asker.Quadratic(), name="odometry")
    first, last, measured = np.zeros(loops + 1, int), np.full(loops + 1, N - 1), np.r_[np.zeros(loops), far]
    kernel = asker.SmoothTruncated(5.0)
    return asker.Problem(
        odometry, asker.Factors(between, x[first], x[last], data=measured, kernel=kernel, name="loops")
    )


@pytest.mark.parametrize("engine", ["cpu", "xla"])
def test_refused_observations_come_back(engine):
    problem = drifted(loops=4)
    caught = asker.solve(problem, asker.IRLS(), engine=engine)
    assert caught.inliers["loops"].tolist() == [False] * 4 + [True]
    found = asker.solve(problem, asker.Exchanges(), engine=engine)
    assert found.inliers["loops"].tolist() == [True] * 4 + [False]
    assert found.cost < caught.cost
    assert found.status is asker.Status.CONVERGED


def test_what_is_believed_wrongly_is_refused():
    """The right loops and the false one are all kept at the start, where they bend the chain together."""
    problem = drifted(loops=4, far=7.0)
    start = asker.Problem(*(f.under(asker.Quadratic()) for f in problem.factors))
    bent = asker.solve(start, asker.IRLS()).values["x"]
    problem.variables[0].rows[:] = bent
    assert asker.solve(problem, asker.Exchanges()).inliers["loops"].tolist() == [True] * 4 + [False]


def test_without_outliers_it_is_a_descent():
    problem = drifted(loops=0, far=20.0)
    plain, found = (asker.solve(problem, strategy) for strategy in (asker.IRLS(), asker.Exchanges()))
    assert found.cost == pytest.approx(plain.cost, abs=1e-9)


def test_it_ends_after_trials_that_do_not_pay():
    """Every loop says something else, so that none pays."""
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
    """With a poor minimum beside each good one: a step from one does not lead to the other."""
    return jnp.stack([x[0] - measured, 4 * jnp.sin(3 * x[0])])


@pytest.mark.parametrize(("to", "ends_at"), [(np.pi, np.pi), (50.0, 0.0)])
def test_a_trial_begins_elsewhere_if_what_is_believed_fits_better_there(to, ends_at):
    """Three observations near π, one at 0, from there: least squares with any of them stay in the valley of 0."""
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
    assert asked[0].tolist() == [1.0, 0.0, 0.0, 100.0]  # the nearest of the refused ones is believed firmly
    assert asker.solve(problem, asker.Exchanges(), max_iterations=500)["x"].item() == pytest.approx(0.0, abs=0.05)

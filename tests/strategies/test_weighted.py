"""Descent with additional weights, which equals IRLS on a problem with these weights."""

import numpy as np
import pytest

import asker
from asker.engines.cpu.engine import CpuEngine
from asker.strategies.strategy import cost
from asker.strategies.weighted import Weighted


def line_problem(weight=None):
    rng = np.random.default_rng(3)
    x = rng.uniform(-5, 5, 60)
    y = 0.8 * x - 1.0 + rng.normal(0, 0.1, 60)
    y[:20] += rng.uniform(1, 5, 20)
    line = asker.Variables([[0.0, 0.0]], name="line")
    factors = asker.Factors(
        lambda line, x, y: line[0] * x + line[1] - y,
        line[np.zeros(60, dtype=int)],
        data=(x, y),
        kernel=asker.Cauchy(0.5),
        weight=weight,
    )
    return asker.Problem(factors)


@pytest.mark.parametrize("kind", ["even", "some", "any"])
def test_weights_of_the_strategy_are_those_of_the_problem(kind):
    rng = np.random.default_rng(7)
    weight = {"even": np.ones(60), "some": (rng.random(60) < 0.6) * 1.0, "any": rng.random(60)}[kind]
    engine, other = CpuEngine(line_problem()), CpuEngine(line_problem(weight))
    one = Weighted(engine.in_own_order((weight,)))
    two = asker.IRLS()
    a, b = one.init(engine, engine.start(), 10), two.init(other, other.start(), 10)
    for _ in range(10):
        assert a.cost == pytest.approx(b.cost, rel=1e-9)
        assert a.accepted == b.accepted
        a, b = one.step(engine, a), two.step(other, b)
    np.testing.assert_allclose(engine.rows(a.point)[0], other.rows(b.point)[0], rtol=1e-8)


def test_observations_of_weight_0_have_no_influence():
    """The line is that of the inliers if the outliers have weight 0."""
    engine = CpuEngine(line_problem())
    state = (strategy := Weighted(engine.in_own_order(((np.arange(60) >= 20) * 1.0,)))).init(engine, engine.start(), 9)
    for _ in range(20):
        state = strategy.step(engine, state)
    np.testing.assert_allclose(engine.rows(state.point)[0], [[0.8, -1.0]], atol=0.05)
    assert state.cost < cost(engine, state.point)

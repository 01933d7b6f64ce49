"""ASKER, the default strategy: its additions to the paper's method."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.engines.cpu.engine import CpuEngine
from asker.strategies.filter import Filter
from asker.strategies.strategy import omega
from small_problems import curve_problem

KERNELS = [asker.kernel_named(name, tau=0.3) for name in asker.KERNELS] + [asker.Barron(0.3, alpha=-1.0)]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("method", ["asker", "asker-published"])
def test_asker_works_for_every_kernel(method, kernel):
    result = asker.solve(curve_problem(5, kernel=kernel), asker.METHODS[method](), max_iterations=40)
    assert result.cost < result.initial_cost


def near(x, y):
    return x - y


def equal(a, b):
    return jnp.stack([a - b, 0.5 * (a - b)])


def test_two_factor_groups_with_their_own_kernels():
    """A signal with a step has data terms and smoothness terms with different kernels and residual sizes."""
    rng = np.random.default_rng(1)
    truth = np.repeat([0.0, 4.0], 20)
    seen = truth + rng.normal(0, 0.05, 40)
    seen[rng.random(40) < 0.4] = 9.0

    def solved(start, strategy):
        x, k = asker.Variables(start, name="x"), np.arange(40)
        data = asker.Factors(near, x[k], data=seen, kernel=asker.SmoothTruncated(0.5))
        smooth = asker.Factors(equal, x[k[:-1]], x[k[1:]], kernel=asker.SmoothTruncated(1.0), weight=np.full(39, 2.0))
        return asker.solve(asker.Problem(data, smooth), strategy)

    found = solved(np.full(40, 2.0), asker.ASKER())
    assert found.cost < solved(np.full(40, 2.0), asker.IRLS()).cost
    assert solved(truth, asker.ASKER()).cost <= solved(truth, asker.IRLS()).cost * (1 + 1e-9)
    assert [w.shape for w in found.weights] == [(40,), (39,)]


def test_asker_converges_to_a_stationary_point_of_the_target():
    """At the end h = 0, f = Ψ, and the gradient of Ψ vanishes."""
    problem = curve_problem(11)
    result = asker.solve(problem, asker.ASKER(), tol=1e-14, max_iterations=200)
    assert result.status is asker.Status.CONVERGED
    last = result.history[-1].details
    assert last["phase"] == "last"
    assert last["h"] == 0
    assert last["f"] == pytest.approx(result.cost)
    engine = CpuEngine(problem)
    point = engine.evaluate((result.values[problem.variables[0]],))
    w = engine.each(omega, point)
    gradient, _, _ = engine.gradient_products(point, w, w)
    start, _, _ = engine.gradient_products(engine.start(), *[engine.each(omega, engine.start())] * 2)
    assert gradient < 1e-8 * start


def test_a_step_that_increases_the_relaxed_problem_is_rejected(monkeypatch):
    """A trial that increases f(θ, s) by more than a tenth is rejected even if the filter accepts it."""
    problem = curve_problem(7, kernel=asker.SmoothTruncated(2.0))
    far = (problem.variables[0].rows + 50.0,)
    for anneal, taken in ((asker.Paced(), False), (asker.FixedRate(), True)):
        engine = CpuEngine(problem)
        strategy = asker.ASKER(anneal=anneal, reach=0.0, s0=0.5)
        before = strategy.init(engine, engine.start(), 100)
        monkeypatch.setattr(engine, "move", lambda step, engine=engine: engine.evaluate(far))
        monkeypatch.setattr(Filter, "accepts", lambda *pair: True)
        after = strategy.step(engine, before)
        assert after.accepted is taken
        assert (after.point is before.point) is not taken


@pytest.mark.parametrize("preset", ["published", "paper"])
def test_the_presets_of_the_paper_are_its_method_alone(preset):
    ours, theirs = (
        asker.solve(curve_problem(4), getattr(kind, preset)(), max_iterations=30, tol=0).history
        for kind in (asker.ASKER, asker.GraduatedFilter)
    )
    for line, other in zip(ours, theirs, strict=True):
        assert replace(line, seconds=0) == replace(other, seconds=0)

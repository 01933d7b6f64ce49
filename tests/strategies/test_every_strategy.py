"""Laws of every method and of every composition of methods."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asker
from asker import BestKept, FirstDescent, LastPhase
from asker.engines.cpu.engine import CpuEngine
from small_problems import curve, curve_problem, linear_problem

pytestmark = pytest.mark.slow

METHODS = asker.METHODS | {
    "first descent, gnc": lambda: FirstDescent(asker.GNC()),
    "first descent, gnc-tls": lambda: FirstDescent(asker.SurrogateGNC(), asker.Triggs(), share=0.5),
    "last phase, mhq": lambda: LastPhase(asker.MHQ()),
    "last phase, regemm": lambda: LastPhase(asker.ReGeMM(), asker.SqrtPsi()),
    "last phase, paced filter": lambda: LastPhase(asker.GraduatedFilter(anneal=asker.Paced())),
    "last phase, first descent": lambda: LastPhase(FirstDescent(asker.GraduatedFilter(anneal=asker.Paced()))),
    "last phase, best kept": lambda: LastPhase(BestKept(asker.GraduatedFilter(anneal=asker.Paced()))),
    "best kept, irls": lambda: BestKept(asker.IRLS()),
    "best kept, gnc": lambda: BestKept(asker.GNC()),
    "all three, gnc-gm": lambda: BestKept(FirstDescent(LastPhase(asker.METHODS["gnc-gm"]()))),
    "all three, moo": lambda: BestKept(FirstDescent(LastPhase(asker.LMMOO()))),
}


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), outliers=st.floats(0, 0.8))
def test_no_method_returns_a_cost_above_its_start(method, seed, outliers):
    problem = curve_problem(seed, outliers=outliers)
    result = asker.solve(problem, METHODS[method](), max_iterations=30)
    assert result.cost <= result.initial_cost
    assert result.cost == min(h.cost for h in result.history)
    at_result = asker.Variables(result.values[problem.variables[0]])
    f = problem.factors[0]
    again = asker.Problem(asker.Factors(curve, at_result[f.slots[0].index], data=f.data, kernel=f.kernel))
    assert asker.solve(again, max_iterations=0).cost == pytest.approx(result.cost, rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_problem_gives_the_same_result(method):
    first, second = (asker.solve(curve_problem(3), METHODS[method](), max_iterations=25) for _ in range(2))
    assert first.cost == second.cost
    assert [h.cost for h in first.history] == [h.cost for h in second.history]


def root(x, y):
    """Return a residual that is NaN for negative x and infinite for x = 0."""
    return jnp.sqrt(x) - y + 1e-3 / x


@pytest.mark.parametrize("method", METHODS)
def test_a_trial_that_is_not_finite_is_rejected(method, monkeypatch):
    """Every third trial of a method has residuals that are not finite."""
    moves, not_finite = [], []
    move = CpuEngine.move

    def sometimes_nowhere(engine, step):
        trial = move(engine, step)
        moves.append(trial)
        if len(moves) % 3 == 1:
            trial = engine.evaluate((np.full_like(trial.theta[0], -1.0),))
        not_finite.append(not trial.finite)
        return trial

    monkeypatch.setattr(CpuEngine, "move", sometimes_nowhere)
    y = np.linspace(-6, 0.05, 40)  # pulls x below 0
    x = asker.Variables(np.array([0.2]), name="x")
    problem = asker.Problem(asker.Factors(root, x[np.zeros(40, int)], data=y, kernel=asker.SmoothTruncated(8.0)))
    result = asker.solve(problem, METHODS[method](), max_iterations=30)
    assert any(not_finite)
    assert result.values[x][0] > 0
    assert all(np.isfinite(h.cost) for h in result.history)
    assert not result.history[1].accepted


@pytest.mark.parametrize("method", METHODS)
def test_fixed_variables_do_not_move(method):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 3))
    points = asker.Variables(values, fixed=np.arange(6) % 2 == 0, name="points")
    i, j = rng.integers(0, 6, 50), rng.integers(0, 6, 50)

    def apart(a, b, d):
        return a - b - d

    wide = asker.SmoothTruncated(8.0)
    problem = asker.Problem(asker.Factors(apart, points[i], points[j], data=rng.normal(size=(50, 3)), kernel=wide))
    result = asker.solve(problem, METHODS[method](), max_iterations=10)
    moved = np.abs(result[points] - values).max(axis=1)
    assert (moved[::2] == 0).all()
    assert (moved[1::2] > 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_decreases_its_own_objective(method):
    """An accepted step decreases the objective of the method, and an easy problem is solved."""
    problem, A, b = linear_problem(2, kernel=asker.SmoothTruncated(20.0))
    b[:] = A @ np.array([1.0, -2.0, 0.5, 3.0]) + 0.1 * b
    engine = CpuEngine(problem)
    strategy = METHODS[method]()
    state = strategy.init(engine, engine.start(), 60)
    start = state.cost
    for _ in range(60):
        before, state = state, strategy.step(engine, state)
        if state.accepted and before.on_target and state.on_target:
            assert state.objective <= before.objective  # equal at rounding level
    assert state.cost < 0.5 * start

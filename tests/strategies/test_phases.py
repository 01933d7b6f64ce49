"""First descents, last phases and the best point kept, around methods that know nothing of them."""

import numpy as np
import pytest
from small_problems import curve_problem

import asker
from asker import BestKept, FirstDescent, LastPhase
from asker.datasets import make_scene
from asker.engines.cpu.engine import CpuEngine
from asker.problems.bundle import bundle_problem


def solved(problem, strategy, n=30):
    return asker.solve(problem, strategy, max_iterations=n, tol=0)


def phases(result):
    return [line.details.get("phase") for line in result.history]


def costs(result):
    return [line.cost for line in result.history]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("start_error", [10, 30])
def test_gnc_with_a_last_phase_is_never_worse_than_without(seed, start_error):
    scene = make_scene(12, 1500, outlier_ratio=0.3, start_error=start_error, seed=seed)
    problem = bundle_problem(scene.start, asker.SmoothTruncated(1.0)).problem
    plain, last = (solved(problem, asker.METHODS[name]()) for name in ("gnc", "gnc-last"))
    n = phases(last).index("last")
    assert costs(last)[:n] == costs(plain)[:n]  # up to there it is GNC
    assert phases(last)[n:] == ["last"] * (len(last.history) - n)
    assert last.cost <= plain.cost


def test_a_last_phase_is_the_descent_it_is_given():
    """From where the method stops relaxing, the steps are those of that descent, with its λ."""
    problem, descent = curve_problem(3), asker.Triggs(damping=0.5, epsilon=0.6)
    result = solved(problem, LastPhase(asker.GNC(levels=3), descent))
    n = phases(result).index("last") - 1
    engine = CpuEngine(problem)
    method = asker.GNC(levels=3)
    state = method.init(engine, engine.start(), 30)
    for _ in range(n):
        state = method.step(engine, state)
    assert state.level == 0
    state = descent.init(engine, state.point, 30 - n)
    for line in result.history[n + 1 :]:
        state = descent.step(engine, state)
        assert (line.cost, line.damping, line.accepted) == (state.cost, state.damping, state.accepted)


def test_the_last_phase_of_a_lifted_method_begins_where_its_cost_has_become_the_target():
    result = solved(curve_problem(1, outliers=0.1), LastPhase(asker.MHQ()), n=60)
    n = phases(result).index("last")
    before = result.history[n - 1]
    assert before.details["lifted_cost"] <= (1 + 1e-4) * before.cost
    assert all(line.details["lifted_cost"] > (1 + 1e-4) * line.cost for line in result.history[: n - 1])
    assert np.diff(costs(result)[n - 1 :]).max() <= 0


def test_a_first_descent_has_its_share_and_the_method_the_others():
    problem = curve_problem(5)
    result = solved(problem, FirstDescent(asker.GNC(levels=2, level_tol=0.0), share=0.5), n=40)
    n = phases(result).count("first")
    assert phases(result) == ["first"] * n + [None] * (41 - n)
    assert 1 < n <= 20
    np.testing.assert_array_equal(costs(result)[:n], costs(solved(problem, asker.IRLS()))[:n])
    levels = [line.details["level"] for line in result.history[n:-1]]
    assert abs(levels.count(1) - levels.count(0)) <= 1  # two levels share what is left


def test_without_a_share_there_is_no_first_descent():
    plain, none = (solved(curve_problem(5), s) for s in (asker.GNC(), FirstDescent(asker.GNC(), share=0.0)))
    assert costs(none) == costs(plain)


def test_the_best_point_is_where_it_goes_on(monkeypatch):
    """A method that walks away from a good start comes to rest above it; then it goes on from the start."""
    problem = curve_problem(8, outliers=0.6)
    start = asker.solve(problem, asker.ASKER(), tol=1e-14, max_iterations=200)
    x, f = problem.variables[0], problem.factors[0]
    near = asker.Variables(start.values[x] + 1e-3, name="x")
    again = asker.Problem(asker.Factors(f.residual, near[f.slots[0].index], data=f.data, kernel=f.kernel))
    wide = asker.GNC(levels=9, level_tol=1e-3)
    plain, kept = (asker.solve(again, s, max_iterations=200, tol=1e-12) for s in (wide, BestKept(wide)))
    assert plain.history[-1].cost > start.cost * 1.5
    assert kept.history[-1].cost == pytest.approx(start.cost, rel=1e-6)


def test_a_composed_run_continues_as_if_nothing_had_happened(tmp_path):
    strategy = BestKept(FirstDescent(LastPhase(asker.GNC(levels=3)), share=0.3))
    whole = solved(curve_problem(2), strategy)
    assert {"first", None, "last"} == set(phases(whole))
    for cut in (3, 12, 25):
        file = tmp_path / f"{cut}.npz"
        options = {"max_iterations": 30, "tol": 0, "checkpoint": file}
        asker.solve(curve_problem(2), strategy, on_iteration=lambda line, cut=cut: line.iteration == cut, **options)
        assert costs(asker.solve(curve_problem(2), strategy, **options)) == costs(whole)

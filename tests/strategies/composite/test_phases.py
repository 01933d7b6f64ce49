"""First descents, last phases and the return to the best point, composed with arbitrary methods."""

import numpy as np
import pytest

import asker
from asker import BestKept, FirstDescent, LastPhase
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from asker.engines.cpu.engine import CpuEngine
from small_problems import curve_problem

pytestmark = pytest.mark.slow


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
    assert costs(last)[: n + 1] == costs(plain)[: n + 1]  # up to there it is GNC
    assert phases(last)[n:] == ["last"] * (len(last.history) - n)
    assert last.cost <= plain.cost


def test_a_last_phase_is_the_descent_it_is_given():
    """After the method converges, the steps are those of the given descent, with its λ."""
    problem, descent = curve_problem(3), asker.Triggs(damping=0.5, epsilon=0.6)
    result = solved(problem, LastPhase(asker.GNC(levels=3), descent))
    n = phases(result).index("last")
    engine, method = CpuEngine(problem), asker.GNC(levels=3)
    state = method.init(engine, engine.start(), 30)
    for _ in range(n):
        before, state = state, method.step(engine, state)
    assert before.level == state.level == 0
    assert before.cost - state.cost < 1e-3 * before.cost
    state = descent.init(engine, state.point, 30 - n)
    for line in result.history[n + 1 :]:
        state = descent.step(engine, state)
        assert (line.cost, line.damping, line.accepted) == (state.cost, state.damping, state.accepted)


def test_the_last_phase_of_a_lifted_method_lowers_the_target_itself():
    """M-HQ decreases its lifted cost until it converges; then Ψ decreases with every accepted step."""
    result = solved(curve_problem(1, outliers=0.1), LastPhase(asker.MHQ()), n=60)
    n = phases(result).index("last")
    lifted = [line.details["lifted_cost"] for line in result.history]
    assert np.diff(lifted[: n + 1]).max() <= 0
    assert lifted[n - 1] - lifted[n] < 1e-3 * lifted[n - 1]
    assert np.diff(costs(result)[n:]).max() <= 0


def test_a_first_descent_has_its_share_and_the_method_the_others():
    problem = curve_problem(5)
    result = solved(problem, FirstDescent(asker.GNC(levels=2, level_tol=0.0), share=0.5), n=40)
    n = phases(result).count("first")
    assert phases(result) == ["first"] * n + [None] * (41 - n)
    assert 1 < n <= 20
    np.testing.assert_array_equal(costs(result)[:n], costs(solved(problem, asker.IRLS()))[:n])
    levels = [line.details["level"] for line in result.history[n:-1]]
    assert abs(levels.count(1) - levels.count(0)) <= 1  # two levels share the remaining iterations


def test_without_a_share_there_is_no_first_descent():
    plain, none = (solved(curve_problem(5), s) for s in (asker.GNC(), FirstDescent(asker.GNC(), share=0.0)))
    assert costs(none) == costs(plain)


def off(x, y):
    return x - y


def test_the_run_continues_from_the_best_point():
    """Scattered outliers pull a wide kernel away from the inliers at the start, and the run returns to the start."""
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(0, 0.1, 30), rng.uniform(10, 20, 60)])
    x = asker.Variables(np.array([0.05]), name="x")
    problem = asker.Problem(asker.Factors(off, x[np.zeros(90, int)], data=y, kernel=asker.SmoothTruncated(0.5)))
    plain, kept = (asker.solve(problem, s, tol=1e-12) for s in (asker.GNC(levels=6), BestKept(asker.GNC(levels=6))))
    assert plain.history[-1].cost > 1.1 * plain.initial_cost
    n = costs(kept).index(kept.initial_cost, 1)
    assert costs(kept)[:n] == costs(plain)[:n]  # until the method converges
    assert kept.cost < kept.initial_cost
    assert kept.x == pytest.approx(asker.solve(problem, asker.IRLS(), tol=1e-12).x, abs=1e-5)


def test_a_composed_run_continues_as_if_nothing_had_happened(tmp_path):
    strategy = BestKept(FirstDescent(LastPhase(asker.GNC(levels=3), rest=0.1), share=0.3))
    whole = solved(curve_problem(4), strategy)
    assert {"first", None, "last"} == set(phases(whole))
    for cut in (3, 12, 25):
        file = tmp_path / f"{cut}.npz"
        options = {"max_iterations": 30, "tol": 0, "checkpoint": file}
        asker.solve(curve_problem(4), strategy, on_iteration=lambda line, cut=cut: line.iteration == cut, **options)
        assert costs(asker.solve(curve_problem(4), strategy, **options)) == costs(whole)

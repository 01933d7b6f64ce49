"""Where all loops are right, least squares is all that is done; one false loop, and it is not."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

import asker
from asker.applications.pose_graph.formats.g2o import read_g2o
from asker.applications.pose_graph.initial.chordal_init import chordal_initialization
from asker.applications.pose_graph.initial.spanning_tree_init import odometry_poses
from asker.applications.pose_graph.loops import loop_search
from asker.applications.pose_graph.loops.false_loops import add_false_loops
from asker.applications.pose_graph.loops.noise_scale import Round
from asker.applications.pose_graph.loops.work_budget import is_large
from asker.applications.pose_graph.problem import default_tau, pose_graph_problem, residual_norms
from asker.applications.pose_graph.refine import refine
from asker.problem.by_group import Groups
from asker.solver.time_budget import Clock
from synthetic_graphs import announcing, circle, every_tag


def with_long_tails(graph):
    """Every fifth loop has three times the noise of the others."""
    loops = np.flatnonzero(~graph.is_odometry)[::5]
    graph.measurements[loops] += 3 * 0.01 * np.random.default_rng(3).normal(size=graph.measurements[loops].shape)
    return graph


CLEAN = {
    "as announced": lambda: circle(n=200)[1],
    "less noise than announced": lambda: announcing(circle(n=200)[1], 10.0),
    "long tails": lambda: announcing(with_long_tails(circle(n=200)[1]), 10.0),
}


@pytest.fixture
def solves(monkeypatch):
    """The results of all solves that are made."""
    made, solve = [], asker.solve
    monkeypatch.setattr(asker, "solve", lambda *given, **asked: made.append(solve(*given, **asked)) or made[-1])
    return made


def large_with_long_tails():
    """A loop in thirty has six times the noise of the others, which is too far off for CLOSE times that noise."""
    graph = circle(n=1200, laps=6, drift=0.001)[1]
    assert is_large(graph)
    loops = np.flatnonzero(~graph.is_odometry)[::30]
    graph.measurements[loops] += 6 * 0.01 * np.random.default_rng(3).choice([-1, 1], (len(loops), 3))
    return announcing(graph, 10.0)


@pytest.mark.parametrize("make", [*CLEAN.values(), large_with_long_tails], ids=[*CLEAN, "large, long tails"])
def test_a_graph_without_false_loops_costs_least_squares(make, solves):
    graph = make()
    made = pose_graph_problem(graph, robust="none")
    fit = asker.solve(made.problem, asker.IRLS(), tol=1e-12)
    found = refine(graph)
    assert len(solves) == 2  # the one above, and the same
    assert not found.rejected.any()
    assert [r.noise_scale == np.inf for r in found.search.rounds] == [True, False]
    np.testing.assert_array_equal(found.refined.poses, made.refined(fit.values).poses)
    assert found.record["iterations"] == fit.iterations
    assert found.record["status"] == "converged"
    assert found.record["initial_cost"] > found.record["cost"]
    assert found.covariances.result.cost == fit.cost


def test_loops_that_contradict_odometry_are_not_believed_for_long_tails():
    """Single loops that are far off."""
    graph = large_with_long_tails()
    bad, is_false = add_false_loops(graph, 4.01 / graph.n_loops, "local", seed=7)
    np.testing.assert_array_equal(refine(bad).rejected, is_false)


def test_where_edges_are_turned_least_squares_begin_where_loops_are_closed(solves):
    graph = circle(n=60)[1]
    graph.poses[30:, 2] += np.pi / 2
    found = refine(graph)
    np.testing.assert_array_equal(found.search.fit.graph_problem.graph.poses, chordal_initialization(graph).poses)
    assert [r.iterations > 0 for r in solves] == [False, False, True]  # two were compared
    assert not found.rejected.any()


@pytest.mark.parametrize("robust", ["loops", "all"])
def test_a_result_under_other_kernels_is_that_of_a_solve_without_steps(robust):
    graph = every_tag("SE2")
    made = pose_graph_problem(graph, robust="none")
    result = asker.solve(made.problem, asker.IRLS(), max_iterations=0)
    kernels = asker.SmoothTruncated(5.0), robust, asker.SmoothTruncated(9.0)
    other = made.with_kernels(*kernels)
    expected = asker.solve(pose_graph_problem(graph, *kernels).problem, asker.IRLS(), max_iterations=0, start=result)
    seen = other.reweighted(result)
    assert seen.cost == pytest.approx(expected.cost, rel=1e-12)
    assert (seen.iterations, seen.history[0].cost) == (0, seen.cost)
    for name in ("weights", "inliers", "within_inflection", "residuals"):
        for one, of in zip(getattr(seen, name), getattr(expected, name), strict=True):
            np.testing.assert_allclose(one, of, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("made", "kind"), list(zip(CLEAN, ["random", "grouped", "local"], strict=True)))
def test_false_loops_are_no_part_of_it(made, kind):
    graph = CLEAN[made]()
    bad, is_false = add_false_loops(graph, 2.01 / graph.n_loops, kind, seed=7)
    assert is_false.sum() == 2
    np.testing.assert_array_equal(refine(bad).rejected, is_false)


def test_the_cost_before_is_that_of_the_start():
    graph, _ = add_false_loops(circle(n=60)[1], 0.3, "random", seed=1)
    found = refine(graph)
    chosen = found.search.chosen.graph_problem
    u, kernels = residual_norms(graph) ** 2, chosen.problem.factors
    expected = sum(f.kernel.psi(u[of]).sum() for f, of in zip(kernels, chosen.edges.values(), strict=True))
    assert found.record["initial_cost"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.data
@pytest.mark.long
def test_no_right_loop_of_csail_is_lost_to_an_exchange(data_file):
    """Without the loop that is furthest off, Ψ of a narrow kernel is lower."""
    graph = read_g2o(data_file("g2o/CSAIL.g2o.bz2"))
    bad, is_false = add_false_loops(replace(graph, poses=odometry_poses(graph)), 0.1, "local", seed=1)
    np.testing.assert_array_equal(refine(bad).rejected, is_false)


@pytest.mark.data
@pytest.mark.long
@pytest.mark.parametrize(("kind", "seed"), [("random", 303), ("grouped", 301)])
def test_the_right_loops_of_mit_are_found_among_half_as_many_false_ones(data_file, kind, seed):
    """A chain of odometry that is far off: trials that begin where the last ended stay in poor minima."""
    graph = read_g2o(data_file("g2o/MIT.g2o.bz2"))
    bad, is_false = add_false_loops(replace(graph, poses=odometry_poses(graph)), 0.5, kind, seed=seed)
    np.testing.assert_array_equal(refine(bad).rejected, is_false)


class Scripted:
    """Solves end as a script says: the share of the noise that is seen, the cost, the loops that are refused."""

    def __init__(self, script):
        self.script, self.shares, self.methods = list(script), [], []

    def __call__(self, problem, strategy, time_limit=None, max_iterations=0):
        seen, cost, rejected = self.script[len(self.shares)]
        self.shares.append(problem.factors[-1].kernel.tau / default_tau("SE2"))
        self.methods.append(type(strategy).__name__)
        return self.result(problem, seen, cost, rejected)

    def result(self, problem, seen, cost, rejected):
        result = asker.solve(problem, asker.IRLS(), max_iterations=0)
        n = [f.n for f in problem.factors]
        spare = 1 - (problem.factors[0].n) / sum(n)  # of the numbers; the others are used up
        size = seen * np.sqrt(spare * chi2.ppf(0.5, 3))
        kept = [np.ones(n[0], bool), ~np.isin(np.arange(n[1]), rejected)]
        names = result.weights.names
        return replace(
            result,
            cost=cost,
            residuals=Groups([np.tile([size, 0, 0], (k, 1)) for k in n], names),
            weights=Groups([k.astype(float) for k in kept], names),
            possible=tuple(kept),
        )


def test_what_is_fitted_first_and_refused_does_not_keep_least_squares_from_being_tried():
    bad, _ = add_false_loops(circle(n=60)[1], 0.3, "random", seed=1)
    made = pose_graph_problem(bad)
    searched = searched_with(bad, asker.solve)
    searched.rounds.append(Round(1.0, made, asker.solve(made.problem, asker.IRLS())))
    assert [np.isinf(r.noise_scale) for r in searched._initial_solutions()] == [True, False, True, False, False]


def searched_with(graph, solve):
    how = asker.ASKER(), asker.SmoothTruncated, default_tau("SE2"), "loops", Clock(None), True, True
    return loop_search.GraphSearch(graph, solve, *how)


def exchanged(script):
    """From a solution that refuses the first loop and shows 0.3 of the noise."""
    made = pose_graph_problem(circle()[0])
    solve = Scripted(script)
    searched = searched_with(made.graph, solve)
    searched.rounds.append(Round(1.0, made, solve.result(made.problem, 0.3, 20.0, [0])))
    found = searched._exchange_inliers(searched.rounds[0])
    assert len(solve.shares) == len(script)
    return found, solve


NARROW = [(0.3, 9.0, [0]), (0.3, 8.0, [0, 1]), (0.3, 8.5, [0, 1])]
"""With the width that chooses, single loops exchanged, and the same from the start."""


@pytest.mark.parametrize(("costs", "number"), [((20.0, 22.0), 0), ((22.0, 20.0), 4)])
def test_loops_are_given_up_only_where_the_wide_kernel_prefers_it(costs, number):
    found, solve = exchanged([*NARROW, (0.3, 22.0, [0, 1]), (0.3, costs[0], [0]), (0.3, costs[1], [0, 1])])
    assert found.chosen is found.rounds[number]
    assert solve.methods == ["IRLS", "Exchanges", "Exchanges", "IRLS", "IRLS", "IRLS"]
    assert solve.shares == pytest.approx([0.6] * 3 + [1.0] * 3, rel=0.05)


def test_an_exchange_that_brings_a_loop_back_is_believed():
    found, _ = exchanged([*NARROW, (0.3, 22.0, [1])])
    assert found.chosen is found.rounds[-1]


def test_much_less_noise_after_an_exchange_is_believed():
    found, solve = exchanged([*NARROW[:2], (0.05, 7.0, [1]), (0.05, 1.0, []), (0.05, 1.0, [])])
    assert solve.shares[3] == pytest.approx(0.2, rel=0.05)
    assert found.chosen is found.rounds[-1]

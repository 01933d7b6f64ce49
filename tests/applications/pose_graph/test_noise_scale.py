"""Pose graphs whose information matrices state too much noise."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chi2

import asker
from asker.applications.pose_graph.formats.g2o import read_g2o, write_g2o
from asker.applications.pose_graph.initial.spanning_tree_init import odometry_poses
from asker.applications.pose_graph.loops import loop_search, work_budget
from asker.applications.pose_graph.loops.false_loops import add_false_loops
from asker.applications.pose_graph.loops.inlier_refit import refit
from asker.applications.pose_graph.loops.loop_search import solve_pose_graph
from asker.applications.pose_graph.loops.noise_scale import noise_scale
from asker.applications.pose_graph.problem import default_tau, pose_graph_problem
from asker.geometry.alignment import trajectory_error
from asker.problem.by_group import Groups
from synthetic_graphs import EVERY_KIND, circle, error, with_stated_noise

pytestmark = pytest.mark.slow


def run(problem, strategy, **limits):
    return asker.solve(problem, strategy, threads=1, **limits)


@EVERY_KIND
@pytest.mark.parametrize("factor", [1.0, 20.0])
def test_the_noise_scale_is_estimated(kind, factor):
    made = pose_graph_problem(with_stated_noise(circle(kind, n=300)[1], factor), robust="none")
    result = run(made.problem, asker.IRLS())
    for quantile in (0.5, 0.95):
        assert noise_scale(made, result, quantile) == pytest.approx(1 / factor, rel=0.3)


def test_rejected_odometry_does_not_affect_the_noise_scale():
    _, start = circle(n=300)
    start.measurements[10:210:10, 0] += 5.0  # 20 of 299 steps
    made = pose_graph_problem(start, robust="all")
    result = run(made.problem, asker.ASKER())
    assert not result.inliers["odometry"][10:210:10].any()
    assert not result.within_inflection["odometry"][10:210:10].any()
    assert noise_scale(made, result, 0.95) < 1.5


def test_without_accepted_loops_there_is_no_noise_scale():
    graph, _ = add_false_loops(circle()[1], 0.5, "random", seed=1)
    made = pose_graph_problem(graph, asker.SmoothTruncated(1e-9))
    result = run(made.problem, asker.IRLS())
    assert not result.within_inflection["loops"].any()
    assert noise_scale(made, result) is None


def test_false_loops_are_rejected_by_the_estimated_noise():
    """If 50 times the noise is stated, bent odometry costs little, and false loops are accepted."""
    truth, start = circle(n=300)
    bad, is_false = add_false_loops(start, 0.5, "random", seed=1)
    graph = with_stated_noise(bad, 50.0)
    made = pose_graph_problem(graph)
    robust_result = run(made.problem, asker.ASKER())
    assert np.any(made.per_edge(robust_result.within_inflection) & is_false)
    search = solve_pose_graph(graph, run, asker.ASKER())
    kept = search.chosen.graph_problem.per_edge(search.chosen.result.within_inflection)
    assert not np.any(kept & is_false)
    assert np.mean(kept[~is_false]) > 0.95
    assert 1 / 50 < search.chosen.noise_scale < 10 / 50
    assert error(search.chosen.refined, truth) < error(made.refined(robust_result.values), truth) / 3


def test_an_expensive_graph_is_solved_from_one_least_squares_start(monkeypatch):
    truth, start = circle(n=90)
    graph, is_false = add_false_loops(start, 0.3, "random", seed=1)
    monkeypatch.setattr(loop_search.GraphSearch, "is_large", False)
    kernels = []

    def heard(problem, strategy, **limits):
        if limits.get("max_iterations") != 0:
            kernels.append(type(problem.factors[-1].kernel))
        return run(problem, strategy, **limits)

    monkeypatch.setattr(work_budget, "INEXACT_WORK", 1.0)
    search = solve_pose_graph(graph, heard, asker.ASKER(), thorough=True)
    assert (kernels.count(asker.Quadratic), kernels.count(asker.Cauchy)) == (1, 0)
    assert np.array_equal(search.chosen.graph_problem.rejected(search.chosen.result), is_false)
    assert error(search.chosen.refined, truth) < error(start, truth) / 3


def test_the_next_round_starts_with_the_last_kernel_width():
    narrowing = loop_search._narrowing(asker.ASKER(), 12.0)
    assert (1 + narrowing.s0**2, narrowing.reach) == (pytest.approx(12.0), 0)
    for other in (asker.IRLS(), asker.ASKER.published()):
        assert loop_search._narrowing(other, 12.0) is other


@pytest.mark.long
def test_true_loops_in_heavy_tails_are_accepted_again():
    """Every tenth loop has 18 times the noise of the others; 30 times the noise is stated."""
    _, start = circle(n=300)
    rng = np.random.default_rng(0)
    loops = np.flatnonzero(~start.is_odometry)
    start.measurements[loops[::10]] += 18 * 0.01 * rng.normal(size=start.measurements[loops[::10]].shape)
    bad, is_false = add_false_loops(start, 0.3, "random", seed=1)
    search = solve_pose_graph(with_stated_noise(bad, 30.0), run, asker.ASKER())
    kept = [r.graph_problem.per_edge(r.result.within_inflection) for r in search.rounds]
    assert search.chosen is search.rounds[-1]
    assert search.rounds[-1].noise_scale > 1.2 * search.rounds[-2].noise_scale
    assert np.count_nonzero(kept[-1] & ~is_false) > np.count_nonzero(kept[-2] & ~is_false)
    assert not np.any(kept[-1] & is_false)


def test_correctly_stated_noise_needs_one_solve():
    graph, _ = add_false_loops(circle()[1], 0.3, "random", seed=1)
    search = solve_pose_graph(graph, run, asker.ASKER())
    assert (search.chosen.noise_scale, len(search.rounds)) == (1.0, 1)
    assert search.chosen.result.cost == run(pose_graph_problem(graph).problem, asker.ASKER()).cost


def test_noise_free_data_have_a_positive_noise_scale():
    truth, _ = circle(noise=1e-12, drift=1e-12)
    graph = with_stated_noise(truth, 1e10)
    search = solve_pose_graph(graph, run, asker.ASKER())
    assert search.chosen.noise_scale == pytest.approx(0.004)  # TAIL_FACTOR · MIN_NOISE_SCALE
    assert error(search.chosen.refined, truth) < 1e-6


@pytest.mark.parametrize("unfit", [{"robust": "none"}, {"kernel": asker.Huber}])
def test_estimated_noise_needs_a_kernel_that_rejects(unfit):
    with pytest.raises(ValueError, match="non-convex kernel"):
        solve_pose_graph(circle()[1], run, asker.IRLS(), **unfit)


class Scripted:
    """Replacement of `solve` that returns scripted noise scales, costs and statuses.

    The result has the initial values, except for the last pose, whose x is the number of the call.
    """

    def __init__(self, script):
        self.script, self.calls = script, []

    def __call__(self, problem, strategy, time_limit, max_iterations=None):
        noise, cost, status = self.script[len(self.calls)]
        middle, tails = noise if isinstance(noise, tuple) else (noise, noise)
        result = asker.solve(problem, asker.IRLS(), max_iterations=0)
        poses = result.values["poses"].copy()
        tau = problem.factors[-1].kernel.tau
        self.calls.append((type(strategy), tau / default_tau("SE2"), time_limit, poses[-1, 0]))
        poses[-1, 0] = len(self.calls) - 1
        names = result.residuals.names
        redundancy = 1 - (len(poses) - 1) / sum(f.n for f in problem.factors)  # residuals minus unknowns, as a fraction
        far = 1e6 if middle is None else 0.0
        residuals = Groups(
            [far + self.residuals(len(r), redundancy, middle or 0, tails or 0) for r in result.residuals], names
        )
        values = Groups([poses], result.values.names)
        return replace(result, values=values, residuals=residuals, cost=cost, status=status)

    def residuals(self, n, redundancy, middle, tails):
        p = np.linspace(0, 0.999, n)
        norms = np.where(p < 0.9, middle, tails) * np.sqrt(redundancy * chi2.ppf(p, 3))
        return norms[:, None] * [1.0, 0.0, 0.0]


DONE, CUT = asker.Status.CONVERGED, asker.Status.INTERRUPTED
START = 10.0
SCRIPTS = {
    # Results: noise scale (or those of the median and the tails; None: no loop is accepted), cost and status.
    # Expectations: number of solves by the method, noise scale and start of each solve, and the chosen round.
    "as stated": ([(0.3, 9, DONE)], 1, [1], [START], 0),
    "no loop accepted": ([(None, 9, DONE)], 1, [1], [START], 0),
    "two rounds": (
        [(0.1, 9, DONE), (0.08, 1, DONE), (0.07, 4, DONE), (0.02, 5, DONE), (0, 9, DONE)],
        2,
        [1, 0.1, 0.4, 0.4, 0.28],
        [START, 0, 1, 0, 2],
        4,
    ),
    "replaced by a worse solution": (
        [(0.1, 9, DONE), (0.08, 1, DONE), (0.02, 5, DONE), (0.06, 4, DONE), (0, 9, DONE)],
        2,
        [1, 0.1, 0.4, 0.4, 0.24],
        [START, 0, 1, 0, 3],
        4,
    ),
    "three rounds": (
        [(0.1, 9, DONE), (0.02, 1, DONE), (0.015, 1, DONE), (0, 5, DONE), (0.02, 3, DONE), (0, 4, DONE), (0, 9, DONE)],
        3,
        [1, 0.1, 0.02, 0.08, 0.08, 0.08, 0.08],
        [START, 0, 1, 2, 1, 0, 4],
        6,
    ),
    "heavy tails": (
        [(0.05, 9, DONE), (0.04, 1, DONE), ((0.04, 0.07), 4, DONE), (0, 5, DONE), (0, 9, DONE)],
        2,
        [1, 0.05, 0.2, 0.2, 0.28],
        [START, 0, 1, 0, 2],
        4,
    ),
    "at most twice as wide": (
        [(0.05, 9, DONE), (0.04, 1, DONE), ((0.04, 0.3), 4, DONE), (0, 5, DONE), (0, 9, DONE)],
        2,
        [1, 0.05, 0.2, 0.2, 0.4],
        [START, 0, 1, 0, 2],
        4,
    ),
    "not wider than stated": (
        [(0.15, 9, DONE), (0.15, 1, DONE), ((0.15, 0.25), 4, DONE), (0, 5, DONE), (0, 9, DONE)],
        2,
        [1, 0.15, 0.6, 0.6, 1],
        [START, 0, 1, 0, 2],
        4,
    ),
    "no loop accepted at the end": (
        [(0.1, 9, DONE), (0.08, 1, DONE), (None, 4, DONE), (0, 5, DONE)],
        2,
        [1, 0.1, 0.4, 0.4],
        [START, 0, 1, 0],
        2,
    ),
    "interrupted in the first": ([(0.1, 9, CUT)], 1, [1], [START], 0),
    "interrupted in the second": (
        [(0.1, 9, DONE), (0.01, 1, CUT), (0.01, 1, DONE)],
        2,
        [1, 0.1, 0.4],
        [START, 0, 1],
        2,
    ),
    "interrupted in a descent": ([(0.1, 9, DONE), (0.08, 1, DONE), (0, 5, CUT)], 2, [1, 0.1, 0.4], [START, 0, 1], 2),
    "interrupted in the next descent": (
        [(0.1, 9, DONE), (0.08, 1, DONE), (0, 4, DONE), (0, 5, CUT)],
        2,
        [1, 0.1, 0.4, 0.4],
        [START, 0, 1, 0],
        2,
    ),
    "interrupted in the last": (
        [(0.1, 9, DONE), (0.08, 1, DONE), (0.07, 4, DONE), (0, 5, DONE), (0, 9, CUT)],
        2,
        [1, 0.1, 0.4, 0.4, 0.28],
        [START, 0, 1, 0, 2],
        4,
    ),
}


@pytest.mark.parametrize(("script", "n_by_method", "shares", "starts", "chosen"), SCRIPTS.values(), ids=SCRIPTS)
def test_rounds_follow_the_estimated_noise_scale(script, n_by_method, shares, starts, chosen):
    graph = circle()[0]
    graph.poses[-1, 0] = START
    solve = Scripted(script)
    search = solve_pose_graph(graph, solve, asker.ASKER(), time_limit=60.0)
    methods, used, time_limits, first_x = zip(*solve.calls, strict=True)
    assert used == pytest.approx(shares, rel=0.02)
    assert first_x == pytest.approx(starts)
    assert [r.noise_scale for r in search.rounds] == pytest.approx(used)
    assert search.chosen is search.rounds[chosen]
    assert (search.last_result.status is CUT) == any(status is CUT for *_, status in script)
    assert time_limits[0] <= 60.0
    assert all(a > b for a, b in pairwise(time_limits))
    assert list(methods) == [asker.ASKER] * n_by_method + [asker.IRLS] * (len(shares) - n_by_method)


@pytest.mark.parametrize(("n_solved", "chosen"), [(0, None), (1, 0), (2, 1), (3, 2), (4, 3)])
def test_an_interrupt_between_rounds_keeps_the_best_solution(n_solved, chosen):
    solve = Scripted(SCRIPTS["replaced by a worse solution"][0])

    def until_interrupted(problem, strategy, time_limit):
        if len(solve.calls) == n_solved:
            raise KeyboardInterrupt
        return solve(problem, strategy, time_limit)

    if chosen is None:
        with pytest.raises(KeyboardInterrupt):
            solve_pose_graph(circle()[0], until_interrupted, asker.ASKER())
        return
    search = solve_pose_graph(circle()[0], until_interrupted, asker.ASKER())
    assert len(search.rounds) == n_solved
    assert search.last_result.status is CUT
    assert search.chosen.refined.poses[-1, 0] == chosen


@pytest.mark.long
def test_the_noise_is_estimated_from_the_command_line(asks, tmp_path):
    truth, start = circle(n=300)
    bad, is_false = add_false_loops(start, 0.5, "random", seed=1)
    names = ("bad.g2o", "truth.g2o", "run.json", "out.g2o")
    file, true, json_file, out = (tmp_path / name for name in names)
    write_g2o(file, with_stated_noise(bad, 50.0))
    write_g2o(true, truth)
    code, text, _ = asks("solve", file, "--truth", true, "--json", json_file, "--noise", "announced")
    assert code == 0
    assert "use --noise estimated to detect false loops" in text
    once = json.loads(json_file.read_text())
    assert (once["noise"], once["noise_share"]) == ("announced", 1.0)
    assert "\nasker, smooth-truncated kernel on loops, tau 5.83\n" in text
    code, text, _ = asks("solve", file, "--truth", true, "--json", json_file, "--output", out)
    assert code == 0
    run = json.loads(json_file.read_text())
    assert run["noise"] == "estimated"
    assert "--noise estimated" not in text
    assert "\nestimated noise, robust kernel on loops\n" in text
    assert f"matrices state: {run['noise_share']:.0%} of that noise" in text
    assert run["tau"] == pytest.approx(run["noise_share"] * once["tau"])
    assert run["iterations"] == sum(r["iterations"] for r in run["rounds"])
    assert run["cost"] < run["initial_cost"] < once["initial_cost"]
    assert run["initial_trajectory_error"] == once["initial_trajectory_error"]
    assert run["trajectory_error"] == pytest.approx(error(read_g2o(out), truth))
    assert run["trajectory_error"] < once["trajectory_error"] / 3
    assert run["n_refused_loops"] >= is_false.sum()
    assert asks("solve", out, "--noise", "estimated", "--iterations", 3)[0] == 0  # already converged


@pytest.mark.data
@pytest.mark.long
def test_the_stated_noise_of_parking_garage_is_far_too_large(data_file):
    """With the stated noise, 5 of 462 false loops are accepted, and the error is 3 m."""
    graph = read_g2o(data_file("g2o/parking-garage.g2o.bz2"))
    made = pose_graph_problem(graph, robust="none")
    truth = made.refined(asker.solve(made.problem, tol=1e-12).values).poses[:, :3]
    bad, is_false = add_false_loops(replace(graph, poses=odometry_poses(graph)), 0.1, "random", seed=1)
    search = solve_pose_graph(bad, run, asker.ASKER())
    assert not np.any(search.chosen.graph_problem.per_edge(search.chosen.result.within_inflection) & is_false)
    assert trajectory_error(search.chosen.refined.poses[:, :3], truth) < 0.003  # metres
    assert search.chosen.noise_scale < 0.1
    again = refit(search.chosen.graph_problem, search.chosen.result, asker.solve)
    assert trajectory_error(again.graph.poses[:, :3], truth) < 1e-4

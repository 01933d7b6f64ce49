"""Pose graphs whose information matrices announce more noise than there is."""

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
from synthetic_graphs import EVERY_KIND, announcing, circle, error

pytestmark = pytest.mark.slow


def run(problem, strategy, **limits):
    return asker.solve(problem, strategy, threads=1, **limits)


@EVERY_KIND
@pytest.mark.parametrize("factor", [1.0, 20.0])
def test_the_noise_of_a_solution_is_seen(kind, factor):
    made = pose_graph_problem(announcing(circle(kind, n=300)[1], factor), robust="none")
    result = run(made.problem, asker.IRLS())
    for quantile in (0.5, 0.95):
        assert noise_scale(made, result, quantile) == pytest.approx(1 / factor, rel=0.3)


def test_refused_odometry_does_not_count():
    _, start = circle(n=300)
    start.measurements[10:210:10, 0] += 5.0  # 20 of 299 steps
    made = pose_graph_problem(start, robust="all")
    result = run(made.problem, asker.ASKER())
    assert not result.inliers["odometry"][10:210:10].any()
    assert not result.within_inflection["odometry"][10:210:10].any()
    assert noise_scale(made, result, 0.95) < 1.5


def test_without_a_loop_the_noise_is_not_seen():
    graph, _ = add_false_loops(circle()[1], 0.5, "random", seed=1)
    made = pose_graph_problem(graph, asker.SmoothTruncated(1e-9))
    result = run(made.problem, asker.IRLS())
    assert not result.within_inflection["loops"].any()
    assert noise_scale(made, result) is None


def test_false_loops_are_told_apart_by_the_noise_that_is_there():
    """With 50 times the noise announced, bent odometry costs little, and false loops are believed."""
    truth, start = circle(n=300)
    bad, is_false = add_false_loops(start, 0.5, "random", seed=1)
    graph = announcing(bad, 50.0)
    made = pose_graph_problem(graph)
    believing = run(made.problem, asker.ASKER())
    assert np.any(made.per_edge(believing.within_inflection) & is_false)
    found = solve_pose_graph(graph, run, asker.ASKER())
    kept = found.chosen.graph_problem.per_edge(found.chosen.result.within_inflection)
    assert not np.any(kept & is_false)
    assert np.mean(kept[~is_false]) > 0.95
    assert 1 / 50 < found.chosen.noise_scale < 10 / 50
    assert error(found.chosen.refined, truth) < error(made.refined(believing.values), truth) / 3


def test_a_dear_graph_is_begun_from_least_squares_once_and_ends_where_others_do(monkeypatch):
    truth, start = circle(n=90)
    graph, is_false = add_false_loops(start, 0.3, "random", seed=1)
    monkeypatch.setattr(loop_search.GraphSearch, "is_large", False)
    kernels = []

    def heard(problem, strategy, **limits):
        if limits.get("max_iterations") != 0:
            kernels.append(type(problem.factors[-1].kernel))
        return run(problem, strategy, **limits)

    monkeypatch.setattr(work_budget, "INEXACT_WORK", 1.0)
    found = solve_pose_graph(graph, heard, asker.ASKER(), thorough=True)
    assert (kernels.count(asker.Quadratic), kernels.count(asker.Cauchy)) == (1, 0)
    assert np.array_equal(found.chosen.graph_problem.rejected(found.chosen.result), is_false)
    assert error(found.chosen.refined, truth) < error(start, truth) / 3


def test_another_round_begins_with_the_width_of_the_last():
    narrowing = loop_search._narrowing(asker.ASKER(), 12.0)
    assert (1 + narrowing.s0**2, narrowing.reach) == (pytest.approx(12.0), 0)
    for other in (asker.IRLS(), asker.ASKER.published()):
        assert loop_search._narrowing(other, 12.0) is other


@pytest.mark.long
def test_right_loops_in_long_tails_come_back():
    """Every tenth loop has 18 times the noise of the others; 30 times the noise is announced."""
    _, start = circle(n=300)
    rng = np.random.default_rng(0)
    loops = np.flatnonzero(~start.is_odometry)
    start.measurements[loops[::10]] += 18 * 0.01 * rng.normal(size=start.measurements[loops[::10]].shape)
    bad, is_false = add_false_loops(start, 0.3, "random", seed=1)
    found = solve_pose_graph(announcing(bad, 30.0), run, asker.ASKER())
    kept = [r.graph_problem.per_edge(r.result.within_inflection) for r in found.rounds]
    assert found.chosen is found.rounds[-1]
    assert found.rounds[-1].noise_scale > 1.2 * found.rounds[-2].noise_scale
    assert np.count_nonzero(kept[-1] & ~is_false) > np.count_nonzero(kept[-2] & ~is_false)
    assert not np.any(kept[-1] & is_false)


def test_a_right_announcement_is_solved_once():
    graph, _ = add_false_loops(circle()[1], 0.3, "random", seed=1)
    found = solve_pose_graph(graph, run, asker.ASKER())
    assert (found.chosen.noise_scale, len(found.rounds)) == (1.0, 1)
    assert found.chosen.result.cost == run(pose_graph_problem(graph).problem, asker.ASKER()).cost


def test_data_without_noise_leave_a_scale():
    truth, _ = circle(noise=1e-12, drift=1e-12)
    graph = announcing(truth, 1e10)
    found = solve_pose_graph(graph, run, asker.ASKER())
    assert found.chosen.noise_scale == pytest.approx(0.004)  # four times the least one that is believed
    assert error(found.chosen.refined, truth) < 1e-6


@pytest.mark.parametrize("unfit", [{"robust": "none"}, {"kernel": asker.Huber}])
def test_noise_is_not_estimated_where_nothing_is_refused(unfit):
    with pytest.raises(ValueError, match="non-convex kernel"):
        solve_pose_graph(circle()[1], run, asker.IRLS(), **unfit)


class Scripted:
    """In place of `solve`: returns its start, the last pose of which it moves to x = the number of the call, with the
    noise, the cost and the status that are told."""

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
        spare = 1 - (len(poses) - 1) / sum(f.n for f in problem.factors)  # of the numbers; the others are used up
        far = 1e6 if middle is None else 0.0
        residuals = Groups(
            [far + self.residuals(len(r), spare, middle or 0, tails or 0) for r in result.residuals], names
        )
        values = Groups([poses], result.values.names)
        return replace(result, values=values, residuals=residuals, cost=cost, status=status)

    def residuals(self, n, spare, middle, tails):
        p = np.linspace(0, 0.999, n)
        norms = np.where(p < 0.9, middle, tails) * np.sqrt(spare * chi2.ppf(p, 3))
        return norms[:, None] * [1.0, 0.0, 0.0]


DONE, CUT = asker.Status.CONVERGED, asker.Status.INTERRUPTED
START = 10.0
SCRIPTS = {
    # what each solve shows: the share of the noise (or those in the middle and in the tails; None: no loop is kept),
    # the cost, the status; how many are by the method; the share that each is solved with; where it starts; the chosen
    "as announced": ([(0.3, 9, DONE)], 1, [1], [START], 0),
    "no loop kept": ([(None, 9, DONE)], 1, [1], [START], 0),
    "once more": (
        [(0.1, 9, DONE), (0.08, 1, DONE), (0.07, 4, DONE), (0.02, 5, DONE), (0, 9, DONE)],
        2,
        [1, 0.1, 0.4, 0.4, 0.28],
        [START, 0, 1, 0, 2],
        4,
    ),
    "left for a worse one": (
        [(0.1, 9, DONE), (0.08, 1, DONE), (0.02, 5, DONE), (0.06, 4, DONE), (0, 9, DONE)],
        2,
        [1, 0.1, 0.4, 0.4, 0.24],
        [START, 0, 1, 0, 3],
        4,
    ),
    "in three": (
        [(0.1, 9, DONE), (0.02, 1, DONE), (0.015, 1, DONE), (0, 5, DONE), (0.02, 3, DONE), (0, 4, DONE), (0, 9, DONE)],
        3,
        [1, 0.1, 0.02, 0.08, 0.08, 0.08, 0.08],
        [START, 0, 1, 2, 1, 0, 4],
        6,
    ),
    "long tails": (
        [(0.05, 9, DONE), (0.04, 1, DONE), ((0.04, 0.07), 4, DONE), (0, 5, DONE), (0, 9, DONE)],
        2,
        [1, 0.05, 0.2, 0.2, 0.28],
        [START, 0, 1, 0, 2],
        4,
    ),
    "no more than twice as wide": (
        [(0.05, 9, DONE), (0.04, 1, DONE), ((0.04, 0.3), 4, DONE), (0, 5, DONE), (0, 9, DONE)],
        2,
        [1, 0.05, 0.2, 0.2, 0.4],
        [START, 0, 1, 0, 2],
        4,
    ),
    "no wider than announced": (
        [(0.15, 9, DONE), (0.15, 1, DONE), ((0.15, 0.25), 4, DONE), (0, 5, DONE), (0, 9, DONE)],
        2,
        [1, 0.15, 0.6, 0.6, 1],
        [START, 0, 1, 0, 2],
        4,
    ),
    "no loop kept at the end": (
        [(0.1, 9, DONE), (0.08, 1, DONE), (None, 4, DONE), (0, 5, DONE)],
        2,
        [1, 0.1, 0.4, 0.4],
        [START, 0, 1, 0],
        2,
    ),
    "cut in the first": ([(0.1, 9, CUT)], 1, [1], [START], 0),
    "cut in the second": ([(0.1, 9, DONE), (0.01, 1, CUT), (0.01, 1, DONE)], 2, [1, 0.1, 0.4], [START, 0, 1], 2),
    "cut in a descent": ([(0.1, 9, DONE), (0.08, 1, DONE), (0, 5, CUT)], 2, [1, 0.1, 0.4], [START, 0, 1], 2),
    "cut in the next descent": (
        [(0.1, 9, DONE), (0.08, 1, DONE), (0, 4, DONE), (0, 5, CUT)],
        2,
        [1, 0.1, 0.4, 0.4],
        [START, 0, 1, 0],
        2,
    ),
    "cut in the last": (
        [(0.1, 9, DONE), (0.08, 1, DONE), (0.07, 4, DONE), (0, 5, DONE), (0, 9, CUT)],
        2,
        [1, 0.1, 0.4, 0.4, 0.28],
        [START, 0, 1, 0, 2],
        4,
    ),
}


@pytest.mark.parametrize(("script", "n_by_method", "shares", "starts", "chosen"), SCRIPTS.values(), ids=SCRIPTS)
def test_rounds_follow_what_was_seen(script, n_by_method, shares, starts, chosen):
    graph = circle()[0]
    graph.poses[-1, 0] = START
    solve = Scripted(script)
    found = solve_pose_graph(graph, solve, asker.ASKER(), time_limit=60.0)
    methods, used, left, begun = zip(*solve.calls, strict=True)
    assert used == pytest.approx(shares, rel=0.02)
    assert begun == pytest.approx(starts)
    assert [r.noise_scale for r in found.rounds] == pytest.approx(used)
    assert found.chosen is found.rounds[chosen]
    assert (found.last_result.status is CUT) == any(status is CUT for *_, status in script)
    assert left[0] <= 60.0
    assert all(a > b for a, b in pairwise(left))
    assert list(methods) == [asker.ASKER] * n_by_method + [asker.IRLS] * (len(shares) - n_by_method)


@pytest.mark.parametrize(("n_solved", "chosen"), [(0, None), (1, 0), (2, 1), (3, 2), (4, 3)])
def test_an_interrupt_between_rounds_keeps_what_was_found(n_solved, chosen):
    solve = Scripted(SCRIPTS["left for a worse one"][0])

    def until_interrupted(problem, strategy, time_limit):
        if len(solve.calls) == n_solved:
            raise KeyboardInterrupt
        return solve(problem, strategy, time_limit)

    if chosen is None:
        with pytest.raises(KeyboardInterrupt):
            solve_pose_graph(circle()[0], until_interrupted, asker.ASKER())
        return
    found = solve_pose_graph(circle()[0], until_interrupted, asker.ASKER())
    assert len(found.rounds) == n_solved
    assert found.last_result.status is CUT
    assert found.chosen.refined.poses[-1, 0] == chosen


@pytest.mark.long
def test_the_noise_is_estimated_from_the_command_line(asks, tmp_path):
    truth, start = circle(n=300)
    bad, is_false = add_false_loops(start, 0.5, "random", seed=1)
    names = ("bad.g2o", "truth.g2o", "run.json", "out.g2o")
    file, true, told, out = (tmp_path / name for name in names)
    write_g2o(file, announcing(bad, 50.0))
    write_g2o(true, truth)
    code, text, _ = asks("solve", file, "--truth", true, "--json", told, "--noise", "announced")
    assert code == 0
    assert "use --noise estimated to detect false loops" in text
    once = json.loads(told.read_text())
    assert (once["noise"], once["noise_share"]) == ("announced", 1.0)
    code, text, _ = asks("solve", file, "--truth", true, "--json", told, "--output", out)
    assert code == 0
    run = json.loads(told.read_text())
    assert run["noise"] == "estimated"
    assert "--noise estimated" not in text
    assert f"tau is for {run['noise_share']:.0%} of that noise" in text
    assert run["tau"] == pytest.approx(run["noise_share"] * once["tau"])
    assert run["iterations"] == sum(r["iterations"] for r in run["rounds"])
    assert run["cost"] < run["initial_cost"] < once["initial_cost"]
    assert run["initial_trajectory_error"] == once["initial_trajectory_error"]
    assert run["trajectory_error"] == pytest.approx(error(read_g2o(out), truth))
    assert run["trajectory_error"] < once["trajectory_error"] / 3
    assert run["n_refused_loops"] >= is_false.sum()
    assert asks("solve", out, "--noise", "estimated", "--iterations", 3)[0] == 0  # nothing left to gain


@pytest.mark.data
@pytest.mark.long
def test_parking_garage_announces_far_too_much_noise(data_file):
    """With the noise as announced, 5 of 462 false loops are believed, and the error is 3 m."""
    graph = read_g2o(data_file("g2o/parking-garage.g2o.bz2"))
    made = pose_graph_problem(graph, robust="none")
    truth = made.refined(asker.solve(made.problem, tol=1e-12).values).poses[:, :3]
    bad, is_false = add_false_loops(replace(graph, poses=odometry_poses(graph)), 0.1, "random", seed=1)
    found = solve_pose_graph(bad, run, asker.ASKER())
    assert not np.any(found.chosen.graph_problem.per_edge(found.chosen.result.within_inflection) & is_false)
    assert trajectory_error(found.chosen.refined.poses[:, :3], truth) < 0.003  # metres
    assert found.chosen.noise_scale < 0.1
    again = refit(found.chosen.graph_problem, found.chosen.result, asker.solve)
    assert trajectory_error(again.graph.poses[:, :3], truth) < 1e-4

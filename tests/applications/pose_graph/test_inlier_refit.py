"""Least squares with the edges that a robust solution keeps."""

import json
from dataclasses import replace

import numpy as np
import pytest

import asker
from asker.applications.pose_graph.formats.g2o import read_g2o, write_g2o
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.loops.false_loops import add_false_loops
from asker.applications.pose_graph.loops.inlier_refit import refit
from asker.applications.pose_graph.problem import PoseGraphProblem, pose_graph_problem
from synthetic_graphs import EVERY_KIND, assert_same_bits, circle, error

pytestmark = pytest.mark.slow


def solved(graph: PoseGraph, **settings) -> tuple[PoseGraphProblem, asker.Result]:
    made = pose_graph_problem(graph, **settings)
    return made, asker.solve(made.problem, threads=1, tol=1e-12)


@EVERY_KIND
def test_the_end_is_the_optimum_of_the_right_loops(kind):
    _, start = circle(kind)
    bad, is_false = add_false_loops(start, 0.5, "random", seed=1)
    made, result = solved(bad)
    rejected = made.rejected(result)
    assert rejected[is_false].all()
    again = refit(made, result, asker.solve)
    clean, best = solved(start.with_edges(~rejected[: start.n_edges]), robust="none")
    optimum = clean.refined(best.values)
    assert again.result.cost == pytest.approx(best.cost, rel=1e-10)
    assert error(again.graph, optimum) < 1e-7 < error(made.refined(result.values), optimum)
    assert_same_bits(replace(again.graph, poses=bad.poses), bad)  # the refused loops are in it, too


def test_poses_that_lose_all_edges_stay():
    _, start = circle()
    start.measurements[[9, 10], 0] += 50.0  # no loop ties pose 10
    made, result = solved(start, robust="all")
    assert set(np.flatnonzero(made.rejected(result)).tolist()) >= {9, 10}
    before, again = made.refined(result.values), refit(made, result, asker.solve)
    moved = np.any(again.graph.poses != before.poses, axis=1)
    assert np.flatnonzero(~moved).tolist() == [0, 10]
    assert again.result.cost <= again.result.initial_cost


@pytest.mark.parametrize("robust", ["loops", "all"])
def test_where_no_loop_is_kept_there_is_nothing_to_fit(robust):
    made = pose_graph_problem(circle()[1], asker.SmoothTruncated(1e-9), robust)
    result = asker.solve(made.problem, max_iterations=0)
    assert made.rejected(result)[~made.graph.is_odometry].all()
    assert refit(made, result, asker.solve) is None


def test_convex_kernels_refuse_nothing():
    made, result = solved(add_false_loops(circle()[1], 0.5, "random", seed=1)[0], kernel=asker.Huber(1.0))
    assert not result.inliers["loops"].all()
    assert not made.rejected(result).any()


def test_the_command_ends_with_it(asks, tmp_path):
    truth, start = circle(drift=0.02)
    file, true, told, out = (tmp_path / name for name in ("bad.g2o", "truth.g2o", "run.json", "out.g2o"))
    bad, _ = add_false_loops(start, 0.5, "random", seed=1)
    write_g2o(file, bad)
    write_g2o(true, truth)
    runs, ends = [], []
    for more in ([], ["--no-refit"], ["--iterations", 0], ["--time-limit", 0], ["--robust", "none"]):
        asks("solve", file, "--truth", true, "--json", told, "--output", out, *more)
        runs.append(json.loads(told.read_text()))
        ends.append(read_g2o(out))
    made, result = solved(bad)
    again = refit(made, result, asker.solve)
    optimum = again.graph
    assert error(ends[0], optimum) < 1e-7 < error(ends[1], optimum)
    assert runs[0]["refit"]["cost"] == pytest.approx(again.result.cost, rel=1e-10)
    assert runs[0]["cost"] == runs[1]["cost"]  # that of the method
    for run, end in zip(runs, ends, strict=True):
        assert run["trajectory_error"] == pytest.approx(error(end, truth), rel=1e-9)
    assert [run["refit"] is None for run in runs] == [False, True, True, True, True]
    assert (runs[2]["iterations"], runs[3]["status"]) == (0, "time_limit")
    assert "Least squares on the inliers: " in asks("solve", file)[1]


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_an_interrupt_before_it_costs_it_alone(asks, tmp_path, monkeypatch):
    file, told = tmp_path / "bad.g2o", tmp_path / "run.json"
    write_g2o(file, add_false_loops(circle()[1], 0.5, "random", seed=1)[0])
    monkeypatch.setattr("asker.applications.pose_graph.loops.inlier_refit.pose_graph_problem", interrupted)
    assert asks("solve", file, "--json", told)[0] == 0
    run = json.loads(told.read_text())
    assert run["refit"] is None
    assert run["cost"] < run["initial_cost"]


def test_it_has_the_time_that_is_left(asks, tmp_path, monkeypatch):
    file = tmp_path / "bad.g2o"
    write_g2o(file, add_false_loops(circle()[1], 0.5, "random", seed=1)[0])
    limits = []

    def solve(problem, strategy, time_limit=None, **settings):
        limits.extend([] if time_limit is None else [time_limit])  # the cost of the start has none
        return real(problem, strategy, **settings)

    real = asker.solve
    monkeypatch.setattr("asker.solve", solve)
    assert asks("solve", file, "--time-limit", 60)[0] == 0
    assert 60 >= limits[0] > limits[-1] > 0
    assert limits == sorted(limits, reverse=True)


def test_refused_odometry_is_told(asks, tmp_path):
    _, start = circle()
    start.measurements[[9, 10], 0] += 50.0
    write_g2o(tmp_path / "a.g2o", start)
    told = tmp_path / "run.json"
    code, text, _ = asks("solve", tmp_path / "a.g2o", "--robust", "all", "--json", told)
    assert code == 0
    assert "2 odometry edges rejected" in text
    assert json.loads(told.read_text())["refused_odometry"] == [[9, 10], [10, 11]]

"""Least squares with the inliers of a robust solution."""

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
def test_the_refit_is_the_optimum_of_the_true_loops(kind):
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
    assert_same_bits(replace(again.graph, poses=bad.poses), bad)  # including the rejected loops


def test_poses_without_accepted_edges_are_unchanged():
    _, start = circle()
    start.measurements[[9, 10], 0] += 50.0  # pose 10 has no loop
    made, result = solved(start, robust="all")
    assert set(np.flatnonzero(made.rejected(result)).tolist()) >= {9, 10}
    before, again = made.refined(result.values), refit(made, result, asker.solve)
    moved = np.any(again.graph.poses != before.poses, axis=1)
    assert np.flatnonzero(~moved).tolist() == [0, 10]
    assert again.result.cost <= again.result.initial_cost


@pytest.mark.parametrize("robust", ["loops", "all"])
def test_without_accepted_loops_there_is_no_refit(robust):
    made = pose_graph_problem(circle()[1], asker.SmoothTruncated(1e-9), robust)
    result = asker.solve(made.problem, max_iterations=0)
    assert made.rejected(result)[~made.graph.is_odometry].all()
    assert refit(made, result, asker.solve) is None


def test_convex_kernels_reject_nothing():
    made, result = solved(add_false_loops(circle()[1], 0.5, "random", seed=1)[0], kernel=asker.Huber(1.0))
    assert not result.inliers["loops"].all()
    assert not made.rejected(result).any()


def test_the_command_ends_with_a_refit(asks, tmp_path):
    truth, start = circle(drift=0.02)
    file, true, json_file, out = (tmp_path / name for name in ("bad.g2o", "truth.g2o", "run.json", "out.g2o"))
    bad, _ = add_false_loops(start, 0.5, "random", seed=1)
    write_g2o(file, bad)
    write_g2o(true, truth)
    runs, ends = [], []
    for more in ([], ["--no-refit"], ["--iterations", 0], ["--time-limit", 0], ["--robust", "none"]):
        asks("solve", file, "--truth", true, "--json", json_file, "--output", out, *more)
        runs.append(json.loads(json_file.read_text()))
        ends.append(read_g2o(out))
    made, result = solved(bad)
    again = refit(made, result, asker.solve)
    optimum = again.graph
    assert error(ends[0], optimum) < 1e-7 < error(ends[1], optimum)
    assert runs[0]["refit"]["cost"] == pytest.approx(again.result.cost, rel=1e-10)
    assert runs[0]["cost"] == runs[1]["cost"]  # cost of the robust solution
    for run, end in zip(runs, ends, strict=True):
        assert run["trajectory_error"] == pytest.approx(error(end, truth), rel=1e-9)
    assert [run["refit"] is None for run in runs] == [False, True, True, True, True]
    assert (runs[2]["iterations"], runs[3]["status"]) == (0, "time_limit")
    assert "Least squares on the inliers: " in asks("solve", file)[1]


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_an_interrupt_before_the_refit_skips_only_the_refit(asks, tmp_path, monkeypatch):
    file, json_file = tmp_path / "bad.g2o", tmp_path / "run.json"
    write_g2o(file, add_false_loops(circle()[1], 0.5, "random", seed=1)[0])
    monkeypatch.setattr("asker.applications.pose_graph.loops.inlier_refit.pose_graph_problem", interrupted)
    assert asks("solve", file, "--json", json_file)[0] == 0
    run = json.loads(json_file.read_text())
    assert run["refit"] is None
    assert run["cost"] < run["initial_cost"]


def test_the_refit_has_the_remaining_time(asks, tmp_path, monkeypatch):
    file = tmp_path / "bad.g2o"
    write_g2o(file, add_false_loops(circle()[1], 0.5, "random", seed=1)[0])
    limits = []

    def solve(problem, strategy, time_limit=None, **settings):
        limits.extend([] if time_limit is None else [time_limit])  # the evaluation of the initial cost has none
        return real(problem, strategy, **settings)

    real = asker.solve
    monkeypatch.setattr("asker.solve", solve)
    assert asks("solve", file, "--time-limit", 60)[0] == 0
    assert 60 >= limits[0] > limits[-1] > 0
    assert limits == sorted(limits, reverse=True)


def test_rejected_odometry_is_reported(asks, tmp_path):
    _, start = circle()
    start.measurements[[9, 10], 0] += 50.0
    write_g2o(tmp_path / "a.g2o", start)
    json_file = tmp_path / "run.json"
    code, text, _ = asks("solve", tmp_path / "a.g2o", "--robust", "all", "--json", json_file)
    assert code == 0
    assert "2 odometry edges rejected" in text
    assert json.loads(json_file.read_text())["refused_odometry"] == [[9, 10], [10, 11]]

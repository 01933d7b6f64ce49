"""Checkpoints of the loop search."""

import json

import numpy as np
import pytest

import asker
from asker.applications.pose_graph.formats.g2o import write_g2o
from asker.applications.pose_graph.loops.false_loops import add_false_loops
from asker.applications.pose_graph.refine import refine
from killed_solves import Killed
from synthetic_graphs import circle, with_stated_noise


def with_false_loops(n=30):
    """Return a graph that needs several rounds, exchanges, and a refit."""
    return add_false_loops(with_stated_noise(circle(n=n)[1], 10.0), 0.5, "random", seed=1)[0]


def assert_same(outcome, expected):
    assert len(outcome.search.rounds) == len(expected.search.rounds)
    for one, other in zip(outcome.search.rounds, expected.search.rounds, strict=True):
        assert one.noise_scale == other.noise_scale
        assert_same_result(one.result, other.result)
    assert (outcome.refit is None) == (expected.refit is None)
    if expected.refit:
        assert_same_result(outcome.refit.result, expected.refit.result)
    np.testing.assert_array_equal(outcome.refined.poses, expected.refined.poses)
    np.testing.assert_array_equal(outcome.rejected, expected.rejected)


def assert_same_result(result, expected):
    assert [(h.cost, h.details) for h in result.history] == [(h.cost, h.details) for h in expected.history]
    assert (result.cost, result.initial_cost, result.status) == (expected.cost, expected.initial_cost, expected.status)
    for name in ("values", "residuals", "weights", "inliers"):
        for a, b in zip(getattr(result, name), getattr(expected, name), strict=True):
            np.testing.assert_array_equal(a, b)


class Lines:
    """Callback that records iterations of all solves and kills the run at a given one."""

    def __init__(self, at=None):
        self.at, self.iterations = at, []

    def __call__(self, line):
        self.iterations.append((line.iteration, line.cost))
        if len(self.iterations) - 1 == self.at:
            raise Killed


@pytest.mark.parametrize("make", [with_false_loops, lambda: circle(n=200)[1]], ids=["false loops", "clean"])
def test_a_resumed_search_has_the_result_of_an_uninterrupted_one(make, tmp_path):
    """The search is killed repeatedly, after a fixed number of iterations."""
    graph, file = make(), tmp_path / "run.npz"
    every = Lines()
    expected = refine(graph, engine="cpu", on_iteration=every)
    n = len(every.iterations)
    lines, n_kills = Lines(at=max(n // 9, 3)), 0
    while True:
        try:
            outcome = refine(graph, engine="cpu", checkpoint=file, every=2, on_iteration=lines)
            break
        except Killed:
            assert len(lines.iterations) < n  # completed iterations are not repeated
            lines, n_kills = Lines(lines.at), n_kills + 1
    assert n_kills > (5 if make is with_false_loops else 0)
    assert_same(outcome, expected)
    assert outcome.result.continued_from > 0
    done = Lines()
    assert_same(refine(graph, engine="cpu", checkpoint=file, on_iteration=done), expected)
    assert not done.iterations


@pytest.mark.parametrize("limit", [{"time_limit": 0.0}, {"max_iterations": 3}])
def test_a_search_stopped_by_a_limit_resumes(limit, tmp_path):
    graph, file = with_false_loops(), tmp_path / "run.npz"
    how = {"method": "irls", "engine": "cpu"}  # asker's schedule depends on max_iterations
    first = refine(graph, checkpoint=file, **how, **limit)
    assert first.result.iterations <= 3
    assert_same(refine(graph, checkpoint=file, **how), refine(graph, **how))


def test_a_search_interrupted_between_two_solves_resumes(tmp_path, monkeypatch):
    graph, file = with_false_loops(), tmp_path / "run.npz"

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("asker.applications.pose_graph.loops.loop_search.GraphSearch._exchange_inliers", interrupted)
        assert refine(graph, checkpoint=file).search.stopped_early
    done = Lines()
    assert_same(refine(graph, checkpoint=file, on_iteration=done), refine(graph))
    assert [x for x in done.iterations if x[0] == 0] != []


def test_a_checkpoint_of_another_problem_is_rejected(tmp_path):
    graph, file = with_false_loops(), tmp_path / "run.npz"
    refine(graph, checkpoint=file)
    for other, how, said in (
        (graph, {"method": "irls"}, "another strategy"),
        (graph, {"noise": "announced"}, "another strategy"),
        (graph, {"tau": 3.0}, "another kernel or τ"),
        (with_false_loops(63), {}, "another problem"),
    ):
        with pytest.raises(asker.FileError, match=said):
            refine(other, checkpoint=file, **how)


def test_a_checkpoint_does_not_change_the_result_of_the_command(asks, tmp_path):
    file, json_file, saved = tmp_path / "bad.g2o", tmp_path / "run.json", tmp_path / "run.npz"
    write_g2o(file, with_false_loops())
    runs = []
    for more in ([], ["--checkpoint", saved], ["--checkpoint", saved]):
        code, out, _ = asks("solve", file, "--json", json_file, *more)
        runs.append(json.loads(json_file.read_text()))
        assert code == 0
    assert "Continued from iteration " in out
    for name in ("noise", "cost", "noise_share", "refused_loops", "iterations"):
        assert runs[0][name] == runs[1][name] == runs[2][name]
    assert runs[0]["refit"]["cost"] == runs[1]["refit"]["cost"] == runs[2]["refit"]["cost"]


def test_a_checkpoint_with_another_tolerance_is_rejected(tmp_path):
    graph, file = circle(n=60)[1], tmp_path / "run.npz"
    refine(graph, engine="cpu", checkpoint=file, tol=1e-2)
    with pytest.raises(ValueError, match="another"):
        refine(graph, engine="cpu", checkpoint=file, tol=1e-9)


def test_the_record_does_not_depend_on_later_changes_of_the_graph():
    graph = circle(n=60)[1]
    expected = refine(graph, engine="cpu").record["initial_cost"]
    outcome = refine(graph, engine="cpu")
    graph.poses[30:] += 5
    assert outcome.record["initial_cost"] == expected

"""A search that was killed continues from its file, and ends as if nothing had happened."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import asker
from asker.applications import bundle
from asker.search.driver import SearchRun
from asker.search.generators import GENERATORS
from killed_solves import Killed, kill_at
from search_problems import Interrupted, circle_problem, points_of_line, problem_of_lines


def scene_problem():
    """Return a problem with many unknowns and near outliers, whose inlier sets are enumerated."""
    scene = bundle.make_scene(6, 300, noise=2.0, outlier_ratio=0.5, start_error=15.0, seed=4)
    return bundle.bundle_problem(scene.start).problem


def unlike_groups():
    """Return two groups whose noise differs, so that the final solve is on a balanced problem."""
    rng = np.random.default_rng(2)
    return problem_of_lines(points_of_line(rng, 40, 0.2)[:2], points_of_line(rng, 40, 0.002)[:2])


def rounded_line():
    """Return a line to rounded data, which raise the lower bound of the noise in the middle of the search."""
    rng = np.random.default_rng(0)
    x, y, _ = points_of_line(rng, 200, 0.3, outliers=0.25)
    return problem_of_lines((x, np.round(y)))


PROBLEMS = {
    "circle": lambda: circle_problem(0.1, 0.4, 3, n=60),
    "scene": scene_problem,
    "groups": unlike_groups,
    "rounded": rounded_line,
}
"""Problems that use different parts of the state."""


def assert_same(result, expected):
    assert [(h.iteration, h.cost, h.details) for h in result.history] == [
        (h.iteration, h.cost, h.details) for h in expected.history
    ]
    for a, b in zip(result.values, expected.values, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (result.cost, result.noise[0], result.doubts) == (expected.cost, expected.noise[0], expected.doubts)
    assert [a.evidence_difference for a in result.alternatives] == [
        a.evidence_difference for a in expected.alternatives
    ]
    assert result.status is expected.status


@pytest.mark.parametrize("name", ["circle", *(pytest.param(x, marks=pytest.mark.slow) for x in [*PROBLEMS][1:])])
def test_a_search_that_is_killed_after_every_saved_state_has_the_same_result(name, tmp_path, monkeypatch):
    problem, file = PROBLEMS[name](), tmp_path / "run.npz"
    whole = asker.solve(problem, engine="cpu")
    write, n_killed = SearchRun._write, 0

    def killed(self, at_the_end=False):
        write(self, at_the_end)
        if not at_the_end:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(SearchRun, "_write", killed)
        while True:
            try:
                result = asker.solve(problem, checkpoint=file, every=1, engine="cpu")
                break
            except Killed:
                n_killed += 1
    assert n_killed > 5
    assert_same(result, whole)
    assert_same(asker.solve(problem, checkpoint=file, engine="cpu"), whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["circle", "scene"])
def test_a_search_that_is_killed_in_every_stage_has_the_same_result(name, tmp_path):
    """It is killed once in the middle of each stage, one kill after the other."""
    problem, file = PROBLEMS[name](), tmp_path / "run.npz"
    whole = asker.solve(problem, engine="cpu")
    stages = np.array([line.details["stage"] for line in whole.history])
    middles = sorted(int(np.median(np.flatnonzero(stages == name))) for name in set(stages) - {"start"})
    assert len(middles) >= 3
    for middle in middles:
        with pytest.raises(Killed):
            asker.solve(problem, checkpoint=file, every=4, engine="cpu", on_iteration=kill_at(middle))
    assert_same(asker.solve(problem, checkpoint=file, engine="cpu"), whole)


@pytest.mark.parametrize("n", [0, 1, 20, 45, 75])
def test_a_search_that_a_limit_has_ended_goes_on(n, tmp_path):
    problem, file = circle_problem(0.1, 0.4, 3), tmp_path / "run.npz"
    first = asker.solve(problem, max_iterations=n, checkpoint=file)
    assert (first.iterations, first.status) == (n, asker.Status.MAX_ITERATIONS)
    assert_same(asker.solve(problem, checkpoint=file), asker.solve(problem))


def test_what_was_done_is_not_done_again(tmp_path):
    problem, file = circle_problem(0.1, 0.4, 3), tmp_path / "run.npz"
    whole = asker.solve(problem)
    asker.solve(problem, max_iterations=whole.iterations - 5, checkpoint=file)
    lines = []
    asker.solve(problem, checkpoint=file, on_iteration=lines.append)
    assert 5 <= len(lines) < whole.iterations / 2


def test_an_interrupt_between_two_descents_leaves_a_file_that_goes_on(tmp_path):
    problem, file = circle_problem(0.1, 0.4, 3), tmp_path / "run.npz"
    once = asker.Search((*GENERATORS[:3], InterruptedOnce(), *GENERATORS[3:]))
    assert asker.solve(problem, once, checkpoint=file).status is asker.Status.INTERRUPTED
    assert_same(asker.solve(problem, once, checkpoint=file), asker.solve(problem, once))


class InterruptedOnce(Interrupted):
    """A generator that is interrupted once, and then has no starts."""

    n = 0

    def __repr__(self):
        return "InterruptedOnce()"

    def starts(self, context, state):
        self.n += 1
        if self.n == 1:
            raise KeyboardInterrupt
        return iter(())


def test_a_file_of_something_else_is_refused(tmp_path):
    problem, file = circle_problem(0.1, 0.4, 3), tmp_path / "run.npz"
    asker.solve(problem, max_iterations=60, checkpoint=file)
    with pytest.raises(asker.FileError, match=r"another strategy .*estimated noise, Search.*, not IRLS"):
        asker.solve(problem, asker.IRLS(), checkpoint=file)
    with pytest.raises(asker.FileError, match="another problem"):
        asker.solve(circle_problem(0.1, 0.4, 4), checkpoint=file)
    with pytest.raises(asker.FileError, match="of another start"):
        asker.solve(problem, checkpoint=file, start={"circle": np.array([[1.0, 2.0, 3.0]])})
    with pytest.raises(asker.FileError, match=r"another strategy .*tol 1e-09, not .*tol 0\.1"):
        asker.solve(problem, checkpoint=file, tol=0.1)
    for method in (asker.Search(GENERATORS[:2]), asker.Search(settings=asker.SearchSettings(gain_nats=0.1))):
        with pytest.raises(asker.FileError, match="another strategy or has other settings"):
            asker.solve(problem, method, checkpoint=file)
    file.write_bytes(file.read_bytes()[:3000])
    with pytest.raises(asker.FileError, match="no checkpoint of asker, or a broken one"):
        asker.solve(problem, checkpoint=file)


@pytest.mark.slow
def test_another_process_reads_the_file(tmp_path):
    """Addresses of functions in the settings differ between processes."""
    file = tmp_path / "run.npz"
    problem = circle_problem(0.1, 0.4, 3)
    asker.solve(problem, max_iterations=40, checkpoint=file)
    code = (
        "import sys, asker; sys.path.append(sys.argv[1]); from search_problems import circle_problem;"
        "print(asker.solve(circle_problem(0.1, 0.4, 3), checkpoint=sys.argv[2]).cost.hex())"
    )
    helpers = str(Path(__file__).resolve().parents[1] / "helpers")
    found = subprocess.run([sys.executable, "-c", code, helpers, file], capture_output=True, text=True, check=True)
    assert float.fromhex(found.stdout.strip()) == asker.solve(problem).cost


def test_nothing_given_means_the_same_with_a_checkpoint(tmp_path):
    scene = bundle.make_scene(6, 600, noise=2.0, outlier_ratio=0.3, seed=4)
    found = [bundle.refine(scene.start, **more).record for more in ({}, {"checkpoint": tmp_path / "run.npz"})]
    assert found[1]["finds_noise"]
    assert found[1]["cost"] == found[0]["cost"]
    assert found[1]["noise"] == found[0]["noise"]


def test_every_field_of_a_candidate_is_in_the_file(tmp_path):
    """A candidate whose fields all differ from their defaults is the same after reading."""
    from asker.engines.cpu.engine import CpuEngine
    from asker.search.state import Candidate, SearchCheckpoint, SearchSnapshot, SearchState
    from asker.solver.result import Iteration
    from asker.statistics.scale_mixture import Outliers, ScaleMixture
    from asker.strategies.irls import IRLS

    engine = CpuEngine(circle_problem(0.1, 0.4, 3, n=20))
    start = IRLS().init(engine, engine.start(), 0)
    model = ScaleMixture(0.3, 0.6, 4.0, Outliers.SPARSE)
    one = Candidate("x", Outliers.SPARSE, engine.start(), (model,), (np.arange(20.0),), -3.0, 2.0, 0.4, True)
    line = Iteration(0, start.cost, start.cost, 0.5, 1e-3, True, {"stage": "start"})
    state = SearchState(None, (one,), ("x 1, sparse",), ("x 2, clutter", replace(one, support=0.3), (0.1,)))
    SearchCheckpoint(tmp_path / "x.npz", 1, engine, IRLS()).read_search(start)  # no file yet
    file = SearchCheckpoint(tmp_path / "x.npz", 1, engine, IRLS())
    file.of |= {"start": None}
    file.read_tree(start)
    file.write(SearchSnapshot(state, [line], 1.0))
    found = file.read_search(start)
    assert found is not None
    assert (found.history, found.seconds, found.state.finished) == ([line], 1.0, state.finished)
    for a, b in zip((*found.state.candidates, found.state.under_way[1]), (one, state.under_way[1]), strict=True):
        for field in ("name", "hypothesis", "models", "evidence", "mixture_evidence", "support", "is_marginal"):
            assert getattr(a, field) == getattr(b, field), field
        np.testing.assert_array_equal(a.leverage[0], b.leverage[0])
        np.testing.assert_array_equal(engine.rows(a.point)[0], engine.rows(b.point)[0])
    assert found.state.under_way[0::2] == ("x 2, clutter", (0.1,))

"""A search for the noise that was killed goes on, and ends as if nothing had happened."""

import numpy as np
import pytest

import asker
from asker.applications import bundle
from asker.search.search import Search
from killed_solves import Killed, kill_at
from search_problems import circle_problem, points_of_line, problem_of_lines


def scene_problem():
    """Many unknowns: the end has moves, with draws; then observations count in part."""
    scene = bundle.make_scene(6, 600, noise=2.0, outlier_ratio=0.5, start_error=15.0, seed=4)
    return bundle.bundle_problem(scene.start).problem


def unlike_groups():
    """The search begins again, with groups that count otherwise."""
    rng = np.random.default_rng(2)
    return problem_of_lines(points_of_line(rng, 40, 0.2)[:2], points_of_line(rng, 40, 0.002)[:2])


def killed(problem, at, file):
    """The iterations of a run that is killed at one of them."""
    seen = []

    def on_iteration(line):
        seen.append(line.iteration)
        kill_at(at)(line)

    with pytest.raises(Killed):
        asker.solve(problem, checkpoint=file, every=4, engine="cpu", on_iteration=on_iteration)
    return seen


def assert_same(result, expected):
    assert [(h.iteration, h.cost, h.details) for h in result.history] == [
        (h.iteration, h.cost, h.details) for h in expected.history
    ]
    for a, b in zip(result.values, expected.values, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (result.cost, result.noise[0], result.doubts) == (expected.cost, expected.noise[0], expected.doubts)
    assert result.status is expected.status


@pytest.mark.parametrize(
    ("make", "n_stages"), [(lambda: circle_problem(0.1, 0.4, 3), 5), (scene_problem, 3), (unlike_groups, 5)]
)
def test_a_search_goes_on_as_if_nothing_had_happened(make, n_stages, tmp_path):
    """It is killed once in each stage, in its middle, one kill after the other."""
    problem, file = make(), tmp_path / "run.npz"
    whole = asker.solve(problem, engine="cpu")
    stages = [line.details["stage"] for line in whole.history]
    middles = sorted(int(np.median(np.flatnonzero(np.array(stages) == name))) for name in set(stages) - {"start"})
    assert len(middles) >= n_stages
    assert ("weighed" in stages) == (make is scene_problem)
    before = 0
    for middle in middles:
        seen = killed(problem, middle, file)
        assert before == 0 or seen[0] >= before - 4  # what was done before is not done again
        before = middle
    assert_same(asker.solve(problem, checkpoint=file, engine="cpu"), whole)
    lines = []
    assert_same(asker.solve(problem, checkpoint=file, engine="cpu", on_iteration=lines.append), whole)
    assert not lines  # all is done


@pytest.mark.parametrize("n", [0, 1, 20, 45])
def test_a_search_that_a_limit_has_ended_goes_on(n, tmp_path):
    problem, file = circle_problem(0.1, 0.4, 3), tmp_path / "run.npz"
    first = asker.solve(problem, max_iterations=n, checkpoint=file)
    assert (first.iterations, first.status) == (n, asker.Status.MAX_ITERATIONS)
    assert_same(asker.solve(problem, checkpoint=file), asker.solve(problem))


@pytest.mark.parametrize("n", [3, 9, 13])
@pytest.mark.parametrize(("kind", "outliers"), [("gross", 0.1), ("near", 0.6)], ids=["proved", "not proved"])
def test_a_first_way_down_that_a_limit_has_ended_goes_on(kind, outliers, n, tmp_path):
    how = {"noise": 1.5, "start_error": 5.0, "outlier_ratio": outliers, "outlier_kind": kind}
    scene = bundle.make_scene(20, 8000, seed=660_002, **how)
    problem, file = bundle.bundle_problem(scene.start, None).problem, tmp_path / "run.npz"
    first = asker.solve(problem, max_iterations=n, checkpoint=file)
    assert (first.iterations, first.status) == (n, asker.Status.MAX_ITERATIONS)
    assert "following" in {line.details["stage"] for line in first.history}
    assert_same(asker.solve(problem, checkpoint=file), asker.solve(problem))


def test_an_interrupt_between_two_descents_leaves_a_file_that_goes_on(tmp_path, monkeypatch):
    problem, file = circle_problem(0.1, 0.4, 3), tmp_path / "run.npz"

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("asker.search.search.Subsets.best", interrupted)
        assert asker.solve(problem, checkpoint=file).status is asker.Status.INTERRUPTED
    assert_same(asker.solve(problem, checkpoint=file), asker.solve(problem))


def test_a_file_of_something_else_is_refused(tmp_path, monkeypatch):
    problem, file = circle_problem(0.1, 0.4, 3), tmp_path / "run.npz"
    asker.solve(problem, max_iterations=60, checkpoint=file)
    with pytest.raises(asker.FileError, match=r"another strategy .*estimated noise, ASKER.*, not IRLS"):
        asker.solve(problem, asker.IRLS(), checkpoint=file)
    with pytest.raises(asker.FileError, match="another problem"):
        asker.solve(circle_problem(0.1, 0.4, 4), checkpoint=file)
    with pytest.raises(asker.FileError, match="of another start"):
        asker.solve(problem, checkpoint=file, start={"circle": np.array([[1.0, 2.0, 3.0]])})
    with pytest.raises(asker.FileError, match=r"another strategy .*tol 1e-09, not .*tol 0\.1"):
        asker.solve(problem, checkpoint=file, tol=0.1)
    ends = Search._ends
    with monkeypatch.context() as patch:
        patch.setattr(Search, "_ends", lambda self, start: ((f"{name}, anew", x) for name, x in ends(self, start)))
        with pytest.raises(
            asker.FileError, match="another search: its next stage is 'compare from the start', expected"
        ):
            asker.solve(problem, checkpoint=file)
    file.write_bytes(file.read_bytes()[:3000])
    with pytest.raises(asker.FileError, match="no checkpoint of asker, or a broken one"):
        asker.solve(problem, checkpoint=file)


def test_nothing_given_means_the_same_with_a_checkpoint(tmp_path):
    scene = bundle.make_scene(6, 600, noise=2.0, outlier_ratio=0.3, seed=4)
    found = [bundle.refine(scene.start, **more).record for more in ({}, {"checkpoint": tmp_path / "run.npz"})]
    assert found[1]["finds_noise"]
    assert found[1]["cost"] == found[0]["cost"]
    assert found[1]["noise"] == found[0]["noise"]


def test_a_proved_search_that_is_interrupted_keeps_what_it_has(monkeypatch):
    """Ctrl-C between two descents of its end."""
    scene = bundle.make_scene(20, 5000, noise=0.5, outlier_ratio=0.0, start_error=24.0, seed=95_013)
    problem = bundle.bundle_problem(scene.start, None).problem

    def interrupted(self, end):
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "_weighed", interrupted)
    result = asker.solve(problem)
    assert result.status is asker.Status.INTERRUPTED
    assert {line.details["stage"] for line in result.history} == {"start", "following", "end"}
    assert result.noise[0].sigma == pytest.approx(0.5, rel=0.1)
    assert result.cost < 0.2 * result.initial_cost

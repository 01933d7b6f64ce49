"""A run that was killed continues from its checkpoint, as if nothing had happened."""

import os

import numpy as np
import pytest

import asker
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.scenes import make_scene
from engines.linear_problems import line_problem

pytestmark = pytest.mark.filterwarnings("ignore:engine xla without a GPU")
METHODS = sorted(asker.METHODS)


class Killed(Exception):
    pass


def kill_at(n):
    def on_iteration(line):
        if line.iteration == n:
            raise Killed

    return on_iteration


@pytest.mark.parametrize("method", METHODS)
def test_a_run_continues_as_if_nothing_had_happened(method, tmp_path):
    problem = bundle_problem(make_scene(8, 600).start).problem
    options = {"max_iterations": 12, "tol": 0, "engine": "cpu"}
    whole = asker.solve(problem, asker.METHODS[method](), **options)
    options |= {"checkpoint": tmp_path / "run.npz", "every": 4}
    with pytest.raises(Killed):
        asker.solve(problem, asker.METHODS[method](), on_iteration=kill_at(6), **options)
    result = asker.solve(problem, asker.METHODS[method](), **options)
    assert [h.cost for h in result.history] == [h.cost for h in whole.history]
    assert result.history[-1].details == whole.history[-1].details
    assert result.cost == whole.cost
    assert result.initial_cost == whole.initial_cost


@pytest.mark.slow
def test_a_run_of_the_cpu_continues_on_xla(tmp_path):
    problem = bundle_problem(make_scene(8, 600).start).problem
    options = {"max_iterations": 8, "tol": 0}
    whole = asker.solve(problem, engine="cpu", **options)
    options |= {"checkpoint": tmp_path / "run.npz", "every": 3}
    with pytest.raises(Killed):
        asker.solve(problem, engine="cpu", on_iteration=kill_at(5), **options)
    result = asker.solve(problem, engine="xla", **options)
    np.testing.assert_allclose([h.cost for h in result.history], [h.cost for h in whole.history], rtol=1e-8)


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    file = tmp_path / "run.npz"
    asker.solve(line_problem(), asker.GNC(), max_iterations=3, checkpoint=file)
    with pytest.raises(ValueError, match=r"run\.npz: this checkpoint is of another problem"):
        asker.solve(line_problem(0.1), asker.GNC(), checkpoint=file)
    with pytest.raises(ValueError, match=r"run\.npz: this checkpoint is of another strategy.*GNC.*not IRLS"):
        asker.solve(line_problem(), asker.IRLS(), checkpoint=file)
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"run\.npz: this is no checkpoint of asker, or a broken one"):
        asker.solve(line_problem(), asker.GNC(), checkpoint=file)
    with pytest.raises(ValueError, match="every must be at least 1"):
        asker.solve(line_problem(), checkpoint=tmp_path / "new.npz", every=0)
    assert os.listdir(tmp_path) == ["run.npz"]

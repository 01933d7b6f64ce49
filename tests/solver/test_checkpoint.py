"""A run that was killed continues from its checkpoint, as if nothing had happened."""

import errno
import os
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from asker.io.npz import digest, read_npz, write_npz
from asker.solver.checkpoint import Checkpoint
from killed_solves import Killed, kill_at
from linear_problems import line_problem

pytestmark = pytest.mark.filterwarnings("ignore:engine xla without a GPU")
METHODS = sorted(asker.METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_continues_as_if_nothing_had_happened(method, tmp_path):
    problem = bundle_problem(make_scene(8, 600).start).problem
    options = {"max_iterations": 24, "tol": 0, "engine": "cpu"}
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
    whole = asker.solve(problem, asker.ASKER(), engine="cpu", **options)
    options |= {"checkpoint": tmp_path / "run.npz", "every": 3}
    with pytest.raises(Killed):
        asker.solve(problem, asker.ASKER(), engine="cpu", on_iteration=kill_at(5), **options)
    result = asker.solve(problem, asker.ASKER(), engine="xla", **options)
    np.testing.assert_allclose([h.cost for h in result.history], [h.cost for h in whole.history], rtol=1e-8)


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    file = tmp_path / "run.npz"
    asker.solve(line_problem(), asker.GNC(), max_iterations=3, checkpoint=file)
    with pytest.raises(ValueError, match=r"run\.npz: this checkpoint is of another problem"):
        asker.solve(line_problem(0.1), asker.GNC(), checkpoint=file)
    with pytest.raises(ValueError, match=r"run\.npz: this checkpoint is of another strategy.*GNC.*not IRLS"):
        asker.solve(line_problem(), asker.IRLS(), checkpoint=file)
    wide = line_problem().with_kernel(asker.SmoothTruncated(3.0))
    with pytest.raises(ValueError, match=r"another kernel or τ: .*SmoothTruncated\(tau=.*, not .*\(tau=3.0\)"):
        asker.solve(wide, asker.GNC(), checkpoint=file)
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"run\.npz: this is no checkpoint of asker, or a broken one"):
        asker.solve(line_problem(), asker.GNC(), checkpoint=file)


def test_a_run_says_where_it_continued(tmp_path, caplog):
    file = tmp_path / "run.npz"
    assert asker.solve(line_problem(), asker.GNC(), max_iterations=3, checkpoint=file).continued_from == 0
    with caplog.at_level("INFO", logger="asker"):
        result = asker.solve(line_problem(), asker.GNC(), max_iterations=5, checkpoint=file)
    assert result.continued_from == 3
    assert "continued from iteration 3" in str(result)
    assert f"continued from iteration 3 of {file}" in caplog.text
    with pytest.raises(ValueError, match="every must be at least 1"):
        asker.solve(line_problem(), asker.GNC(), checkpoint=tmp_path / "new.npz", every=0)
    assert os.listdir(tmp_path) == ["run.npz"]


# ------------------------------------------------------------------ what is stored is not believed

DATA = np.arange(12.0).reshape(6, 2)


def problem_of(residual, kernel=None, **more):
    x = asker.Variables(np.full((1, 2), 3.0), name="x")
    slot = x[np.zeros(len(DATA), int)]
    kernel = kernel or asker.SmoothTruncated(20.0)
    return asker.Problem(asker.Factors(residual, slot, data=DATA, kernel=kernel, name="f", **more))


def plain(x, d):
    return x - d


def scaled(factor):
    return lambda x, d: factor * (x - d)


def shifted(offset):
    return lambda x, d: x - d + jnp.asarray(offset)


def branched(slope):
    return lambda x, d: jnp.where(d > 100.0, slope * x, x - d)


class Wide(asker.Cauchy):
    def unit_psi(self, v):
        return 2 * super().unit_psi(v)


Wide.__qualname__ = Wide.__name__ = "Cauchy"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (problem_of(plain), problem_of(scaled(10.0))),
        (problem_of(scaled(1.0)), problem_of(scaled(1.0 + 1e-15))),
        (problem_of(shifted([0.0, 0.0])), problem_of(shifted([0.0, 1e-9]))),
        (problem_of(branched(1.0)), problem_of(branched(2.0))),  # the data never takes that branch
        (problem_of(plain, asker.Cauchy()), problem_of(plain, Wide())),
    ],
    ids=["factor", "last digit", "closed over", "branch", "kernel"],
)
def test_a_checkpoint_of_another_residual_function_is_refused(before, after, tmp_path):
    file = tmp_path / "run.npz"
    asker.solve(before, asker.IRLS(), max_iterations=2, checkpoint=file)
    with pytest.raises(asker.FileError, match=r"another problem \(other data, or another residual function\)"):
        asker.solve(after, asker.IRLS(), checkpoint=file)
    asker.solve(before, asker.IRLS(), checkpoint=file)


def batched(of_residual, of_jacobian):
    def residual(x, d):
        return of_residual * (x - d)

    return problem_of(residual, jacobian=lambda x, d: of_jacobian * np.broadcast_to(np.eye(2), (len(d), 2, 2)))


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (batched(0.1, 1.0), r"states a cost of .* at its start, where it is"),
        (batched(1.0, 0.5), r"another problem \(another NumPy function `jacobian`\)"),
        (batched(1.0, -1.0), r"another problem \(another NumPy function `jacobian`\)"),
    ],
    ids=["residual", "jacobian", "sign"],
)
def test_a_checkpoint_of_another_numpy_function_is_refused_by_its_values(after, said, tmp_path):
    file = tmp_path / "run.npz"
    asker.solve(batched(1.0, 1.0), asker.IRLS(), max_iterations=2, checkpoint=file)
    with pytest.raises(asker.FileError, match=said):
        asker.solve(after, asker.IRLS(), checkpoint=file)
    assert asker.solve(batched(1.0, 1.0 + 1e-12), asker.IRLS(), checkpoint=file).continued_from == 2


def in_front(border):
    return lambda x, d: x[0] - d[0] + border


@pytest.mark.parametrize("strategy", [asker.IRLS(), None], ids=["kernel", "noise that is sought"])
def test_a_checkpoint_of_another_condition_is_refused(strategy, tmp_path):
    """`valid=` says which observations are possible, and so what the answer is."""
    file, kernel = tmp_path / "run.npz", None if strategy is None else asker.Cauchy()

    def problem(valid):
        factors = problem_of(plain, valid=valid).factors[0]
        if kernel is not None:
            return asker.Problem(factors)
        return asker.Problem(asker.Factors(plain, *factors.slots, data=DATA, valid=valid, name="f"))

    asker.solve(problem(in_front(100.0)), strategy, max_iterations=2, checkpoint=file)
    for other in (in_front(50.0), None, lambda x, d: x[0] - d[0]):
        with pytest.raises(asker.FileError, match="this checkpoint is of another problem"):
            asker.solve(problem(other), strategy, max_iterations=2, checkpoint=file)
    assert asker.solve(problem(in_front(100.0)), strategy, max_iterations=2, checkpoint=file).continued_from == 2


def test_a_checkpoint_of_another_start_is_refused_even_if_its_cost_is_the_same(tmp_path):
    file, data = tmp_path / "run.npz", np.array([[-1.0, 0.0], [1.0, 0.0]])
    x = asker.Variables([[0.0, 2.0]], name="x")
    problem = asker.Problem(asker.Factors(plain, x[np.zeros(2, int)], data=data, kernel=asker.SmoothTruncated(5.0)))
    left, right = {"x": [[-3.0, 2.0]]}, {"x": [[3.0, 2.0]]}
    asker.solve(problem, asker.IRLS(), max_iterations=1, start=left, checkpoint=file)
    for start in (right, None):
        with pytest.raises(asker.FileError, match=r"another start \(other initial values\)"):
            asker.solve(problem, asker.IRLS(), start=start, checkpoint=file)
    assert asker.solve(problem, asker.IRLS(), start=left, checkpoint=file).continued_from == 1


def test_a_checkpoint_of_other_groups_whose_noise_is_sought_is_refused(tmp_path):
    """A group without a kernel and one with the kernel that stands in its place are not the same."""
    x, file = asker.Variables(np.zeros((1, 2)), name="x"), tmp_path / "run.npz"

    def problem(*kernels):
        slot = x[np.zeros(len(DATA), int)]
        return asker.Problem(
            *(asker.Factors(plain, slot, data=DATA, kernel=k, name=name) for k, name in zip(kernels, "ab", strict=True))
        )

    asker.solve(problem(None, asker.SmoothTruncated()), max_iterations=2, checkpoint=file)
    with pytest.raises(asker.FileError, match="of another problem"):
        asker.solve(problem(asker.SmoothTruncated(), None), max_iterations=2, checkpoint=file)


def test_large_integers_have_fingerprints_of_their_own():
    def fingerprint(number):
        factors = asker.Factors(lambda x, d: x - d, asker.Variables([0.0])[[0]], data=np.array([number]))
        return asker.Problem(factors).fingerprint()

    assert fingerprint(2**60) == fingerprint(2**60)
    assert fingerprint(2**60) != fingerprint(2**60 + 1)


@dataclass(frozen=True)
class WithAFunction(asker.IRLS):
    function: object = None


def test_an_address_in_a_setting_makes_no_other_strategy(tmp_path):
    """It is another one in every process."""
    file = tmp_path / "run.npz"
    for begun in (0, 2):
        strategy = WithAFunction(function=lambda: None)
        result = asker.solve(problem_of(plain), strategy, max_iterations=2, tol=0, checkpoint=file)
        assert result.continued_from == begun


def test_the_same_function_has_the_same_fingerprint_in_every_process():
    """As far as one process can tell: made and traced anew, it has other addresses."""
    assert problem_of(branched(1.0)).fingerprint() == problem_of(branched(1.0)).fingerprint()


@pytest.mark.parametrize("which", ["state", "best"])
@pytest.mark.parametrize("wrong", [0.0, float("nan"), 1e9])
def test_a_stored_cost_is_compared_with_the_one_that_is_evaluated(which, wrong, tmp_path, monkeypatch):
    file, write = tmp_path / "run.npz", Checkpoint.write

    def altered(self, snapshot):
        write(self, replace(snapshot, **{which: replace(getattr(snapshot, which), cost=wrong)}))

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "write", altered)
        asker.solve(problem_of(plain), asker.IRLS(), max_iterations=2, checkpoint=file)
    with pytest.raises(asker.FileError, match=r"run\.npz: this checkpoint states a cost of .* point, where it is"):
        asker.solve(problem_of(plain), asker.IRLS(), checkpoint=file)


def test_a_changed_file_is_refused(tmp_path):
    file = tmp_path / "run.npz"
    asker.solve(problem_of(plain), asker.IRLS(), max_iterations=2, checkpoint=file)
    tree, arrays = read_npz(file, "checkpoint")
    for key, value in {"seconds": 7.0, "history": tree["history"][:-1]}.items():
        write_npz(file, tree | {key: value}, arrays)
        with pytest.raises(asker.FileError, match="its digest does not match"):
            asker.solve(problem_of(plain), asker.IRLS(), checkpoint=file)
    write_npz(file, tree, {name: array + 1.0 for name, array in arrays.items()})
    with pytest.raises(asker.FileError, match="its digest does not match"):
        asker.solve(problem_of(plain), asker.IRLS(), checkpoint=file)
    assert tree["digest"] == digest(tree, arrays)


# ------------------------------------------------------------------ nothing is lost


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_checkpoint_that_cannot_be_written_does_not_cost_the_solve(tmp_path, monkeypatch):
    whole = asker.solve(problem_of(plain), asker.IRLS(), max_iterations=5, tol=0)
    monkeypatch.setattr(os, "fsync", full_disk)
    options = {"max_iterations": 5, "tol": 0, "checkpoint": tmp_path / "run.npz", "every": 1}
    with pytest.warns(UserWarning, match=r"the solve continues: .*run\.npz: cannot be written: No space") as told:
        result = asker.solve(problem_of(plain), asker.IRLS(), **options)
    assert len(told) == 1
    assert [h.cost for h in result.history] == [h.cost for h in whole.history]
    assert "No space left" in result.unwritten
    assert "the checkpoint was not written" in result.message
    assert os.listdir(tmp_path) == []


def test_a_disk_that_has_room_again_is_no_failure(tmp_path, monkeypatch):
    real = os.fsync

    def room_again(line):
        if line.iteration == 3:
            monkeypatch.setattr(os, "fsync", real)

    monkeypatch.setattr(os, "fsync", full_disk)
    options = {"max_iterations": 4, "tol": 0, "checkpoint": tmp_path / "run.npz", "every": 1}
    with pytest.warns(UserWarning, match="the solve continues"):
        result = asker.solve(problem_of(plain), asker.IRLS(), on_iteration=room_again, **options)
    assert not result.unwritten
    assert "checkpoint" not in result.message
    assert (tmp_path / "run.npz").exists()


def test_a_folder_that_is_not_there_is_told_before_the_solve(tmp_path):
    with pytest.raises(asker.FileError, match="there is no folder"):
        asker.solve(problem_of(plain), asker.IRLS(), checkpoint=tmp_path / "none" / "run.npz")


def test_the_command_says_so_at_the_end(asks, tmp_path, monkeypatch):
    scene, told, checkpoint = tmp_path / "scene.txt", tmp_path / "run.json", tmp_path / "run.npz"
    asks("generate", scene, "--cameras", "4", "--observations", "200")
    monkeypatch.setattr(Checkpoint, "write_tree", full_disk)
    code, _, err = asks("solve", scene, "--iterations", 3, "--checkpoint", checkpoint, "--json", told, "--every", 1)
    assert code == 2
    assert err.count("the solve continues") == 1
    assert err.splitlines()[-1].startswith("asker: the checkpoint was not written: ")
    assert told.exists()


def test_an_interrupt_while_a_checkpoint_is_read_leaves_it_alone(tmp_path, monkeypatch):
    file = tmp_path / "run.npz"
    asker.solve(problem_of(plain), asker.IRLS(), max_iterations=2, checkpoint=file)
    before = file.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        asker.solve(problem_of(plain), asker.IRLS(), checkpoint=file)
    assert file.read_bytes() == before


def test_an_interrupt_in_a_step_leaves_a_checkpoint_that_continues(tmp_path, monkeypatch):
    """Whatever was under way is done again: no line is missing and none is there twice."""
    problem, options = problem_of(plain), {"max_iterations": 6, "tol": 0, "every": 100}
    whole = asker.solve(problem, asker.IRLS(), **options)
    file, step = tmp_path / "run.npz", asker.IRLS.step

    def interrupted(self, engine, state):
        after = step(self, engine, state)
        if after.cost == whole.history[3].cost:
            raise KeyboardInterrupt
        return after

    with monkeypatch.context() as patch:
        patch.setattr(asker.IRLS, "step", interrupted)
        first = asker.solve(problem, asker.IRLS(), checkpoint=file, **options)
    assert first.status is asker.Status.INTERRUPTED
    result = asker.solve(problem, asker.IRLS(), checkpoint=file, **options)
    assert [h.cost for h in result.history] == [h.cost for h in whole.history]


def test_an_interrupt_at_the_last_writing_keeps_the_result(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "write", interrupted)
    with pytest.warns(UserWarning, match="KeyboardInterrupt"):
        result = asker.solve(problem_of(plain), asker.IRLS(), max_iterations=2, checkpoint=tmp_path / "run.npz")
    assert result.cost < result.initial_cost
    assert result.unwritten

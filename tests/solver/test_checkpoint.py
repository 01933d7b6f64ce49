"""Checkpoints: a killed run is resumed with the same result, and files of other runs are rejected."""

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
def test_a_resumed_run_has_the_same_history(method, tmp_path):
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
def test_a_run_of_the_cpu_engine_is_resumed_on_xla(tmp_path):
    problem = bundle_problem(make_scene(8, 600).start).problem
    options = {"max_iterations": 8, "tol": 0}
    whole = asker.solve(problem, asker.ASKER(), engine="cpu", **options)
    options |= {"checkpoint": tmp_path / "run.npz", "every": 3}
    with pytest.raises(Killed):
        asker.solve(problem, asker.ASKER(), engine="cpu", on_iteration=kill_at(5), **options)
    result = asker.solve(problem, asker.ASKER(), engine="xla", **options)
    np.testing.assert_allclose([h.cost for h in result.history], [h.cost for h in whole.history], rtol=1e-8)


def test_a_checkpoint_of_another_problem_strategy_or_kernel_is_rejected(tmp_path):
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


def test_a_run_reports_the_iteration_from_which_it_is_resumed(tmp_path, caplog):
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


# ------------------------------------------------------------------ verification of the content

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
        (problem_of(branched(1.0)), problem_of(branched(2.0))),  # no observation takes this branch
        (problem_of(plain, asker.Cauchy()), problem_of(plain, Wide())),
    ],
    ids=["factor", "last digit", "closed over", "branch", "kernel"],
)
def test_a_checkpoint_of_another_residual_function_is_rejected(before, after, tmp_path):
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
    ("after", "message"),
    [
        (batched(0.1, 1.0), r"states a cost of .* at its start, where it is"),
        (batched(1.0, 0.5), r"another problem \(another NumPy function `jacobian`\)"),
        (batched(1.0, -1.0), r"another problem \(another NumPy function `jacobian`\)"),
    ],
    ids=["residual", "jacobian", "sign"],
)
def test_a_checkpoint_of_another_numpy_function_is_rejected_by_its_values(after, message, tmp_path):
    file = tmp_path / "run.npz"
    asker.solve(batched(1.0, 1.0), asker.IRLS(), max_iterations=2, checkpoint=file)
    with pytest.raises(asker.FileError, match=message):
        asker.solve(after, asker.IRLS(), checkpoint=file)
    assert asker.solve(batched(1.0, 1.0 + 1e-12), asker.IRLS(), checkpoint=file).continued_from == 2


def in_front(border):
    return lambda x, d: x[0] - d[0] + border


@pytest.mark.parametrize("strategy", [asker.IRLS(), None], ids=["kernel", "unknown noise"])
def test_a_checkpoint_of_another_condition_is_rejected(strategy, tmp_path):
    """The result depends on `valid=`, which excludes observations."""
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
    again = asker.solve(problem(in_front(100.0)), strategy, max_iterations=2, checkpoint=file)
    assert again.continued_from == (0 if strategy is None else 2)  # a search keeps what no limit has cut short


def test_a_checkpoint_of_another_start_is_rejected_even_if_its_cost_is_the_same(tmp_path):
    file, data = tmp_path / "run.npz", np.array([[-1.0, 0.0], [1.0, 0.0]])
    x = asker.Variables([[0.0, 2.0]], name="x")
    problem = asker.Problem(asker.Factors(plain, x[np.zeros(2, int)], data=data, kernel=asker.SmoothTruncated(5.0)))
    left, right = {"x": [[-3.0, 2.0]]}, {"x": [[3.0, 2.0]]}
    asker.solve(problem, asker.IRLS(), max_iterations=1, start=left, checkpoint=file)
    for start in (right, None):
        with pytest.raises(asker.FileError, match=r"another start \(other initial values\)"):
            asker.solve(problem, asker.IRLS(), start=start, checkpoint=file)
    assert asker.solve(problem, asker.IRLS(), start=left, checkpoint=file).continued_from == 1


def test_a_checkpoint_with_other_groups_of_unknown_noise_is_rejected(tmp_path):
    """A group without a kernel differs from one with the default kernel."""
    x, file = asker.Variables(np.zeros((1, 2)), name="x"), tmp_path / "run.npz"

    def problem(*kernels):
        slot = x[np.zeros(len(DATA), int)]
        return asker.Problem(
            *(asker.Factors(plain, slot, data=DATA, kernel=k, name=name) for k, name in zip(kernels, "ab", strict=True))
        )

    asker.solve(problem(None, asker.SmoothTruncated()), max_iterations=2, checkpoint=file)
    with pytest.raises(asker.FileError, match="of another problem"):
        asker.solve(problem(asker.SmoothTruncated(), None), max_iterations=2, checkpoint=file)


def test_large_integers_have_different_fingerprints():
    def fingerprint(number):
        factors = asker.Factors(lambda x, d: x - d, asker.Variables([0.0])[[0]], data=np.array([number]))
        return asker.Problem(factors).fingerprint()

    assert fingerprint(2**60) == fingerprint(2**60)
    assert fingerprint(2**60) != fingerprint(2**60 + 1)


@dataclass(frozen=True)
class WithAFunction(asker.IRLS):
    function: object = None


def test_an_address_in_a_setting_does_not_identify_a_strategy(tmp_path):
    """Addresses differ between processes."""
    file = tmp_path / "run.npz"
    for begun in (0, 2):
        strategy = WithAFunction(function=lambda: None)
        result = asker.solve(problem_of(plain), strategy, max_iterations=2, tol=0, checkpoint=file)
        assert result.continued_from == begun


def test_the_same_function_has_the_same_fingerprint_in_every_process():
    """A second process is simulated by a second trace, which has other addresses."""
    assert problem_of(branched(1.0)).fingerprint() == problem_of(branched(1.0)).fingerprint()


@pytest.mark.parametrize("which", ["state", "best"])
@pytest.mark.parametrize("wrong", [0.0, float("nan"), 1e9])
def test_a_stored_cost_is_compared_with_the_evaluated_one(which, wrong, tmp_path, monkeypatch):
    file, write = tmp_path / "run.npz", Checkpoint.write

    def altered(self, snapshot):
        write(self, replace(snapshot, **{which: replace(getattr(snapshot, which), cost=wrong)}))

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "write", altered)
        asker.solve(problem_of(plain), asker.IRLS(), max_iterations=2, checkpoint=file)
    with pytest.raises(asker.FileError, match=r"run\.npz: this checkpoint states a cost of .* point, where it is"):
        asker.solve(problem_of(plain), asker.IRLS(), checkpoint=file)


def test_a_modified_file_is_rejected(tmp_path):
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


# ------------------------------------------------------------------ errors and interrupts


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_solve_continues_if_its_checkpoint_cannot_be_written(tmp_path, monkeypatch):
    whole = asker.solve(problem_of(plain), asker.IRLS(), max_iterations=5, tol=0)
    monkeypatch.setattr(os, "fsync", full_disk)
    options = {"max_iterations": 5, "tol": 0, "checkpoint": tmp_path / "run.npz", "every": 1}
    with pytest.warns(UserWarning, match=r"the solve continues: .*run\.npz: cannot be written: No space") as warnings:
        result = asker.solve(problem_of(plain), asker.IRLS(), **options)
    assert len(warnings) == 1
    assert [h.cost for h in result.history] == [h.cost for h in whole.history]
    assert "No space left" in result.unwritten
    assert "the checkpoint was not written" in result.message
    assert os.listdir(tmp_path) == []


def test_a_later_successful_write_clears_the_error(tmp_path, monkeypatch):
    real = os.fsync

    def free_space(line):
        if line.iteration == 3:
            monkeypatch.setattr(os, "fsync", real)

    monkeypatch.setattr(os, "fsync", full_disk)
    options = {"max_iterations": 4, "tol": 0, "checkpoint": tmp_path / "run.npz", "every": 1}
    with pytest.warns(UserWarning, match="the solve continues"):
        result = asker.solve(problem_of(plain), asker.IRLS(), on_iteration=free_space, **options)
    assert not result.unwritten
    assert "checkpoint" not in result.message
    assert (tmp_path / "run.npz").exists()


def test_a_missing_folder_is_reported_before_the_solve(tmp_path):
    with pytest.raises(asker.FileError, match="there is no folder"):
        asker.solve(problem_of(plain), asker.IRLS(), checkpoint=tmp_path / "none" / "run.npz")


def test_the_command_reports_an_unwritten_checkpoint_at_the_end(asks, tmp_path, monkeypatch):
    scene, record, checkpoint = tmp_path / "scene.txt", tmp_path / "run.json", tmp_path / "run.npz"
    asks("generate", scene, "--cameras", "4", "--observations", "200")
    monkeypatch.setattr(Checkpoint, "write_tree", full_disk)
    code, _, err = asks("solve", scene, "--iterations", 3, "--checkpoint", checkpoint, "--json", record, "--every", 1)
    assert code == 2
    assert err.count("the solve continues") == 1
    assert err.splitlines()[-1].startswith("asker: the checkpoint was not written: ")
    assert record.exists()


def test_an_interrupt_while_a_checkpoint_is_read_does_not_change_it(tmp_path, monkeypatch):
    file = tmp_path / "run.npz"
    asker.solve(problem_of(plain), asker.IRLS(), max_iterations=2, checkpoint=file)
    before = file.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        asker.solve(problem_of(plain), asker.IRLS(), checkpoint=file)
    assert file.read_bytes() == before


def test_a_run_interrupted_in_a_step_can_be_resumed(tmp_path, monkeypatch):
    """The interrupted step is repeated: no record is missing or duplicated."""
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


def test_an_interrupt_of_the_last_write_keeps_the_result(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "write", interrupted)
    with pytest.warns(UserWarning, match="KeyboardInterrupt"):
        result = asker.solve(problem_of(plain), asker.IRLS(), max_iterations=2, checkpoint=tmp_path / "run.npz")
    assert result.cost < result.initial_cost
    assert result.unwritten

"""One run: solve an instance and record it in its own folder (`asker.experiments.records`).

During the run the folder has a temporary name, `NAME.….partial`, which is unique to the process.  At the end all files
are read back, and the folder is renamed in one atomic step.  An interrupted or damaged run is repeated; a finished one
is not.
"""

import json
import os
import platform
import secrets
import shutil
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from asker._solve import solve
from asker.applications.application import DataProblem
from asker.experiments.instances import application_of_kind, load, sources
from asker.experiments.plan import Run
from asker.experiments.records import is_finished, read_record, write_sums
from asker.io.files import FileError, opened, write_whole
from asker.io.folders import make_folder
from asker.io.json import plain, write_json
from asker.solver.result import Iteration, Result, Status
from asker.strategies import METHODS
from asker.version import __version__

PARTIAL = ".partial"


def needed_mb(run: Run) -> float:
    """Return an upper estimate of the memory of a run in MB."""
    return sources()[run.kind][1].memory(run.options)


def execute(run: Run, root: Path, threads: int | None = None) -> Path:
    """Perform a run unless it is finished already, and return its folder."""
    final = root / run.folder
    if is_finished(final):
        return final
    partial = _partial(final)
    make_folder(partial)
    try:
        _record(run, partial, threads)
        write_sums(partial)
        read_record(partial).arrays()
        _finish(partial, final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return final


def _partial(final: Path) -> Path:
    return final.with_name(f"{final.name}.{secrets.token_hex(4)}{PARTIAL}")


def _finish(partial: Path, final: Path) -> None:
    """Rename the folder of a run; a damaged one is replaced, a finished one of another process is kept."""
    for _ in range(3):
        try:
            os.rename(partial, final)
            return
        except OSError as error:
            if is_finished(final):
                return
            if not os.path.lexists(final):
                raise FileError(final, f"cannot be written: {error.strerror}") from error
        damaged = _partial(final)
        with suppress(FileNotFoundError):  # another process has done the same
            os.rename(final, damaged)
        _remove(damaged)
    raise FileError(final, "another process writes here")


def clear(root: Path) -> None:
    """Remove the folders of interrupted runs; the process must hold the lock of `root`."""
    for partial in root.glob(f"*{PARTIAL}"):
        _remove(partial)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def n_iterations(root: Path, run: Run) -> int:
    """Return the number of iterations so far of an unfinished run."""
    for file in root.glob(f"{run.folder}.*{PARTIAL}/history.jsonl"):
        try:
            with opened(file) as lines:
                return max(0, sum(1 for _ in lines) - 1)
        except FileError:
            continue
    return 0


def _record(run: Run, folder: Path, threads: int | None) -> None:
    write_json(folder / "config.json", asdict(run) | {"versions": versions()})
    application, data = application_of_kind(run.kind), load(run.kind, run.options)
    held = None
    if run.holdout is not None:
        held = application.hold_out(data, run.keys, run.holdout, run.holdout_seed or 0)
        data = held.training
    made = application.problem(data, run.keys)
    solved(made, replace(run, iterations=1), threads=threads)  # compiles, so that the times exclude it
    with open(folder / "history.jsonl", "w", encoding="utf-8") as file:

        def record(line: Iteration) -> None:
            file.write(json.dumps(plain(line.as_dict())) + "\n")
            file.flush()

        result = solved(made, run, threads=threads, on_iteration=record)
        os.fsync(file.fileno())
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    with write_whole(folder / "arrays.npz") as file_of_arrays:
        np.savez_compressed(file_of_arrays, **application.plot_arrays(data, made, result, run.keys))  # type: ignore[arg-type]
    record_of = {
        "cost": result.cost,
        "initial_cost": result.initial_cost,
        "mean_cost": float(np.mean([h.best_cost for h in result.history])),
        "iterations": result.iterations,
        "seconds": result.seconds["total"],
        "status": result.status.name.lower(),
        "engine": result.engine,
        "linear_solver": result.linear_solver,
        **application.sizes(data),
        **application.evaluate(data, made, result, run.keys),
    }
    if held:
        predicted = held.record(made.refined(result.values), run.holdout_unit or 1.0)
        record_of |= {f"held_out_{key}": value for key, value in predicted.items()}
    write_json(folder / "result.json", record_of)


def solved(made: DataProblem, run: Run, **more: Any) -> Result:
    """Return the result of a run's method; equal runs have equal numbers."""
    damping = application_of_kind(run.kind).relative_damping(made)
    how: dict[str, Any] = {"engine": "cpu", "relative_damping": damping, "max_iterations": run.iterations}
    if run.estimates_noise:
        return solve(made.problem, **how, **more)
    return solve(made.problem, METHODS[run.method](**run.settings), tol=0, **how, **more)


def solved_again(run: Run) -> Any:
    """Solve a recorded run again with all observations, and return the refined data, which records do not contain."""
    made = application_of_kind(run.kind).problem(load(run.kind, run.options), run.keys)
    return made.refined(solved(made, run).values)


def versions() -> dict[str, str]:
    """Return the versions of the software that the numbers depend on."""
    from importlib.metadata import version

    others = {name: version(name) for name in ("jax", "llvmlite", "numpy", "scipy")}
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    return {"asker": __version__} | others | machine

"""One run: solve an instance, and record it in a folder of its own.

    config.json     what was run, and with which versions
    history.jsonl   one line for each iteration, written as it goes
    result.json     costs, inliers, time
    arrays.npz      what figures need: points, ways or disparities

While it runs the folder is called `NAME.partial`; the whole folder takes its name at the end.  A run that was cut off
is begun anew, one that is finished is not run again.
"""

import json
import os
import platform
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from asker.applications.application import Arrays, Made
from asker.io.files import FileError
from asker.io.json import plain, write_json
from asker.result import Iteration, Result, Status
from asker.solve import solve
from asker.strategies import METHODS
from asker.study.plan import Run
from asker.study.sources import application_of_kind, load, sources
from asker.version import __version__

PARTIAL = ".partial"


def needed_mb(run: Run) -> float:
    """About how much memory a run takes."""
    return sources()[run.kind][1].memory(run.options)


def execute(run: Run, root: Path, threads: int | None = None) -> Path:
    """Do a run, unless it is there; returns its folder."""
    final = root / run.folder
    if (final / "result.json").exists():
        return final
    partial = root / (run.folder + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write_json(partial / "config.json", asdict(run) | {"versions": versions()})
    application, data = application_of_kind(run.kind), load(run.kind, run.options)
    held = None
    if run.holdout is not None:
        held = application.hold_out(data, run.keys, run.holdout, run.holdout_seed or 0)
        data = held.training
    made = application.problem(data, run.keys)
    solved(made, replace(run, iterations=1), threads=threads)  # compiles: the times do not tell of it
    with open(partial / "history.jsonl", "w", encoding="utf-8") as file:

        def record(line: Iteration) -> None:
            file.write(json.dumps(plain(line.as_dict())) + "\n")
            file.flush()

        result = solved(made, run, threads=threads, on_iteration=record)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    np.savez_compressed(partial / "arrays.npz", **application.shown(data, made, result, run.keys))  # type: ignore[arg-type]
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
        **application.judge(data, made, result, run.keys),
    }
    if held:
        predicted = held.record(made.refined(result.values), run.holdout_unit or 1.0)
        record_of |= {f"held_out_{key}": value for key, value in predicted.items()}
    write_json(partial / "result.json", record_of)
    os.replace(partial, final)
    return final


def solved(made: Made, run: Run, **more: Any) -> Result:
    """A run's method on its problem; the same numbers each time."""
    damping = application_of_kind(run.kind).relative_damping(made)
    how: dict[str, Any] = {"engine": "cpu", "tol": 0, "relative_damping": damping}
    strategy = METHODS[run.method](**run.settings)
    return solve(made.problem, strategy, max_iterations=run.iterations, **how, **more)


def solved_again(run: Run) -> Any:
    """The refined data of a recorded run, which keeps no whole reconstruction; nothing is held out."""
    made = application_of_kind(run.kind).problem(load(run.kind, run.options), run.keys)
    return made.refined(solved(made, run).values)


def versions() -> dict[str, str]:
    from importlib.metadata import version

    others = {name: version(name) for name in ("jax", "numba", "numpy", "scipy")}
    return (
        {"asker": __version__}
        | others
        | {
            "python": platform.python_version(),
            "machine": platform.machine(),
        }
    )


@dataclass(frozen=True, eq=False)
class Record:
    """A finished run, read back."""

    run: Run
    folder: Path
    versions: dict[str, str]
    result: dict[str, Any]
    history: list[dict[str, Any]]

    @property
    def cost(self) -> float:
        return self.result["cost"]

    @property
    def method(self) -> str:
        return self.run.method

    @property
    def settings(self) -> dict[str, Any]:
        return self.run.settings

    @property
    def options(self) -> dict[str, Any]:
        return self.run.keys

    def arrays(self) -> Arrays:
        with np.load(self.folder / "arrays.npz") as file:
            return dict(file)


def read_record(folder: Path) -> Record:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        lines = (folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
        versions_used = config.pop("versions")
        history = [json.loads(line) for line in lines]
        for key in ("cost", "initial_cost", "mean_cost", "seconds", "iterations"):
            if not isinstance(result[key], int | float):
                raise TypeError(f"{key} is {result[key]!r}")
        if not history or not all(isinstance(line["best_cost"], int | float) for line in history):
            raise ValueError("its history is not one of costs")
        if config["kind"] not in sources():
            raise ValueError(f"it is of the kind {config['kind']!r}; known are {', '.join(sources())}")
        return Record(Run(**config), folder, versions_used, result, history)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise FileError(folder, f"this is not the folder of a finished run: {e}") from e

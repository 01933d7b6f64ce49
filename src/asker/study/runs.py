"""One run: solve an instance, and record it in a folder of its own.

    config.json     what was run, and with which versions
    history.jsonl   one line for each iteration, written as it goes
    result.json     costs, inliers, time
    arrays.npz      what figures need: points or disparities

While it runs the folder is called `NAME.partial`; the whole folder takes its name at the end.  A run that was cut off
is begun anew, one that is finished is not run again.
"""

import json
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asker.io.bal import Bundle, read_bal
from asker.io.files import FileError
from asker.io.json import plain, write_json
from asker.kernels import SmoothTruncated
from asker.problem import Problem
from asker.result import Iteration, Result, Status
from asker.solve import solve
from asker.strategies import METHODS
from asker.study.mean import mean_problem
from asker.study.plan import Run
from asker.version import __version__

MOST_POINTS = 3000  # of a cloud that a page shows
INLIER = SmoothTruncated.unit_inflection
PARTIAL = ".partial"
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Loaded:
    """An instance that is ready to be solved."""

    problem: Problem
    facts: dict[str, Any]
    describe: Callable[[Result], tuple[dict[str, Any], Arrays]]
    """What is recorded of a result beside its cost."""


def load(run: Run) -> Loaded:
    return {"bal": _load_bal, "scene": _load_scene, "stereo": _load_stereo, "mean": _load_mean}[run.kind](run.options)


def needed_mb(run: Run) -> float:
    """About how much memory a run takes; generous."""
    if run.kind == "bal":
        size = os.path.getsize(run.options["file"])
        packed = run.options["file"].endswith((".bz2", ".gz"))
        return 400 + size * (6 if packed else 1.5) * 25 / 1e6  # ~25 bytes of memory for one of text
    if run.kind == "scene":
        return 400 + 1e-3 * run.options["observations"]
    return 1500.0 if run.kind == "stereo" else 300.0


def execute(run: Run, root: Path, threads: int | None = None) -> Path:
    """Do a run, unless it is there; returns its folder."""
    final = root / run.folder
    if (final / "result.json").exists():
        return final
    partial = root / (run.folder + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write_json(partial / "config.json", asdict(run) | {"versions": versions()})
    loaded = load(run)
    strategy = METHODS[run.method](**run.settings)
    solve(
        loaded.problem, strategy, max_iterations=1, threads=threads, engine="cpu"
    )  # compiles: the times do not tell of it
    with open(partial / "history.jsonl", "w", encoding="utf-8") as file:

        def record(line: Iteration) -> None:
            file.write(json.dumps(plain(line.as_dict())) + "\n")
            file.flush()

        result = solve(
            loaded.problem, strategy, max_iterations=run.iterations, tol=0, on_iteration=record, engine="cpu"
        )
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    facts, arrays = loaded.describe(result)
    np.savez_compressed(partial / "arrays.npz", **arrays)  # type: ignore[arg-type]
    record_of = {
        "cost": result.cost,
        "initial_cost": result.initial_cost,
        "mean_cost": float(np.mean([h.best_cost for h in result.history])),
        "iterations": result.iterations,
        "seconds": result.seconds["total"],
        "status": result.status.name.lower(),
        "engine": result.engine,
        "linear_solver": result.linear_solver,
        **loaded.facts,
        **facts,
    }
    write_json(partial / "result.json", record_of)
    os.replace(partial, final)
    return final


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
        return Record(Run(**config), folder, versions_used, result, history)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise FileError(folder, f"this is not the folder of a finished run: {e}") from e


def _load_bal(options: dict[str, Any]) -> Loaded:
    return _bundle(read_bal(options["file"]), options["tau"], options["camera"], options["dof"])


def _load_scene(options: dict[str, Any]) -> Loaded:
    from asker.alignment import errors
    from asker.datasets import make_scene

    scene = make_scene(
        options["cameras"],
        options["observations"],
        kind=options["shape"],
        outlier_ratio=options["outliers"],
        start_error=options["start_error"],
        seed=options["seed"],
    )
    return _bundle(scene.start, 1.0, "pixel", 6, lambda found: {"camera_error": errors(found, scene.truth).cameras})


def _bundle(bundle: Bundle, tau: float, camera: Any, dof: Any, extra: Callable[[Bundle], dict] | None = None) -> Loaded:
    from asker.problems.bundle import bundle_problem, camera_centres, reprojection_norms

    made = bundle_problem(bundle, SmoothTruncated(tau), camera, dof)
    rng = np.random.default_rng(0)
    shown = rng.permutation(bundle.n_points)[:MOST_POINTS]

    def inlier_mask(of: Bundle) -> np.ndarray:
        return reprojection_norms(of, camera)[0] <= INLIER * tau

    def supported(inliers: np.ndarray) -> np.ndarray:
        return (np.bincount(bundle.point_index[inliers], minlength=bundle.n_points) >= 2)[shown]

    def describe(result: Result) -> tuple[dict[str, Any], Arrays]:
        refined = made.refined(result.values)
        inliers = inlier_mask(refined)
        arrays = {
            "points_before": bundle.points[shown].astype(np.float32),
            "points": refined.points[shown].astype(np.float32),
            "supported_before": supported(inlier_mask(bundle)),
            "supported": supported(inliers),
            "centres_before": camera_centres(bundle).astype(np.float32),
            "centres": camera_centres(refined).astype(np.float32),
        }
        facts = {"inlier_ratio": float(inliers.mean())} | (extra(refined) if extra else {})
        return facts, arrays

    sizes = {"n_cameras": bundle.n_cameras, "n_points": bundle.n_points, "n_observations": bundle.n_observations}
    return Loaded(made.problem, sizes, describe)


def _load_stereo(options: dict[str, Any]) -> Loaded:
    from asker.io.images import read_disparity, read_grey
    from asker.problems.disparity import disparity_errors, visible
    from asker.problems.stereo import Matching, energy, match

    folder, scale = Path(options["folder"]), options["scale"]
    left, right = read_grey(folder / "im2.png"), read_grey(folder / "im6.png")
    matching = Matching(options["max_disparity"], window=options["window"], n_minima=options["n_minima"])
    minima = match(left, right, matching)
    kernel = SmoothTruncated(options["tau"])
    largest, eta, start, seed = (options[k] for k in ("max_disparity", "eta", "start", "seed"))
    made = energy(minima, largest, start, eta, kernel, kernel, seed)
    truth = read_disparity(folder / "disp2.png", scale) if (folder / "disp2.png").exists() else None
    other = read_disparity(folder / "disp6.png", scale) if (folder / "disp6.png").exists() else None

    def describe(result: Result) -> tuple[dict[str, Any], Arrays]:
        found = made.image(result.values)
        facts: dict[str, Any] = {}
        if truth is not None:
            facts = asdict(disparity_errors(found, truth))
            facts |= {f"wta_{k}": v for k, v in asdict(disparity_errors(minima.winner, truth)).items()}
            if other is not None:
                seen = visible(truth, other)
                facts |= {f"{k}_visible": v for k, v in asdict(disparity_errors(found, truth, seen)).items()}
                winner = disparity_errors(minima.winner, truth, seen)
                facts |= {f"wta_{k}_visible": v for k, v in asdict(winner).items()}
        arrays = {"disparity": found.astype(np.float32), "winner": minima.winner.astype(np.float32)}
        if truth is not None:
            arrays["truth"] = truth.astype(np.float32)
        return facts, arrays

    height, width = left.shape
    return Loaded(
        made.problem, {"width": width, "height": height, "n_observations": made.problem.n_residuals}, describe
    )


def _load_mean(options: dict[str, Any]) -> Loaded:
    problem, variable = mean_problem(options["start"], options["seed"])

    def describe(result: Result) -> tuple[dict[str, Any], Arrays]:
        return {"mean": float(result.values[variable][0])}, {}

    return Loaded(problem, {"n_observations": problem.n_residuals}, describe)

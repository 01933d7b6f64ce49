"""`asker solve` and `asker info` for the folder of a COLMAP model."""

import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import asker
from asker.commands.support import check_outputs, complain, failed, one_of, solve_record
from asker.commands.support import write_outputs as write_all
from asker.io.colmap import Model, check_target, read_model, write_model
from asker.io.files import FileError
from asker.io.json import write_json
from asker.terminal import Progress, percent, print_spread, print_table

REFINE = ("poses", "focal", "all")
N_WORST = 5


class Outputs(NamedTuple):
    """What is written after the solve."""

    json_file: Path | None
    model: Path | None
    ply: Path | None
    report: Path | None
    drop_outliers: bool

    def check(self, folder: Path) -> None:
        """Refuse now what could not be written after the work."""
        if self.drop_outliers and self.model is None:
            raise ValueError("--drop-outliers changes the written model: give --output as well")
        check_outputs(folder, self.json_file, self.ply, self.report)
        if self.model is not None:
            if os.path.realpath(self.model) == os.path.realpath(folder):
                raise FileError(self.model, "this folder is named twice on the command line")
            check_target(self.model)


def refuse_bal_options(camera: str, dof: int) -> None:
    if camera != "pixel" or dof != 6:
        raise ValueError("--camera and --dof are for BAL files; a COLMAP model has its own cameras: see --refine")


def refuse_model_options(refine: str | None, drop_outliers: bool, report: Path | None) -> None:
    if refine is not None or drop_outliers or report is not None:
        raise ValueError("--refine, --drop-outliers and --report are for the folder of a COLMAP model")


def solve_model(
    folder: Path,
    kernel: Any,
    strategy: Any,
    refine: str,
    radius: float,
    settings: dict[str, Any],
    loop: dict[str, Any],
    outputs: Outputs,
    quiet: bool,
) -> int:
    """Refine a model and tell what became of its images.  Inliers are counted up to `radius`."""
    one_of("--refine", refine, REFINE)
    outputs.check(folder)

    from asker.problems.colmap import colmap_problem, inlier_tables, reprojection_norms

    with Progress(quiet) as progress:
        progress.say(f"reading {folder}")
        model = read_model(folder)
        progress.say(f"preparing {counts(model)}")
        made = colmap_problem(model, kernel, refine, settings["gauge"])  # type: ignore[arg-type]
        before = reprojection_norms(model) <= radius
        damping: dict[str, Any] = {"relative_damping": made.relative_damping}
        result = asker.solve(made.problem, strategy, on_iteration=progress.iteration, **loop, **damping)
    refined = made.refined(result.values)
    after = reprojection_norms(refined) <= radius
    tables = inlier_tables(model, before, after)
    record = {
        "folder": str(folder),
        "n_images": len(model.images),
        "n_cameras": len(model.cameras),
        "n_points": len(model.points),
        "n_observations": model.n_observations,
        **{key: settings[key] for key in ("method", "kernel", "tau", "gauge")},
        "refine": refine,
        "initial_inlier_ratio": before.mean(),
        "inlier_ratio": after.mean(),
        "inlier_radius": radius,
        **solve_record(result),
    }
    print_solve(record, model, tables[0], progress.compiled)
    write_outputs(outputs, record, refined, after, tables)
    if loop["max_iterations"] and failed(result):
        return complain(f"{folder}: the cost did not fall: {result.status.value}", 1)
    return 0


def model_info(folder: Path, tau: float, inlier: float) -> None:
    """Describe a model: its size, its tracks, and how good its start is.  Inliers are counted up to inlier·τ."""
    from asker.problems.colmap import reprojection_norms

    model = read_model(folder)
    print(f"{folder}: {counts(model)}")
    kinds = Counter(model.cameras.models)
    print("camera models:", ", ".join(f"{n} {name}" for name, n in kinds.items()) or "none")
    if not model.n_observations:
        print("there are no observations: nothing to fit")
        return
    seen = model.observations()
    print_spread(
        ("observations per image", seen.image, len(model.images)),
        ("observations per point", seen.point, len(model.points)),
    )
    try:
        r = reprojection_norms(model)
    except asker.ProblemError as e:
        print(f"the start is not judged: {e}")
        return
    cost = asker.SmoothTruncated(tau).psi(np.minimum(r, 1e150) ** 2).sum()
    titles = (f"start, tau {tau:g} px", "cost", f"inliers ({inlier * tau:.3g} px)", "median residual")
    print_table(titles, ["", f"{cost:.7g}", percent(np.mean(r <= inlier * tau)), f"{np.median(r):.3g} px"])
    lost = np.isinf(r)
    n_points = len(np.unique(seen.point[lost]))
    print(f"not in front of their camera, and outliers here: {lost.sum()} observations of {n_points} points")


def write_outputs(outputs: Outputs, record: dict[str, Any], refined: Model, inliers: np.ndarray, tables: Any) -> None:
    from asker.problems.colmap import without_outliers

    written = without_outliers(refined, inliers) if outputs.drop_outliers else refined
    if outputs.drop_outliers:
        left = f"{written.n_observations} observations of {len(written.points)} points"
        print(f"without outliers: {left} are left")
    report = report_of(record, refined, *tables)
    write_all(
        (outputs.json_file, partial(write_json, record=record)),
        (outputs.model, partial(write_model, model=written)),
        (outputs.ply, partial(write_cloud, model=written)),
        (outputs.report, partial(write_json, record=report)),
    )


def counts(model: Model) -> str:
    sizes = f"{len(model.images)} images, {len(model.cameras)} cameras, {len(model.points)} points"
    return f"{sizes}, {model.n_observations} observations"


def print_solve(record: dict[str, Any], model: Model, images: Any, compiled: int) -> None:
    print(f"{record['folder']}: {counts(model)}")
    moves = f"refine {record['refine']}, gauge {record['gauge']}"
    print(f"{record['method']}, {record['kernel']} kernel, tau {record['tau']:g} px, {moves}")
    inliers = percent(record["initial_inlier_ratio"]), percent(record["inlier_ratio"])
    print_table(
        ["", "before", "after"],
        ["cost", f"{record['initial_cost']:.7g}", f"{record['cost']:.7g}"],
        [f"inliers ({record['inlier_radius']:.3g} px)", *inliers],
    )
    rows = []
    for k in images.worst(N_WORST):
        n = images.n_observations[k]
        ratios = percent(images.before[k] / n), percent(images.after[k] / n)
        rows.append([_printable(model.images.names[k]), f"{n}", *ratios])
    print_table(["worst images", "observations", "inliers\nbefore", "inliers\nafter"], *rows)
    n = record["iterations"]
    print(f"{n} iteration{'' if n == 1 else 's'} in {record['seconds']:.3g} s: {record['message']}")
    if compiled:
        print("The time includes compiling, which is done once on this machine.")


def _printable(name: str) -> str:
    """A file name may hold anything."""
    return name.encode("utf-8", "backslashreplace").decode()


def report_of(record: dict[str, Any], model: Model, images: Any, points: Any) -> dict[str, Any]:
    """What `--report` writes: columns, one entry per image and per point."""

    def columns(table: Any) -> dict[str, Any]:
        seen = {"n_observations": table.n_observations}
        return {"id": table.ids, **seen, "inliers_before": table.before, "inliers_after": table.after}

    return {
        "folder": record["folder"],
        "inlier_radius": record["inlier_radius"],
        "images": {"name": model.images.names, **columns(images)},
        "points": {**columns(points), "mean_error": model.points.errors},
    }


def write_cloud(path: Path, model: Model) -> None:
    """Points in their colours and cameras in red."""
    from asker.io.ply import write_ply
    from asker.problems.colmap import camera_centres

    write_ply(path, model.points.xyz, model.points.rgb, camera_centres(model))

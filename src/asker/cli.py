"""The command line: parse, call, print.

The exit code is the status: 0 a usable result, 1 a solve that failed, 2 bad input, 130 interrupted before
there was a result.  Results go to stdout; the progress line and the one line of an error go to stderr.
"""

import difflib
import io
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import asker
from asker.io.bal import Bundle, read_bal, write_bal
from asker.io.files import FileError, write_whole
from asker.terminal import Progress, counts, percent, print_run, print_table

KERNELS: dict[str, Callable[..., Any]] = {
    "smooth-truncated": asker.SmoothTruncated,
    "quadratic": asker.Quadratic,
    "huber": asker.Huber,
    "pseudo-huber": asker.PseudoHuber,
    "cauchy": asker.Cauchy,
    "geman-mcclure": asker.GemanMcClure,
    "welsch": asker.Welsch,
    "tukey": asker.Tukey,
    "truncated-quadratic": asker.TruncatedQuadratic,
    "barron": asker.Barron,
}
CAMERAS = ("pixel", "bal")
DOFS = (6, 7, 9)
LINEAR_SOLVERS = ("auto", "dense-cholesky", "sparse-cholesky", "cg")

INLIER = 1 / math.sqrt(3)
"""Inliers are counted up to INLIER·τ whatever the kernel, so that counts can be compared."""
GREY, ORANGE = (160, 160, 160), (255, 140, 0)

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # what typer raises for a bad command line

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

BalFile = Annotated[Path, typer.Argument(metavar="FILE", help="A BAL file: .txt, .txt.gz or .txt.bz2.")]
NewFile = Annotated[Path, typer.Argument(metavar="FILE", help="The BAL file to write; .gz, .bz2 compress.")]
Tau = Annotated[float, typer.Option(help="Scale of the kernel in pixels; inliers count up to tau/sqrt(3).")]
Outliers = Annotated[float, typer.Option(help="Part of the observations that are gross errors.")]
StartError = Annotated[float, typer.Option(help="Median residual of the inliers at the start, in pixels.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same scene.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress line.")]


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may hold anything
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print("asker: warning:", message, file=sys.stderr)
            code = app(arguments, prog_name="asker", standalone_mode=False)
    except UsageError as e:
        return complain(e.format_message(), 2)  # type: ignore[attr-defined]
    except ValueError as e:  # FileError and ProblemError are among them
        return complain(str(e), 2)
    except MemoryError as e:
        return complain(f"out of memory: {e}", 1)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    return complain("interrupted before there was a result", code) if code == 130 else code or 0


def complain(text: str, code: int) -> int:
    """The one line of an error."""
    print("asker:", " ".join(text.splitlines()), file=sys.stderr)
    return code


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Robust estimation at large scale."""
    if version:
        print(f"asker {asker.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def solve(
    file: BalFile,
    method: Annotated[
        str | None,
        typer.Option(help=f"One of: {', '.join(asker.METHODS)}.", show_default="asker; irls for a convex kernel"),
    ] = None,
    tau: Tau = 1.0,
    camera: Annotated[str, typer.Option(help="How k1, k2 act: pixel, or bal (the BAL page).")] = "pixel",
    dof: Annotated[int, typer.Option(help="6: poses, 7: and focal lengths, 9: and distortions.")] = 6,
    kernel: Annotated[str, typer.Option(help=f"One of: {', '.join(KERNELS)}.")] = "smooth-truncated",
    iterations: Annotated[int, typer.Option(min=0, help="At most so many linear solves.")] = 100,
    tol: Annotated[float, typer.Option(help="Stop when a step lowers the cost by a smaller part.")] = 1e-9,
    time_limit: Annotated[float | None, typer.Option(help="Stop after so many seconds.")] = None,
    linear_solver: Annotated[str, typer.Option(help=f"One of: {', '.join(LINEAR_SOLVERS)}.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="All cores when not given.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the run as JSON.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the refined BAL file.")] = None,
    ply: Annotated[Path | None, typer.Option(help="Write points and cameras for a viewer.")] = None,
    quiet: Quiet = False,
) -> int:
    """Refine the cameras and points of a BAL file.  Ctrl-C stops and keeps the best so far."""
    one_of("--linear-solver", linear_solver, LINEAR_SOLVERS)
    psi = KERNELS[one_of("--kernel", kernel, KERNELS)](tau=number("--tau", tau, positive=True))
    method = method or ("irls" if psi.convex else "asker")
    strategy = asker.METHODS[one_of("--method", method, asker.METHODS)]()
    settings: dict[str, Any] = {"method": method, "kernel": kernel, "tau": tau, "camera": camera, "dof": dof}
    one_of("--camera", camera, CAMERAS)
    one_of("--dof", dof, DOFS)
    number("--tol", tol)
    number("--time-limit", time_limit or 0.0)
    check_outputs(file, json_file, output, ply)

    from asker.problems.bundle import bundle_problem, reprojection_norms

    def inlier_mask(of: Bundle) -> np.ndarray:
        return reprojection_norms(of, camera)[0] <= INLIER * tau  # type: ignore[arg-type]

    with Progress(quiet) as progress:
        progress.say(f"reading {file}")
        bundle = read_bal(file)
        progress.say(f"preparing {counts(bundle)}")
        before = inlier_mask(bundle)
        made = bundle_problem(bundle, psi, camera, dof)  # type: ignore[arg-type]
        result = asker.solve(
            made.problem,
            strategy,
            max_iterations=iterations,
            tol=tol,
            time_limit=time_limit,
            on_iteration=progress.iteration,
            linear_solver=linear_solver,
            threads=threads,
        )
    refined = made.refined(result.values)
    inliers = inlier_mask(refined)
    settings |= {"initial_inlier_ratio": before.mean(), "inlier_ratio": inliers.mean()}
    record = run_record(file, bundle, settings | {"compiled": progress.compiled}, result)
    print_run(record)
    write_outputs(
        (json_file, partial(write_json, record=record)),
        (output, partial(write_bal, bundle=refined)),
        (ply, partial(write_cloud, bundle=refined, inliers=inliers)),
    )
    if iterations and failed(result):
        return complain(f"{file}: the cost did not fall: {result.status.value}", 1)
    return 0


@app.command()
def generate(
    file: NewFile,
    cameras: Annotated[int, typer.Option(help="How many cameras.")] = 30,
    observations: Annotated[
        int | None, typer.Option(help="How many observations.", show_default="600 per camera")
    ] = None,
    kind: Annotated[str, typer.Option(help="ring: around one object; path: along a closed curve.")] = "ring",
    noise: Annotated[float, typer.Option(help="Standard deviation of a pixel coordinate.")] = 0.4,
    outliers: Outliers = 0.2,
    outlier_size: Annotated[float, typer.Option(help="The largest gross error, in pixels.")] = 150.0,
    start_error: StartError = 5.0,
    seed: Seed = 0,
    truth: Annotated[Path | None, typer.Option(help="Write the true cameras and points here.")] = None,
) -> int:
    """Make a scene whose truth is known, and write a disturbed start as a BAL file."""
    one_of("--kind", kind, ("ring", "path"))
    check_outputs(None, file, truth)

    from asker.datasets import make_scene

    scene = make_scene(
        cameras,
        observations,
        kind=kind,
        noise=noise,
        outlier_ratio=outliers,
        outlier_size=outlier_size,
        start_error=start_error,
        seed=seed,
    )
    start = scene.start
    print(f"{counts(start)}, {np.count_nonzero(scene.outliers)} of them outliers")
    write_outputs((file, partial(write_bal, bundle=start)), (truth, partial(write_bal, bundle=scene.truth)))
    return 0


@app.command()
def info(file: BalFile, tau: Tau = 1.0) -> int:
    """Describe a BAL file: its size, its tracks, and how good its start is."""
    from asker.problems.bundle import reprojection_norms

    psi = asker.SmoothTruncated(number("--tau", tau, positive=True)).psi
    bundle = read_bal(file)
    print(f"{file}: {counts(bundle)}")
    rows = []
    for what, index, n in (
        ("camera", bundle.camera_index, bundle.n_cameras),
        ("point", bundle.point_index, bundle.n_points),
    ):
        n_seen = np.bincount(index, minlength=n)
        middle = f"{np.median(n_seen):g}", f"{n_seen.mean():.1f}"
        rows.append([f"observations per {what}", f"{n_seen.min()}", *middle, f"{n_seen.max()}"])
    print_table(["", "fewest", "median", "mean", "most"], *rows)

    rows, bad = [], 0
    for camera in CAMERAS:
        r, depth = reprojection_norms(bundle, camera)  # type: ignore[arg-type]
        bad = max(bad, int(np.isinf(r).sum()))
        inliers = percent(np.mean(r <= INLIER * tau))
        cost = psi(np.minimum(r, 1e150) ** 2).sum()
        rows.append([f"{camera} camera", f"{cost:.7g}", inliers, f"{np.median(r):.3g} px"])
    titles = (f"start, tau {tau:g} px", "cost", f"inliers ({INLIER * tau:.3g} px)", "median residual")
    print_table(titles, *rows)

    behind = depth <= 0
    n_points = len(np.unique(bundle.point_index[behind]))
    print(f"behind their camera at the start: {np.count_nonzero(behind)} observations of {n_points} points")
    if bad:
        print(f"not finite at the start: {bad} observations; `asker solve` refuses such a file")
    return 0


@app.command()
def demo(
    outliers: Outliers = 0.3,
    start_error: StartError = 30.0,
    seed: Seed = 0,
    figure: Annotated[Path, typer.Option(help="Where to draw the costs over the iterations.")] = Path("asker-demo.png"),
    quiet: Quiet = False,
) -> int:
    """Run several methods on a made scene and compare them with the truth."""
    from asker.datasets import make_scene
    from asker.demo import DEMO_METHODS, draw_costs, run

    check_outputs(None, figure)
    rows, histories = [], {}
    with Progress(quiet) as progress:
        progress.say("making a scene")
        scene = make_scene(outlier_ratio=outliers, start_error=start_error, seed=seed)
        starts = [(method, method, scene.start) for method in DEMO_METHODS]
        for name, method, start in [*starts, ("from the truth", "irls", scene.truth)]:
            progress.begin(name)
            result, error = run(method, start, scene.truth, progress.iteration)
            costs = f"{result.initial_cost:.1f}", f"{result.cost:.1f}"
            errors = percent(error.cameras), percent(error.points)
            histories[name] = result.history
            rows.append([name, *costs, percent(result.inlier_ratio), *errors, f"{result.seconds['total']:.2f}"])
    print(f"{counts(scene.start)}, {outliers:.0%} of them outliers.")
    print(f"At the start the inliers have a median residual of {start_error:g} px; the kernel has tau 1 px.")
    titles = ("method", "cost\nbefore", "cost\nafter", "inliers", "camera\nerror", "point\nerror", "seconds")
    print_table(titles, *rows)
    print("Errors are medians after alignment with the truth, in percent of the ring's radius.")
    print("The last row is irls started at the truth: about what the observations allow.")
    write_outputs((figure, partial(draw_costs, histories=histories)))
    return 0


# ---- arguments


def one_of(option: str, given: Any, known: Collection[Any]) -> Any:
    """`given`, if it is among the `known`."""
    if given in known:
        return given
    names = [str(name) for name in known]
    near = difflib.get_close_matches(str(given).lower(), names, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise ValueError(f"{option} is {given!r}, which is not one of {', '.join(names)}{hint}")


def number(option: str, given: float, positive: bool = False) -> float:
    """`given`, if it is finite and not negative."""
    if (given > 0 or (given == 0 and not positive)) and given < math.inf:
        return given
    raise ValueError(f"{option} must be {'positive' if positive else '0 or more'} and finite, got {given}")


class _Untouched(Exception):
    """Leaves `write_whole` before the target is replaced."""


def check_outputs(source: Path | None, *targets: Path | None) -> None:
    """Refuse now what could not be written after the work."""
    taken = set() if source is None else {os.path.realpath(source)}
    for path in filter(None, targets):
        if os.path.realpath(path) in taken:
            raise FileError(path, "this file is named twice on the command line")
        taken.add(os.path.realpath(path))
        if not os.path.isdir(path.parent):
            raise FileError(path, f"there is no folder {str(path.parent)!r} to write into")
        with suppress(_Untouched), write_whole(path):
            raise _Untouched


# ---- what the exit code says


def failed(result: asker.Result) -> bool:
    """Nothing was gained, and not because there was nothing to gain."""
    fine = (asker.Status.CONVERGED, asker.Status.INTERRUPTED)
    return not (result.cost < result.initial_cost or result.cost == 0 or result.status in fine)


# ---- files


def run_record(file: Path, bundle: Bundle, settings: dict[str, Any], result: asker.Result) -> dict[str, Any]:
    """What `--json` writes."""
    return {
        "file": str(file),
        "n_cameras": bundle.n_cameras,
        "n_points": bundle.n_points,
        "n_observations": bundle.n_observations,
        **settings,
        "inlier_radius": INLIER * settings["tau"],
        "engine": result.engine,
        "linear_solver": result.linear_solver,
        "relative_damping": result.relative_damping,
        "initial_cost": result.initial_cost,
        "cost": result.cost,
        "iterations": result.iterations,
        "seconds": result.seconds["total"],
        "status": result.status.name.lower(),
        "message": result.status.value,
        "version": asker.__version__,
        "history": [line.as_dict() for line in result.history],
    }


def write_outputs(*writers: tuple[Path | None, Callable[[Path], None]]) -> None:
    """Write what was asked for; a file that cannot be written does not cost the others."""
    problems = []
    for path, write in writers:
        if path is None:
            continue
        try:
            write(path)
            print(f"wrote {path}")
        except FileError as e:
            problems.append(str(e))
    if problems:
        raise ValueError("; ".join(problems))


def write_json(path: Path, record: dict[str, Any]) -> None:
    text = json.dumps(plain(record), indent=1, allow_nan=False)
    with write_whole(path) as file:
        file.write(text.encode() + b"\n")


def plain(value: Any) -> Any:
    """The same for strict JSON: NumPy numbers become Python's, what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)


def write_cloud(path: Path, bundle: Bundle, inliers: np.ndarray) -> None:
    """Cameras in red, points in grey, and in orange where fewer than two inliers see them."""
    from asker.io.ply import write_ply
    from asker.problems.bundle import camera_centres

    support = np.bincount(bundle.point_index[inliers], minlength=bundle.n_points)
    colors = np.where(support[:, None] >= 2, GREY, ORANGE).astype(np.uint8)
    write_ply(path, bundle.points, colors, camera_centres(bundle))

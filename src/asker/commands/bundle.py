"""Commands for bundle adjustment: solve (COLMAP models and pose graphs too), generate, info."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
import typer

import asker
from asker.commands import colmap
from asker.commands.hosts import Coordinator, Engine, Hosts, NumProcesses, Place, ProcessId
from asker.commands.pose_graph import MATCHES, NOISES, GraphOptions, graph_info, is_graph, solve_graph
from asker.commands.support import (
    KERNELS,
    LINEAR_SOLVERS,
    Json,
    LinearSolver,
    Quiet,
    Seed,
    Threads,
    TimeLimit,
    Tol,
    check_outputs,
    complain,
    failed,
    number,
    one_of,
    solve_record,
    write_outputs,
)
from asker.gauge import Gauge
from asker.io.bal import Bundle, Part, read_bal, read_bal_part, write_bal
from asker.io.json import write_json
from asker.solve import ENGINES
from asker.terminal import Progress, counts, percent, print_run, print_spread, print_table

CAMERAS = ("pixel", "bal")
DOFS = (6, 7, 9)
GAUGES = get_args(Gauge)

INLIER = asker.SmoothTruncated.unit_inflection
"""Inliers are counted up to INLIER·τ whatever the kernel, so that counts can be compared."""
GREY, ORANGE = (160, 160, 160), (255, 140, 0)

Reconstruction = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A BAL file (.txt) or a pose graph (.g2o), also as .gz or .bz2; or a COLMAP model's folder.",
    ),
]
NewFile = Annotated[Path, typer.Argument(metavar="FILE", help="The BAL file to write; .gz, .bz2 compress.")]
Outliers = Annotated[float, typer.Option(help="Part of the observations that are gross errors.")]
StartError = Annotated[float, typer.Option(help="Median residual of the inliers at the start, in pixels.")]


def solve(
    file: Reconstruction,
    method: Annotated[
        str | None,
        typer.Option(help=f"One of: {', '.join(asker.METHODS)}.", show_default="asker; irls for a convex kernel"),
    ] = None,
    tau: Annotated[
        float | None,
        typer.Option(
            help="Scale of the kernel, in pixels or standard deviations; inliers count up to tau/sqrt(3).",
            show_default="1; for graphs 5.83 (SE2), 7.1 (SE3)",
        ),
    ] = None,
    camera: Annotated[str, typer.Option(help="How k1, k2 act: pixel, or bal (the BAL page).")] = "pixel",
    dof: Annotated[int, typer.Option(help="6: poses, 7: and focal lengths, 9: and distortions.")] = 6,
    refine: Annotated[
        str | None, typer.Option(help="For a COLMAP model: poses, focal, or all.", show_default="poses")
    ] = None,
    gauge: Annotated[
        str | None, typer.Option(help="fixed: the pose of the first image stays; or free.", show_default="free")
    ] = None,
    kernel: Annotated[str, typer.Option(help=f"One of: {', '.join(KERNELS)}.")] = "smooth-truncated",
    iterations: Annotated[int, typer.Option(min=0, help="At most so many linear solves; graphs: in each round.")] = 100,
    tol: Tol = 1e-9,
    time_limit: TimeLimit = None,
    linear_solver: LinearSolver = "auto",
    engine: Engine = "auto",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Write the run here now and then; continue from it if it is there.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Iterations from one checkpoint to the next.")] = 10,
    coordinator: Coordinator = None,
    num_processes: NumProcesses = None,
    process_id: ProcessId = None,
    threads: Threads = None,
    json_file: Json = None,
    output: Annotated[Path | None, typer.Option(help="Write the refined BAL file, or model folder.")] = None,
    drop_outliers: Annotated[
        bool, typer.Option("--drop-outliers", help="Leave outliers out of the written COLMAP model.")
    ] = False,
    report: Annotated[Path | None, typer.Option(help="Write inliers per image and point of a COLMAP model.")] = None,
    ply: Annotated[Path | None, typer.Option(help="Write points and cameras for a viewer.")] = None,
    truth: Annotated[Path | None, typer.Option(help="Graphs: the true poses, for the trajectory error.")] = None,
    truth_by: Annotated[str, typer.Option(help=f"Graphs: poses and truth match by {' or '.join(MATCHES)}.")] = "id",
    robust: Annotated[str, typer.Option(help="Graphs: the kernel acts on loops, all or none.")] = "loops",
    noise: Annotated[
        str, typer.Option(help=f"Graphs: {', '.join(NOISES)}; auto: estimated, but with --checkpoint announced.")
    ] = "auto",
    refit: Annotated[
        bool, typer.Option("--refit/--no-refit", help="Graphs: end with least squares on what is kept.")
    ] = True,
    figure: Annotated[Path | None, typer.Option(help="Graphs: draw the trajectory before and after.")] = None,
    false_loops: Annotated[Path | None, typer.Option(help="Graphs: what `asker corrupt --json` wrote.")] = None,
    quiet: Quiet = False,
) -> int:
    """Refine a BAL file, a COLMAP model or a pose graph.  Ctrl-C stops and keeps the best so far."""
    one_of("--linear-solver", linear_solver, LINEAR_SOLVERS)
    hosts = Hosts(coordinator, num_processes, process_id)
    engine = hosts.engine(one_of("--engine", engine, ENGINES))
    number("--tol", tol)
    number("--time-limit", time_limit or 0.0)
    options = GraphOptions(truth, truth_by, robust, figure, false_loops, noise, refit)
    limits: dict[str, Any] = {"max_iterations": iterations, "tol": tol, "time_limit": time_limit}
    limits |= {"linear_solver": linear_solver, "threads": threads}
    limits |= {"engine": engine, "checkpoint": checkpoint, "every": every}
    if is_graph(file):
        hosts.refuse()
        if ply or (camera, dof) != ("pixel", 6):
            raise ValueError("--ply, --camera and --dof are for BAL files")
        if gauge:
            raise ValueError("--gauge is for BAL files and COLMAP models; in a pose graph a line FIX holds a pose")
        return solve_graph(file, kernel, tau, method, options, json_file, output, quiet, **limits)
    options.refuse()
    tau = 1.0 if tau is None else tau
    psi = asker.kernel_named(kernel, number("--tau", tau, positive=True), "--kernel")
    method = ("irls" if psi.convex else "asker") if method is None else method
    strategy = asker.METHODS[one_of("--method", method, asker.METHODS)]()
    settings: dict[str, Any] = {"method": method, "kernel": kernel, "tau": tau, "camera": camera, "dof": dof}
    one_of("--camera", camera, CAMERAS)
    one_of("--dof", dof, DOFS)
    settings["gauge"] = one_of("--gauge", "free" if gauge is None else gauge, GAUGES)
    outputs = colmap.Outputs(json_file, output, ply, report, drop_outliers)
    if file.is_dir():
        colmap.refuse_bal_options(camera, dof)
        hosts.refuse()
        return colmap.solve_model(
            file, psi, strategy, refine or "poses", INLIER * tau, settings, limits, outputs, quiet
        )
    colmap.refuse_model_options(refine, drop_outliers, report)
    if not process_id:
        check_outputs(file, json_file, output, ply, checkpoint)
    with hosts.together(quiet, engine) as place:
        return solve_bal(file, psi, strategy, settings, limits, outputs, quiet, place)


def solve_bal(
    file: Path,
    kernel: Any,
    strategy: Any,
    settings: dict[str, Any],
    loop: dict[str, Any],
    outputs: colmap.Outputs,
    quiet: bool,
    place: Place,
) -> int:
    """Refine a BAL file; each process reads its part, the first one prints and writes."""
    from asker.problems.bundle import bundle_problem, reprojection_norms

    camera, dof, radius = settings["camera"], settings["dof"], INLIER * settings["tau"]
    with Progress(quiet or place.process > 0) as progress:
        progress.say(f"reading {file}")
        part = read_bal_part(file, place.process, place.n_processes)
        place.check_same(part.checksum.to_bytes(4), "were given different files")
        progress.say(f"preparing {counts(part.bundle)}")
        before = place.share_of(reprojection_norms(part.bundle, camera)[0] <= radius)
        made = bundle_problem(part.bundle if place.alone else part, kernel, camera, dof, settings["gauge"])
        result = asker.solve(made.problem, strategy, on_iteration=progress.iteration, **loop)
    place.part()
    if place.process > 0:
        return 0
    inliers = np.linalg.norm(result.residuals[0], axis=1) <= radius
    settings |= {"initial_inlier_ratio": before, "inlier_ratio": inliers.mean()}
    record = run_record(file, part, settings | {"compiled": progress.compiled}, result)
    print_run(record)
    refined = part.bundle  # written only if asked for
    if outputs.model or outputs.ply:
        refined = made.refined(result.values, None if place.alone else read_bal(file))
    write_outputs(
        (outputs.json_file, partial(write_json, record=record)),
        (outputs.model, partial(write_bal, bundle=refined)),
        (outputs.ply, partial(write_cloud, bundle=refined, inliers=inliers)),
    )
    if loop["max_iterations"] and failed(result):
        return complain(f"{file}: the cost did not fall: {result.status.value}", 1)
    return 0


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


def info(
    file: Reconstruction,
    tau: Annotated[
        float | None,
        typer.Option(
            help="Scale of the kernel, as in `asker solve`.", show_default="1; for graphs 5.83 (SE2), 7.1 (SE3)"
        ),
    ] = None,
) -> int:
    """Describe a BAL file, a COLMAP model or a pose graph: its size, and how good its start is."""
    if tau is not None:
        number("--tau", tau, positive=True)
    if is_graph(file):
        graph_info(file, tau)
    elif file.is_dir():
        colmap.model_info(file, 1.0 if tau is None else tau, INLIER)
    else:
        bal_info(file, 1.0 if tau is None else tau)
    return 0


def bal_info(file: Path, tau: float) -> None:
    from asker.problems.bundle import reprojection_norms

    psi = asker.SmoothTruncated(tau).psi
    bundle = read_bal(file)
    print(f"{file}: {counts(bundle)}")
    print_spread(
        ("observations per camera", bundle.camera_index, bundle.n_cameras),
        ("observations per point", bundle.point_index, bundle.n_points),
    )
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


def run_record(file: Path, part: Part, settings: dict[str, Any], result: asker.Result) -> dict[str, Any]:
    """What `--json` writes."""
    return {
        "file": str(file),
        "n_cameras": part.bundle.n_cameras,
        "n_points": part.n_points,
        "n_observations": part.n_observations,
        **settings,
        "inlier_radius": INLIER * settings["tau"],
        **solve_record(result),
    }


def write_cloud(path: Path, bundle: Bundle, inliers: np.ndarray) -> None:
    """Cameras in red, points in grey, and in orange where fewer than two inliers see them."""
    from asker.io.ply import write_ply
    from asker.problems.bundle import camera_centres

    support = np.bincount(bundle.point_index[inliers], minlength=bundle.n_points)
    colors = np.where(support[:, None] >= 2, GREY, ORANGE).astype(np.uint8)
    write_ply(path, bundle.points, colors, camera_centres(bundle))

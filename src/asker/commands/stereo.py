"""Commands for dense stereo: one pair with one method, and the paper's comparison of methods."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
import typer

import asker
from asker.commands.support import (
    KERNELS,
    LINEAR_SOLVERS,
    Json,
    LinearSolver,
    Method,
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
from asker.io.files import FileError
from asker.io.images import read_disparity, read_grey, write_disparity, write_grey, write_picture
from asker.io.json import write_json
from asker.problems.disparity import DisparityErrors, disparity_errors, visible
from asker.problems.stereo import Cost, Matching, Minima, Start, energy, match
from asker.terminal import Progress, percent, print_table

COMPARED = "irls,mhq,gnc,moo,asker"
MIDDLEBURY = {"left": "im2.png", "right": "im6.png", "truth": "disp2.png", "truth_right": "disp6.png"}

Left = Annotated[Path, typer.Argument(metavar="LEFT", help="The left image of a rectified pair.")]
Right = Annotated[Path, typer.Argument(metavar="RIGHT", help="The right image.")]
Pairs = Annotated[
    list[Path], typer.Argument(metavar="PAIR...", help=f"Folders that hold {', '.join(MIDDLEBURY.values())}.")
]
MaxDisparity = Annotated[
    int | None, typer.Option(min=2, help="The largest disparity, in pixels.", show_default="an eighth of the width")
]
Iterations = Annotated[int, typer.Option(min=0, help="At most so many linear solves.")]
StartFrom = Annotated[str, typer.Option(help=f"One of: {', '.join(get_args(Start))}.")]
MatchingCost = Annotated[str, typer.Option("--cost", help=f"One of: {', '.join(get_args(Cost))}.")]
Window = Annotated[int, typer.Option(help="Side of the matching window, odd.")]
N_Minima = Annotated[int, typer.Option("--minima", help="How many matching minima of a pixel become data terms.")]
Tau = Annotated[float, typer.Option(help="Scale of both kernels, in pixels.")]
Eta = Annotated[float, typer.Option(help="Weight of the data terms.")]
Scale = Annotated[float, typer.Option(help="What the values of a truth image are divided by.")]


def stereo(
    left: Left,
    right: Right,
    max_disparity: MaxDisparity = None,
    method: Method = "asker",
    iterations: Iterations = 150,
    start: StartFrom = "constant",
    cost: MatchingCost = "zncc",
    window: Window = 7,
    n_minima: N_Minima = 2,
    kernel: Annotated[str, typer.Option(help=f"One of: {', '.join(KERNELS)}.")] = "smooth-truncated",
    tau: Tau = 1.0,
    eta: Eta = 4.0,
    truth: Annotated[Path | None, typer.Option(help="The true disparities of the left image.")] = None,
    truth_right: Annotated[Path | None, typer.Option(help="And of the right one, to tell hidden pixels.")] = None,
    scale: Scale = 4.0,
    tol: Tol = 1e-9,
    time_limit: TimeLimit = None,
    linear_solver: LinearSolver = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    output: Annotated[
        Path | None, typer.Option(help="Write the disparities: .png (16 bit, times 256) or .pfm.")
    ] = None,
    pfm: Annotated[Path | None, typer.Option(help="Write them as PFM too.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Write them as a coloured PNG.")] = None,
    json_file: Json = None,
    quiet: Quiet = False,
) -> int:
    """Find the disparity of every pixel of a rectified stereo pair.  Ctrl-C stops and keeps the best so far."""
    strategy = asker.METHODS[one_of("--method", method, asker.METHODS)]()
    psi = asker.kernel_named(kernel, number("--tau", tau, positive=True), "--kernel")
    one_of("--start", start, get_args(Start))
    one_of("--cost", cost, get_args(Cost))
    one_of("--linear-solver", linear_solver, LINEAR_SOLVERS)
    number("--eta", eta)
    number("--tol", tol)
    number("--time-limit", time_limit or 0.0)
    number("--scale", scale, positive=True)
    if truth_right and not truth:
        raise ValueError("--truth-right needs --truth")
    for path, endings in ((output, (".png", ".pfm")), (pfm, (".pfm",)), (picture, (".png",))):
        if path and path.suffix.lower() not in endings:
            raise FileError(path, f"the name must end with {' or '.join(endings)}")
    check_outputs((left, right, truth, truth_right), json_file, output, pfm, picture)
    with Progress(quiet) as progress:
        progress.say(f"reading {left} and {right}")
        images = read_grey(left), read_grey(right)
        truths = Truths(truth, truth_right, scale, images[0].shape)
        largest = max_disparity or max(2, images[0].shape[1] // 8)
        matching = Matching(largest, cost, window, n_minima)  # type: ignore[arg-type]
        progress.say("matching")
        minima = match(*images, matching)
        made = energy(minima, largest, start, eta, psi, psi, seed)  # type: ignore[arg-type]
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
    disparity = made.image(result.values)
    height, width = disparity.shape
    settings = {"method": method, "kernel": kernel, "tau": tau, "eta": eta, "start": start, "seed": seed}
    record = {
        "file": str(left),
        "right": str(right),
        "width": width,
        "height": height,
        "n_residuals": made.problem.n_residuals,
        **asdict(matching),
        **settings,
        "compiled": progress.compiled,
        **solve_record(result),
        "energy": result.cost,
        **truths.record(disparity, minima),
    }
    print(
        f"{left}, {right}: {width}×{height} pixels, disparities up to {largest}, {made.problem.n_residuals} residuals"
    )
    print(f"{method} from {start}, {cost} {window}×{window}, {n_minima} minima, tau {tau:g} px, eta {eta:g}")
    print(f"energy {result.initial_cost:.7g} -> {result.cost:.7g}")
    truths.print({"winner takes all": minima.winner, method: disparity})
    print(f"{result.iterations} iterations in {result.seconds['total']:.3g} s: {result.status.value}")
    write_outputs(
        (json_file, partial(write_json, record=record)),
        (output, partial(write_disparity, disparity=disparity)),
        (pfm, partial(write_disparity, disparity=disparity)),
        (picture, partial(write_picture, disparity=disparity, largest=largest)),
    )
    if iterations and failed(result):
        return complain(f"{left}: the energy did not fall: {result.status.value}", 1)
    return 0


def stereo_generate(
    folder: Annotated[Path, typer.Argument(help="The folder to write; it is made.")],
    width: Annotated[int, typer.Option(help="Pixels.")] = 256,
    height: Annotated[int, typer.Option(help="Pixels.")] = 192,
    max_disparity: Annotated[int, typer.Option(min=4, max=63, help="Pixels.")] = 30,
    noise: Annotated[float, typer.Option(help="Standard deviation of a grey value; the texture has 0.2.")] = 0.2,
    seed: Seed = 0,
) -> int:
    """Make a stereo pair whose truth is known, in the Middlebury layout (truths times 4)."""
    from asker.stereo_pairs import make_pair

    pair = make_pair(height, width, max_disparity=max_disparity, noise=number("--noise", noise), seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    images = {"left": 255 * pair.left, "right": 255 * pair.right}
    images |= {"truth": 4 * pair.left_truth, "truth_right": 4 * pair.right_truth}
    write_outputs(*[(folder / MIDDLEBURY[key], partial(write_grey, values=image)) for key, image in images.items()])
    return 0


def stereo_compare(
    pairs: Pairs,
    output: Annotated[Path, typer.Option(help="The folder for tables and figures.")] = Path("stereo"),
    methods: Annotated[str, typer.Option(help="The methods, with commas.")] = COMPARED,
    max_disparity: MaxDisparity = None,
    iterations: Iterations = 150,
    start: StartFrom = "constant",
    cost: MatchingCost = "zncc",
    window: Window = 7,
    n_minima: N_Minima = 2,
    tau: Tau = 1.0,
    eta: Eta = 4.0,
    scale: Scale = 4.0,
    seed: Seed = 0,
    threads: Threads = None,
    quiet: Quiet = False,
) -> int:
    """Run several methods on stereo pairs in the Middlebury layout: a table, curves, bars and maps."""
    from asker.figures import draw_bars, draw_curves, draw_maps

    chosen = methods.split(",")
    for method in chosen:
        one_of("--methods", method, asker.METHODS)
    one_of("--start", start, get_args(Start))
    one_of("--cost", cost, get_args(Cost))
    psi = asker.SmoothTruncated(number("--tau", tau, positive=True))
    if threads:
        asker.set_threads(threads)
    for folder in pairs:
        if not folder.is_dir():
            raise FileError(folder, "there is no such folder")
    output.mkdir(parents=True, exist_ok=True)
    records: list[dict[str, Any]] = []
    histories: dict[str, dict[str, list[asker.Iteration]]] = {}
    maps: dict[str, dict[str, np.ndarray]] = {}
    with Progress(quiet) as progress:
        for name, folder in named(pairs):
            images = read_grey(folder / MIDDLEBURY["left"]), read_grey(folder / MIDDLEBURY["right"])
            truth, truth_right = (
                p if (p := folder / MIDDLEBURY[k]).exists() else None for k in ("truth", "truth_right")
            )
            truths = Truths(truth, truth_right if truth else None, scale, images[0].shape)
            largest = max_disparity or max(2, images[0].shape[1] // 8)
            minima = match(*images, Matching(largest, cost, window, n_minima))  # type: ignore[arg-type]
            histories[name], maps[name] = {}, {"winner takes all": minima.winner}
            for method in chosen:
                progress.begin(f"{name}, {method}")
                made = energy(minima, largest, start, eta, psi, psi, seed)  # type: ignore[arg-type]
                strategy = asker.METHODS[method]()
                result = asker.solve(
                    made.problem, strategy, max_iterations=iterations, tol=0, on_iteration=progress.iteration
                )
                if result.status is asker.Status.INTERRUPTED:
                    raise KeyboardInterrupt
                disparity = made.image(result.values)
                histories[name][method], maps[name][method] = result.history, disparity
                mean = float(np.mean([h.best_cost for h in result.history]))
                row = {"pair": name, "method": method, "start": start, "energy": result.cost, "mean_energy": mean}
                records.append(row | {"seconds": result.seconds["total"]} | truths.record(disparity, minima))
            if truths.left is not None:
                maps[name]["truth"] = truths.left
    print_table(
        ["pair", "method", "energy", "mean energy", "bad 1 px", "bad 1 px,\nvisible", "seconds"],
        *[
            [r["pair"], r["method"], f"{r['energy']:.0f}", f"{r['mean_energy']:.0f}"]
            + [percent(r[k]) if k in r else "" for k in ("bad_1", "bad_1_visible")]
            + [f"{r['seconds']:.1f}"]
            for r in records
        ],
    )
    settings = {"iterations": iterations, "start": start, "cost": cost, "window": window, "n_minima": n_minima}
    settings |= {"tau": tau, "eta": eta, "seed": seed, "version": asker.__version__}
    energies = {name: {r["method"]: r["energy"] for r in records if r["pair"] == name} for name in maps}
    write_outputs(
        (output / "runs.json", partial(write_json, record={"settings": settings, "runs": records})),
        (output / "energy.png", partial(draw_curves, histories=histories, what="energy")),
        (output / "energy-bars.png", partial(draw_bars, values=energies, what="final energy")),
        (output / "maps.png", partial(draw_maps, maps=maps)),
    )
    return 0


def named(folders: list[Path]) -> Iterator[tuple[str, Path]]:
    """Each folder with a name of its own."""
    names = [f.resolve().name for f in folders]
    for name, folder in zip(names, folders, strict=True):
        yield (name if names.count(name) == 1 else str(folder)), folder


class Truths:
    """The true disparities, as far as they are known."""

    def __init__(self, left: Path | None, right: Path | None, scale: float, shape: tuple[int, int]):
        self.left = None if left is None else self._read(left, scale, shape)
        right_truth = None if right is None else self._read(right, scale, shape)
        self.visible = None if self.left is None or right_truth is None else visible(self.left, right_truth)

    def _read(self, path: Path, scale: float, shape: tuple[int, int]) -> np.ndarray:
        truth = read_disparity(path, scale)
        if truth.shape != shape:
            raise FileError(
                path, f"{truth.shape[1]}×{truth.shape[0]} pixels, but the images have {shape[1]}×{shape[0]}"
            )
        return truth

    def record(self, disparity: np.ndarray, minima: Minima) -> dict[str, Any]:
        """Errors for the JSON file: of the result, and of the winner that takes all."""
        record: dict[str, float] = {}
        for prefix, found in (("", disparity), ("wta_", minima.winner)):
            for suffix, errors in self._errors(found):
                record |= {f"{prefix}{key}{suffix}": value for key, value in asdict(errors).items()}
        return record

    def _errors(self, disparity: np.ndarray) -> Iterator[tuple[str, DisparityErrors]]:
        if self.left is None:
            return
        known = np.isfinite(self.left)
        masks = {"": known}
        if self.visible is not None:
            masks |= {"_visible": known & self.visible, "_hidden": known & ~self.visible}
        for suffix, mask in masks.items():
            if mask.any():
                yield suffix, disparity_errors(disparity, self.left, mask)

    def print(self, found: dict[str, np.ndarray]) -> None:
        if self.left is None:
            return
        rows = []
        for name, disparity in found.items():
            for suffix, e in self._errors(disparity):
                which = suffix.replace("_", " ").strip() or "all"
                rows.append(
                    [name, which, percent(e.bad_0_5), percent(e.bad_1), percent(e.bad_2), f"{e.mean_error:.3g} px"]
                )
        print_table(["", "pixels", "off by > 0.5", "> 1", "> 2 px", "mean error"], *rows)

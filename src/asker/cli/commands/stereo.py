"""`asker stereo`, `asker stereo-compare` and `asker stereo-generate`."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import asker
from asker.applications.application import option
from asker.applications.stereo import options as stereo_options
from asker.applications.stereo.application import APPLICATION
from asker.applications.stereo.draw import draw_maps
from asker.applications.stereo.pairs import MIDDLEBURY, SCALE, make_pair, read_folder, read_pair
from asker.applications.stereo.refine import ITERATIONS
from asker.applications.stereo.refine import refine as refine_pair
from asker.cli.checks import Quiet, Seed, check_outputs, complain, number, one_of, write_outputs
from asker.cli.dataclass_options import CommandOptions, checked, with_options
from asker.cli.options import KERNEL_HELP, METHOD_HELP, THREADS_HELP, Files, Limits, Means, check_kernel
from asker.cli.terminal import ProgressLine, print_report, print_table
from asker.io.figures import draw_bars, draw_curves
from asker.io.files import FileError
from asker.io.folders import make_folder
from asker.io.images import write_grey
from asker.io.json import write_json
from asker.strategies import METHODS

COMPARED = "irls,mhq,gnc,moo,asker"

Left = Annotated[Path, typer.Argument(metavar="LEFT", help="The left image of a rectified pair.")]
Right = Annotated[Path, typer.Argument(metavar="RIGHT", help="The right image.")]
Pairs = Annotated[list[Path], typer.Argument(metavar="PAIR...", help=f"Folders with {', '.join(MIDDLEBURY.values())}.")]


@dataclass(frozen=True)
class Solving:
    """Options of `asker stereo` and `asker stereo-compare`."""

    iterations: int = option(ITERATIONS, "Maximum number of linear solves.", min=0)
    tau: float = option(1.0, "Width of both kernels, in pixels.", above=0.0)
    scale: float = option(SCALE, "Scale of the values of a truth image, relative to disparities.", above=0.0)


@dataclass(frozen=True)
class OfOnePair(Solving):
    """Options of `asker stereo` only."""

    method: str = option("asker", METHOD_HELP, choices=tuple(METHODS))
    kernel: str = option("smooth-truncated", KERNEL_HELP, check=check_kernel)
    truth: Path | None = option(None, "The true disparities of the left image.")
    truth_right: Path | None = option(None, "The true disparities of the right image, to detect occluded pixels.")


@dataclass(frozen=True)
class OutputFiles(Files):
    """Options of the output, with a disparity map as `--output`."""

    output: Path | None = option(None, "Write the disparities: .png (16 bit, times 256) or .pfm.", writes=True)


STEREO = CommandOptions(OfOnePair, stereo_options.Options, Limits, Means, OutputFiles)
COMPARE = CommandOptions(stereo_options.EnergyOptions, Solving)


@with_options(STEREO)
def stereo(left: Left, right: Right, **given: Any) -> int:
    """The command `asker stereo`."""
    asked, files = checked(OfOnePair, given), checked(OutputFiles, given)
    limits = asdict(checked(Means, given)) | asdict(checked(Limits, given))
    options = checked(stereo_options.Options, given)
    if asked.truth_right and not asked.truth:
        raise ValueError("--truth-right needs --truth")
    APPLICATION.check(left, files.output, options)
    inputs = (left, right, asked.truth, asked.truth_right)
    check_outputs(inputs, files.json_file, files.output, options.pfm, options.picture)
    with ProgressLine(files.quiet) as progress:
        progress.say(f"reading {left} and {right}")
        pair = read_pair(left, right, asked.truth, asked.truth_right, asked.scale)
        progress.say("matching")
        common = {"method": asked.method, "kernel": asked.kernel, "tau": asked.tau}
        limits |= {"max_iterations": limits.pop("iterations"), "on_iteration": progress.iteration}
        outcome = APPLICATION.refine(pair, options, progress.begin, **common, **limits)
    r = {"file": str(left), "right": str(right)} | outcome.record
    outcome = replace(outcome, make_record=lambda: r)
    sizes = f"disparities up to {r['max_disparity']}, {r['n_residuals']} residuals"
    print_report([f"{left}, {right}: {APPLICATION.counts(pair)}, {sizes}", *APPLICATION.report(pair, outcome, options)])
    json_writer = partial(write_json, record=r)
    write_outputs((files.json_file, json_writer), *APPLICATION.outputs(outcome, options, files.output))
    if asked.iterations and not outcome.succeeded:
        return complain(f"{left}: the energy did not decrease: {outcome.result.status.value}", 1)
    return 0


def stereo_generate(
    folder: Annotated[Path, typer.Argument(help="The folder to write; it is created if needed.")],
    width: Annotated[int, typer.Option(help="Pixels.")] = 256,
    height: Annotated[int, typer.Option(help="Pixels.")] = 192,
    max_disparity: Annotated[int, typer.Option(min=4, max=63, help="Pixels.")] = 30,
    noise: Annotated[float, typer.Option(help="Standard deviation of a grey value; the texture has 0.2.")] = 0.2,
    seed: Seed = 0,
) -> int:
    """The command `asker stereo-generate`."""
    pair = make_pair(height, width, max_disparity=max_disparity, noise=number("--noise", noise), seed=seed)
    assert pair.left_truth is not None
    assert pair.right_truth is not None
    make_folder(folder)
    images = {"left": 255 * pair.left, "right": 255 * pair.right}
    images |= {"truth": SCALE * pair.left_truth, "truth_right": SCALE * pair.right_truth}
    write_outputs(*[(folder / MIDDLEBURY[key], partial(write_grey, values=image)) for key, image in images.items()])
    return 0


@with_options(COMPARE)
def stereo_compare(
    pairs: Pairs,
    output: Annotated[Path, typer.Option(help="The folder for tables and figures.")] = Path("stereo"),
    methods: Annotated[str, typer.Option(help="The methods, with commas.")] = COMPARED,
    threads: Annotated[int | None, typer.Option(min=1, help=THREADS_HELP)] = None,
    quiet: Quiet = False,
    **given: Any,
) -> int:
    """The command `asker stereo-compare`."""
    chosen = methods.split(",")
    for method in chosen:
        one_of("--methods", method, METHODS)
    asked, options = checked(Solving, given), checked(stereo_options.EnergyOptions, given)
    if threads:
        asker.set_threads(threads)
    for folder in pairs:
        if not os.path.isdir(folder):
            raise FileError(folder, "there is no such folder")
    make_folder(output)
    targets = [output / name for name in ("runs.json", "energy.png", "energy-bars.png", "maps.png")]
    check_outputs([path for folder in pairs for path in APPLICATION.reads(folder)], *targets)
    records: list[dict[str, Any]] = []
    histories: dict[str, dict[str, list[asker.Iteration]]] = {}
    maps: dict[str, dict[str, np.ndarray]] = {}
    with ProgressLine(quiet) as progress:
        for name, folder in _named(pairs):
            histories[name], maps[name] = {}, {}
            for method in chosen:
                progress.begin(f"{name}, {method}")
                outcome = _run(folder, method, asked, options, progress)
                histories[name][method] = outcome.result.history
                maps[name].setdefault("winner takes all", outcome.minima.winner)
                maps[name][method] = outcome.refined
                records.append(_row(name, outcome))
            if (truth := read_folder(folder, asked.scale).left_truth) is not None:
                maps[name]["truth"] = truth
    _print_rows(records)
    energies = {name: {r["method"]: r["energy"] for r in records if r["pair"] == name} for name in maps}
    write_outputs(
        (targets[0], partial(write_json, record={"settings": _common(asked, options), "runs": records})),
        (targets[1], partial(draw_curves, histories=histories, what="energy")),
        (targets[2], partial(draw_bars, values=energies, what="final energy")),
        (targets[3], partial(draw_maps, maps=maps)),
    )
    return 0


def _run(folder: Path, method: str, asked: Solving, options: Any, progress: ProgressLine) -> Any:
    energy = {f.name: getattr(options, f.name) for f in fields(stereo_options.EnergyOptions)}
    limits: dict[str, Any] = {"max_iterations": asked.iterations, "tol": 0, "on_iteration": progress.iteration}
    outcome = refine_pair(read_folder(folder, asked.scale), method, tau=asked.tau, **energy, **limits)
    if outcome.result.status is asker.Status.INTERRUPTED:
        raise KeyboardInterrupt
    return outcome


def _row(pair: str, outcome: Any) -> dict[str, Any]:
    r = outcome.record
    mean = float(np.mean([h.best_cost for h in outcome.result.history]))
    row = {"pair": pair, "method": r["method"], "start": r["start"], "energy": r["energy"], "mean_energy": mean}
    errors = {k: v for k, v in r.items() if k.removeprefix("wta_").startswith(("bad_", "mean_error"))}
    return row | {"seconds": r["seconds"]} | errors


def _print_rows(records: list[dict[str, Any]]) -> None:
    print_table(
        ["pair", "method", "energy", "mean energy", "bad 1 px", "bad 1 px,\nvisible", "seconds"],
        *[
            [r["pair"], r["method"], f"{r['energy']:.0f}", f"{r['mean_energy']:.0f}"]
            + [f"{100 * r[k]:.3g} %" if k in r else "" for k in ("bad_1", "bad_1_visible")]
            + [f"{r['seconds']:.1f}"]
            for r in records
        ],
    )


def _common(asked: Solving, options: Any) -> dict[str, Any]:
    """Return the settings of all runs, for `runs.json`."""
    settings = {"iterations": asked.iterations}
    settings |= {name: getattr(options, name) for name in ("start", "cost", "window", "n_minima")}
    return settings | {"tau": asked.tau, "eta": options.eta, "seed": options.seed, "version": asker.__version__}


def _named(folders: list[Path]) -> Iterator[tuple[str, Path]]:
    """Yield each folder with a unique name."""
    names = [f.resolve().name for f in folders]
    for name, folder in zip(names, folders, strict=True):
        yield (name if names.count(name) == 1 else str(folder)), folder

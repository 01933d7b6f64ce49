"""Dense stereo as an application, for folders with an image pair in the Middlebury layout."""

import base64
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from asker.applications.application import Application, Arrays, Runs, Source, Write
from asker.applications.outcome import kernel_from_keys
from asker.applications.stereo.draw import draw_maps
from asker.applications.stereo.errors import error_record, errors_by_part
from asker.applications.stereo.matching import Matching, match
from asker.applications.stereo.options import STARTS, EnergyOptions, Options
from asker.applications.stereo.pairs import MIDDLEBURY, StereoPair, read_folder
from asker.applications.stereo.problem import StereoProblem, energy
from asker.applications.stereo.refine import ITERATIONS, StereoOutcome, largest_disparity, refine
from asker.applications.text_report import ReportItems, Table, percent
from asker.io.files import FileError
from asker.io.images import picture_bytes, write_disparity, write_picture
from asker.solver.result import Result

PAIR = (MIDDLEBURY["left"], MIDDLEBURY["right"])


class DenseStereo(Application):
    """Two rectified images, whose disparity is estimated at every pixel."""

    name = "stereo"
    title = "stereo pairs"
    reads_folder = True
    holds_out = False
    estimates_noise = False
    expects = f"a stereo pair: a folder with {' and '.join(PAIR)}"
    options_class = Options
    iterations = ITERATIONS
    cost_name = symbol = "energy"
    plots_parameter_studies = True
    experiment_title = "Dense stereo correspondences"
    columns = (("bad_1", "bad 1 px %"), ("bad_1_visible", "visible bad %"))
    truth = "bad_1_visible"
    sources = (
        Source(
            "stereo",
            {
                "max_disparity": 59, "scale": 4.0, "window": 7, "n_minima": 2, "tau": 1.0, "eta": 4.0,
                "start": "constant", "seed": 0,
            },
            place="folder",
            load=lambda keys: read_folder(Path(keys["folder"]), keys["scale"]),
            choices={"start": STARTS},
            needed_mb=lambda keys: 1500.0,
        ),
    )  # fmt: skip

    def owns(self, path: Path) -> bool:
        return all((path / name).is_file() for name in PAIR)

    def reads(self, path: Path) -> list[Path]:
        return [path / name for name in MIDDLEBURY.values()]

    def load(self, path: Path) -> StereoPair:
        return read_folder(path)

    def write(self, path: Path, data: np.ndarray) -> None:
        write_disparity(path, data)

    def counts(self, data: StereoPair) -> str:
        height, width = data.left.shape
        return f"{width}×{height} pixels"

    def info(self, data: StereoPair, tau: float | None) -> ReportItems:
        known = [("left", data.left_truth), ("right", data.right_truth)]
        lines = [f"true disparities of the {side} image: {_range(truth)}" for side, truth in known if truth is not None]
        return [*lines] or ["the true disparities are not known"]

    def check(self, path: Path, output: Path | None, options: Options) -> None:
        for name, suffixes in ((output, (".png", ".pfm")), (options.pfm, (".pfm",)), (options.picture, (".png",))):
            if name and name.suffix.lower() not in suffixes:
                raise FileError(name, f"the name must end with {' or '.join(suffixes)}")

    def refine(self, data: StereoPair, options: Options, say: Any, **common: Any) -> StereoOutcome:
        energy_options = {f.name: getattr(options, f.name) for f in fields(EnergyOptions)}
        return refine(data, **energy_options, **common)

    def report(self, data: StereoPair, outcome: Any, options: Options) -> ReportItems:
        r = outcome.record
        shape = f"{options.cost} {r['window']}×{r['window']}"
        items: ReportItems = [
            f"{r['method']} from {r['start']}, {shape}, {r['n_minima']} minima, tau {r['tau']:g} px, eta {r['eta']:g}",
            f"energy {r['initial_cost']:.7g} -> {r['energy']:.7g}",
        ]
        if data.left_truth is not None:
            maps = {"winner takes all": outcome.minima.winner, r["method"]: outcome.refined}
            items.append(_error_table(maps, data))
        return [*items, f"{r['iterations']} iterations in {r['seconds']:.3g} s: {outcome.result.status.value}"]

    def outputs(self, outcome: Any, options: Options, output: Path | None) -> list[Write]:
        disparity, largest = outcome.refined, outcome.record["max_disparity"]
        return [
            (output, partial(write_disparity, disparity=disparity)),
            (options.pfm, partial(write_disparity, disparity=disparity)),
            (options.picture, partial(write_picture, disparity=disparity, largest=largest)),
        ]

    # ---- for experiments

    def sizes(self, data: StereoPair) -> dict[str, Any]:
        height, width = data.left.shape
        return {"width": width, "height": height}

    def problem(self, data: StereoPair, keys: dict[str, Any]) -> StereoProblem:
        largest = largest_disparity(data, keys["max_disparity"])
        matching = Matching(largest, window=keys["window"], n_minima=keys["n_minima"])
        kernel = kernel_from_keys(keys)
        minima = match(data.left, data.right, matching)
        return energy(minima, largest, keys["start"], keys["eta"], kernel, kernel, keys["seed"])

    def evaluate(self, data: StereoPair, made: StereoProblem, result: Result, keys: dict[str, Any]) -> dict[str, Any]:
        errors = error_record(made.refined(result.values), made.minima.winner, data)
        largest = largest_disparity(data, keys["max_disparity"])
        return {"n_observations": made.problem.n_residuals, "max_disparity": largest} | errors

    def plot_arrays(self, data: StereoPair, made: StereoProblem, result: Result, keys: dict[str, Any]) -> Arrays:
        arrays = {"disparity": made.refined(result.values), "winner": made.minima.winner}
        if data.left_truth is not None:
            arrays["truth"] = data.left_truth
        return {name: array.astype(np.float32) for name, array in arrays.items()}

    def page(self, runs: Runs) -> dict[str, Any]:
        labels = list(dict.fromkeys(label for of in runs.values() for label in of))
        complete = [i for i, of in runs.items() if len(of) == len(labels)]
        data: dict[str, Any] = {"maps": [_map_row(i, of) for i, of in runs.items() if of]}
        if complete:
            values = [[runs[i][label].result["cost"] for i in complete] for label in labels]
            data["bars"] = {"labels": labels, "instances": complete, "values": values}
        return data

    def figures(self, runs: Runs) -> dict[str, Callable[[Path], None]]:
        return {"maps": lambda path: draw_maps(path, {i: _maps(of) for i, of in runs.items()})}


def _range(truth: np.ndarray) -> str:
    known = truth[np.isfinite(truth)]
    return f"{known.min():.3g} to {known.max():.3g} px, {percent(np.isfinite(truth).mean())} known"


def _error_table(maps: dict[str, np.ndarray], pair: StereoPair) -> Table:
    rows = []
    for name, disparity in maps.items():
        for suffix, e in errors_by_part(disparity, pair):
            pixels = suffix.replace("_", " ").strip() or "all"
            bad = percent(e.bad_0_5), percent(e.bad_1), percent(e.bad_2)
            rows.append([name, pixels, *bad, f"{e.mean_error:.3g} px"])
    return Table(("", "pixels", "error > 0.5", "> 1", "> 2 px", "mean error"), rows)


def _maps(of_instance: Any) -> dict[str, np.ndarray]:
    """Return the disparity maps of winner-takes-all, of the methods, and the true one if it is known."""
    maps: dict[str, np.ndarray] = {}
    for label, run in of_instance.items():
        arrays = run.arrays()
        maps.setdefault("winner takes all", arrays["winner"])
        maps[label] = arrays["disparity"]
    if "truth" in arrays:
        maps["truth"] = arrays["truth"]
    return maps


def _map_row(instance: str, of_instance: Any) -> dict[str, Any]:
    first = next(iter(of_instance.values()))
    largest = first.options["max_disparity"] or first.result["max_disparity"]
    bad = {label: run.result.get("bad_1") for label, run in of_instance.items()}
    bad["winner takes all"] = first.result.get("wta_bad_1")
    images = [_map(label, image, largest, bad.get(label)) for label, image in _maps(of_instance).items()]
    return {"instance": instance, "images": images}


def _map(label: str, disparity: np.ndarray, largest: float, bad: float | None) -> dict[str, Any]:
    png = base64.b64encode(picture_bytes(disparity, largest)).decode()
    return {"label": label, "png": f"data:image/png;base64,{png}", "bad": None if bad is None else 100 * bad}


APPLICATION = DenseStereo()

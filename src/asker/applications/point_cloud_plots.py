"""Plots of reconstructions: points and cameras before and after a solve.

A point is supported if it has at least two inliers.  Unsupported points are orange and cameras are red.  On HTML pages
the colour of a supported point is its standard error relative to the median.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asker.applications.application import Arrays, RecordedRun, Runs
from asker.applications.uncertainty import DataCovariances
from asker.problem.variables import ProblemError

MAX_STORED_POINTS = 3000
MAX_TOP_VIEW_POINTS = 1500
PLOTTED_METHODS = ("irls", "asker")
MAX_3D_INSTANCES = 3  # a browser displays about a dozen 3D plots at a time
GREY, ORANGE = (160, 160, 160), (255, 140, 0)


class Cloud(NamedTuple):
    """The plotted part of a reconstruction."""

    points: np.ndarray
    centres: np.ndarray
    inliers: np.ndarray
    """A mask of the observations."""


def supported(point_of: np.ndarray, inliers: np.ndarray, n_points: int) -> np.ndarray:
    """Return the mask (n_points,) of supported points; `point_of` is the point of each observation."""
    return np.bincount(point_of[inliers], minlength=n_points) >= 2


def write_supported(path: Path, bundle: Any, centres: np.ndarray, inliers: np.ndarray) -> None:
    """Write a PLY file with supported points in grey, others in orange, and cameras in red."""
    from asker.io.ply import write_ply

    is_supported = supported(bundle.point_index, inliers, bundle.n_points)
    colors = np.where(is_supported[:, None], GREY, ORANGE).astype(np.uint8)
    write_ply(path, bundle.points, colors, centres)


def plot_arrays(point_of: np.ndarray, before: Cloud, after: Cloud, covariances: DataCovariances) -> Arrays:
    """Return the arrays to store for a run: a sample of the points, their standard errors (or NaN), and all cameras."""
    n = len(before.points)
    sample = np.random.default_rng(0).permutation(n)[:MAX_STORED_POINTS]
    return {
        "points_before": before.points[sample].astype(np.float32),
        "points": after.points[sample].astype(np.float32),
        "supported_before": supported(point_of, before.inliers, n)[sample],
        "supported": supported(point_of, after.inliers, n)[sample],
        "errors": _errors(covariances, n)[sample].astype(np.float32),
        "centres_before": before.centres.astype(np.float32),
        "centres": after.centres.astype(np.float32),
    }


def _errors(covariances: DataCovariances, n: int) -> np.ndarray:
    """Return the standard errors of points relative to their median."""
    try:
        errors = covariances.errors("point")[:n]
    except ProblemError:  # the noise could not be estimated, or the matrix is too large
        return np.full(n, np.nan)
    known = errors[errors > 0]
    return np.where(errors > 0, errors, np.nan) / (np.median(known) if len(known) else 1.0)


def page(runs: Runs) -> dict[str, Any]:
    """Return top views of the clouds, and 3D plots of the first instances before and after ASKER."""
    return {"clouds": list(_top_views(runs)), "space": list(_views_3d(runs))}


def _is_plotted(run: RecordedRun) -> bool:
    return run.method in PLOTTED_METHODS and not run.settings


def _top_views(runs: Runs) -> Iterator[dict[str, Any]]:
    for instance, of_instance in runs.items():
        for label, run in of_instance.items():
            if _is_plotted(run):
                a = run.arrays()
                points, good = a["points"][:MAX_TOP_VIEW_POINTS], a["supported"][:MAX_TOP_VIEW_POINTS]
                yield _plot_data(instance, label, points, a["centres"], good, a.get("errors"))


def _views_3d(runs: Runs) -> Iterator[dict[str, Any]]:
    for instance in list(runs)[:MAX_3D_INSTANCES]:
        asker_runs = [(label, run) for label, run in runs[instance].items() if run.method == "asker"]
        for label, run in asker_runs[:1]:
            a = run.arrays()
            yield _plot_data(instance, "before", a["points_before"], a["centres_before"], a["supported_before"])
            yield _plot_data(instance, f"after {label}", a["points"], a["centres"], a["supported"], a.get("errors"))


def _plot_data(
    instance: str, label: str, points: np.ndarray, centres: np.ndarray, good: np.ndarray, errors: Any = None
) -> dict[str, Any]:
    """Return the data of one plot; the 3rd to 97th percentiles of points and cameras define its range."""
    known = errors is not None and np.isfinite(errors[: len(points)][good]).any()
    boxes = [np.percentile(x[np.isfinite(x).all(axis=1)], [3, 97], axis=0) for x in (points, centres)]
    low, high = np.minimum(*[box[0] for box in boxes]), np.maximum(*[box[1] for box in boxes])
    middle, half = (low + high) / 2, 0.7 * float(max(high - low)) + 1e-9
    inside_box = (np.abs(points - middle) <= 3 * half).all(axis=1)
    spread = np.ptp(centres, axis=0) if len(centres) > 1 else np.ones(3)
    return {
        "instance": instance, "label": label,
        "points": points[inside_box].tolist(), "good": good[inside_box].astype(int).tolist(),
        "errors": _logarithms(errors[: len(points)][inside_box]) if known else None,
        "centres": centres.tolist(),
        "range": [[float(m - half), float(m + half)] for m in middle],
        "up": int(np.argmin(spread[1:])) + 1,
    }  # fmt: skip


def _logarithms(errors: np.ndarray) -> list[float | None]:
    """Return logarithms to base 2; None for NaN."""
    with np.errstate(invalid="ignore"):
        return [round(float(x), 2) if np.isfinite(x) else None for x in np.log2(errors)]


def figures(runs: Runs) -> dict[str, Callable[[Path], None]]:
    """Return the figure of top views by IRLS and ASKER, if there are such runs."""
    plotted = {i: {k: r for k, r in of.items() if _is_plotted(r)} for i, of in runs.items()}
    plotted = {i: of for i, of in plotted.items() if of}
    return {"structures": lambda path: draw_structures(path, plotted)} if plotted else {}


def draw_structures(path: Path, runs: Runs) -> None:
    """Write a figure with one row of top views for each instance."""
    from asker.io.figures import figure

    with figure(path, 7, 3.2 * len(runs)) as drawn:
        for axes, (instance, of) in zip(drawn.subplots(len(runs), 2, squeeze=False), runs.items(), strict=True):
            for ax in axes:
                ax.set_axis_off()
            for ax, (label, run) in zip(axes, of.items(), strict=False):
                _draw_from_above(ax, run.arrays())
                ax.set_title(f"{instance}, {label}", fontsize=10)


def _draw_from_above(ax: Any, a: Arrays) -> None:
    up = int(np.argmin(np.ptp(a["centres"], axis=0)[1:])) + 1
    other = 3 - up
    both = np.concatenate([a["points"], a["centres"]])
    low, high = np.percentile(both[np.isfinite(both).all(axis=1)], [3, 97], axis=0)
    for is_supported, color in ((True, "#333333"), (False, "#e08214")):
        at = a["supported"] == is_supported
        ax.plot(a["points"][at, 0], a["points"][at, other], ".", ms=1, color=color)
    ax.plot(a["centres"][:, 0], a["centres"][:, other], "^", ms=3, color="#d62728")
    pad = 0.3 * (high - low)
    ax.set_xlim(low[0] - pad[0], high[0] + pad[0])
    ax.set_ylim(low[other] - pad[other], high[other] + pad[other])

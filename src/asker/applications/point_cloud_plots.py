"""Drawings of reconstructions: points and cameras, before and after.

A point is supported where at least two inliers see it; others are orange, and cameras are red.  On a page supported
points have the colour of their standard error, beside the median of all.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asker.applications.application import Arrays, RecordedRun, Runs
from asker.applications.uncertainty import DataCovariances
from asker.problem.variables import ProblemError

MOST_POINTS = 3000  # of a cloud that a page shows
FLAT_POINTS = 1500
DRAWN = ("irls", "asker")  # whose clouds are shown
IN_SPACE = 3  # instances that are shown in space: a browser draws no more than a dozen such figures at a time
GREY, ORANGE = (160, 160, 160), (255, 140, 0)


class Cloud(NamedTuple):
    """A reconstruction, as far as it is drawn."""

    points: np.ndarray
    centres: np.ndarray
    inliers: np.ndarray
    """A mask of the observations."""


def supported(point_of: np.ndarray, inliers: np.ndarray, n_points: int) -> np.ndarray:
    """(n_points,): a mask; `point_of` is the point of each observation."""
    return np.bincount(point_of[inliers], minlength=n_points) >= 2


def write_supported(path: Path, bundle: Any, centres: np.ndarray, inliers: np.ndarray) -> None:
    """A PLY file with the points of a bundle in grey or orange, and the cameras in red."""
    from asker.io.ply import write_ply

    good = supported(bundle.point_index, inliers, bundle.n_points)
    colors = np.where(good[:, None], GREY, ORANGE).astype(np.uint8)
    write_ply(path, bundle.points, colors, centres)


def plot_arrays(point_of: np.ndarray, before: Cloud, after: Cloud, sure: DataCovariances) -> Arrays:
    """What is recorded of a run: some of the points, all cameras; standard errors are NaN where there are none."""
    n = len(before.points)
    some = np.random.default_rng(0).permutation(n)[:MOST_POINTS]
    return {
        "points_before": before.points[some].astype(np.float32),
        "points": after.points[some].astype(np.float32),
        "supported_before": supported(point_of, before.inliers, n)[some],
        "supported": supported(point_of, after.inliers, n)[some],
        "errors": _errors(sure, n)[some].astype(np.float32),
        "centres_before": before.centres.astype(np.float32),
        "centres": after.centres.astype(np.float32),
    }


def _errors(sure: DataCovariances, n: int) -> np.ndarray:
    """Of points, in medians."""
    try:
        errors = sure.errors("point")[:n]
    except ProblemError:  # the noise cannot be told, or the matrix is too large
        return np.full(n, np.nan)
    known = errors[errors > 0]
    return np.where(errors > 0, errors, np.nan) / (np.median(known) if len(known) else 1.0)


def page(runs: Runs) -> dict[str, Any]:
    """Clouds seen from above, and the first ones in space, before and after ASKER."""
    return {"clouds": list(_flat(runs)), "space": list(_in_space(runs))}


def _is_shown(run: RecordedRun) -> bool:
    return run.method in DRAWN and not run.settings


def _flat(runs: Runs) -> Iterator[dict[str, Any]]:
    for instance, of_instance in runs.items():
        for label, run in of_instance.items():
            if _is_shown(run):
                a = run.arrays()
                points, good = a["points"][:FLAT_POINTS], a["supported"][:FLAT_POINTS]
                yield _drawn(instance, label, points, a["centres"], good, a.get("errors"))


def _in_space(runs: Runs) -> Iterator[dict[str, Any]]:
    for instance in list(runs)[:IN_SPACE]:
        ours = [(label, run) for label, run in runs[instance].items() if run.method == "asker"]
        for label, run in ours[:1]:
            a = run.arrays()
            yield _drawn(instance, "before", a["points_before"], a["centres_before"], a["supported_before"])
            yield _drawn(instance, f"after {label}", a["points"], a["centres"], a["supported"], a.get("errors"))


def _drawn(
    instance: str, label: str, points: np.ndarray, centres: np.ndarray, good: np.ndarray, errors: Any = None
) -> dict[str, Any]:
    """Its box holds nearly all points and nearly all cameras."""
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
    """To the base of 2, None where there is none."""
    with np.errstate(invalid="ignore"):
        return [round(float(x), 2) if np.isfinite(x) else None for x in np.log2(errors)]


def figures(runs: Runs) -> dict[str, Callable[[Path], None]]:
    """Clouds from above, by IRLS and by ASKER."""
    some = {i: {k: r for k, r in of.items() if _is_shown(r)} for i, of in runs.items()}
    some = {i: of for i, of in some.items() if of}
    return {"structures": lambda path: draw_structures(path, some)} if some else {}


def draw_structures(path: Path, runs: Runs) -> None:
    """A row for each instance."""
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
    for good, color in ((True, "#333333"), (False, "#e08214")):
        at = a["supported"] == good
        ax.plot(a["points"][at, 0], a["points"][at, other], ".", ms=1, color=color)
    ax.plot(a["centres"][:, 0], a["centres"][:, other], "^", ms=3, color="#d62728")
    pad = 0.3 * (high - low)
    ax.set_xlim(low[0] - pad[0], high[0] + pad[0])
    ax.set_ylim(low[other] - pad[other], high[other] + pad[other])

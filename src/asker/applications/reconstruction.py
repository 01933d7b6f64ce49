"""What bundle adjustment and COLMAP models share: options and reprojection errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from asker.applications.application import option
from asker.applications.text_report import ReportItems
from asker.applications.uncertainty import REPORT_HELP
from asker.geometry.gauge import Gauge
from asker.io.file_issues import STRICT_HELP, Dirt
from asker.problem.reductions import ALONE, Sums

GAUGES: tuple[Gauge, ...] = get_args(Gauge)
ROSE = 1.01
"""A mean error that has grown by more than this factor is explained."""


@dataclass(frozen=True)
class ReconstructionOptions:
    """Of cameras and points."""

    gauge: str = option("free", "fixed: the pose of the first image stays; or free.", choices=GAUGES)
    strict: bool = option(False, STRICT_HELP, names="--strict")
    ply: Path | None = option(None, "Write points and cameras for a viewer.", writes=True)
    report: Path | None = option(None, REPORT_HELP, writes=True)


@dataclass(frozen=True, eq=False)
class Named:
    """Cameras, images or points, and which of them each observation has."""

    what: str
    ids: np.ndarray
    index: np.ndarray

    def first(self, k: int) -> str:
        """The one of an observation, by name."""
        return f"{self.what} {self.ids[self.index[k]]}"


def look_over(dirt: Dirt, images: Named, points: Named, *others: Named) -> None:
    """Find what nothing shows, and points that an image shows twice.  All of it stays as it is."""
    for of in (*others, images, points):
        unseen = np.bincount(of.index, minlength=len(of.ids)) == 0
        error = f"{of.what} {of.ids[np.argmax(unseen)]} has no observation" if unseen.any() else ""
        dirt.found(unseen, f"{of.what}{{s}} without an observation", error)
    key = images.index.astype(np.int64) * len(points.ids) + points.index
    order = np.argsort(key, kind="stable")
    again = order[1:][np.diff(key[order]) == 0]
    error = f"{images.first(again.min())} shows {points.first(again.min())} twice" if again.size else ""
    dirt.found(again >= 0, "observation{s} of a point in an image that shows it already", error)


def issues_report(dirt: Sequence[str]) -> ReportItems:
    """One line; nothing where there was none."""
    return [f"Found in the file, and kept: {'; '.join(dirt)}."] if dirt else []


class ErrorFigures(NamedTuple):
    """Reprojection errors in pixels, of the observations that have one: ‖r‖ of each; NaN where none has."""

    mean: float
    median: float
    inlier_mean: float
    inlier_median: float
    n_behind: int
    """Observations without an error: their point is not in front of the camera."""


class ReprojectionErrors(NamedTuple):
    """Before and after a solve; inliers are both times those that are so after it."""

    before: ErrorFigures
    after: ErrorFigures

    @classmethod
    def of(cls, before: np.ndarray, after: np.ndarray, inliers: np.ndarray, sums: Sums = ALONE) -> "ReprojectionErrors":
        """From the errors of all observations, infinite where there is none, and a mask; or of those of a portion."""
        return cls(_figures(before, inliers, sums), _figures(after, inliers, sums))

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        return {when: figures._asdict() for when, figures in self._asdict().items()}


def _figures(norms: np.ndarray, inliers: np.ndarray, sums: Sums) -> ErrorFigures:
    has = np.isfinite(norms)
    (n_behind,) = sums.of(np.count_nonzero(~has))
    r, own = norms[has], norms[has & inliers]
    return ErrorFigures(sums.mean(r), sums.median(r), sums.mean(own), sums.median(own), int(n_behind))


def reprojection_report(errors: ReprojectionErrors) -> ReportItems:
    """What a person reads of reprojection errors."""
    before, after = errors
    told: ReportItems = [
        f"{title} {_change(*means)} px, median {_change(*medians)} px"
        for title, means, medians in (
            ("Error of all observations: mean", (before.mean, after.mean), (before.median, after.median)),
            (
                "Error of the inliers: mean",
                (before.inlier_mean, after.inlier_mean),
                (before.inlier_median, after.inlier_median),
            ),
        )
    ]
    if after.mean > ROSE * before.mean and after.median <= before.median:
        told.append("The mean rose and the median did not: some observations are far off now, outliers or lost points.")
    if before.n_behind or after.n_behind:
        counts = f"{before.n_behind} before, {after.n_behind} after"
        told.append(f"Observations of points behind their camera have no error, and are left out: {counts}.")
    return told


def _change(before: float, after: float) -> str:
    return f"{before:.3g} -> {after:.3g}"

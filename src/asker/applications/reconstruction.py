"""Options, data checks and reprojection errors shared by BAL files and COLMAP models."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from asker.applications.application import option
from asker.applications.text_report import ReportItems
from asker.applications.uncertainty import REPORT_HELP
from asker.geometry.gauge import Gauge
from asker.io.file_issues import STRICT_HELP, FileIssues
from asker.problem.reductions import ALONE, Sums

GAUGES: tuple[Gauge, ...] = get_args(Gauge)
MEAN_RISE_FACTOR = 1.01
"""Growth of the mean error above which an explanation is printed."""


@dataclass(frozen=True)
class ReconstructionOptions:
    """Options of bundle adjustment."""

    gauge: str = option("free", "fixed: the pose of the first image is constant; or free.", choices=GAUGES)
    strict: bool = option(False, STRICT_HELP, names="--strict")
    ply: Path | None = option(None, "Write points and cameras as a PLY file.", writes=True)
    report: Path | None = option(None, REPORT_HELP, writes=True)


@dataclass(frozen=True, eq=False)
class IndexedRecords:
    """Cameras, images or points, and the index of the one that each observation refers to."""

    kind: str
    ids: np.ndarray
    index: np.ndarray

    def name_of(self, k: int) -> str:
        """Return the kind and id of the record of observation k."""
        return f"{self.kind} {self.ids[self.index[k]]}"


def check_observations(
    issues: FileIssues, images: IndexedRecords, points: IndexedRecords, *others: IndexedRecords
) -> None:
    """Report records without an observation, and repeated observations of a point in an image; change nothing."""
    for records in (*others, images, points):
        unseen = np.bincount(records.index, minlength=len(records.ids)) == 0
        error = f"{records.kind} {records.ids[np.argmax(unseen)]} has no observation" if unseen.any() else ""
        issues.add(unseen, f"{records.kind}{{s}} without an observation", error)
    key = images.index.astype(np.int64) * len(points.ids) + points.index
    order = np.argsort(key, kind="stable")
    repeated = order[1:][np.diff(key[order]) == 0]
    first = repeated.min(initial=len(key))
    error = f"{images.name_of(first)} has two observations of {points.name_of(first)}" if repeated.size else ""
    issues.add(repeated >= 0, "repeated observation{s} of a point in an image", error)


def issues_report(issues: Sequence[str]) -> ReportItems:
    """Return one line about issues in the data; no line if there are none."""
    return [f"Issues in the data (left unchanged): {'; '.join(issues)}."] if issues else []


class ErrorFigures(NamedTuple):
    """Statistics of reprojection errors ‖r‖ in pixels, over the observations that have one; NaN if there are none."""

    mean: float
    median: float
    inlier_mean: float
    inlier_median: float
    n_behind: int
    """The number of observations without an error because the point is not in front of the camera."""


class ReprojectionErrors(NamedTuple):
    """Reprojection errors before and after a solve; both use the inliers after the solve."""

    before: ErrorFigures
    after: ErrorFigures

    @classmethod
    def of(cls, before: np.ndarray, after: np.ndarray, inliers: np.ndarray, sums: Sums = ALONE) -> "ReprojectionErrors":
        """Compute the statistics from residual norms, infinite for points behind their camera, and the inlier mask.

        If `sums` adds over processes, the arrays are those of one process.
        """
        return cls(_figures(before, inliers, sums), _figures(after, inliers, sums))

    def record(self) -> dict[str, Any]:
        """Return the statistics for `--json`."""
        return {when: figures._asdict() for when, figures in self._asdict().items()}


def _figures(norms: np.ndarray, inliers: np.ndarray, sums: Sums) -> ErrorFigures:
    has = np.isfinite(norms)
    (n_behind,) = sums.of(np.count_nonzero(~has))
    r, inlier_r = norms[has], norms[has & inliers]
    return ErrorFigures(sums.mean(r), sums.median(r), sums.mean(inlier_r), sums.median(inlier_r), int(n_behind))


def reprojection_report(errors: ReprojectionErrors) -> ReportItems:
    """Return the lines that describe reprojection errors."""
    before, after = errors
    items: ReportItems = [
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
    if after.mean > MEAN_RISE_FACTOR * before.mean and after.median <= before.median:
        items.append(
            "The mean rose but the median did not: some observations, outliers or lost points, have larger errors."
        )
    if before.n_behind or after.n_behind:
        counts = f"{before.n_behind} before, {after.n_behind} after"
        items.append(f"Observations of points behind their camera, which have no error, are excluded: {counts}.")
    return items


def _change(before: float, after: float) -> str:
    return f"{before:.3g} -> {after:.3g}"

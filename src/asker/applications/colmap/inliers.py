"""Inliers of a COLMAP model: counted for each image and point, and the model without the others."""

from dataclasses import dataclass, replace

import numpy as np

from asker.applications.colmap.model import NO_POINT, ColmapModel
from asker.applications.colmap.reprojections import point_errors


def without_outliers(model: ColmapModel, inliers: np.ndarray) -> ColmapModel:
    """Drop the observations that are no inliers, then the points with fewer than two left.

    `inliers` is a mask in the order of `model.observations()`.  The features stay; they show no point any more.
    """
    seen = model.observations()
    left = left_of(model, inliers)
    good = np.bincount(seen.point[left], minlength=len(model.points)) > 0
    point_ids = model.images.point_ids.copy()
    point_ids[seen.feature[~left]] = NO_POINT
    p = model.points
    points = replace(p, ids=p.ids[good], xyz=p.xyz[good], rgb=p.rgb[good], errors=p.errors[good])
    without = replace(model, images=replace(model.images, point_ids=point_ids), points=points)
    return replace(without, points=replace(points, errors=point_errors(without)))


def left_of(model: ColmapModel, inliers: np.ndarray) -> np.ndarray:
    """The observations that `without_outliers` leaves: a mask."""
    point = model.observations().point
    if np.shape(inliers) != point.shape or np.asarray(inliers).dtype != bool:
        raise ValueError(f"inliers must be a mask of shape {point.shape}, got {np.shape(inliers)}")
    n_left = np.bincount(point[inliers], minlength=len(model.points))
    return inliers & (n_left >= 2)[point]


@dataclass(frozen=True, eq=False)
class InlierTable:
    """Inliers of each image, or of each point, before and after a solve."""

    ids: np.ndarray
    n_observations: np.ndarray
    before: np.ndarray
    after: np.ndarray

    def worst(self, n: int) -> np.ndarray:
        """The rows with the smallest part of inliers after the solve, of those that have observations."""
        ratio = self.after / np.maximum(self.n_observations, 1)
        order = np.lexsort((-self.n_observations, ratio))
        return order[self.n_observations[order] > 0][:n]


def inlier_tables(model: ColmapModel, before: np.ndarray, after: np.ndarray) -> tuple[InlierTable, InlierTable]:
    """Per image and per point, from two masks in the order of `model.observations()`."""
    seen = model.observations()

    def table(ids: np.ndarray, index: np.ndarray) -> InlierTable:
        counted = [np.bincount(index[mask], minlength=len(ids)) for mask in (slice(None), before, after)]
        return InlierTable(ids, *counted)

    return table(model.images.ids, seen.image), table(model.points.ids, seen.point)

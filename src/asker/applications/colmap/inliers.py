"""Inliers of a COLMAP model: counted for each image and point, and the model without the others."""

from dataclasses import dataclass, replace

import numpy as np

from asker.applications.colmap.model import NO_POINT, ColmapModel
from asker.applications.colmap.reprojection_error import camera_centres, point_errors


def without_outliers(model: ColmapModel, inliers: np.ndarray, min_angle: float = 0.0) -> ColmapModel:
    """Drop the observations that are no inliers, then the points with fewer than two left.

    `inliers` is a mask in the order of `model.observations()`.  The features stay; they show no point any more.
    With `min_angle`, in degrees, points go as well that no two images see under so large an angle.
    """
    seen = model.observations()
    left = left_of(model, inliers, min_angle)
    good = np.bincount(seen.point[left], minlength=len(model.points)) > 0
    point_ids = model.images.point_ids.copy()
    point_ids[seen.feature[~left]] = NO_POINT
    p = model.points
    points = replace(p, ids=p.ids[good], xyz=p.xyz[good], rgb=p.rgb[good], errors=p.errors[good])
    without = replace(model, images=replace(model.images, point_ids=point_ids), points=points)
    return replace(without, points=replace(points, errors=point_errors(without)))


def left_of(model: ColmapModel, inliers: np.ndarray, min_angle: float = 0.0) -> np.ndarray:
    """The observations that `without_outliers` leaves: a mask."""
    point = model.observations().point
    if np.shape(inliers) != point.shape or np.asarray(inliers).dtype != bool:
        raise ValueError(f"inliers must be a mask of shape {point.shape}, got {np.shape(inliers)}")
    n_left = np.bincount(point[inliers], minlength=len(model.points))
    left = inliers & (n_left >= 2)[point]
    return left & (widest_angles(model, left) >= min_angle)[point] if min_angle else left


def widest_angles(model: ColmapModel, chosen: np.ndarray) -> np.ndarray:
    """The largest angle in degrees under which two of the chosen observations see each point; 0 where fewer do."""
    seen = model.observations()
    order = np.flatnonzero(chosen)[np.argsort(seen.point[chosen], kind="stable")]
    point = seen.point[order]
    rays = model.points.xyz[point] - camera_centres(model)[seen.image[order]]
    rays /= np.maximum(np.linalg.norm(rays, axis=1, keepdims=True), 1e-300)
    widest = np.zeros(len(model.points))
    longest = int(np.bincount(point).max()) if len(point) else 0
    for apart in range(1, longest):  # pairs in the track of a point, so many places apart
        same = np.flatnonzero(point[apart:] == point[:-apart])
        half = np.linalg.norm(rays[same] - rays[same + apart], axis=1) / 2  # the sine of half the angle
        np.maximum.at(widest, point[same], np.degrees(2 * np.arcsin(np.minimum(half, 1.0))))
    return widest


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

"""Inliers of a COLMAP model: counts per image and per point, and removal of outliers."""

from dataclasses import dataclass, replace

import numpy as np

from asker.applications.colmap.model import NO_POINT, ColmapModel
from asker.applications.colmap.reprojection_error import camera_centres, point_errors


def without_outliers(model: ColmapModel, inliers: np.ndarray, min_angle: float = 0.0) -> ColmapModel:
    """Return the model without outliers, and without points that have fewer than two inliers.

    The features of removed observations remain, without a point.

    Parameters
    ----------
    model
        A COLMAP model.
    inliers
        The mask of inliers, in the order of `model.observations()`.
    min_angle
        Degrees; points without two rays at least this far apart are removed as well.

    Returns
    -------
    ColmapModel
        The model with new errors of its points.
    """
    o = model.observations()
    kept = retained_observations(model, inliers, min_angle)
    is_kept = np.bincount(o.point[kept], minlength=len(model.points)) > 0
    point_ids = model.images.point_ids.copy()
    point_ids[o.feature[~kept]] = NO_POINT
    p = model.points
    points = replace(p, ids=p.ids[is_kept], xyz=p.xyz[is_kept], rgb=p.rgb[is_kept], errors=p.errors[is_kept])
    without = replace(model, images=replace(model.images, point_ids=point_ids), points=points)
    return replace(without, points=replace(points, errors=point_errors(without)))


def retained_observations(model: ColmapModel, inliers: np.ndarray, min_angle: float = 0.0) -> np.ndarray:
    """Return the mask of observations that `without_outliers` keeps."""
    point = model.observations().point
    if np.shape(inliers) != point.shape or np.asarray(inliers).dtype != bool:
        raise ValueError(f"inliers must be a mask of shape {point.shape}, got {np.shape(inliers)}")
    n_inliers = np.bincount(point[inliers], minlength=len(model.points))
    kept = inliers & (n_inliers >= 2)[point]
    return kept & (widest_angles(model, kept) >= min_angle)[point] if min_angle else kept


def widest_angles(model: ColmapModel, mask: np.ndarray) -> np.ndarray:
    """Return the largest triangulation angle of each point in degrees, over the observations of a mask.

    The angle is 0 for points with fewer than two observations.
    """
    o = model.observations()
    order = np.flatnonzero(mask)[np.argsort(o.point[mask], kind="stable")]
    point = o.point[order]
    rays = model.points.xyz[point] - camera_centres(model)[o.image[order]]
    rays /= np.maximum(np.linalg.norm(rays, axis=1, keepdims=True), 1e-300)
    widest = np.zeros(len(model.points))
    longest = int(np.bincount(point).max()) if len(point) else 0
    for offset in range(1, longest):  # pairs of a track at this distance within it
        first = np.flatnonzero(point[offset:] == point[:-offset])
        half = np.linalg.norm(rays[first] - rays[first + offset], axis=1) / 2  # the sine of half the angle
        np.maximum.at(widest, point[first], np.degrees(2 * np.arcsin(np.minimum(half, 1.0))))
    return widest


@dataclass(frozen=True, eq=False)
class InlierTable:
    """Numbers of inliers of each image, or of each point, before and after a solve."""

    ids: np.ndarray
    """(n,): ids of the images or points."""
    n_observations: np.ndarray
    """(n,): numbers of observations."""
    before: np.ndarray
    """(n,): numbers of inliers before the solve."""
    after: np.ndarray
    """(n,): numbers of inliers after the solve."""

    def worst(self, n: int) -> np.ndarray:
        """Return the n rows with observations that have the lowest inlier ratios after the solve."""
        ratio = self.after / np.maximum(self.n_observations, 1)
        order = np.lexsort((-self.n_observations, ratio))
        return order[self.n_observations[order] > 0][:n]


def inlier_tables(model: ColmapModel, before: np.ndarray, after: np.ndarray) -> tuple[InlierTable, InlierTable]:
    """Return the tables of images and of points.

    `before` and `after` are masks of inliers in the order of `model.observations()`.
    """
    o = model.observations()

    def table(ids: np.ndarray, index: np.ndarray) -> InlierTable:
        counts = [np.bincount(index[mask], minlength=len(ids)) for mask in (slice(None), before, after)]
        return InlierTable(ids, *counts)

    return table(model.images.ids, o.image), table(model.points.ids, o.point)

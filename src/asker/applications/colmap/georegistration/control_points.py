"""Control points as additional points of a model during a solve."""

from dataclasses import dataclass, replace

import numpy as np

import asker
from asker.applications.colmap.georegistration.position_priors import Control
from asker.applications.colmap.model import NO_POINT, ColmapModel, positions
from asker.applications.colmap.triangulation import retriangulated

TRIANGULATION_ITERATIONS, CAUCHY_WIDTH = 30, 2.0
"""Iterations of a triangulation, and the width of its Cauchy kernel in pixels."""


@dataclass(frozen=True, eq=False)
class ControlIndex:
    """The last points and some features of a model, which are control points and their observations."""

    n_points: int
    """The number of points without the control points."""
    features: np.ndarray
    """(n_features,): the mask of features of control points."""

    def observations(self, model: ColmapModel) -> np.ndarray:
        """Return the mask of observations of control points, (n_observations,)."""
        return self.features[model.observations().feature]

    def n_observations(self, model: ColmapModel) -> np.ndarray:
        """Return the number of observations of each control point."""
        return np.bincount(model.observations().point, minlength=len(model.points))[self.n_points :]


def with_control(model: ColmapModel, control: Control) -> tuple[ColmapModel, ControlIndex]:
    """Return the model with control points and their observations, initialised near the points of adjacent pixels."""
    images, points, n = model.images, model.points, len(control.points)
    index = {name: k for k, name in enumerate(images.names)}
    image = np.array([index[name] for name in control.images])
    ids = points.ids.max(initial=0) + 1 + np.arange(n)
    order = np.argsort(image, kind="stable")
    at = images.starts[image[order] + 1]
    counts = np.bincount(image, minlength=len(images))
    new_images = replace(
        images,
        starts=images.starts + np.concatenate([[0], np.cumsum(counts)]),
        xys=np.insert(images.xys, at, control.uv[order], axis=0),
        point_ids=np.insert(images.point_ids, at, ids[control.index[order]]),
    )
    features = np.insert(np.zeros(len(images.xys), dtype=bool), at, True)
    new_points = replace(
        points,
        ids=np.append(points.ids, ids),
        xyz=np.concatenate([points.xyz, _initial_positions(model, control, image)]),
        rgb=np.concatenate([points.rgb, np.full((n, 3), 255, np.uint8)]),
        errors=np.append(points.errors, np.full(n, -1.0)),
    )
    return replace(model, images=new_images, points=new_points), ControlIndex(len(points), features)


def without_control(model: ColmapModel, added: ControlIndex) -> ColmapModel:
    """Return the model without the control points and their observations."""
    images, points, n = model.images, model.points, added.n_points
    counts = np.bincount(images.of_feature[added.features], minlength=len(images))
    starts = images.starts - np.concatenate([[0], np.cumsum(counts)])
    kept = ~added.features
    images = replace(images, starts=starts, xys=images.xys[kept], point_ids=images.point_ids[kept])
    points = replace(points, ids=points.ids[:n], xyz=points.xyz[:n], rgb=points.rgb[:n], errors=points.errors[:n])
    return replace(model, images=images, points=points)


def triangulated(model: ColmapModel, added: ControlIndex) -> ColmapModel:
    """Return the model with the control points triangulated from their observations."""
    images = replace(model.images, point_ids=np.where(added.features, model.images.point_ids, NO_POINT))
    is_model_point = np.arange(len(model.points)) < added.n_points
    kernel, limit = asker.Cauchy(CAUCHY_WIDTH), TRIANGULATION_ITERATIONS
    new = retriangulated(replace(model, images=images), kernel, is_model_point, max_iterations=limit)
    return replace(model, points=replace(model.points, xyz=new.points.xyz))


def _initial_positions(model: ColmapModel, control: Control, image: np.ndarray) -> np.ndarray:
    """Return for each control point the median of the model points closest to its pixels, (n, 3)."""
    images, points = model.images, model.points
    o = model.observations()
    centre = np.median(points.xyz, axis=0)
    nearest = np.empty((len(image), 3))
    for k, i in enumerate(image.tolist()):  # control observations are few, since people mark them
        index = np.flatnonzero(o.image == i)
        squared = ((images.xys[o.feature[index]] - control.uv[k]) ** 2).sum(axis=1)
        nearest[k] = points.xyz[o.point[index[np.argmin(squared)]]] if index.size else centre
    groups = [nearest[control.index == k] for k in range(len(control.points))]
    return np.array([np.median(x, axis=0) if len(x) else centre for x in groups])


def matched(names: tuple[str, ...], wanted: tuple[str, ...]) -> np.ndarray:
    """Return the index of each wanted name in `names`; −1 for missing ones."""
    _, codes = np.unique(np.array([*names, *wanted], dtype=object).astype(str), return_inverse=True)
    return positions(codes[: len(names)], codes[len(names) :])

"""Control points as points of a model: added for a solve, and taken out again."""

from dataclasses import dataclass, replace

import numpy as np

import asker
from asker.applications.colmap.georegistration.position_priors import Control
from asker.applications.colmap.model import NO_POINT, ColmapModel, positions
from asker.applications.colmap.triangulation import retriangulated

STEPS, WIDTH = 30, 2.0
"""Of a triangulation: iterations, and the width of Cauchy's kernel in pixels."""


@dataclass(frozen=True, eq=False)
class Added:
    """Where control points are in a model: its last points, and some of its features."""

    n_points: int
    """Of the model without them."""
    features: np.ndarray
    """(n_features,): a mask."""

    def observations(self, model: ColmapModel) -> np.ndarray:
        """(n_observations,): a mask of those that show control points."""
        return self.features[model.observations().feature]

    def n_seen(self, model: ColmapModel) -> np.ndarray:
        """Of each control point, how many observations show it."""
        return np.bincount(model.observations().point, minlength=len(model.points))[self.n_points :]


def with_control(model: ColmapModel, control: Control) -> tuple[ColmapModel, Added]:
    """The model with control points, each where the points near its pixels are, and with their observations."""
    images, points, n = model.images, model.points, len(control.points)
    index = {name: k for k, name in enumerate(images.names)}
    image = np.array([index[name] for name in control.images])
    ids = points.ids.max(initial=0) + 1 + np.arange(n)
    order = np.argsort(image, kind="stable")
    at = images.starts[image[order] + 1]
    counts = np.bincount(image, minlength=len(images))
    new = replace(
        images,
        starts=images.starts + np.concatenate([[0], np.cumsum(counts)]),
        xys=np.insert(images.xys, at, control.uv[order], axis=0),
        point_ids=np.insert(images.point_ids, at, ids[control.index[order]]),
    )
    features = np.insert(np.zeros(len(images.xys), dtype=bool), at, True)
    more = replace(
        points,
        ids=np.append(points.ids, ids),
        xyz=np.concatenate([points.xyz, _near(model, control, image)]),
        rgb=np.concatenate([points.rgb, np.full((n, 3), 255, np.uint8)]),
        errors=np.append(points.errors, np.full(n, -1.0)),
    )
    return replace(model, images=new, points=more), Added(len(points), features)


def without_control(model: ColmapModel, added: Added) -> ColmapModel:
    """The model as it was before, as far as its records go."""
    images, points, n = model.images, model.points, added.n_points
    counts = np.bincount(images.of_feature[added.features], minlength=len(images))
    starts = images.starts - np.concatenate([[0], np.cumsum(counts)])
    kept = ~added.features
    images = replace(images, starts=starts, xys=images.xys[kept], point_ids=images.point_ids[kept])
    points = replace(points, ids=points.ids[:n], xyz=points.xyz[:n], rgb=points.rgb[:n], errors=points.errors[:n])
    return replace(model, images=images, points=points)


def triangulated(model: ColmapModel, added: Added) -> ColmapModel:
    """The model with the control points where its images show them."""
    images = replace(model.images, point_ids=np.where(added.features, model.images.point_ids, NO_POINT))
    own = np.arange(len(model.points)) < added.n_points
    alone = retriangulated(replace(model, images=images), asker.Cauchy(WIDTH), own, max_iterations=STEPS)
    return replace(model, points=replace(model.points, xyz=alone.points.xyz))


def _near(model: ColmapModel, control: Control, image: np.ndarray) -> np.ndarray:
    """The median of the points that are seen nearest to each pixel, (n, 3)."""
    images, points = model.images, model.points
    seen = model.observations()
    middle = np.median(points.xyz, axis=0)
    each = np.empty((len(image), 3))
    for k, i in enumerate(image.tolist()):  # a person has pointed at each of them
        own = np.flatnonzero(seen.image == i)
        far = ((images.xys[seen.feature[own]] - control.uv[k]) ** 2).sum(axis=1)
        each[k] = points.xyz[seen.point[own[np.argmin(far)]]] if own.size else middle
    found = [each[control.index == k] for k in range(len(control.points))]
    return np.array([np.median(x, axis=0) if len(x) else middle for x in found])


def matched(names: tuple[str, ...], wanted: tuple[str, ...]) -> np.ndarray:
    """Where each wanted name stands among the names; −1 where it does not."""
    _, codes = np.unique(np.array([*names, *wanted], dtype=object).astype(str), return_inverse=True)
    return positions(codes[: len(names)], codes[len(names) :])

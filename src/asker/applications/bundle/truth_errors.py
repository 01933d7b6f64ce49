"""How near a reconstruction comes to the truth."""

from typing import NamedTuple

import numpy as np

from asker.applications.bundle.bal import Bundle
from asker.applications.bundle.problem import camera_centres
from asker.geometry.alignment import Fit, distances, similarity

N_TRIPLES = 200


class Errors(NamedTuple):
    """Median distances from the truth, in parts of the cameras' mean distance from their middle."""

    cameras: float
    points: float


def errors(found: Bundle, truth: Bundle) -> Errors:
    """How far a reconstruction is from the truth, once a similarity has aligned the two.

    Lost cameras must not bend it, so it is a least median fit of the camera centres.
    """
    source, target = camera_centres(found), camera_centres(truth)
    fit = least_median_fit(source, target)
    cameras = np.median(distances(fit, source, target))
    points = np.median(distances(fit, found.points, truth.points))
    size = extent(target)
    return Errors(float(cameras) / size, float(points) / size)


def extent(centres: np.ndarray) -> float:
    """The mean distance of camera centres (n, 3) from their middle."""
    return float(np.linalg.norm(centres - centres.mean(axis=0), axis=1).mean())


def least_median_fit(source: np.ndarray, target: np.ndarray) -> Fit:
    """The best of many similarities that three points give, fitted again to the half of the points it fits best."""

    def spread(fit: Fit) -> float:
        return float(np.median(distances(fit, source, target)))

    rng = np.random.default_rng(0)
    triples = [rng.choice(len(source), 3, replace=False) for _ in range(N_TRIPLES)]
    fit = min((similarity(source[k], target[k]) for k in triples), key=spread)
    half = distances(fit, source, target) <= spread(fit)
    return similarity(source[half], target[half])

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

    Lost cameras must not bend it, so it is a least median fit of the camera centres: the best of many that
    three cameras give, fitted again to the half of the cameras that it fits best.
    """
    source, target = camera_centres(found), camera_centres(truth)
    size = np.linalg.norm(target - target.mean(axis=0), axis=1).mean()

    def spread(fit: Fit) -> float:
        return float(np.median(distances(fit, source, target)))

    rng = np.random.default_rng(0)
    triples = [rng.choice(len(source), 3, replace=False) for _ in range(N_TRIPLES)]
    fit = min((similarity(source[k], target[k]) for k in triples), key=spread)
    half = distances(fit, source, target) <= spread(fit)
    fit = similarity(source[half], target[half])
    points = np.median(distances(fit, found.points, truth.points))
    return Errors(spread(fit) / size, float(points) / size)

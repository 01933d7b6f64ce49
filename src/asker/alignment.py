"""How near a reconstruction comes to the truth."""

from typing import NamedTuple

import numpy as np

from asker.io.bal import Bundle
from asker.problems.bundle import camera_centres

N_TRIPLES = 200

Fit = tuple[float, np.ndarray, np.ndarray]
"""s, R, t of a similarity X -> s R X + t."""


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

    def distances(fit: Fit, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        s, R, t = fit
        return np.linalg.norm(s * x @ R.T + t - y, axis=1)

    def spread(fit: Fit) -> float:
        return float(np.median(distances(fit, source, target)))

    rng = np.random.default_rng(0)
    triples = [rng.choice(len(source), 3, replace=False) for _ in range(N_TRIPLES)]
    fit = min((similarity(source[k], target[k]) for k in triples), key=spread)
    half = distances(fit, source, target) <= spread(fit)
    fit = similarity(source[half], target[half])
    points = np.median(distances(fit, found.points, truth.points))
    return Errors(spread(fit) / size, float(points) / size)


def similarity(source: np.ndarray, target: np.ndarray) -> Fit:
    """s, R, t with target ≈ s R source + t in least squares (Umeyama, PAMI 1991); rows are points."""
    a, b = source.mean(axis=0), target.mean(axis=0)
    U, D, Vt = np.linalg.svd((target - b).T @ (source - a))
    sign = np.array([1.0, 1.0, np.linalg.det(U @ Vt)])  # no mirror image
    R = U * sign @ Vt
    s = D @ sign / ((source - a) ** 2).sum()
    return float(s), R, b - s * R @ a

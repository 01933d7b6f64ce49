"""Errors of a reconstruction with respect to ground truth."""

from typing import NamedTuple

import numpy as np

from asker.applications.bundle.bal import Bundle
from asker.applications.bundle.problem import camera_centres
from asker.geometry.alignment import Fit, distances, similarity

N_TRIPLES = 200


class Errors(NamedTuple):
    """Median distances from ground truth, relative to the mean distance of the cameras from their centroid."""

    cameras: float
    points: float


def errors(estimate: Bundle, truth: Bundle) -> Errors:
    """Return the errors of a reconstruction after alignment with ground truth by a similarity.

    The alignment is a least-median fit of the camera centres, so that lost cameras do not affect it.

    Parameters
    ----------
    estimate
        The reconstruction.
    truth
        The ground truth, with the same cameras and points in the same order.

    Returns
    -------
    Errors
        The median errors of cameras and points.
    """
    source, target = camera_centres(estimate), camera_centres(truth)
    fit = least_median_fit(source, target)
    cameras = np.median(distances(fit, source, target))
    points = np.median(distances(fit, estimate.points, truth.points))
    size = extent(target)
    return Errors(float(cameras) / size, float(points) / size)


def extent(centres: np.ndarray) -> float:
    """Return the mean distance of camera centres (n, 3) from their centroid."""
    return float(np.linalg.norm(centres - centres.mean(axis=0), axis=1).mean())


def least_median_fit(source: np.ndarray, target: np.ndarray) -> Fit:
    """Return the similarity with the least median distance over triples of points, refitted to its closer half."""

    def spread(fit: Fit) -> float:
        return float(np.median(distances(fit, source, target)))

    rng = np.random.default_rng(0)
    triples = [rng.choice(len(source), 3, replace=False) for _ in range(N_TRIPLES)]
    fit = min((similarity(source[k], target[k]) for k in triples), key=spread)
    half = distances(fit, source, target) <= spread(fit)
    return similarity(source[half], target[half])

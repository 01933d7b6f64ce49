"""Robust triangulation of many tracks, with constant cameras.

Each track is a small problem of its own: hypotheses from pairs of its rays, from all of them, and at the median
distance if they are almost parallel, scored by the sum of the angles to the rays, and a reweighted least squares
solution from the best one.  The sum of unsquared angles needs no noise scale and tolerates a minority of wrong
observations.
"""

import numpy as np

from asker.applications.posed.correspondences.tracks import Tracks

N_PAIRS = 12
"""The number of pairs of rays of a track that are tried."""
N_GUESSES = 4
"""The number of guesses of a track that are tried."""
REWEIGHTING_ROUNDS = 8
MIN_ANGLE = 1e-6
"""Radians below which an angle does not increase the weight of its ray any more."""
MIN_DETERMINANT = 1e-12
"""Determinant of the mean projector of the rays, below which they count as parallel."""


def triangulate(
    tracks: Tracks, centres: np.ndarray, rays: np.ndarray, guesses: np.ndarray | None = None, seed: int = 0
) -> np.ndarray:
    """Return the points of tracks, (n_points, 3); NaN if all hypotheses are infinite.

    Parameters
    ----------
    tracks
        Tracks of at least two observations.
    centres
        (n_observations, 3): the camera centre of each observation.
    rays
        (n_observations, 3): unit vectors from the centre to the point.
    guesses
        (n_observations, 3): a position of the point of each observation, as from a depth map; NaN where there is none.
    seed
        The seed of the choice of pairs.
    """
    n, point = tracks.n, tracks.point
    starts = np.searchsorted(point, np.arange(n))
    length = np.bincount(point, minlength=n)
    rng = np.random.default_rng(seed)
    best, lowest = _intersection(point, n, centres, rays, np.ones(len(point))), np.full(n, np.inf)
    lowest = _total_angle(tracks, best, centres, rays)
    for k in range(N_PAIRS):
        todo = length > 2 if k else length > 1
        first = rng.integers(length)
        second = (first + 1 + rng.integers(np.maximum(length - 1, 1))) % length
        pair = np.stack([starts + first, starts + second], axis=1)[todo].ravel()
        each = np.repeat(np.flatnonzero(todo), 2)
        trial = _intersection(each, n, centres[pair], rays[pair], np.ones(len(pair)))
        total = _total_angle(tracks, trial, centres, rays)
        better = total < lowest
        best[better], lowest[better] = trial[better], total[better]
    trial = _at_median_distance(tracks, best, lowest, centres, rays)
    total = _total_angle(tracks, trial, centres, rays)
    better = total < lowest
    best[better], lowest[better] = trial[better], total[better]
    for k in range(N_GUESSES if guesses is not None else 0):
        trial = np.asarray(guesses)[starts + k % np.maximum(length, 1)]
        total = _total_angle(tracks, trial, centres, rays)
        better = total < lowest
        best[better], lowest[better] = trial[better], total[better]
    best[~np.isfinite(lowest)] = 0.0
    for _ in range(REWEIGHTING_ROUNDS):
        offset = best[point] - centres
        distance = np.linalg.norm(offset, axis=1)
        weight = 1 / (np.maximum(_angles(offset, rays), MIN_ANGLE) * distance**2)
        weight = np.where(np.isfinite(weight), weight, 0.0)
        trial = _intersection(point, n, centres, rays, weight)
        total = _total_angle(tracks, trial, centres, rays)
        better = total < lowest
        if not better.any():
            break
        best[better], lowest[better] = trial[better], total[better]
    best[~np.isfinite(lowest)] = np.nan
    return best


def _intersection(point: np.ndarray, n: int, centres: np.ndarray, rays: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the points with the least sum of weighted squared distances to their rays; NaN for parallel rays."""
    total = np.bincount(point, weight, minlength=n)
    weight = weight / np.where(total > 0, total, 1.0)[point]
    P = weight[:, None, None] * (np.eye(3) - rays[:, :, None] * rays[:, None, :])
    A, b = np.zeros((n, 3, 3)), np.zeros((n, 3))
    np.add.at(A, point, P)
    np.add.at(b, point, np.einsum("nij,nj->ni", P, centres))
    out = np.full((n, 3), np.nan)
    good = np.linalg.det(A) > MIN_DETERMINANT
    out[good] = np.linalg.solve(A[good], b[good][:, :, None])[:, :, 0]
    return out


def _at_median_distance(
    tracks: Tracks, points: np.ndarray, total: np.ndarray, centres: np.ndarray, rays: np.ndarray
) -> np.ndarray:
    """Return points on the mean ray of each track, at the median distance of the points in front of their cameras.

    They are in front of the cameras if the rays are almost parallel and their intersection is behind.
    """
    n, point = tracks.n, tracks.point
    distance = np.linalg.norm(points[point] - centres, axis=1)[(total < np.pi / 2)[point]]
    count = np.bincount(point, minlength=n)
    mean = [
        np.stack([np.bincount(point, x[:, k], minlength=n) / count for k in range(3)], axis=1) for x in (centres, rays)
    ]
    return mean[0] + (np.median(distance) if len(distance) else np.nan) * mean[1]


def _total_angle(tracks: Tracks, points: np.ndarray, centres: np.ndarray, rays: np.ndarray) -> np.ndarray:
    """Return the sum of the angles between the rays and the directions to the points; infinite if it is not finite."""
    angles = _angles(points[tracks.point] - centres, rays)
    total = np.bincount(tracks.point, angles, minlength=tracks.n)
    return np.where(np.isfinite(total), total, np.inf)


def _angles(offset: np.ndarray, rays: np.ndarray) -> np.ndarray:
    """Return the angles (n,) between vectors and unit rays."""
    sine = np.linalg.norm(np.cross(offset, rays), axis=1)
    return np.arctan2(sine, (offset * rays).sum(axis=1))

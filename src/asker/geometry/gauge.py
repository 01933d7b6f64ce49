"""The frame in which a reconstruction is returned.

Position, orientation and scale of the whole change no reprojection.  Nothing holds them while a problem is solved, so
they drift: a scene may come out many times smaller, or behind its cameras, which a camera that divides by the depth
does not see either (a negative scale).  What is returned is put back to where the cameras were before.  Cameras that
are lost must not bend that, so medians say where, and how large.
"""

from typing import Literal, NamedTuple

import numpy as np

from asker.geometry.alignment import Fit, nearest_rotation

Gauge = Literal["free", "fixed"]
"""Whether the pose of the first camera is held."""
ROUNDS = 10  # of reweighting, for the median of the rotations
SMALL = 1e-9  # two centres that are nearer, relative to where they are, say nothing of the scale


class Seen(NamedTuple):
    """Who takes part: the observations of a reconstruction."""

    camera: np.ndarray
    point: np.ndarray
    depth: np.ndarray
    """Positive in front of the camera."""


def put_back(
    before: np.ndarray, after: np.ndarray, points: np.ndarray, held: np.ndarray, seen: Seen
) -> tuple[np.ndarray, np.ndarray]:
    """Poses [R | t] (n, 3, 4) and points (m, 3), moved as a whole so that the cameras are near `before`.

    held  which cameras were held: with one of them only the scale is free, with more nothing is
    seen  what was observed; a camera or point without an observation has not moved, and stays
    """
    fit = drift(before, after, held, seen)
    return moved(fit, after, points, held, seen)


def drift(
    before: np.ndarray, after: np.ndarray, held: np.ndarray, seen: Seen, turns: bool = True, scales: bool = True
) -> Fit | None:
    """The similarity that takes the cameras back to where they were, None where nothing is free.

    turns, scales  whether orientation and scale of the whole are free
    """
    if np.count_nonzero(held) > 1 or np.array_equal(before, after) or (held.any() and not scales):
        return None
    own = np.bincount(seen.camera, minlength=len(after)) > 0
    Q = median_rotation(before[own, :, :3], after[own, :, :3]) if turns and not held.any() else np.eye(3)
    target, source = centres(before[own]), centres(after[own]) @ Q.T
    s = _scale(target, source) if scales else 1.0
    if scales and np.count_nonzero(seen.depth < 0) > np.count_nonzero(seen.depth > 0):
        s = -s
    anchor = held[own] if held[own].any() else np.ones(len(target), bool)
    return s, Q, np.median(target[anchor] - s * source[anchor], axis=0)


def moved(
    fit: Fit | None, poses: np.ndarray, points: np.ndarray, held: np.ndarray, seen: Seen
) -> tuple[np.ndarray, np.ndarray]:
    """Poses and points after X -> s Q X + shift; those stay that are held or have no observation."""
    if fit is None:
        return poses, points
    s, Q, shift = fit
    own = np.bincount(seen.camera, minlength=len(poses)) > 0
    new = np.where((own & ~held)[:, None, None], poses_in(fit, poses), poses)
    is_seen = np.bincount(seen.point, minlength=len(points)) > 0
    return new, np.where(is_seen[:, None], s * points @ Q.T + shift, points)


def poses_in(fit: Fit, poses: np.ndarray) -> np.ndarray:
    """Poses [R | t] that see the same after the world went X -> s Q X + shift."""
    s, Q, shift = fit
    R = poses[:, :, :3] @ Q.T
    return np.concatenate([R, (s * poses[:, :, 3] - R @ shift)[:, :, None]], axis=2)


def centres(poses: np.ndarray) -> np.ndarray:
    """Where the cameras stand, −Rᵀt, (n, 3)."""
    return -np.einsum("nji,nj->ni", poses[:, :, :3], poses[:, :, 3])


def _scale(target: np.ndarray, source: np.ndarray) -> float:
    """The median ratio of the distances from each camera to another one."""
    far = [np.linalg.norm(np.roll(x, len(x) // 2, axis=0) - x, axis=1) for x in (target, source)]
    apart = [d > SMALL * np.abs(x).max(axis=1) for d, x in zip(far, (target, source), strict=True)]
    told = apart[0] & apart[1]
    return float(np.median(far[0][told] / far[1][told])) if told.any() else 1.0


def median_rotation(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The rotation Q with before ≈ after Qᵀ for most cameras: a median of R_beforeᵀ R_after."""
    each = np.einsum("nji,njk->nik", before, after)
    weights = np.ones(len(each))
    for _ in range(ROUNDS):
        Q, _ = nearest_rotation(np.einsum("n,nij->ij", weights, each))
        weights = 1 / np.maximum(np.linalg.norm(each - Q, axis=(1, 2)), 1e-6)
    return Q

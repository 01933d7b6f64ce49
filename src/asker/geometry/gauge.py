"""Gauge of a reconstruction: alignment of the result with the initial cameras.

Reprojections do not depend on the position, orientation and scale of the whole reconstruction, so these drift during a
solve.  A scene may become many times smaller, or be mirrored through the camera centres (a negative scale), which
a camera model that divides by the depth does not detect.  The result is therefore aligned with the initial camera
poses.  Position and scale are estimated by medians, which are robust to cameras with wrong poses.
"""

from typing import Literal, NamedTuple

import numpy as np

from asker.geometry.alignment import Fit, nearest_rotation

Gauge = Literal["free", "fixed"]
"""True if the pose of the first camera is kept constant."""
MEDIAN_ROUNDS = 10
"""Rounds of reweighting for the median rotation."""
MIN_RELATIVE_DISTANCE = 1e-9
"""Distance of two camera centres, relative to their coordinates, below which it is not used to estimate the scale."""


class Observed(NamedTuple):
    """Observations of a reconstruction."""

    camera: np.ndarray
    """Number of the camera of each observation."""
    point: np.ndarray
    """Number of the point of each observation."""
    depth: np.ndarray
    """Depth of the point, positive in front of the camera."""


def restore_gauge(
    before: np.ndarray, after: np.ndarray, points: np.ndarray, constant: np.ndarray, observed: Observed
) -> tuple[np.ndarray, np.ndarray]:
    """Return poses [R | t] (n, 3, 4) and points (m, 3), aligned as a whole with the cameras `before`.

    Parameters
    ----------
    before, after
        Poses before and after the solve.
    points
        Points after the solve.
    constant
        Mask of the constant cameras; with one of them only the scale is free, with two or more nothing is.
    observed
        Observations.  Cameras and points without observations have not changed and are not transformed.
    """
    fit = gauge_correction(before, after, constant, observed)
    return transformed(fit, after, points, constant, observed)


def gauge_correction(
    before: np.ndarray,
    after: np.ndarray,
    constant: np.ndarray,
    observed: Observed,
    turns: bool = True,
    scales: bool = True,
) -> Fit | None:
    """Return the similarity that aligns the cameras with those before the solve; None if the gauge is fixed.

    Parameters
    ----------
    before, after, constant, observed
        As for `restore_gauge`.
    turns, scales
        Whether orientation and scale of the whole reconstruction are free.
    """
    if np.count_nonzero(constant) > 1 or np.array_equal(before, after) or (constant.any() and not scales):
        return None
    used = np.bincount(observed.camera, minlength=len(after)) > 0
    rotates = turns and not constant.any()
    Q = median_rotation(before[used, :, :3], after[used, :, :3]) if rotates else np.eye(3)
    target, source = centres(before[used]), centres(after[used]) @ Q.T
    s = _scale(target, source) if scales else 1.0
    if scales and np.count_nonzero(observed.depth < 0) > np.count_nonzero(observed.depth > 0):
        s = -s
    anchor = constant[used] if constant[used].any() else np.ones(len(target), bool)
    return s, Q, np.median(target[anchor] - s * source[anchor], axis=0)


def transformed(
    fit: Fit | None, poses: np.ndarray, points: np.ndarray, constant: np.ndarray, observed: Observed
) -> tuple[np.ndarray, np.ndarray]:
    """Return poses and points after X -> s Q X + shift, except those that are constant or have no observation."""
    if fit is None:
        return poses, points
    s, Q, shift = fit
    used = np.bincount(observed.camera, minlength=len(poses)) > 0
    new = np.where((used & ~constant)[:, None, None], transformed_poses(fit, poses), poses)
    is_observed = np.bincount(observed.point, minlength=len(points)) > 0
    return new, np.where(is_observed[:, None], s * points @ Q.T + shift, points)


def transformed_poses(fit: Fit, poses: np.ndarray) -> np.ndarray:
    """Return poses [R | t] with the same reprojections after the points are transformed by X -> s Q X + shift."""
    s, Q, shift = fit
    R = poses[:, :, :3] @ Q.T
    return np.concatenate([R, (s * poses[:, :, 3] - R @ shift)[:, :, None]], axis=2)


def centres(poses: np.ndarray) -> np.ndarray:
    """Return the camera centres −Rᵀt, (n, 3)."""
    return -np.einsum("nji,nj->ni", poses[:, :, :3], poses[:, :, 3])


def _scale(target: np.ndarray, source: np.ndarray) -> float:
    """Return the median ratio of the distances between pairs of cameras."""
    far = [np.linalg.norm(np.roll(x, len(x) // 2, axis=0) - x, axis=1) for x in (target, source)]
    apart = [d > MIN_RELATIVE_DISTANCE * np.abs(x).max(axis=1) for d, x in zip(far, (target, source), strict=True)]
    is_usable = apart[0] & apart[1]
    return float(np.median(far[0][is_usable] / far[1][is_usable])) if is_usable.any() else 1.0


def median_rotation(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the rotation Q with before ≈ after Qᵀ for most cameras: a median of R_beforeᵀ R_after."""
    each = np.einsum("nji,njk->nik", before, after)
    weights = np.ones(len(each))
    for _ in range(MEDIAN_ROUNDS):
        Q, _ = nearest_rotation(np.einsum("n,nij->ij", weights, each))
        weights = 1 / np.maximum(np.linalg.norm(each - Q, axis=(1, 2)), 1e-6)
    return Q

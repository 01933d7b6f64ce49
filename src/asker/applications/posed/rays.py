"""Directions of pixels: the inverse of COLMAP's camera models."""

import numpy as np

from asker.applications.colmap.cameras import RAYS, SPHERE, parts_of, project

NEWTON_ROUNDS = 30
STEP = 1e-6
"""Radians of the difference quotients."""
MAX_STEP = 0.3
"""Radians of the largest Newton step."""
PIXEL_TOL = 1e-6
MAX_ERROR = 0.1
"""Pixels; a direction with a larger residual is not a solution."""


def directions(camera_model: str, params: np.ndarray, uv: np.ndarray) -> np.ndarray:
    """Return unit vectors (n, 3) in the camera frame that project to pixels (n, 2); NaN where there is none.

    Newton's method on the sphere, with difference quotients, from the direction without distortion.

    Parameters
    ----------
    camera_model
        One of `CAMERA_MODELS`.
    params
        (p,) for one camera, or (p, n) for each pixel.
    uv
        (n, 2): pixels.
    """
    if not len(uv):
        return np.zeros((0, 3))
    if camera_model == SPHERE:
        longitude = 2 * np.pi * (uv[:, 0] / params[0] - 0.5)
        latitude = np.pi * (uv[:, 1] / params[1] - 0.5)
        c = np.cos(latitude)
        return np.stack([c * np.sin(longitude), np.sin(latitude), c * np.cos(longitude)], axis=1)
    n = parts_of(camera_model).count("focal")
    d = np.stack(
        [(uv[:, 0] - params[n]) / params[0], (uv[:, 1] - params[n + 1]) / params[n - 1], np.ones(len(uv))], axis=1
    )
    if camera_model in RAYS or "FISHEYE" in camera_model:  # the radius is about the angle
        radius = np.minimum(np.linalg.norm(d[:, :2], axis=1), np.pi / 2)
        scale = np.sin(radius) / np.where(radius > 0, radius, 1)
        d = np.stack([scale * d[:, 0], scale * d[:, 1], np.cos(radius)], axis=1)
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        for _ in range(NEWTON_ROUNDS):
            r = _residual(camera_model, params, d, uv)
            if np.nanmax(np.abs(r), initial=0.0) < PIXEL_TOL:
                break
            d = _newton_step(camera_model, params, d, uv, r)
        r = _residual(camera_model, params, d, uv)
        return np.where((np.abs(r).max(axis=1) < MAX_ERROR)[:, None], d, np.nan)


def _residual(camera_model: str, params: np.ndarray, d: np.ndarray, uv: np.ndarray) -> np.ndarray:
    return np.stack(project(camera_model, params, *d.T), axis=1) - uv


def _newton_step(camera_model: str, params: np.ndarray, d: np.ndarray, uv: np.ndarray, r: np.ndarray) -> np.ndarray:
    axis = np.eye(3)[np.argmin(np.abs(d), axis=1)]
    a = np.cross(d, axis)
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    b = np.cross(d, a)
    J = [
        (_residual(camera_model, params, d + STEP * t, uv) - _residual(camera_model, params, d - STEP * t, uv))
        / STEP
        / 2
        for t in (a, b)
    ]
    det = J[0][:, 0] * J[1][:, 1] - J[0][:, 1] * J[1][:, 0]
    x = -(r[:, 0] * J[1][:, 1] - r[:, 1] * J[1][:, 0]) / det
    y = -(r[:, 1] * J[0][:, 0] - r[:, 0] * J[0][:, 1]) / det
    size = np.hypot(x, y)
    shrink = np.where(size > MAX_STEP, MAX_STEP / size, 1.0)
    step = shrink[:, None] * (x[:, None] * a + y[:, None] * b)
    new = d + np.where(np.isfinite(step), step, 0.0)
    return new / np.linalg.norm(new, axis=1, keepdims=True)

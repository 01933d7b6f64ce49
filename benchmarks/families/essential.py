"""Relative pose of two views (essential matrix) from matches with outliers.

The residual is the Sampson distance in pixels.  The error is the larger of the angular errors of the rotation and of
the direction of the translation, in degrees, where the sign of the latter is ignored.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

import asker
from asker.geometry.rotations import angle_axis_from_matrix, matrix_from_angle_axis
from families.family import Condition, Peer
from families.pnp import FOCAL, K, camera
from families.single_group import SimulatedData, SimulatedFamily, mixed, module

CONDITIONS: list[Condition] = [
    {"noise": noise, "outliers": outliers, "start": start, "clutter": clutter}
    for noise, outliers, start, clutter in (
        (1.0, 0.2, 2.0, "uniform"),
        (1.0, 0.4, 5.0, "uniform"),
        (1.0, 0.6, 5.0, "uniform"),
        (0.3, 0.4, 5.0, "uniform"),
        (3.0, 0.4, 5.0, "uniform"),
        (1.0, 0.4, 10.0, "uniform"),
        (1.0, 0.2, 15.0, "uniform"),
        (1.0, 0.6, 15.0, "uniform"),
        (0.3, 0.4, 15.0, "uniform"),
        (1.0, 0.4, 5.0, "second"),
    )
]  # `start` is the initial error in degrees


def sampson(view, p, q):
    R, t = view
    E = jnp.cross(t, R, axisb=0, axisc=0)
    Ep, Eq = E @ p, E.T @ q
    return FOCAL * (q @ Ep) / jnp.sqrt(Ep[:2] @ Ep[:2] + Eq[:2] @ Eq[:2] + 1e-12)


def in_front(view, p, q):
    """Return a number that is positive if the matched point is in front of both views.

    Up to positive factors, the two depths are −(q×t)·(q×Rp) and −(Rp×t)·(q×Rp).
    """
    R, t = view
    Rp = R @ p
    across = jnp.cross(q, Rp)
    return jnp.minimum(-jnp.cross(q, t) @ across, -jnp.cross(Rp, t) @ across)


def simulate(rng: np.random.Generator, condition: Condition, sigma: float, n: int = 300) -> SimulatedData:
    """Simulate matches as rows (x, y, 1); outliers of the second kind lie on an independently moving object."""
    X = rng.uniform((-2, -1.5, 4), (2, 1.5, 8), (n, 3))
    R, t = turn(rng, rng.uniform(3, 15)), rng.normal(size=3)
    t /= np.linalg.norm(t)
    other_R, other_t = turn(rng, 10.0) @ R, t + rng.normal(0, 0.5, 3)
    noise = sigma / FOCAL * rng.normal(size=(2, n, 3)) * (1, 1, 0)
    p, q, second = (Y / Y[:, 2:] for Y in (X, X @ R.T + t, X @ other_R.T + other_t))
    wrong = rng.uniform(q.min(axis=0), q.max(axis=0), (n, 3))
    q, right = mixed(condition, q + noise[1], wrong, second + noise[1])
    off = turn(rng, condition["start"]), turn_of(rng, t, condition["start"])
    start = (off[0] @ R)[None], off[1][None]
    error = partial(angles, R, t)
    return SimulatedData(sampson, (R[None], t[None]), start, (p + noise[0], q), right, error, MANIFOLD, valid=in_front)


MANIFOLD = asker.Product(asker.SO3, asker.Sphere())


def turn(rng: np.random.Generator, degrees: float) -> np.ndarray:
    """Return a rotation by an angle about a random axis."""
    axis = rng.normal(size=(1, 3))
    return matrix_from_angle_axis(np.radians(degrees) * axis / np.linalg.norm(axis))[0]


def turn_of(rng: np.random.Generator, t: np.ndarray, degrees: float) -> np.ndarray:
    """Return a random direction at an angle to t."""
    across = np.cross(t, rng.normal(size=3))
    return np.cos(np.radians(degrees)) * t + np.sin(np.radians(degrees)) * across / np.linalg.norm(across)


def angles(R: np.ndarray, t: np.ndarray, view: Any) -> float:
    """Return the larger of the rotation and translation errors, in degrees."""
    rotation = np.linalg.norm(angle_axis_from_matrix(view[0][:1] @ R.T)[0])
    direction = np.arctan2(np.linalg.norm(np.cross(view[1][0], t)), abs(view[1][0] @ t))
    return float(np.degrees(max(rotation, direction)))


def opencv(method: str, data: SimulatedData, number: float | None) -> float:
    """Return the error of `findEssentialMat` and `recoverPose`; the default threshold is 1 pixel."""
    cv2 = module("cv2")
    p, q = (x @ K.T for x in data.data)
    options = {} if number is None else {"threshold": number}
    E, mask = cv2.findEssentialMat(p[:, :2], q[:, :2], K, method=getattr(cv2, method), **options)
    if E is None or E.shape != (3, 3):
        return np.inf
    _, R, t, _ = cv2.recoverPose(E, p[:, :2], q[:, :2], K, mask=mask)
    return data.error((R[None], t.T))


def poselib(data: SimulatedData, number: float | None) -> float:
    """Return the error of `estimate_relative_pose`; the default threshold is 1 pixel."""
    p, q = (x @ K.T for x in data.data)
    options = {} if number is None else {"max_epipolar_error": number}
    pose, _ = module("poselib").estimate_relative_pose(p[:, :2], q[:, :2], camera(), camera(), options, {})
    t = np.asarray(pose.t)
    return data.error((np.asarray(pose.R)[None], (t / np.linalg.norm(t))[None]))


def peers(data: SimulatedData, user: float) -> dict[str, Peer]:
    """Return the installed RANSAC implementations."""
    known: dict[str, tuple[str, Any]] = {
        "OpenCV RANSAC": ("cv2", partial(opencv, "RANSAC")),
        "OpenCV MAGSAC": ("cv2", partial(opencv, "USAC_MAGSAC")),
        "poselib RANSAC": ("poselib", poselib),
    }
    return {name: partial(run, data) for name, (needs, run) in known.items() if module(needs)}


ESSENTIAL = SimulatedFamily(
    "essential", 0.5, simulate, CONDITIONS, (CONDITIONS[1], CONDITIONS[6]), seeds=1, peers=peers
)

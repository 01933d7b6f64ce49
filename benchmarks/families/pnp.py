"""Pose of a camera from known 3-D points (PnP) with wrong matches.

Residuals are in pixels.  The error is the RMS distance, in metres, between the points transformed to the camera frame
by the true and by the estimated pose.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

import asker
from asker.geometry.rotations import matrix_from_angle_axis
from families.family import Condition, Peer
from families.registration import distance_of_poses, moved, perturbed, random_pose
from families.single_group import SimulatedData, SimulatedFamily, mixed, module

FOCAL, WIDTH, HEIGHT = 800.0, 640, 480
K = np.array([[FOCAL, 0, WIDTH / 2], [0, FOCAL, HEIGHT / 2], [0, 0, 1]])
STARTS = {"near": (5.0, 0.2), "far": (40.0, 1.0)}  # initial error: degrees about the centroid of the points, metres

CONDITIONS: list[Condition] = [
    {"noise": noise, "outliers": outliers, "start": start, "clutter": "uniform"}
    for noise, outliers, start in (
        (1.0, 0.5, "near"),
        (1.0, 0.7, "near"),
        (1.0, 0.9, "near"),
        (0.3, 0.7, "near"),
        (3.0, 0.7, "near"),
        (1.0, 0.5, "far"),
        (1.0, 0.7, "far"),
        (0.3, 0.7, "far"),
        (3.0, 0.5, "far"),
    )
] + [{"noise": 1.0, "outliers": 0.6, "start": "near", "clutter": "second"}]


def off_pixel(pose, point, uv):
    x, y, z = pose.rotation @ point + pose.translation
    z = jnp.where(jnp.abs(z) < 1e-3, 1e-3, z)
    return jnp.stack([FOCAL * x / z, FOCAL * y / z]) - uv


def simulate(rng: np.random.Generator, condition: Condition, sigma: float, n: int = 200) -> SimulatedData:
    """Simulate points 4 to 8 m ahead; pixels are relative to the principal point.

    Outliers of the second kind follow another pose.
    """
    local = rng.uniform((-1.6, -1.2, 4), (1.6, 1.2, 8), (n, 3))
    world = random_pose(rng)
    points = (local - world[:, 3]) @ world[:, :3]  # `world` maps points to the camera frame
    other = perturbed(rng, world, points, 20.0, 0.5)
    noise, part = sigma * rng.normal(size=(n, 2)), rng.random((n, 1)) < 0.5
    wrong = rng.uniform((-WIDTH / 2, -HEIGHT / 2), (WIDTH / 2, HEIGHT / 2), (n, 2))
    second = np.where(part, pixels(moved(other, points)) + noise, wrong)
    uv, right = mixed(condition, pixels(local) + noise, wrong, second)
    start = perturbed(rng, world, points, *STARTS[condition["start"]])
    error = distance_of_poses(world, points)
    return SimulatedData(off_pixel, world[None], start[None], (points, uv), right, error, asker.SE3)


RANSAC_ITERATIONS = 10_000


def pixels(local: np.ndarray) -> np.ndarray:
    """Return the projections of points in the camera frame, relative to the principal point."""
    return FOCAL * local[:, :2] / local[:, 2:]


def opencv(data: SimulatedData, number: float | None) -> float:
    """Return the error of `solvePnPRansac`; the default is 8 pixels and 100 iterations."""
    points, uv = data.data
    options = {} if number is None else {"reprojectionError": number, "iterationsCount": RANSAC_ITERATIONS}
    ok, turn, t, _ = module("cv2").solvePnPRansac(points, uv + K[:2, 2], K, None, **options)
    if not ok:
        return np.inf
    return data.error(np.column_stack([matrix_from_angle_axis(turn.T)[0], t])[None])


def poselib(data: SimulatedData, number: float | None) -> float:
    """Return the error of `estimate_absolute_pose`; the default threshold is 12 pixels."""
    points, uv = data.data
    options = {} if number is None else {"max_reproj_error": number}
    pose, _ = module("poselib").estimate_absolute_pose(uv + K[:2, 2], points, camera(), options, {})
    return data.error(np.column_stack([pose.R, pose.t])[None])


def camera() -> dict[str, Any]:
    """Return the camera in poselib's format."""
    return {"model": "SIMPLE_PINHOLE", "width": WIDTH, "height": HEIGHT, "params": [FOCAL, *K[:2, 2]]}


def peers(data: SimulatedData, user: float) -> dict[str, Peer]:
    """Return the installed RANSAC implementations."""
    known = {"OpenCV RANSAC": ("cv2", opencv), "poselib RANSAC": ("poselib", poselib)}
    return {name: partial(run, data) for name, (needs, run) in known.items() if module(needs)}


PNP = SimulatedFamily("pnp", 1.0, simulate, CONDITIONS, (CONDITIONS[4], CONDITIONS[5]), seeds=1, peers=peers)

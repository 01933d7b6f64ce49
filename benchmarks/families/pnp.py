"""The pose of a camera from points whose place is known (PnP), with wrong matches.

Pixels; the error is the root mean square distance, in metres, between where the truth and where the estimate put the
points in the frame of the camera.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

import asker
from asker.geometry.rotations import matrix_from_angle_axis
from families.family import Condition, Peer
from families.registration import a_little_off, distance_of_poses, moved, random_pose
from families.single import Made, MadeFamily, mixed, module

FOCAL, WIDTH, HEIGHT = 800.0, 640, 480
K = np.array([[FOCAL, 0, WIDTH / 2], [0, FOCAL, HEIGHT / 2], [0, 0, 1]])
STARTS = {"near": (5.0, 0.2), "far": (40.0, 1.0)}  # degrees about the middle of the points, metres

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


def made(rng: np.random.Generator, condition: Condition, sigma: float, n: int = 200) -> Made:
    """Points 4 to 8 m ahead; pixels are from the middle of the image.  The second kind has moved with another pose."""
    seen = rng.uniform((-1.6, -1.2, 4), (1.6, 1.2, 8), (n, 3))
    world = random_pose(rng)
    points = (seen - world[:, 3]) @ world[:, :3]  # `world` takes them to what the camera sees
    other = a_little_off(rng, world, points, 20.0, 0.5)
    noise, part = sigma * rng.normal(size=(n, 2)), rng.random((n, 1)) < 0.5
    wrong = rng.uniform((-WIDTH / 2, -HEIGHT / 2), (WIDTH / 2, HEIGHT / 2), (n, 2))
    second = np.where(part, pixels(moved(other, points)) + noise, wrong)
    uv, right = mixed(condition, pixels(seen) + noise, wrong, second)
    start = a_little_off(rng, world, points, *STARTS[condition["start"]])
    error = distance_of_poses(world, points)
    return Made(off_pixel, world[None], start[None], (points, uv), right, error, asker.SE3)


TRIES = 10_000


def pixels(seen: np.ndarray) -> np.ndarray:
    return FOCAL * seen[:, :2] / seen[:, 2:]


def opencv(made: Made, number: float | None) -> float:
    """`solvePnPRansac`; its own threshold is 8 pixels, after 100 tries; with a threshold it has more."""
    points, uv = made.data
    options = {} if number is None else {"reprojectionError": number, "iterationsCount": TRIES}
    ok, turn, t, _ = module("cv2").solvePnPRansac(points, uv + K[:2, 2], K, None, **options)
    if not ok:
        return np.inf
    return made.error(np.column_stack([matrix_from_angle_axis(turn.T)[0], t])[None])


def poselib(made: Made, number: float | None) -> float:
    """`estimate_absolute_pose`; its own threshold is 12 pixels."""
    points, uv = made.data
    options = {} if number is None else {"max_reproj_error": number}
    pose, _ = module("poselib").estimate_absolute_pose(uv + K[:2, 2], points, camera(), options, {})
    return made.error(np.column_stack([pose.R, pose.t])[None])


def camera() -> dict[str, Any]:
    """The camera as poselib takes it."""
    return {"model": "SIMPLE_PINHOLE", "width": WIDTH, "height": HEIGHT, "params": [FOCAL, *K[:2, 2]]}


def peers(made: Made, user: float) -> dict[str, Peer]:
    """RANSAC by those that are installed."""
    known = {"OpenCV RANSAC": ("cv2", opencv), "poselib RANSAC": ("poselib", poselib)}
    return {name: partial(run, made) for name, (needs, run) in known.items() if module(needs)}


PNP = MadeFamily("pnp", 1.0, made, CONDITIONS, (CONDITIONS[4], CONDITIONS[5]), seeds=1, peers=peers)

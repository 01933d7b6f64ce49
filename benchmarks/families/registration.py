"""Rigid registration of 3-D correspondences: synthetic points, and real points with simulated wrong matches.

The error is the RMS distance between the points transformed by the true and by the estimated pose.  The real points are
two views of an object by a depth camera (`registration` in the data folder); a share of them is matched with a random
point of the other view.  Least squares on all right pairs differs by 0.09 m from the reference pose, so the real points
reveal gross failures, but do not measure precision.
"""

import os
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import asker
from asker.geometry.rotations import matrix_from_angle_axis, matrix_from_quaternion
from families.family import Condition, Peer
from families.single_group import SimulatedData, SimulatedFamily, mixed, module

DATA = Path(os.environ.get("ASKER_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
FILES = ("rigid_pose_example_points.txt", "rigid_pose_example_gt.txt")
NEAR_DEGREES = 15.0
"""Rotation error of the near initial guess."""

CONDITIONS: list[Condition] = [
    {"noise": noise, "outliers": outliers, "start": start, "clutter": "uniform"}
    for noise, outliers, start in (
        (1.0, 0.5, "near"),
        (1.0, 0.8, "near"),
        (1.0, 0.95, "near"),
        (0.3, 0.8, "near"),
        (3.0, 0.8, "near"),
        (1.0, 0.5, "far"),
        (1.0, 0.8, "far"),
        (1.0, 0.95, "far"),
        (3.0, 0.5, "far"),
    )
] + [{"noise": 1.0, "outliers": 0.6, "start": "near", "clutter": "second"}]
REAL: list[Condition] = [
    {"outliers": outliers, "start": start, "clutter": "uniform"}
    for outliers, start in ((0.5, "near"), (0.8, "near"), (0.95, "near"), (0.5, "far"), (0.8, "far"))
]


def off_target(pose, source, target):
    return pose.rotation @ source + pose.translation - target


def moved(pose: np.ndarray, points: np.ndarray) -> np.ndarray:
    return points @ pose[:, :3].T + pose[:, 3]


def random_pose(rng: np.random.Generator) -> np.ndarray:
    return np.column_stack([matrix_from_quaternion(rng.normal(size=(1, 4)))[0], rng.uniform(-1, 1, 3)])


def perturbed(rng: np.random.Generator, pose: np.ndarray, points: np.ndarray, degrees: float, by: float) -> Any:
    """Return the pose, rotated about the centroid of the points and translated by a distance `by`."""
    axis, way = (v / np.linalg.norm(v) for v in rng.normal(size=(2, 3)))
    R = matrix_from_angle_axis(np.radians(degrees) * axis[None])[0]
    middle = moved(pose, points).mean(axis=0)
    return np.column_stack([R @ pose[:, :3], R @ (pose[:, 3] - middle) + middle + by * way])


def distance_of_poses(truth: np.ndarray, points: np.ndarray) -> Callable[[Any], float]:
    """Return the error function of poses (1, 3, 4): the RMS distance between points under the true and that pose."""
    return lambda x: float(np.sqrt(np.mean(((moved(x[0], points) - moved(truth, points)) ** 2).sum(axis=1))))


def registration(
    rng: np.random.Generator, condition: Condition, truth: np.ndarray, source: np.ndarray, targets: tuple[Any, ...]
) -> SimulatedData:
    """Return the data set from right, wrong and second targets; the far initial guess is the identity."""
    target, right = mixed(condition, *targets)
    near = perturbed(rng, truth, source, NEAR_DEGREES, 0.2)
    start = near if condition["start"] == "near" else np.eye(3, 4)
    error = distance_of_poses(truth, source)
    return SimulatedData(off_target, truth[None], start[None], (source, target), right, error, asker.SE3)


def simulate(rng: np.random.Generator, condition: Condition, sigma: float, n: int = 300) -> SimulatedData:
    """Simulate points on a knot of size 1; outliers of the second kind follow another pose."""
    a = rng.uniform(0, 2 * np.pi, (n, 1))
    knot = np.hstack([np.sin(a) + 2 * np.sin(2 * a), np.cos(a) - 2 * np.cos(2 * a), -np.sin(3 * a)]) / 3
    truth, second = random_pose(rng), random_pose(rng)
    noise = sigma * rng.normal(size=(n, 3))
    part = (
        rng.random((n, 1)) < 0.5
    )  # half of the outliers follow the second pose, so that it has fewer points than the first
    wrong = rng.uniform(-2, 2, (n, 3))
    second_target = np.where(part, moved(second, knot) + noise, wrong)
    return registration(rng, condition, truth, knot, (moved(truth, knot) + noise, wrong, second_target))


def real(rng: np.random.Generator, condition: Condition, sigma: float, n: int = 500) -> SimulatedData:
    """Return real pairs with outliers; nearly all pairs of the file agree with the reference pose to 0.3 m."""
    pairs, truth = loaded()
    pairs = pairs[rng.permutation(len(pairs))]
    source, target = (np.ascontiguousarray(half) for half in (pairs[:n, :3], pairs[:n, 3:]))
    wrong = pairs[n : 2 * n, 3:]
    return registration(rng, condition, truth, source, (target, wrong, wrong))


@cache
def loaded() -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs as rows x y z x' y' z', and the reference pose [R | t]."""
    pairs, truth = (np.loadtxt(DATA / "registration" / name) for name in FILES)
    U, _, V = np.linalg.svd(truth[:3, :3])  # the file has single precision only
    return pairs, np.column_stack([U @ V, truth[:3, 3]])


def nearest_pose(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the least squares poses of stacks of point pairs, (..., n, 3) -> (..., 3, 4)."""
    a, b = (x.mean(axis=-2, keepdims=True) for x in (source, target))
    U, _, V = np.linalg.svd(np.swapaxes(target - b, -1, -2) @ (source - a))
    sign = np.ones(U.shape[:-1])
    sign[..., 2] = np.linalg.det(U @ V)  # no reflection
    R = U * sign[..., None, :] @ V
    t = b[..., 0, :] - (R @ a[..., 0, :, None])[..., 0]
    return np.concatenate([R, t[..., None]], axis=-1)


def ransac(
    data: SimulatedData, user: float, number: float | None, batch: int = 1000, max_trials: int = 40_000
) -> float:
    """Return the error of RANSAC: the best of random triples, then three least squares fits to its inliers."""
    source, target = data.data
    radius = user if number is None else number
    rng = np.random.default_rng(0)
    best, most_agree, tried = np.eye(3, 4), 0, 0
    while tried < max_trials and tried * (most_agree / len(source)) ** 3 < np.log(1e3):  # 99.9 % confidence
        triples = rng.integers(len(source), size=(batch, 3))
        poses = nearest_pose(source[triples], target[triples])
        off = source @ np.swapaxes(poses[:, :, :3], 1, 2) + poses[:, None, :, 3] - target
        agree = ((off**2).sum(axis=2) < radius**2).sum(axis=1)
        if agree.max() > most_agree:
            best, most_agree = poses[agree.argmax()], int(agree.max())
        tried += batch
    for _ in range(3):
        near = np.linalg.norm(moved(best, source) - target, axis=1) < radius
        if near.sum() >= 3:
            best = nearest_pose(source[near], target[near])
    return data.error(best[None])


def opencv_affine(data: SimulatedData, number: float | None) -> float:
    """Return the error of a least squares pose on the inliers of `estimateAffine3D`."""
    source, target = data.data
    options = {} if number is None else {"ransacThreshold": number}
    _, affine, inliers = module("cv2").estimateAffine3D(source, target, **options)
    if affine is None or not inliers.any():
        return np.inf
    chosen = inliers.ravel().astype(bool)
    return data.error(nearest_pose(source[chosen], target[chosen])[None])


def peers(data: SimulatedData, user: float) -> dict[str, Peer]:
    """Return RANSAC on triples, and OpenCV's affine RANSAC if it is installed."""
    available: dict[str, Peer] = {"RANSAC": partial(ransac, data, user)}
    if module("cv2"):
        available["OpenCV affine"] = partial(opencv_affine, data)
    return available


def families() -> list[SimulatedFamily]:
    """Return the synthetic family, and the real one if its files exist."""
    available = [
        SimulatedFamily("registration", 0.01, simulate, CONDITIONS, (CONDITIONS[1], CONDITIONS[5]), peers=peers)
    ]
    if all((DATA / "registration" / name).exists() for name in FILES):
        available.append(SimulatedFamily("registration-real", 0.05, real, REAL, REAL[3:4], peers=peers))
    else:
        print("registration-real is skipped: ASKER_DATA has no folder `registration`", file=sys.stderr)
    return available

"""Rigid registration of 3-D correspondences: made ones, and real points with wrong matches.

The error is the root mean square distance between where the truth and where the estimate take the points.
The real points are two views of an object by a depth camera (`registration` in the folder of data); a share of them is
matched with a point of the other view taken at random.  Least squares on all right pairs ends 0.09 m from the pose that
comes with them, so the real points show who is lost, and not who is precise.
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
from families.single import Made, MadeFamily, mixed, module

DATA = Path(os.environ.get("ASKER_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
FILES = ("rigid_pose_example_points.txt", "rigid_pose_example_gt.txt")
NEAR = 15.0  # degrees

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


def a_little_off(rng: np.random.Generator, pose: np.ndarray, points: np.ndarray, degrees: float, by: float) -> Any:
    """The pose, turned about the middle of its points and moved by a distance."""
    axis, way = (v / np.linalg.norm(v) for v in rng.normal(size=(2, 3)))
    R = matrix_from_angle_axis(np.radians(degrees) * axis[None])[0]
    middle = moved(pose, points).mean(axis=0)
    return np.column_stack([R @ pose[:, :3], R @ (pose[:, 3] - middle) + middle + by * way])


def distance_of_poses(truth: np.ndarray, points: np.ndarray) -> Callable[[Any], float]:
    """The root mean square distance of points under the true pose and under the first of an array of poses."""
    return lambda x: float(np.sqrt(np.mean(((moved(x[0], points) - moved(truth, points)) ** 2).sum(axis=1))))


def registration(
    rng: np.random.Generator, condition: Condition, truth: np.ndarray, source: np.ndarray, targets: tuple[Any, ...]
) -> Made:
    """The data from right, wrong and second targets; the far start is the identity."""
    target, right = mixed(condition, *targets)
    near = a_little_off(rng, truth, source, NEAR, 0.2)
    start = near if condition["start"] == "near" else np.eye(3, 4)
    error = distance_of_poses(truth, source)
    return Made(off_target, truth[None], start[None], (source, target), right, error, asker.SE3)


def made(rng: np.random.Generator, condition: Condition, sigma: float, n: int = 300) -> Made:
    """Points along a knot of the size 1; the second kind moves with another pose."""
    a = rng.uniform(0, 2 * np.pi, (n, 1))
    knot = np.hstack([np.sin(a) + 2 * np.sin(2 * a), np.cos(a) - 2 * np.cos(2 * a), -np.sin(3 * a)]) / 3
    truth, second = random_pose(rng), random_pose(rng)
    noise = sigma * rng.normal(size=(n, 3))
    part = rng.random((n, 1)) < 0.5  # half of the wrong ones are of the second kind, which has then fewer points
    wrong = rng.uniform(-2, 2, (n, 3))
    second_target = np.where(part, moved(second, knot) + noise, wrong)
    return registration(rng, condition, truth, knot, (moved(truth, knot) + noise, wrong, second_target))


def real(rng: np.random.Generator, condition: Condition, sigma: float, n: int = 500) -> Made:
    """Some of the real pairs.  Those of the file are right: nearly all of them agree with the truth to 0.3 m."""
    pairs, truth = loaded()
    pairs = pairs[rng.permutation(len(pairs))]
    source, target = (np.ascontiguousarray(half) for half in (pairs[:n, :3], pairs[:n, 3:]))
    wrong = pairs[n : 2 * n, 3:]
    return registration(rng, condition, truth, source, (target, wrong, wrong))


@cache
def loaded() -> tuple[np.ndarray, np.ndarray]:
    """Pairs as rows x y z x' y' z', and the true pose [R | t]."""
    pairs, truth = (np.loadtxt(DATA / "registration" / name) for name in FILES)
    U, _, V = np.linalg.svd(truth[:3, :3])  # it is written in single precision
    return pairs, np.column_stack([U @ V, truth[:3, 3]])


def nearest_pose(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Least squares for stacks of points: (..., n, 3) -> (..., 3, 4)"""
    a, b = (x.mean(axis=-2, keepdims=True) for x in (source, target))
    U, _, V = np.linalg.svd(np.swapaxes(target - b, -1, -2) @ (source - a))
    sign = np.ones(U.shape[:-1])
    sign[..., 2] = np.linalg.det(U @ V)  # a rotation, no mirror image
    R = U * sign[..., None, :] @ V
    t = b[..., 0, :] - (R @ a[..., 0, :, None])[..., 0]
    return np.concatenate([R, t[..., None]], axis=-1)


def ransac(made: Made, user: float, number: float | None, batch: int = 1000, most: int = 40_000) -> float:
    """The best of random triples, then least squares on what agrees with it, three times."""
    source, target = made.data
    radius = user if number is None else number
    rng = np.random.default_rng(0)
    best, most_agree, tried = np.eye(3, 4), 0, 0
    while tried < most and tried * (most_agree / len(source)) ** 3 < np.log(1e3):  # right with 99.9 %
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
    return made.error(best[None])


def opencv_affine(made: Made, number: float | None) -> float:
    """`estimateAffine3D`, then least squares for a pose on those that it took for inliers."""
    source, target = made.data
    options = {} if number is None else {"ransacThreshold": number}
    _, affine, inliers = module("cv2").estimateAffine3D(source, target, **options)
    if affine is None or not inliers.any():
        return np.inf
    chosen = inliers.ravel().astype(bool)
    return made.error(nearest_pose(source[chosen], target[chosen])[None])


def peers(made: Made, user: float) -> dict[str, Peer]:
    """RANSAC on triples, and OpenCV's on affine maps."""
    found: dict[str, Peer] = {"RANSAC": partial(ransac, made, user)}
    if module("cv2"):
        found["OpenCV affine"] = partial(opencv_affine, made)
    return found


def families() -> list[MadeFamily]:
    """The made one, and the real one where its files are."""
    found = [MadeFamily("registration", 0.01, made, CONDITIONS, (CONDITIONS[1], CONDITIONS[5]), peers=peers)]
    if all((DATA / "registration" / name).exists() for name in FILES):
        found.append(MadeFamily("registration-real", 0.05, real, REAL, REAL[3:4], peers=peers))
    else:
        print("registration-real is left out: there is no folder `registration` in ASKER_DATA", file=sys.stderr)
    return found

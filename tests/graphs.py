"""Pose graphs for the tests."""

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

from asker.applications.pose_graph.g2o import PoseGraph
from asker.geometry import poses
from asker.geometry.alignment import trajectory_error

KINDS = ("SE2", "SE3")
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def some_poses(kind, n, rng, turn=3.0):
    t = rng.normal(size=(n, poses.N_AXES[kind]))
    if kind == "SE2":
        return np.column_stack([t, rng.uniform(-turn, turn, n)])
    return np.column_stack([t, Rotation.from_rotvec(turn / 4 * rng.normal(size=(n, 3))).as_quat()])


def some_information(d, n, rng):
    A = rng.normal(size=(n, d, d))
    return A @ np.swapaxes(A, 1, 2)


def some_graph(kind="SE2", n=6, seed=0) -> PoseGraph:
    rng = np.random.default_rng(seed)
    ids = np.array([4, 0, 1, 2, 3, 9], np.int64)[:n]
    i, j = np.array([[1, 2], [2, 3], [3, 4], [4, 0], [0, 5], [5, 2], [4, 1]], np.int32).T
    return PoseGraph(
        kind, ids, some_poses(kind, n, rng), i, j, some_poses(kind, len(i), rng),
        information=_symmetric(some_information(poses.N_DOF[kind], len(i), rng)), fixed=ids == 2,
    )  # fmt: skip


def _symmetric(A):
    return (A + np.swapaxes(A, 1, 2)) / 2


def assert_same_bits(a: PoseGraph, b: PoseGraph) -> None:
    assert a.kind == b.kind
    for field in fields(PoseGraph)[1:-1]:  # not what was repaired
        left, right = getattr(a, field.name), getattr(b, field.name)
        assert (left.dtype, left.shape) == (right.dtype, right.shape), field.name
        assert left.tobytes() == right.tobytes(), field.name


def circle(kind="SE2", n=90, laps=3, noise=0.01, drift=0.004, seed=0) -> tuple[PoseGraph, PoseGraph]:
    """The truth, and a graph that starts at its odometry: some laps around a circle, loops from lap to lap."""
    rng = np.random.default_rng(seed)
    d = poses.N_AXES[kind]
    angle = 2 * np.pi * laps * np.arange(n) / n
    T = np.tile(np.eye(d + 1), (n, 1, 1))
    turn = Rotation.from_rotvec(np.outer(angle + np.pi / 2, [0, 0, 1])).as_matrix()
    T[:, :d, :d] = turn[:, :d, :d]
    T[:, 0, d], T[:, 1, d] = 10 * np.cos(angle), 10 * np.sin(angle)
    if d == 3:
        T[:, 2, 3] = np.sin(3 * angle)
    T = np.linalg.inv(T[0]) @ T
    lap = n // laps
    pairs = [(k, k + 1) for k in range(n - 1)] + [(k, k + lap) for k in range(0, n - lap, 3)]
    i, j = np.array(pairs, np.int32).T
    odometry = j - i == 1
    size = np.where(odometry, drift, noise)[:, None] * np.ones(poses.N_DOF[kind])
    steps = size * rng.normal(size=size.shape)
    M = np.linalg.inv(T[i]) @ T[j] @ np.array([exponential(kind, s) for s in steps])
    information = np.array([np.diag(1 / s**2) for s in size])
    measurements = poses.rows(kind, M)
    truth = PoseGraph(kind, np.arange(n), poses.rows(kind, T), i, j, measurements, information, np.zeros(n, bool))
    start = [T[0]]
    for step in M[: n - 1]:
        start.append(start[-1] @ step)
    return truth, replace(truth, poses=poses.rows(kind, np.array(start)))


def exponential(kind, s):
    X = np.zeros((3, 3)) if kind == "SE2" else np.zeros((4, 4))
    if kind == "SE2":
        X[0, 1], X[1, 0] = -s[2], s[2]
    else:
        X[:3, :3] = np.cross(s[3:], np.eye(3)).T
    X[:-1, -1] = s[: len(X) - 1]
    return expm(X)


def error(found: PoseGraph, truth: PoseGraph) -> float:
    return trajectory_error(poses.positions(found.kind, found.poses), poses.positions(truth.kind, truth.poses))

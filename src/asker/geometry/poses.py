"""Poses as rows and as homogeneous matrices, in the plane and in space.

SE2   x y θ                 3 numbers, 3 degrees of freedom
SE3   x y z qx qy qz qw     7 numbers, 6 degrees of freedom
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from asker.rotations import matrix_from_quaternion, quaternion_from_matrix

Kind = Literal["SE2", "SE3"]
Floats = NDArray[np.float64]

N_NUMBERS = {"SE2": 3, "SE3": 7}
N_DOF = {"SE2": 3, "SE3": 6}
N_AXES = {"SE2": 2, "SE3": 3}


def matrices(kind: Kind, rows: Floats) -> Floats:
    """[[R, t], [0, 1]] of each row: (n, 3, 3) for SE2, (n, 4, 4) for SE3."""
    d = N_AXES[kind]
    T = np.zeros((len(rows), d + 1, d + 1))
    T[:, d, d] = 1
    T[:, :d, d] = rows[:, :d]
    if kind == "SE3":
        T[:, :3, :3] = matrix_from_quaternion(np.roll(rows[:, 3:], 1, axis=1))  # a file has x y z w
    else:
        c, s = np.cos(rows[:, 2]), np.sin(rows[:, 2])
        T[:, :2, :2] = np.stack([c, -s, s, c], axis=1).reshape(-1, 2, 2)
    return T


def rows(kind: Kind, T: Floats) -> Floats:
    """The inverse of `matrices`; −π < θ ≤ π, qw ≥ 0."""
    if kind == "SE3":
        return np.concatenate([T[:, :3, 3], np.roll(quaternion_from_matrix(T[:, :3, :3]), -1, axis=1)], axis=1)
    return np.stack([T[:, 0, 2], T[:, 1, 2], np.arctan2(T[:, 1, 0], T[:, 0, 0])], axis=1)


def inverses(T: Floats) -> Floats:
    """Of homogeneous matrices."""
    d = T.shape[1] - 1
    Rt = np.swapaxes(T[:, :d, :d], 1, 2)
    out = T.copy()
    out[:, :d, :d] = Rt
    out[:, :d, d] = -np.einsum("nij,nj->ni", Rt, T[:, :d, d])
    return out


def positions(kind: Kind, rows: Floats) -> Floats:
    """(n, 2) or (n, 3)"""
    return rows[:, : N_AXES[kind]]

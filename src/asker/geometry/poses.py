"""Poses and similarities as rows and as homogeneous matrices, in the plane and in space.

SE2   x y θ                   3 numbers, 3 degrees of freedom
SE3   x y z qx qy qz qw       7 numbers, 6 degrees of freedom
SIM3  x y z qx qy qz qw s     8 numbers, 7 degrees of freedom: X -> s R X + t
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from asker.geometry.rotations import matrix_from_quaternion, quaternion_from_matrix

Kind = Literal["SE2", "SE3", "SIM3"]
Floats = NDArray[np.float64]

N_NUMBERS: dict[Kind, int] = {"SE2": 3, "SE3": 7, "SIM3": 8}
N_DOF: dict[Kind, int] = {"SE2": 3, "SE3": 6, "SIM3": 7}
N_AXES: dict[Kind, int] = {"SE2": 2, "SE3": 3, "SIM3": 3}


def matrices(kind: Kind, rows: Floats) -> Floats:
    """Return matrices [[R, t], [0, 1]], with s R in place of R for SIM3: (n, 3, 3) for SE2, else (n, 4, 4)."""
    d = N_AXES[kind]
    T = np.zeros((len(rows), d + 1, d + 1))
    T[:, d, d] = 1
    T[:, :d, d] = rows[:, :d]
    if kind == "SE3":
        T[:, :3, :3] = matrix_from_quaternion(np.roll(rows[:, 3:], 1, axis=1))  # rows have x y z w
    elif kind == "SIM3":
        T[:, :3, :3] = rows[:, 7, None, None] * matrix_from_quaternion(np.roll(rows[:, 3:7], 1, axis=1))
    else:
        c, s = np.cos(rows[:, 2]), np.sin(rows[:, 2])
        T[:, :2, :2] = np.stack([c, -s, s, c], axis=1).reshape(-1, 2, 2)
    return T


def rows(kind: Kind, T: Floats) -> Floats:
    """Return the rows of homogeneous matrices, the inverse of `matrices`; −π < θ ≤ π, qw ≥ 0."""
    if kind == "SIM3":
        s = scales(T)[:, None]
        turned = np.roll(quaternion_from_matrix(T[:, :3, :3] / s[:, :, None]), -1, axis=1)
        return np.concatenate([T[:, :3, 3], turned, s], axis=1)
    if kind == "SE3":
        return np.concatenate([T[:, :3, 3], np.roll(quaternion_from_matrix(T[:, :3, :3]), -1, axis=1)], axis=1)
    return np.stack([T[:, 0, 2], T[:, 1, 2], np.arctan2(T[:, 1, 0], T[:, 0, 0])], axis=1)


def scales(T: Floats) -> Floats:
    """Return the scales s (n,) of homogeneous matrices that contain s R."""
    return np.sqrt((T[:, :3, :3] ** 2).sum(axis=(1, 2)) / 3)


def inverses(kind: Kind, T: Floats) -> Floats:
    """Return the inverses of homogeneous matrices."""
    d = N_AXES[kind]
    Rt = np.swapaxes(T[:, :d, :d], 1, 2)
    if kind == "SIM3":
        Rt = Rt / scales(T)[:, None, None] ** 2
    out = T.copy()
    out[:, :d, :d] = Rt
    out[:, :d, d] = -np.einsum("nij,nj->ni", Rt, T[:, :d, d])
    return out


def positions(kind: Kind, rows: Floats) -> Floats:
    """Return the positions, (n, 2) or (n, 3)."""
    return rows[:, : N_AXES[kind]]

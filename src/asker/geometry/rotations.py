"""Conversions between rotation matrices, quaternions and angle-axis vectors.

An angle-axis vector v denotes the rotation by the angle ‖v‖ about the axis v/‖v‖.  A quaternion is w x y z.
All conversions are accurate to rounding at every angle, 0 and π included.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def matrix_from_angle_axis(v: ArrayLike) -> Array:
    """Return the rotation matrices of angle-axis vectors: (n, 3) -> (n, 3, 3).

    R = I + (sin θ/θ) K + ((1 − cos θ)/θ²) K², with K x = v × x and θ = ‖v‖ (Rodrigues).  `Rotation.from_rotvec`
    of SciPy differs in the last bit, which would change the iterates on the BAL files.
    """
    v = _checked(v, (3,), "v")
    theta = np.linalg.norm(v, axis=1)[:, None, None]
    x, y, z = v.T
    o = np.zeros_like(x)
    K = np.stack([o, -z, y, z, o, -x, -y, x, o], axis=1).reshape(-1, 3, 3)
    a = np.sinc(theta / np.pi)
    b = np.sinc(theta / (2 * np.pi)) ** 2 / 2  # 1 − cos θ = 2 sin²(θ/2)
    return np.eye(3) + a * K + b * (K @ K)


def matrix_from_quaternion(q: ArrayLike) -> Array:
    """Return the rotation matrices of quaternions of any norm except 0, for which they are NaN: (n, 4) -> (n, 3, 3)."""
    q = _checked(q, (4,), "q")
    q = q / np.abs(q).max(axis=1, keepdims=True)  # squares must neither overflow nor underflow
    w, x, y, z = (q / np.linalg.norm(q, axis=1, keepdims=True)).T
    rows = (
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    )
    return np.moveaxis(np.array(rows), -1, 0)


def quaternion_from_matrix(R: ArrayLike) -> Array:
    """Return the unit quaternions with w ≥ 0 of rotation matrices: (n, 3, 3) -> (n, 4).

    4qqᵀ is linear in R; its row with the largest diagonal entry gives q without cancellation (Shepperd 1978).
    """
    R = _checked(R, (3, 3), "R")
    (a, b, c), (d, e, f), (g, h, i) = np.moveaxis(R, 0, -1)
    qqt = np.empty((len(R), 4, 4))  # four times the product, order w x y z
    qqt[:, 0, 0], qqt[:, 1, 1] = 1 + a + e + i, 1 + a - e - i
    qqt[:, 2, 2], qqt[:, 3, 3] = 1 - a + e - i, 1 - a - e + i
    qqt[:, 0, 1] = qqt[:, 1, 0] = h - f
    qqt[:, 0, 2] = qqt[:, 2, 0] = c - g
    qqt[:, 0, 3] = qqt[:, 3, 0] = d - b
    qqt[:, 1, 2] = qqt[:, 2, 1] = b + d
    qqt[:, 1, 3] = qqt[:, 3, 1] = c + g
    qqt[:, 2, 3] = qqt[:, 3, 2] = f + h
    best = np.argmax(np.diagonal(qqt, axis1=1, axis2=2), axis=1)
    q = qqt[np.arange(len(R)), best]
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    return np.where(q[:, :1] < 0, -q, q)


def angle_axis_from_matrix(R: ArrayLike) -> Array:
    """Return the angle-axis vectors with ‖v‖ ≤ π of rotation matrices: (n, 3, 3) -> (n, 3).

    At the angle π, v and −v denote the same rotation; one of them is returned.
    """
    q = quaternion_from_matrix(R)
    w, xyz = q[:, 0], q[:, 1:]
    s = np.linalg.norm(xyz, axis=1)  # sin(θ/2)
    tiny = s < 1e-100
    factor = np.where(tiny, 2.0, 2 * np.arctan2(s, w) / np.where(tiny, 1.0, s))
    return factor[:, None] * xyz


def _checked(x: ArrayLike, tail: tuple[int, ...], name: str) -> Array:
    x = np.asarray(x, dtype=np.float64)
    if x.shape[1:] != tail or x.ndim != 1 + len(tail):
        shape = ", ".join(["n", *map(str, tail)])
        raise ValueError(f"{name} must have the shape ({shape}), got {x.shape}")
    return x

"""Rigid registration of 3-D correspondences, most of them wrong.

    python examples/registration.py [POINTS TRUTH]

POINTS has a row x y z x' y' z' per correspondence, TRUTH a 4×4 transform; without them a problem is made.
"""

import sys

import numpy as np

import asker
from asker.rotations import matrix_from_angle_axis


def move(pose, source, target):
    return pose.rotation @ source + pose.translation - target


def register(pairs: np.ndarray, tau: float, strategy) -> asker.Result:
    """The pose that takes the first three columns to the last three, starting from no motion."""
    pose = asker.Variables(np.eye(3, 4)[None], asker.SE3, name="pose")
    source, target = pairs[:, :3].copy(), pairs[:, 3:].copy()
    every = np.zeros(len(pairs), dtype=int)
    factors = asker.Factors(move, pose[every], data=(source, target), kernel=asker.SmoothTruncated(tau))
    return asker.solve(asker.Problem(factors), strategy)


def made(seed: int = 0, n: int = 2000, outliers: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    axis = rng.normal(size=3)
    R = matrix_from_angle_axis(1.2 * axis[None] / np.linalg.norm(axis))[0]
    truth = np.eye(4)
    truth[:3] = np.column_stack([R, rng.uniform(-1, 1, 3)])
    source = rng.uniform(-1, 1, (n, 3))
    target = source @ R.T + truth[:3, 3] + rng.normal(0, 0.01, (n, 3))
    target[: int(outliers * n)] = rng.uniform(-2, 2, (int(outliers * n), 3))
    return np.column_stack([source, target]), truth


def errors(result: asker.Result, truth: np.ndarray) -> tuple[float, float]:
    """Rotation in degrees, translation in units."""
    pose = result.x
    cosine = (np.trace(pose[:, :3].T @ truth[:3, :3]) - 1) / 2
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1)))), float(np.linalg.norm(pose[:, 3] - truth[:3, 3]))


def main(arguments: list[str]) -> dict[str, tuple[float, float]]:
    pairs, truth = map(np.loadtxt, arguments) if arguments else made()
    tau = 0.15 if arguments else 0.05
    found = {m: errors(register(pairs, tau, asker.METHODS[m]()), truth) for m in ("irls", "gnc", "asker")}
    for name, (degrees, shift) in found.items():
        print(f"{name:>6}: rotation off by {degrees:7.2f}°, translation by {shift:.3f}")
    return found


if __name__ == "__main__":
    main(sys.argv[1:])

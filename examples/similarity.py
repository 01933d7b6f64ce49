"""Similarity registration (rotation, translation and scale) of 3-D correspondences with 95 % outliers.

The unknowns are a pose and a log scale.  As in registration.py, a linear fit gives their initial guess.  Of 20 problems
each with 50, 80, 90 and 95 % outliers ASKER solves all, IRLS none.
"""

import sys
from pathlib import Path

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import asker
from asker.geometry.rotations import matrix_from_quaternion


def register(p: np.ndarray, q: np.ndarray, strategy) -> np.ndarray:
    """Return [sR | t] with q = sRp + t."""

    def best(move, variable):
        slot, kernel = variable[np.zeros(len(p), dtype=int)], asker.SmoothTruncated(0.05)
        return asker.solve(asker.Problem(asker.Factors(move, slot, data=(p, q), kernel=kernel)), strategy)[variable]

    (A,) = best(lambda A, p, q: A[:, :3] @ p + A[:, 3] - q, asker.Variables(np.eye(3, 4)[None]))
    U, d, V = np.linalg.svd(A[:, :3])
    pose = np.column_stack([U @ np.diag([1, 1, np.linalg.det(U @ V)]) @ V, A[:, 3]])
    start = asker.Variables((pose[None], [np.log(d).mean()]), asker.Product(asker.SE3, asker.Euclidean(())))
    (pose,), (s,) = best(lambda x, p, q: jnp.exp(x[1]) * (x[0].rotation @ p) + x[0].translation - q, start)
    return np.column_stack([np.exp(s) * pose[:, :3], pose[:, 3]])


def simulate(seed: int = 10, n: int = 2000, outliers: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.uniform(-1, 1, (n, 1))  # a spiral on a sphere
    spiral = np.hstack([np.sqrt(1 - z**2) * np.cos(18 * z), np.sqrt(1 - z**2) * np.sin(18 * z), z])
    R, t, s = matrix_from_quaternion(rng.normal(size=(1, 4)))[0], rng.uniform(-1, 1, 3), rng.uniform(0.3, 3)
    target = s * spiral @ R.T + t + rng.normal(0, 0.01, (n, 3))
    target[: int(outliers * n)] = rng.uniform(-4, 4, (int(outliers * n), 3))
    return spiral, target, np.column_stack([s * R, t])


def main(picture: Path = Path("similarity.png")) -> dict[str, np.ndarray]:
    source, target, truth = simulate()
    estimates = {"truth": truth} | {m: register(source, target, asker.METHODS[m]()) for m in ("irls", "asker")}
    fig, ax = plt.subplots(figsize=(7, 5.4), layout="constrained")
    ax.scatter(target[:, 0], target[:, 2], 3, "0.75", lw=0, label="target points")
    for (name, T), colour, size in zip(estimates.items(), ("0.6", "#d55e00", "#0072b2"), (16, 4, 4), strict=True):
        points, scale = source @ T[:, :3].T + T[:, 3], np.cbrt(np.linalg.det(T[:, :3]))
        ax.scatter(points[:, 0], points[:, 2], size, colour, lw=0, label=f"{name}: scale {scale:.3f}")
        print(f"{name:>6}: scale {scale:.3f}, translation {T[:, 3].round(3)}")
    ax.set(xlabel="x", ylabel="z", aspect="equal", adjustable="datalim")
    fig.legend(loc="outside upper center", ncols=4, markerscale=2, columnspacing=1, frameon=False)
    fig.savefig(picture, dpi=150)
    return estimates


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

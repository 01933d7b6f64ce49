"""Rigid registration of 3-D correspondences with 95 % outliers.

registration.py [PICTURE [POINTS TRUTH]]: POINTS has rows x y z x' y' z', TRUTH is a 4×4 transform; without them the
data are synthetic.  An affine 3×4 matrix is estimated first: its residuals are linear, so ASKER does not depend on the
initial guess.  The pose nearest to the matrix is then refined.  Of 20 problems each with 50, 80, 90 and 95 % outliers
ASKER solves all, IRLS none.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import asker
from asker.geometry.rotations import matrix_from_quaternion


def register(pairs: np.ndarray, tau: float, strategy) -> np.ndarray:
    """Return the pose [R | t] that maps the first three columns to the last three."""

    def best(move, variable):
        slot, data = variable[np.zeros(len(pairs), dtype=int)], (pairs[:, :3], pairs[:, 3:])
        factors = asker.Factors(move, slot, data=data, kernel=asker.SmoothTruncated(tau))
        return asker.solve(asker.Problem(factors), strategy).x

    matrix = best(lambda A, p, q: A[:, :3] @ p + A[:, 3] - q, asker.Variables(np.eye(3, 4)[None]))
    U, _, V = np.linalg.svd(matrix[:, :3])
    start = np.column_stack([U @ np.diag([1, 1, np.linalg.det(U @ V)]) @ V, matrix[:, 3]])
    return best(lambda T, p, q: T.rotation @ p + T.translation - q, asker.Variables(start[None], asker.SE3))


def simulate(seed: int = 0, n: int = 2000, outliers: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.uniform(0, 2 * np.pi, (n, 1))
    knot = np.hstack([np.sin(a) + 2 * np.sin(2 * a), np.cos(a) - 2 * np.cos(2 * a), -np.sin(3 * a)]) / 3
    truth = np.column_stack([matrix_from_quaternion(rng.normal(size=(1, 4)))[0], rng.uniform(-1, 1, 3)])
    target = knot @ truth[:, :3].T + truth[:, 3] + rng.normal(0, 0.01, (n, 3))
    target[: int(outliers * n)] = rng.uniform(-2, 2, (int(outliers * n), 3))
    return np.hstack([knot, target]), truth


def main(picture: Path = Path("registration.png"), *files: Path) -> dict[str, np.ndarray]:
    pairs, truth, tau = (*map(np.loadtxt, files), 0.15) if files else (*simulate(), 0.05)
    estimates = {"truth": truth[:3]} | {m: register(pairs, tau, asker.METHODS[m]()) for m in ("irls", "asker")}
    moved = {name: pairs[:, :3] @ pose[:, :3].T + pose[:, 3] for name, pose in estimates.items()}
    fig, ax = plt.subplots(figsize=(7, 5.4), layout="constrained")
    ax.scatter(pairs[:, 3], pairs[:, 5], 3, "0.75", lw=0, label="target points")
    for (name, points), colour, size in zip(moved.items(), ("0.6", "#d55e00", "#0072b2"), (16, 4, 4), strict=True):
        ax.scatter(points[:, 0], points[:, 2], size, colour, lw=0, label=f"source by {name}")
        print(f"{name:>6}: {np.linalg.norm(points - moved['truth'], axis=1).mean():.3f} from the truth on average")
    ax.set(xlabel="x", ylabel="z", aspect="equal", adjustable="datalim")
    fig.legend(loc="outside upper center", ncols=4, markerscale=2, columnspacing=1, frameon=False)
    fig.savefig(picture, dpi=150)
    return estimates


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

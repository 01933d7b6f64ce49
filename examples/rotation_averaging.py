"""Rotation averaging: orientations of 60 cameras from 900 relative rotations with 40 % outliers.

The initial guess follows a spanning tree, where one wrong rotation affects its whole subtree.  It is poor, so the
initial kernels are twice as wide as by default (`reach=8`).  All cameras end within 5° of the truth in 19 of 20
problems; in 14 with the default `reach`, in none with IRLS.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order

import asker
from asker.geometry.rotations import matrix_from_angle_axis, matrix_from_quaternion


def difference(Ri, Rj, Rij):
    return (Rj - Rij @ Ri).reshape(9)


def average(start, i, j, R_ij, strategy) -> np.ndarray:
    R, kernel = asker.Variables(start, asker.SO3, fixed=np.arange(len(start)) == 0), asker.SmoothTruncated(tau=0.15)
    return asker.solve(asker.Problem(asker.Factors(difference, R[i], R[j], data=R_ij, kernel=kernel)), strategy)[R]


def simulate(seed: int = 0, n: int = 60, pairs: int = 900, outliers: float = 0.4):
    rng = np.random.default_rng(seed)
    truth = matrix_from_angle_axis(np.outer(np.arange(n) * 2 * np.pi / n, (0, 0, -1)))
    i, j = np.stack(np.triu_indices(n, 1))[:, rng.permutation(n * (n - 1) // 2)[:pairs]]
    R_ij = truth[j] @ truth[i].transpose(0, 2, 1) @ matrix_from_angle_axis(rng.normal(0, np.radians(1.5), (pairs, 3)))
    R_ij[: int(outliers * pairs)] = matrix_from_quaternion(rng.normal(size=(int(outliers * pairs), 4)))
    edge = coo_array((np.arange(pairs) + 1, (i, j)), shape=(n, n)).tocsr()
    order, before = breadth_first_order(edge, 0, directed=False)
    start = truth.copy()
    for k, m in zip(order[1:], before[order[1:]], strict=True):
        start[k] = (R_ij[edge[m, k] - 1] if edge[m, k] else R_ij[edge[k, m] - 1].T) @ start[m]
    return truth, start, i, j, R_ij


def main(picture: Path = Path("rotation_averaging.png")) -> dict[str, np.ndarray]:
    truth, start, i, j, R_ij = simulate()
    methods = {"irls": asker.IRLS(), "asker": asker.ASKER(reach=8)}
    estimates = {"start": start} | {name: average(start, i, j, R_ij, strategy) for name, strategy in methods.items()}
    fig, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="tight", subplot_kw={"xlim": (-13, 13), "ylim": (-13, 13)})
    for ax, (name, R), colour in zip(axes, estimates.items(), ("k", "#d55e00", "#0072b2"), strict=True):
        for A, tint, width in ((truth, "0.7", 0.014), (R, colour, 0.008)):
            ax.quiver(*-10 * truth[:, 0, :2].T, *A[:, 0, :2].T, color=tint, width=width, scale=8)
        degrees = np.degrees(2 * np.arcsin(np.clip(np.linalg.norm(R - truth, axis=(1, 2)) / np.sqrt(8), 0, 1)))
        ax.set(title=f"{name}: {np.sum(degrees < 5)} of {len(R)} within 5°", xlabel="x", ylabel="y", aspect="equal")
        print(f"{name:>6}: off by {np.median(degrees):.2f}° (median), {degrees.max():.2f}° (largest)")
    fig.savefig(picture, dpi=150)
    return estimates


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

"""Ground under a forest: a surface through laser points of which 60 % hit trees.

The height is a polynomial of degree 3 in x and y.  The residuals are linear in its ten coefficients, so ASKER does not
depend on the initial guess; IRLS, started at the mean height, converges to a surface in the trees.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import asker

POWERS = [(i, j) for i in range(4) for j in range(4 - i)]
TRUTH = np.array([6.0, 3.0, -5.0, -2.0, 3.0, 3.0, 0.0, -4.0, 1.5, 2.0])  # of x^i y^j, metres


def terms(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.stack([x**i * y**j for i, j in POWERS], axis=-1)


def data(seed: int = 0, n: int = 4000, trees: float = 0.6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(-1, 1, (2, n))
    z = terms(x, y) @ TRUTH + rng.normal(0, 0.1, n)
    hit = rng.random(n) < trees
    z[hit] += rng.uniform(0.5, 15, hit.sum())
    return x, y, z


def off(a, row, z):
    return row @ a - z


def fit(x: np.ndarray, y: np.ndarray, z: np.ndarray, strategy) -> np.ndarray:
    surface = asker.Variables(z.mean() * np.eye(1, len(POWERS)), name="surface")
    slot, kernel = surface[np.zeros(len(z), dtype=int)], asker.SmoothTruncated(tau=0.4)
    return asker.solve(asker.Problem(asker.Factors(off, slot, data=(terms(x, y), z), kernel=kernel)), strategy).x


def main(picture: Path = Path("surface_fitting.png")) -> dict[str, np.ndarray]:
    x, y, z = data()
    estimates = {"truth": TRUTH} | {m: fit(x, y, z, asker.METHODS[m]()) for m in ("irls", "asker")}
    fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
    strip, line = np.abs(y) < 0.1, np.linspace(-1, 1, 200)
    ax.plot(x[strip], z[strip], ".", ms=4, mew=0, color="0.7", label="points with |y| < 0.1")
    for (name, a), colour, width in zip(estimates.items(), ("0.6", "#d55e00", "#0072b2"), (6, 2, 2), strict=True):
        ax.plot(line, terms(line, 0 * line) @ a, color=colour, lw=width, label=name)
        print(f"{name:>6}: {np.abs(terms(x, y) @ (a - TRUTH)).mean():.3f} m from the ground on average")
    ax.set(xlabel="x (100 m)", ylabel="height at y = 0 (m)")
    fig.legend(loc="outside upper center", ncols=4, frameon=False)
    fig.savefig(picture, dpi=150)
    return estimates


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

"""Robust mean of numbers: many local minima, and a wide kernel that removes them (Figure 1 of the paper)."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import asker

KERNEL = asker.SmoothTruncated(tau=0.5)


def data(seed: int = 0) -> np.ndarray:
    """Return sixty values around 3 and forty outliers between −10 and 4, some of them in clusters."""
    rng = np.random.default_rng(seed)
    clusters = [rng.normal(m, 0.2, 8) for m in (-8.0, -5.0, -2.5)]
    return np.concatenate([rng.normal(3.0, 0.2, 60), *clusters, rng.uniform(-10, 4, 16)])


def difference(x, y):
    return x - y


def mean(values: np.ndarray, start: float, strategy) -> asker.Result:
    x = asker.Variables(np.array([start]), name="mean")
    everywhere = np.zeros(len(values), dtype=int)
    return asker.solve(asker.Problem(asker.Factors(difference, x[everywhere], data=values, kernel=KERNEL)), strategy)


def main(picture: Path = Path("robust_mean.png")) -> dict[str, float]:
    values = data()
    estimates = {name: float(mean(values, -8.0, asker.METHODS[name]()).x) for name in ("irls", "asker")}
    fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
    grid = np.linspace(-11, 6, 800)
    squares = (grid[:, None] - values) ** 2
    for kernel, style, label in (
        (KERNEL, "k-", "target kernel"),
        (asker.Scaled(KERNEL, 25), "k--", "25 times as wide"),
    ):
        cost = kernel.psi(squares).sum(axis=1)
        ax.plot(grid, cost / cost.max(), style, lw=1.5, label=label)
    ax.axvline(3, color="0.6", lw=6, label="truth")
    for (name, x), colour in zip(estimates.items(), ("#d55e00", "#0072b2"), strict=True):
        ax.axvline(x, color=colour, lw=2, label=f"{name} from −8")
        print(f"{name:>6}: {x:.3f}")
    ax.set(xlabel="mean", ylabel="cost / largest")
    fig.legend(loc="outside upper center", ncols=5, frameon=False, columnspacing=1)
    fig.savefig(picture, dpi=150)
    return estimates


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

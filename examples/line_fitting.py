"""A line through points with 70 % outliers, from a wrong initial guess."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import asker

TRUTH = np.array([0.8, -1.0])  # slope, intercept


def data(seed: int = 0, n: int = 400, outliers: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-5, 5, n)
    y = TRUTH[0] * x + TRUTH[1] + rng.normal(0, 0.05, n)
    y[: int(outliers * n)] = rng.uniform(-8, 8, int(outliers * n))
    return x, y


def fit(x: np.ndarray, y: np.ndarray, strategy) -> asker.Result:
    def residuals(line):
        return line[0] * x + line[1] - y

    return asker.least_squares(residuals, [-1.5, 5.0], loss=asker.SmoothTruncated(0.2), strategy=strategy).result


def main(picture: Path = Path("line_fitting.png")) -> dict[str, np.ndarray]:
    x, y = data()
    estimates = {"truth": TRUTH} | {name: fit(x, y, asker.METHODS[name]()).x for name in ("irls", "asker")}
    fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
    ax.plot(x, y, ".", ms=4, mew=0, color="0.7", label="points")
    for (name, (slope, intercept)), colour in zip(estimates.items(), ("0.6", "#d55e00", "#0072b2"), strict=True):
        print(f"{name:>6}: slope {slope:.3f}, intercept {intercept:.3f}")
        ax.axline((0, intercept), slope=slope, label=name, color=colour, lw=6 if name == "truth" else 2)
    ax.set(xlabel="x", ylabel="y", ylim=(-8.5, 8.5))
    fig.legend(loc="outside upper center", ncols=4, frameon=False)
    fig.savefig(picture, dpi=150)
    return estimates


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

"""A decaying oscillation fitted to points with 70 % outliers by `asker.least_squares`.

SciPy's robust loss (soft_l1) is biased by the outliers; IRLS stays in a local minimum near the initial guess.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize

import asker

TRUTH = np.array([2.0, 0.3, 3.0, 0.5])  # amplitude, decay, frequency, level
START = np.array([1.0, 0.1, 2.6, 2.0])


def curve(x, t):
    return x[0] * np.exp(-x[1] * t) * np.cos(x[2] * t) + x[3]


def data(seed: int = 0, n: int = 400, outliers: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0, 8, n))
    y = curve(TRUTH, t) + rng.normal(0, 0.05, n)
    return t, np.where(rng.random(n) < outliers, rng.uniform(-1.5, 6, n), y)


def fit(t: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    def residuals(x):
        return curve(x, t) - y

    def asker_fit(strategy):
        return asker.least_squares(residuals, START, loss=asker.SmoothTruncated(0.2), strategy=strategy).x

    return {
        "scipy (soft_l1)": scipy.optimize.least_squares(residuals, START, loss="soft_l1", f_scale=0.1).x,
        "irls": asker_fit(asker.IRLS()),
        "asker": asker_fit(asker.ASKER()),
    }


def main(picture: Path = Path("curve_fitting.png")) -> dict[str, np.ndarray]:
    t, y = data()
    estimates, line = {"truth": TRUTH, **fit(t, y)}, np.linspace(0, 8, 500)
    fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
    ax.plot(t, y, ".", ms=4, mew=0, color="0.7", label="points")
    for (name, x), colour in zip(estimates.items(), ("0.6", "#009e73", "#d55e00", "#0072b2"), strict=True):
        ax.plot(line, curve(x, line), color=colour, lw=6 if name == "truth" else 2, label=name)
        print(f"{name:>15}: amplitude, decay, frequency, level = {x.round(3)}")
    ax.set(xlabel="t", ylabel="y")
    fig.legend(loc="outside upper center", ncols=5, frameon=False)
    fig.savefig(picture, dpi=150)
    return estimates


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

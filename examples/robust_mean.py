"""The robust mean of numbers on a line: many local minima, and the kernel that hides them (the paper's Figure 1)."""

import matplotlib.pyplot as plt
import numpy as np

import asker

KERNEL = asker.SmoothTruncated(tau=0.5)


def data(seed: int = 0) -> np.ndarray:
    """Sixty values around 3, and forty outliers between −10 and 4, some of them in clumps."""
    rng = np.random.default_rng(seed)
    clumps = [rng.normal(m, 0.2, 8) for m in (-8.0, -5.0, -2.5)]
    return np.concatenate([rng.normal(3.0, 0.2, 60), *clumps, rng.uniform(-10, 4, 16)])


def difference(x, y):
    return x - y


def mean(values: np.ndarray, start: float, strategy) -> asker.Result:
    x = asker.Variables(np.array([start]), name="mean")
    everywhere = np.zeros(len(values), dtype=int)
    return asker.solve(asker.Problem(asker.Factors(difference, x[everywhere], data=values, kernel=KERNEL)), strategy)


def main() -> dict[str, float]:
    values = data()
    found = {name: float(mean(values, -8.0, asker.METHODS[name]()).x) for name in ("irls", "asker")}
    grid = np.linspace(-11, 6, 800)
    squares = (grid[:, None] - values) ** 2
    for kernel, label in ((KERNEL, "target kernel"), (asker.Scaled(KERNEL, 25), "25 times as wide")):
        cost = kernel.psi(squares).sum(axis=1)
        plt.plot(grid, cost / cost.max(), label=label)
    for (name, x), style in zip(found.items(), (":", "--"), strict=True):
        plt.axvline(x, linestyle=style, color="black", label=f"{name} from −8: {x:.2f}")
        print(f"{name:>6}: {x:.3f}")
    plt.xlabel("mean")
    plt.ylabel("cost / largest")
    plt.legend()
    plt.savefig("robust_mean.png", dpi=120)
    return found


if __name__ == "__main__":
    main()

"""A line through points of which 70 % are outliers, from a start that is wrong."""

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

    return asker.least_squares(residuals, [-1.5, 5.0], asker.SmoothTruncated(0.2), strategy)


def main() -> dict[str, np.ndarray]:
    x, y = data()
    found = {name: fit(x, y, asker.METHODS[name]()).x for name in ("irls", "asker")}
    plt.plot(x, y, ".", markersize=3, color="grey")
    for name, (slope, intercept) in found.items():
        print(f"{name:>6}: slope {slope:.3f}, intercept {intercept:.3f}  (truth {TRUTH[0]}, {TRUTH[1]})")
        plt.axline((0, intercept), slope=slope, label=name, color="C0" if name == "asker" else "C3")
    plt.legend()
    plt.savefig("line_fitting.png", dpi=120)
    return found


if __name__ == "__main__":
    main()

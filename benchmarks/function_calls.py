"""Function evaluations, time and accuracy of `asker.least_squares(loss=None)` compared with SciPy.

    python benchmarks/function_calls.py [--seeds 20] [--models line,circle] [--sizes 10,100] [--shares 0,0.3]

The problems are curves and circles with few parameters, without and with outliers.  Calls are evaluations of the user's
NumPy function, including those for finite differences.  The oracle is least squares on the true inliers, started at the
truth.  A fit is *solved* if its distance from the true curve at the true inliers is at most 1.5 times the oracle's, or
three standard deviations.  SciPy's losses use the true noise; asker estimates it.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
import scipy.optimize

import asker
from record import add_record_option, recorded

SHARES = (0.0, 0.1, 0.3, 0.5)
SIZES = (10, 30, 100, 1000)
LOSSES = ("linear", "soft_l1", "cauchy")
NOISE = 0.1
MIN_OUTLIER, MAX_OUTLIER = 5.0, 50.0  # range of the outliers' errors, in units of the noise
Residuals = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Model:
    """Residual function, true parameters and initial guess."""

    residuals: Residuals
    truth: tuple[float, ...]
    start: tuple[float, ...]
    is_circle: bool = False


def curve(f: Callable[..., np.ndarray]) -> Residuals:
    """Return the residuals of the curve y = f(t) for data (n, 2) of t and y."""
    return lambda x, data: f(data[:, 0], *x) - data[:, 1]


MODELS = {
    "line": Model(curve(lambda t, a, b: a + b * t), (1.0, -0.5), (0.0, 0.0)),
    "exponential": Model(curve(lambda t, a, b, c: a + b * np.exp(-c * t)), (0.5, 2.0, 1.0), (1.0, 1.0, 0.5)),
    "sinusoid": Model(curve(lambda t, a, w, f: a * np.sin(w * t + f)), (2.0, 1.5, 0.5), (1.0, 1.4, 0.0)),
    "circle": Model(
        lambda x, data: np.hypot(data[:, 0] - x[0], data[:, 1] - x[1]) - x[2], (1.0, 2.0, 3.0), (0.0, 0.0, 1.0), True
    ),
}


def simulated(model: Model, n: int, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return synthetic data (n, 2) and the inlier mask; in half of the data sets all outliers lie on one side."""
    t = np.linspace(0, 10, n)
    sides = rng.choice([-1.0, 1.0], n) if rng.random() < 0.5 else np.full(n, rng.choice([-1.0, 1.0]))
    off = NOISE * rng.normal(size=n)
    inlier = np.ones(n, dtype=bool)
    inlier[rng.choice(n, round(share * n), replace=False)] = False
    off = np.where(inlier, off, NOISE * sides * rng.uniform(MIN_OUTLIER, MAX_OUTLIER, n))
    if model.is_circle:
        x, y, r = model.truth
        angle = rng.uniform(0, 2 * np.pi, n)
        return np.stack([x + (r + off) * np.cos(angle), y + (r + off) * np.sin(angle)], axis=1), inlier
    zero = np.stack([t, np.zeros(n)], axis=1)
    return np.stack([t, model.residuals(np.array(model.truth), zero) + off], axis=1), inlier


class Counted:
    """Residual function of all data that counts its calls."""

    def __init__(self, model: Model, data: np.ndarray):
        self.model, self.data, self.n = model, data, 0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.n += 1
        return self.model.residuals(x, self.data)


def errors(model: Model, data: np.ndarray, inlier: np.ndarray) -> tuple[Callable[[np.ndarray], float], float]:
    """Return the function that gives the error of a solution at the true inliers, in units of the oracle's standard
    deviation, and the error of the oracle."""
    right, truth = data[inlier], np.array(model.truth)

    def off(x: np.ndarray) -> float:
        moved = model.residuals(x, right) - model.residuals(truth, right)
        return float(np.sqrt(moved @ moved / len(truth)) / NOISE)

    return off, off(scipy.optimize.least_squares(model.residuals, truth, args=(right,)).x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seeds-from", type=int, default=0, metavar="K", help="add K to each seed")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--shares", default=",".join(map(str, SHARES)))
    add_record_option(parser)
    args = parser.parse_args()
    solvers = (*LOSSES, None)
    with recorded(args.record):
        print("Medians of calls and milliseconds; solved and error: SciPy's linear, soft_l1 and cauchy, then asker\n")
        print("| model | n | outliers | calls of linear | calls of asker | most | ms | solved | error |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name in args.models.split(","):
            for n in map(int, args.sizes.split(",")):
                for share in map(float, args.shares.split(",")):
                    each = [case(MODELS[name], n, share, args.seeds_from + k) for k in range(args.seeds)]
                    calls, ms, solved, off = (
                        [[one[w][k] for one in each] for w in range(len(solvers))] for k in range(4)
                    )
                    cells = [
                        name,
                        n,
                        f"{share:.0%}",
                        f"{median(calls[0]):.0f}",
                        f"{median(calls[-1]):.0f}",
                        max(calls[-1]),
                    ]
                    cells += [f"{median(ms[-1]):.0f}"]
                    cells += [" ".join(f"{sum(s)}" for s in solved), " ".join(f"{median(e):.2f}" for e in off)]
                    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def case(model: Model, n: int, share: float, seed: int) -> list[tuple[int, float, bool, float]]:
    """Return the calls, milliseconds, *solved* and the error relative to the oracle's, for each solver."""
    data, inlier = simulated(model, n, share, np.random.default_rng(seed))
    off, floor = errors(model, data, inlier)
    outcomes = []
    for loss in (*LOSSES, None):
        fun, begin = Counted(model, data), time.process_time()
        if loss is None:
            x = asker.least_squares(fun, model.start, loss=None).x
        else:
            x = scipy.optimize.least_squares(fun, model.start, loss=loss, f_scale=2 * NOISE).x
        outcomes.append((fun.n, 1e3 * (time.process_time() - begin), off(x) <= max(1.5 * floor, 3.0), off(x) / floor))
    return outcomes


if __name__ == "__main__":
    main()

"""Dense stereo: sensitivity to the settings, comparison of the methods, scaling and linear solvers.

    python benchmarks/stereo.py sensitivity   window, K and τ: bad pixels of the default method
    python benchmarks/stereo.py methods       energy, mean energy, bad pixels and time of every method, three starts
    python benchmarks/stereo.py growth        time per iteration at 1, 2, 4 and 5 times the resolution, and memory
    python benchmarks/stereo.py solvers       the linear solvers on the grid of the first pair

Teddy, Cones and Tsukuba are read from `stereo/` in ../shared/data or ASKER_DATA.
"""

import argparse
import os
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import asker
from asker.applications.stereo.errors import disparity_errors, visible
from asker.applications.stereo.matching import Matching, Minima, match
from asker.applications.stereo.problem import energy
from asker.engines.solvers import CG
from asker.io.images import read_disparity, read_grey
from record import add_record_option, recorded

DATA = Path(os.environ.get("ASKER_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data") / "stereo"
PAIRS = {"teddy": (59, 4.0), "cones": (59, 4.0), "tsukuba": (15, 16.0)}  # largest disparity, unit of true disparities
METHODS = ("irls", "mhq", "gnc", "moo", "asker")
STARTS = ("constant", "wta", "random")


class Pair(NamedTuple):
    """Rectified image pair with true disparities."""

    left: np.ndarray
    right: np.ndarray
    truth: np.ndarray
    is_visible: np.ndarray | None
    max_disparity: int

    def bad(self, disparity: np.ndarray) -> tuple[float, float]:
        """Return the percentage of pixels with an error above 1, of all and of those visible in both images."""
        bad_all = disparity_errors(disparity, self.truth).bad_1
        return 100 * bad_all, 100 * disparity_errors(disparity, self.truth, self.is_visible).bad_1


@cache
def read_pair(name: str) -> Pair:
    folder, (largest, unit) = DATA / name, PAIRS[name]
    truth = read_disparity(folder / "disp2.png", unit)
    other = folder / "disp6.png"
    is_visible = visible(truth, read_disparity(other, unit)) if other.exists() else None
    return Pair(read_grey(folder / "im2.png"), read_grey(folder / "im6.png"), truth, is_visible, largest)


@cache
def minima_of(name: str, window: int = 7, k: int = 2) -> Minima:
    pair = read_pair(name)
    return match(pair.left, pair.right, Matching(pair.max_disparity, window=window, n_minima=k))


def solve(name: str, method: str, start: str, window: int, k: int, tau: float, iterations: int, threads: int) -> dict:
    pair, minima, kernel = read_pair(name), minima_of(name, window, k), asker.SmoothTruncated(tau)
    made = energy(minima, pair.max_disparity, start, data_kernel=kernel, smoothness_kernel=kernel)  # type: ignore[arg-type]
    strategy = asker.METHODS[method]()
    result = asker.solve(made.problem, strategy, max_iterations=iterations, tol=0, threads=threads)
    bad, bad_visible = pair.bad(made.refined(result.values))
    first = result.history[1].seconds if iterations else 0.0
    return {
        "pair": name, "method": method, "start": start, "window": window, "k": k, "tau": tau,
        "energy": result.cost, "mean": float(np.mean([h.best_cost for h in result.history])),
        "bad": bad, "bad_visible": bad_visible,
        "ms": 1e3 * (result.history[-1].seconds - first) / max(iterations - 1, 1),
    }  # fmt: skip


def in_parallel(tasks: list[tuple], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with ProcessPoolExecutor(args.processes) as pool:
        yield from pool.map(partial(_solve_task, args.iterations), tasks)


def _solve_task(iterations: int, task: tuple) -> dict[str, Any]:
    return solve(*task, iterations, 1)


def available_pairs() -> list[str]:
    """Return the names of the pairs whose files exist."""
    available = [name for name in PAIRS if (DATA / name / "disp2.png").exists()]
    if not available:
        raise SystemExit(f"no stereo pair in {DATA}; set ASKER_DATA to the data folder")
    return available


def sensitivity(args: argparse.Namespace) -> None:
    """Print the bad pixels for several window sizes, numbers of minima and τ."""
    names = available_pairs()
    settings = list(product((3, 5, 7), (1, 2, 3, 5), (0.5, 1.0, 2.0)))
    tasks = [(name, args.method, "constant", *s) for s in settings for name in names]
    results = in_parallel(tasks, args)
    print(f"| window | K | tau | {' | '.join(names)} | mean |\n|---|---|---|" + "---|" * (len(names) + 1))
    for window, k, tau in settings:
        bad = [next(results)["bad_visible"] for _ in names]
        cells = " | ".join(f"{b:.1f}" for b in bad)
        print(f"| {window} | {k} | {tau:g} | {cells} | {np.mean(bad):.1f} |", flush=True)
    winners = [
        f"{window}×{window}: " + ", ".join(f"{read_pair(n).bad(minima_of(n, window).winner)[1]:.1f}" for n in names)
        for window in (3, 5, 7)
    ]
    print("\nWinner-takes-all matching, the same pixels: " + "; ".join(winners))


def methods(args: argparse.Namespace) -> None:
    """Print energy, bad pixels and time of every method for three initial guesses."""
    names = available_pairs()
    tasks = [(n, m, s, args.window, args.k, args.tau) for n in names for s in STARTS for m in METHODS]
    print("| pair | start | method | energy | mean energy | bad, all | bad, visible | ms per iteration |")
    print("|---|---|---|---|---|---|---|---|")
    for r in in_parallel(tasks, args):
        print(
            f"| {r['pair']} | {r['start']} | {r['method']} | {r['energy']:.0f} | {r['mean']:.0f} | {r['bad']:.1f} | "
            f"{r['bad_visible']:.1f} | {r['ms']:.0f} |",
            flush=True,
        )
    for name in names:
        bad = read_pair(name).bad(minima_of(name, args.window, args.k).winner)
        print(f"\n{name}, winner-takes-all matching: {bad[0]:.1f} of all pixels, {bad[1]:.1f} of the visible", end="")
    print()


def growth(args: argparse.Namespace) -> None:
    """Print time and memory for increasing resolutions of the first pair."""
    from scipy.ndimage import zoom

    pair = read_pair(available_pairs()[0])
    print(
        "| pixels | matching, s | preparing, s | ms per iteration | ns per pixel | peak MB |\n|---|---|---|---|---|---|"
    )
    for factor in (1, 2, 4, 5):
        left, right = (zoom(image, factor, order=1) for image in (pair.left, pair.right))
        begin = time.perf_counter()
        minima = match(left, right, Matching(factor * pair.max_disparity, window=args.window, n_minima=args.k))
        matched = time.perf_counter() - begin
        made = energy(minima, factor * pair.max_disparity)
        result = asker.solve(made.problem, asker.ASKER(), max_iterations=6, tol=0)
        ms = 1e3 * float(np.median(np.diff([h.seconds for h in result.history[1:]])))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        prepared = result.history[1].seconds - ms / 1e3
        print(
            f"| {left.size} | {matched:.1f} | {prepared:.1f} | {ms:.0f} | {1e6 * ms / left.size:.0f} | {peak:.0f} |",
            flush=True,
        )


def solvers(args: argparse.Namespace) -> None:
    """Print the time and energy of the linear solvers on the first pair."""
    name = available_pairs()[0]
    minima, largest = minima_of(name, args.window, args.k), read_pair(name).max_disparity
    linear_solvers = {
        "sparse-cholesky": "sparse-cholesky",
        "cg, to 1e-3": CG(loosest=1e-3, max_iterations=2000),
        "cg, to 0.1": CG(loosest=1e-1, tightest=1e-1, max_iterations=2000),
        "cg, power series of 3": CG(loosest=1e-3, order=3, max_iterations=2000),
    }
    print("| linear solver | ms per iteration | energy after 30 iterations |\n|---|---|---|")
    for label, solver in linear_solvers.items():
        made = energy(minima, largest)
        result = asker.solve(made.problem, asker.ASKER(), max_iterations=30, tol=0, linear_solver=solver)
        ms = 1e3 * float(np.mean(np.diff([h.seconds for h in result.history[1:]])))
        print(f"| {label} | {ms:.0f} | {result.cost:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = {f.__name__: f for f in (sensitivity, methods, growth, solvers)}
    parser.add_argument("study", choices=studies)
    parser.add_argument("--method", default="asker")
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--processes", type=int, default=2, help="one thread each")
    parser.add_argument("--window", type=int, default=7)
    parser.add_argument("--k", type=int, default=2)
    parser.add_argument("--tau", type=float, default=1.0)
    add_record_option(parser)
    args = parser.parse_args()
    with recorded(args.record):
        studies[args.study](args)


if __name__ == "__main__":
    main()

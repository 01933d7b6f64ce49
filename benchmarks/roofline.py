"""Roofline of one iteration: measured time of each compiled loop against its memory and arithmetic bound, one thread.

    python benchmarks/roofline.py [--ring 93 287451] [--bal problem-49-7776-pre.txt.bz2] [--record roofline]

The lower bound (floor) of a loop is the longer of two times: its bytes at the bandwidth of a plain copy, and its
arithmetic at the rate of a matrix product, both measured in the same run on the same thread.  Bytes and multiply-adds
are counted by hand from the sizes of the blocks.  The measured time is the processor time of IRLS with the Huber
kernel: the minimum over the iterations, which other programs disturb least, and the median.  `Python` is the remaining
time of the thread.
"""

import argparse
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import asker
from asker.applications.bundle.bal import Bundle, read_bal
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from asker.engines.cpu import cholesky
from asker.engines.cpu.compiler.compile import Compiled
from record import add_record_option, recorded

STAGES = {
    "derivatives, blocks, couplings": ("eliminate",),
    "rows of the reduced matrix": ("matrix_rows",),
    "Cholesky": ("unit_scale", "scaled_upper", "panels", "_substitute_back"),
    "substitute back": ("substitute",),
    "residuals, steps": ("squared", "retract"),
    "weights, cost": ("omega", "psi"),
}
RUN = Compiled.run


class Clock:
    """IRLS as a strategy that records the seconds of each compiled loop in each step."""

    def __init__(self) -> None:
        self.strategy, self.steps = asker.IRLS(), list[dict[str, float]]()
        self.now: dict[str, float] = defaultdict(float)

        def timed(loop: Any, *arguments: Any) -> int:
            begin = time.thread_time()
            returned = RUN(loop, *arguments)
            self.now[loop.name] += time.thread_time() - begin
            return returned

        Compiled.run = timed  # type: ignore[method-assign]

    def init(self, *args: Any) -> Any:
        return self.strategy.init(*args)

    def step(self, engine: Any, state: Any) -> Any:
        self.now.clear()
        begin = time.thread_time()
        state = self.strategy.step(engine, state)
        stages = {name: sum(self.now[loop] for loop in loops) for name, loops in STAGES.items()}
        self.steps.append(stages | {"Python": time.thread_time() - begin - sum(self.now.values())})
        return state


def rates() -> tuple[float, float]:
    """Return the bytes per second of a copy and the multiply-adds per second of a matrix product, best of ten."""
    x, y, A = np.ones(1 << 24), np.ones(1 << 24), np.ones((1000, 1000))
    copies, products = [], []
    with cholesky.one_blas_thread():
        for _ in range(10):
            begin = time.thread_time()
            y[:] = x
            between = time.thread_time()
            A @ A
            copies.append(between - begin)
            products.append(time.thread_time() - between)
    return 16 * len(x) / min(copies), 1e9 / min(products)


def floors(bundle: Bundle) -> dict[str, tuple[float, float]]:
    """Return the bytes and multiply-adds of each stage, for cameras with 6 and points with 3 degrees of freedom."""
    n, n_points, unknowns = len(bundle.uv), len(bundle.points), 6 * len(bundle.cameras)
    tracks = np.bincount(bundle.point_index)
    n_pairs = float(np.sum(tracks * (tracks + 1) // 2))
    return {
        "derivatives, blocks, couplings": (n * (144 + 16 + 16 + 12) + 96 * n_points, n * (110 + 18 + 70 + 72)),
        "rows of the reduced matrix": (n * 144 + 8 * unknowns**2 / 2, 108 * n_pairs),
        "Cholesky": (8 * unknowns**2, unknowns**3 / 6 + unknowns**2),
        "substitute back": (n * 148 + 96 * n_points, 18 * n),
        "residuals, steps": (n * 36 + 72 * n_points, 30 * n),
        "weights, cost": (n * 24, 6 * n),
        "Python": (0, 0),
    }


def measured(bundle: Bundle, repeat: int) -> None:
    """Solve and print the table of one scene."""
    clock, problem = Clock(), bundle_problem(bundle, asker.Huber(1.0), camera="bal").problem
    for _ in range(repeat):
        asker.solve(problem, clock, max_iterations=10, tol=0, threads=1)  # type: ignore[arg-type]
    copied, multiplied = rates()
    print(f"\n## {len(bundle.cameras)} cameras, {len(bundle.uv)} observations, one thread\n")
    print(f"A plain copy moves {copied / 1e9:.0f} GB/s; {multiplied / 1e9:.0f} multiply-adds a nanosecond.\n")
    print("| stage | bytes | multiply-adds | floor, ms | measured, ms | median, ms |\n|---|---|---|---|---|---|")
    for name, (n_bytes, n_adds) in floors(bundle).items():
        times = [1e3 * step[name] for step in clock.steps[1:]]
        floor = 1e3 * max(n_bytes / copied, n_adds / multiplied)
        cells = [f"{n_bytes / 1e6:.1f} M", f"{n_adds / 1e6:.1f} M", f"{floor:.2f}"] if n_bytes else [""] * 3
        print("|", " | ".join([name, *cells, f"{min(times):.2f}", f"{statistics.median(times):.2f}"]), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ring", type=int, nargs=2, metavar=("CAMERAS", "OBSERVATIONS"), default=(93, 287_451))
    parser.add_argument("--bal", type=Path, help="a BAL file in addition to the ring")
    parser.add_argument("--repeat", type=int, default=10, help="number of solves of ten iterations")
    add_record_option(parser)
    args = parser.parse_args()
    with recorded(args.record):
        for bundle in ([read_bal(args.bal)] if args.bal else []) + [make_scene(*args.ring, seed=0).start]:
            measured(bundle, args.repeat)


if __name__ == "__main__":
    main()

"""Final cost Ψ at τ = 1, the paper's measure, of `asker`, `asker-moves` and LM-MOO in the same time.

    python benchmarks/final_cost.py FILE [FILE ...] [--rounds 5]

Rounds alternate between the methods.  The time of `asker-moves` is relative to that of `asker`, both the shortest of
all rounds.  The mean is the time average of the lowest Ψ so far, over the time of 100 iterations of `asker`; a run that
ends earlier counts with its final value.
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import asker
from asker.applications.bundle.bal import read_bal
from asker.applications.bundle.problem import bundle_problem
from record import add_record_option, recorded

PLAIN, MOVES, OTHER = METHODS = "asker", "asker-moves", "moo"
ITERATIONS = 100


class Run(NamedTuple):
    """Wall time and processor time of a solve, and its lowest Ψ so far after each iteration."""

    wall: float
    processor: float
    seconds: np.ndarray
    lowest: np.ndarray

    def mean(self, until: float) -> float:
        """Return the time average of the lowest Ψ from the beginning to `until`."""
        ends = np.minimum(np.append(self.seconds[1:], until), until)
        durations = np.maximum(ends - self.seconds, 0.0)
        return float(durations @ self.lowest / durations.sum())


def solved(path: Path, method: str) -> Run:
    """Solve a BAL file with a method."""
    problem = bundle_problem(read_bal(path), asker.SmoothTruncated(1.0)).problem
    wall, processor = time.perf_counter(), time.process_time()
    result = asker.solve(problem, asker.METHODS[method](), max_iterations=ITERATIONS)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    lowest = np.minimum.accumulate([h.cost for h in result.history])
    return Run(wall, processor, np.array([h.seconds for h in result.history]), lowest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5)
    add_record_option(parser)
    args = parser.parse_args()
    with recorded(args.record):
        print("| file | asker | asker-moves | LM-MOO | wall | processor | mean, asker-moves | mean, LM-MOO |")
        print("|---|---|---|---|---|---|---|---|")
        for path in args.files:
            rounds = [{m: solved(path, m) for m in METHODS} for _ in range(args.rounds + 1)][1:]  # the first compiles
            least = {m: min((r[m] for r in rounds), key=lambda run: run.wall) for m in METHODS}
            processor = {m: min(r[m].processor for r in rounds) for m in METHODS}
            until = least[PLAIN].seconds[-1]
            ends = " | ".join(f"{least[m].lowest[-1]:.1f}" for m in METHODS)
            ratios = f"{least[MOVES].wall / least[PLAIN].wall:.2f} | {processor[MOVES] / processor[PLAIN]:.2f}"
            means = " | ".join(f"{least[m].mean(until):.0f}" for m in (MOVES, OTHER))
            print(f"| {path.name.split('.')[0]} | {ends} | {ratios} | {means} |", flush=True)


if __name__ == "__main__":
    main()

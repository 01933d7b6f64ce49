"""The paper's game: Ψ at τ = 1 of `asker-moves`, beside plain `asker` and LM-MOO, in the time of 100 plain iterations.

    python benchmarks/game.py FILE [FILE ...] [--rounds 5]

Rounds alternate between the methods.  The times of `asker-moves` are told in those of `asker`, the shortest of all
rounds.  The mean is that of the lowest Ψ so far, over the time of 100 iterations of `asker`; a run that is over earlier
stays where it is.
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
    """A solve: its time, that of the processor, and the lowest Ψ so far at times."""

    wall: float
    processor: float
    seconds: np.ndarray
    lowest: np.ndarray

    def mean(self, until: float) -> float:
        """Of the lowest Ψ, from the beginning to a time."""
        ends = np.minimum(np.append(self.seconds[1:], until), until)
        lasted = np.maximum(ends - self.seconds, 0.0)
        return float(lasted @ self.lowest / lasted.sum())


def solved(path: Path, method: str) -> Run:
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

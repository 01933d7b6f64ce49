"""Time per iteration of every method relative to IRLS.

    python benchmarks/time_per_iteration.py [BAL FILE]

Rounds alternate between the methods; the table shows the median over all iterations of all rounds.  Without a file, a
synthetic scene of the size of dubrovnik-16 is used.
"""

import argparse
import statistics

import numpy as np

import asker
from asker.applications.bundle.bal import read_bal
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from record import add_record_option, recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=30)
    add_record_option(parser)
    args = parser.parse_args()
    bundle = read_bal(args.file) if args.file else make_scene(16, 83_718, mean_track=3.8, seed=0).start
    problem = bundle_problem(bundle).problem
    times: dict[str, list[float]] = {m: [] for m in asker.METHODS}
    for r in range(args.rounds + 1):
        for m in asker.METHODS:
            result = asker.solve(problem, asker.METHODS[m](), max_iterations=args.iterations, tol=0)
            if r:  # the first round compiles
                times[m] += np.diff([h.seconds for h in result.history[1:]]).tolist()
    irls = statistics.median(times["irls"])
    with recorded(args.record):
        print(f"{bundle.n_cameras} cameras, {bundle.n_points} points, {bundle.n_observations} observations\n")
        print("| method | ms per iteration | relative to IRLS |\n|---|---|---|")
        for m, values in times.items():
            middle = statistics.median(values)
            print(f"| {m} | {1e3 * middle:.2f} | {middle / irls:.2f} |")


if __name__ == "__main__":
    main()

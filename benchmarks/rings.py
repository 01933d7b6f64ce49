"""Lowest final cost by method: synthetic bundles with poor initial guesses and gross outliers, ten seeds each.

    python benchmarks/rings.py [--kind path] [--methods irls,asker] [--seeds 10]

Each method runs 100 iterations on every scene; it wins if its final Ψ is within 1 % of the lowest of all methods.
"""

import argparse
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor

import asker
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from record import add_record_option, recorded

CASES = (
    (5.0, 0.3),
    (24.0, 0.3),
    (40.0, 0.5),
    (63.0, 0.3),
)  # median initial residual in pixels, outlier ratio


def run(task: tuple[str, float, float, int, tuple[str, ...]]) -> dict[str, float]:
    """Return the final cost of each method on one scene."""
    kind, start_error, outliers, seed, methods = task
    scene = make_scene(30, 18_000, kind=kind, start_error=start_error, outlier_ratio=outliers, seed=seed)
    problem = bundle_problem(scene.start).problem
    return {m: asker.solve(problem, asker.METHODS[m](), tol=0, threads=1).cost for m in methods}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("ring", "path"), default="ring")
    parser.add_argument("--methods", default=",".join(asker.METHODS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    add_record_option(parser)
    args = parser.parse_args()
    methods = tuple(args.methods.split(","))
    tasks = [(args.kind, *case, seed, methods) for case in CASES for seed in range(args.seeds)]
    with ProcessPoolExecutor(args.processes) as pool:
        results = list(pool.map(run, tasks))
    wins: dict[str, list[int]] = defaultdict(lambda: [0] * len(CASES))
    worst: dict[str, float] = defaultdict(float)
    for (_, start_error, outliers, _, _), costs in zip(tasks, results, strict=True):
        best = min(costs.values())
        for m, value in costs.items():
            wins[m][CASES.index((start_error, outliers))] += value <= 1.01 * best
            worst[m] = max(worst[m], value / best - 1)
    heads = [f"{e:g} px, {o:.0%}" for e, o in CASES]
    with recorded(args.record):
        print(f"{args.kind}: runs within 1 % of the best, of {args.seeds} each\n")
        print(f"| method | {' | '.join(heads)} | all | worst |")
        print("|---|" + "---|" * (len(CASES) + 2))
        for m in methods:
            print(f"| {m} | {' | '.join(map(str, wins[m]))} | {sum(wins[m])} / {len(tasks)} | +{worst[m]:.1%} |")


if __name__ == "__main__":
    main()

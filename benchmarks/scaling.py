"""Scaling of the time per iteration with the number of observations, and the choice of the linear solver by `auto`.

    python benchmarks/scaling.py [--most 10000000] [--iterations 5]

Growth: a ring of 93 cameras with an increasing number of observations; the time per observation should be constant.
Choice: scenes of several shapes are solved with every linear solver from the same initial guess and with `auto`.
"""

import argparse
import resource

import numpy as np

import asker
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from record import add_record_option, recorded

SIZES = (300_000, 1_000_000, 3_000_000, 10_000_000)
SHAPES = (("ring", 30, 18_000), ("ring", 93, 287_451), ("ring", 356, 400_000), ("path", 356, 400_000),
          ("path", 1500, 600_000), ("path", 5000, 1_000_000))  # fmt: skip
SOLVERS = ("dense-cholesky", "sparse-cholesky", "cg")
LARGEST_DENSE = 12_000  # unknowns


def milliseconds(problem: asker.Problem, solver: str, iterations: int) -> tuple[float, str]:
    """Return the median milliseconds per iteration and the linear solver that was used."""
    result = asker.solve(problem, asker.IRLS(), max_iterations=iterations + 1, tol=0, linear_solver=solver)
    return 1e3 * float(np.median(np.diff([h.seconds for h in result.history[1:]]))), result.linear_solver


def growth(most: int, iterations: int) -> None:
    """Print the time and memory for increasing numbers of observations."""
    print("| observations | ms per iteration | ns per observation | peak MB |\n|---|---|---|---|")
    for n in (n for n in SIZES if n <= most):
        problem = bundle_problem(make_scene(93, n, seed=0).start).problem
        ms, _ = milliseconds(problem, "auto", iterations)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"| {n} | {ms:.1f} | {1e6 * ms / n:.0f} | {peak:.0f} |", flush=True)


def choice(iterations: int) -> None:
    """Print the time with every linear solver and the choice of `auto`."""
    print(f"| scene | {' | '.join(SOLVERS)} | auto takes | best / auto |\n|---|" + "---|" * (len(SOLVERS) + 2))
    for kind, n_cameras, n in SHAPES:
        problem = bundle_problem(make_scene(n_cameras, n, kind=kind, seed=0).start).problem
        times = {
            s: milliseconds(problem, s, iterations)[0]
            for s in SOLVERS
            if s != "dense-cholesky" or 6 * n_cameras <= LARGEST_DENSE
        }
        _, chosen = milliseconds(problem, "auto", 1)
        cells = [f"{times[s]:.1f}" if s in times else "" for s in SOLVERS]
        ratio = min(times.values()) / times[chosen]
        print(f"| {kind}, {n_cameras} cameras, {n} | {' | '.join(cells)} | {chosen} | {ratio:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=SIZES[-1])
    parser.add_argument("--iterations", type=int, default=5)
    add_record_option(parser)
    args = parser.parse_args()
    with recorded(args.record):
        choice(args.iterations)
        print()
        growth(args.most, args.iterations)


if __name__ == "__main__":
    main()

"""Covariances: the time for all cameras, then all points, of made bundles, and for all poses of made graphs.

    python benchmarks/covariances.py [--bundles 100,300,1000] [--graphs 1000,10000] [--kind path] [--points 550]

A bundle of n cameras has about so many points for each of them, seen from six on average; it starts at its truth.  A
graph is a walk on a grid, with two loops for each pose.  `poses` is all that it takes to have the blocks of all cameras
or poses: derivatives, the directions that the data leave open, two factorisations, the selected inverse.  `points` is
what all points take beside that.  Code is compiled before the clock runs.  Peak memory is that of the process so far.
"""

import argparse
import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import asker
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.scenes import make_scene
from asker.applications.pose_graph.problem import pose_graph_problem
from intervals import made_graph
from record import add_record_option, recorded

TRACK = 6


def bundle_result(n: int, points: int, kind: str) -> tuple[asker.Result, Any]:
    scene = make_scene(n, n * points * TRACK, kind=kind, outlier_ratio=0.1, seed=0)
    made = bundle_problem(scene.truth, asker.SmoothTruncated(2.0))
    return asker.solve(made.problem, asker.IRLS(), max_iterations=0), made


def timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def peak() -> str:
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB"


def time_bundles(sizes: list[int], points: int, kind: str) -> None:
    print("| cameras | points | observations | matrix | poses | points | peak memory |")
    print("|--:|--:|--:|---|--:|--:|--:|")
    for n in [20, *sizes]:
        result, made = bundle_result(n, points if n > 20 else 50, kind)
        times = [timed(partial(result.covariance, v, sigma=0.4)) for v in (made.cameras, made.points)]
        if n > 20:  # the first one compiles
            form = "dense" if result.uncertainty(sigma=0.4).model.dense else "sparse"
            sizes_told = f"{n} | {len(made.points)} | {result.problem.n_residuals} | {form}"
            print(f"| {sizes_told} | {times[0]:.1f} s | {times[1]:.1f} s | {peak()} |", flush=True)


def time_graphs(sizes: list[int]) -> None:
    print("\n| poses | edges | all blocks | peak memory |")
    print("|--:|--:|--:|--:|")
    for n in [50, *sizes]:
        graph, truth = made_graph(np.random.default_rng(0), n, span=int(np.sqrt(n)))
        made = pose_graph_problem(graph)
        made.poses.rows[:] = truth
        result = asker.solve(made.problem, asker.IRLS(), max_iterations=0)
        seconds = timed(partial(result.covariance, made.poses, sigma=1.0))
        if n > 50:
            print(f"| {n} | {graph.n_edges} | {seconds:.2f} s | {peak()} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundles", default="100,300,1000")
    parser.add_argument("--graphs", default="1000,3000,10000")
    parser.add_argument("--kind", default="path", choices=("ring", "path"))
    parser.add_argument("--points", type=int, default=550, help="for each camera")
    add_record_option(parser)
    args = parser.parse_args()
    with recorded(args.record):
        if args.bundles:
            time_bundles([int(n) for n in args.bundles.split(",")], args.points, args.kind)
        if args.graphs:
            time_graphs([int(n) for n in args.graphs.split(",")])


if __name__ == "__main__":
    main()

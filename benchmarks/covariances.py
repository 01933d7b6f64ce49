"""Covariances: the time for all cameras, then all points, of made bundles, and for all poses of made graphs.

    python benchmarks/covariances.py [--bundles 100,300,1000] [--graphs 1000,10000] [--kind path] [--points 550]
    python benchmarks/covariances.py --peers [--bundles 50,100] [--graphs 300,1000]      beside COLMAP and GTSAM

A bundle of n cameras has about so many points for each of them, seen from six on average; it starts at its truth.  A
graph is a walk on a grid, with two loops for each pose; SE3 has the same walk in space.  `poses` is all that it takes
to have the blocks of all cameras or poses: derivatives, the directions that the data leave open, two factorisations,
the selected inverse.  `points` is what all points take beside that.  Code is compiled before the clock runs.  Peak
memory is that of the process so far.  The peers need `pip install -r benchmarks/peers/requirements.txt`; what is
compared stands in peers/covariances_run.py.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import asker
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from asker.applications.pose_graph.graph import PoseGraph
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
        times = [
            timed(partial(result.covariance, v, datum=made.cameras, sigma=0.4)) for v in (made.cameras, made.points)
        ]
        if n > 20:  # the first one compiles
            form = "dense" if result.uncertainty(datum=made.cameras, sigma=0.4).model.dense else "sparse"
            sizes_told = f"{n} | {len(made.points)} | {result.problem.n_residuals} | {form}"
            print(f"| {sizes_told} | {times[0]:.1f} s | {times[1]:.1f} s | {peak()} |", flush=True)


def true_graph(n: int, kind: str) -> PoseGraph:
    """A made graph whose poses are the true ones."""
    graph, truth = made_graph(np.random.default_rng(0), n, span=int(np.sqrt(n)))
    graph = replace(graph, poses=truth)
    return graph if kind == "SE2" else in_space(graph)


def in_space(graph: PoseGraph) -> PoseGraph:
    """The same walk as SE3, with measurements of z and of two more angles that are 0."""

    def lifted(rows: np.ndarray) -> np.ndarray:
        o, half = np.zeros(len(rows)), rows[:, 2] / 2
        return np.column_stack([rows[:, :2], o, o, o, np.sin(half), np.cos(half)])

    xy, turn = graph.information[:, :1, 0], graph.information[:, 2:, 2]
    information = np.concatenate([xy, xy, xy, turn, turn, turn], axis=1)[:, :, None] * np.eye(6)
    return replace(
        graph, kind="SE3", poses=lifted(graph.poses), measurements=lifted(graph.measurements), information=information
    )


def time_graphs(sizes: list[int]) -> None:
    print("\n| kind | poses | edges | all blocks | peak memory |")
    print("|---|--:|--:|--:|--:|")
    for kind in ("SE2", "SE3"):
        for n in [50, *sizes]:
            made = pose_graph_problem(graph := true_graph(n, kind))
            result = asker.solve(made.problem, asker.IRLS(), max_iterations=0)
            seconds = timed(partial(result.covariance, made.poses, sigma=1.0))
            if n > 50:
                print(f"| {kind} | {n} | {graph.n_edges} | {seconds:.2f} s | {peak()} |", flush=True)


def time_peers(bundles: list[int], graphs: list[int], points: int, kind: str) -> None:
    sys.path.insert(0, str(Path(__file__).parent / "peers"))
    import covariances_run as peers

    def row(what: str, seconds: tuple[float, float, float]) -> None:
        ours, theirs, apart = seconds
        print(f"| {what} | {ours:.2f} s | {theirs:.2f} s | {theirs / ours:.1f} | {apart:.1g} |", flush=True)

    print("| images | points | asker | COLMAP | ratio | agree to |")
    print("|--:|--:|--:|--:|--:|--:|")
    for n in bundles:
        model = peers.colmap_scene(n, n * points * TRACK, kind)
        row(f"{n} | {len(model.points)}", peers.bundle_times(model))
    print("\n| kind | poses | asker | GTSAM | ratio | agree to |")
    print("|---|--:|--:|--:|--:|--:|")
    for of in ("SE2", "SE3"):
        for n in graphs:
            row(f"{of} | {n}", peers.graph_times(true_graph(n, of)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundles", default="100,300,1000")
    parser.add_argument("--graphs", default="1000,3000,10000")
    parser.add_argument("--kind", default="path", choices=("ring", "path"))
    parser.add_argument("--points", type=int, default=550, help="for each camera")
    parser.add_argument("--peers", action="store_true", help="poses alone, beside COLMAP and GTSAM")
    add_record_option(parser)
    args = parser.parse_args()
    bundles, graphs = ([int(n) for n in sizes.split(",") if n] for sizes in (args.bundles, args.graphs))
    with recorded(args.record):
        if args.peers:
            time_peers(bundles, graphs, args.points, args.kind)
            return
        if bundles:
            time_bundles(bundles, args.points, args.kind)
        if graphs:
            time_graphs(graphs)


if __name__ == "__main__":
    main()

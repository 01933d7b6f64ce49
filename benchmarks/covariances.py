"""Time to compute the covariances of all cameras and points of synthetic bundles, and of all poses of pose graphs.

    python benchmarks/covariances.py [--bundles 100,300,1000] [--graphs 1000,10000] [--kind path] [--points 550]
    python benchmarks/covariances.py --peers [--bundles 50,100] [--graphs 300,1000]      compared with COLMAP and GTSAM

A bundle has `--points` points for each camera; six cameras observe a point on average; the initial guess is the truth.
A graph is a walk on a grid with two loop closures for each pose; SE3 lifts the same walk to space.  `poses` is the
total time for the blocks of all cameras or poses: derivatives, the undetermined directions, two factorisations and the
selected inverse.  `points` is the additional time for all points.  Code is compiled before the timing.  Peak memory is
that of the process so far.  The peers need `pip install -r benchmarks/peers/requirements.txt`; peers/covariances_run.py
describes the comparison.
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
from interval_coverage import synthetic_graph
from record import add_record_option, recorded

TRACK_LENGTH = 6


def bundle_result(n: int, points: int, kind: str) -> tuple[asker.Result, Any]:
    """Return the result of zero iterations at the truth, and the bundle problem."""
    scene = make_scene(n, n * points * TRACK_LENGTH, kind=kind, outlier_ratio=0.1, seed=0)
    adjustment = bundle_problem(scene.truth, asker.SmoothTruncated(2.0))
    return asker.solve(adjustment.problem, asker.IRLS(), max_iterations=0), adjustment


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def peak() -> str:
    """Return the peak memory of this process as text."""
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB"


def time_bundles(sizes: list[int], points: int, kind: str) -> None:
    """Print the table for bundles of the given numbers of cameras."""
    print("| cameras | points | observations | matrix | poses | points | peak memory |")
    print("|--:|--:|--:|---|--:|--:|--:|")
    for n in [20, *sizes]:
        result, adjustment = bundle_result(n, points if n > 20 else 50, kind)
        times = [
            timed(partial(result.covariance, v, datum=adjustment.cameras, sigma=0.4))
            for v in (adjustment.cameras, adjustment.points)
        ]
        if n > 20:  # the first one compiles
            form = "dense" if result.uncertainty(datum=adjustment.cameras, sigma=0.4).model.dense else "sparse"
            cells = f"{n} | {len(adjustment.points)} | {result.problem.n_residuals} | {form}"
            print(f"| {cells} | {times[0]:.1f} s | {times[1]:.1f} s | {peak()} |", flush=True)


def true_graph(n: int, kind: str) -> PoseGraph:
    """A adjustment graph whose poses are the true ones."""
    graph, truth = synthetic_graph(np.random.default_rng(0), n, span=int(np.sqrt(n)))
    graph = replace(graph, poses=truth)
    return graph if kind == "SE2" else in_space(graph)


def in_space(graph: PoseGraph) -> PoseGraph:
    """Return the planar graph as an SE3 graph, with z and the two other angles equal to 0."""

    def lifted(rows: np.ndarray) -> np.ndarray:
        o, half = np.zeros(len(rows)), rows[:, 2] / 2
        return np.column_stack([rows[:, :2], o, o, o, np.sin(half), np.cos(half)])

    xy, turn = graph.information[:, :1, 0], graph.information[:, 2:, 2]
    information = np.concatenate([xy, xy, xy, turn, turn, turn], axis=1)[:, :, None] * np.eye(6)
    return replace(
        graph, kind="SE3", poses=lifted(graph.poses), measurements=lifted(graph.measurements), information=information
    )


def time_graphs(sizes: list[int]) -> None:
    """Print the table for graphs of the given numbers of poses."""
    print("\n| kind | poses | edges | all blocks | peak memory |")
    print("|---|--:|--:|--:|--:|")
    for kind in ("SE2", "SE3"):
        for n in [50, *sizes]:
            adjustment = pose_graph_problem(graph := true_graph(n, kind))
            result = asker.solve(adjustment.problem, asker.IRLS(), max_iterations=0)
            seconds = timed(partial(result.covariance, adjustment.poses, sigma=1.0))
            if n > 50:
                print(f"| {kind} | {n} | {graph.n_edges} | {seconds:.2f} s | {peak()} |", flush=True)


def time_peers(bundles: list[int], graphs: list[int], points: int, kind: str) -> None:
    """Print the comparison with COLMAP and GTSAM."""
    sys.path.insert(0, str(Path(__file__).parent / "peers"))
    import covariances_run as peers

    def row(label: str, measured: tuple[float, float, float]) -> None:
        ours, theirs, difference = measured
        print(f"| {label} | {ours:.2f} s | {theirs:.2f} s | {theirs / ours:.1f} | {difference:.1g} |", flush=True)

    print("| images | points | asker | COLMAP | ratio | agree to |")
    print("|--:|--:|--:|--:|--:|--:|")
    for n in bundles:
        model = peers.colmap_scene(n, n * points * TRACK_LENGTH, kind)
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
    parser.add_argument("--points", type=int, default=550, help="points for each camera")
    parser.add_argument("--peers", action="store_true", help="compare the covariances of poses with COLMAP and GTSAM")
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

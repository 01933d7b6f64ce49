"""Time of the solves of a growing pose graph, started at the previous solution (warm) and at odometry (cold).

    python benchmarks/incremental.py [--graphs M3500,sphere2500] [--first 800] [--steps 200]

Each step adds the next pose of a public graph with all its edges to earlier poses and solves by IRLS, with the smooth
truncated kernel on loops.  `warm` starts with the poses of the previous solve and predicts the new one from odometry;
`cold` starts with odometry for all poses.  `make` is the time to build the problem; `set up` is the time of a solve
with zero iterations: compiled functions are looked up by their trace, and the structure is analysed.
"""

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import asker
from asker.applications.pose_graph.formats.g2o import PoseGraph, read_g2o
from asker.applications.pose_graph.initial.spanning_tree_init import odometry_poses
from asker.applications.pose_graph.problem import PoseGraphProblem, pose_graph_problem
from asker.geometry import poses
from record import add_record_option, recorded

LIMITS = {"tol": 1e-6, "max_iterations": 50}


@dataclass
class Step:
    """Seconds, iterations and final costs after one added pose."""

    make: float
    set_up: float
    warm: float
    cold: float
    warm_iterations: int
    cold_iterations: int
    warm_cost: float
    cold_cost: float


def first_poses(graph: PoseGraph, n: int, rows: np.ndarray) -> PoseGraph:
    """Return the subgraph of the first n poses, with `rows` as their values."""
    edges = np.maximum(graph.i, graph.j) < n
    parts = (graph.i[edges], graph.j[edges], graph.measurements[edges], graph.information[edges])
    return PoseGraph(graph.kind, graph.ids[:n], rows, *parts, graph.fixed[:n])


def with_next(graph: PoseGraph, rows: np.ndarray) -> np.ndarray:
    """Return the poses with one more, predicted by the odometry edge from the last pose."""
    n = len(rows)
    edge = np.flatnonzero((graph.i == n - 1) & (graph.j == n))[0]
    T, M = (poses.matrices(graph.kind, x) for x in (rows[-1:], graph.measurements[edge][None]))
    return np.concatenate([rows, poses.rows(graph.kind, T @ M)])


def timed(made: PoseGraphProblem, **options) -> tuple[asker.Result, float]:
    """Return the result of a solve and its seconds."""
    begin = time.perf_counter()
    result = asker.solve(made.problem, asker.IRLS(), **(LIMITS | options))
    return result, time.perf_counter() - begin


def grown(graph: PoseGraph, first: int, n_steps: int) -> list[Step]:
    """Add `n_steps` poses one by one after the first ones, and measure each addition."""
    odometry = odometry_poses(graph)
    made = pose_graph_problem(first_poses(graph, first, odometry[:first]))
    rows = made.refined(timed(made)[0].values).poses
    steps = []
    for n in range(first + 1, first + n_steps + 1):
        rows, begin = with_next(graph, rows), time.perf_counter()
        made = pose_graph_problem(first_poses(graph, n, rows))
        make = time.perf_counter() - begin
        _, set_up = timed(made, max_iterations=0)
        warm, warm_s = timed(made)
        cold, cold_s = timed(pose_graph_problem(first_poses(graph, n, odometry[:n])))
        rows = made.refined(warm.values).poses
        counts = warm.iterations, cold.iterations, warm.cost, cold.cost
        steps.append(Step(make, set_up, warm_s, cold_s, *counts))
    return steps


def main() -> None:
    here = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ASKER_DATA") or here))
    parser.add_argument("--graphs", default="M3500,sphere2500")
    parser.add_argument("--first", type=int, default=800)
    parser.add_argument("--steps", type=int, default=200)
    add_record_option(parser)
    args = parser.parse_args()
    with recorded(args.record):
        print("Medians of all steps, milliseconds; iterations; how often the cost is lower, by 0.1 %.\n")
        print("| graph | make | set up | warm | cold | iterations, warm | cold | lower, warm | cold |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name in args.graphs.split(","):
            steps = grown(read_g2o(args.data / "g2o" / f"{name}.g2o.bz2"), args.first, args.steps)
            ms = [1000 * np.median([getattr(s, field) for s in steps]) for field in ("make", "set_up", "warm", "cold")]
            counts = [
                np.median([s.warm_iterations for s in steps]),
                np.median([s.cold_iterations for s in steps]),
            ]
            lower = [sum(s.warm_cost < 0.999 * s.cold_cost for s in steps)]
            lower += [sum(s.cold_cost < 0.999 * s.warm_cost for s in steps)]
            cells = [*(f"{x:.1f}" for x in ms), *(f"{n:.0f}" for n in counts), *map(str, lower)]
            print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

"""Run GTSAM on one pose graph.

The method is `GncLMOptimizer` (truncated least squares) with odometry as known inliers, Levenberg-Marquardt with a
Huber loss on the loops, or plain Levenberg-Marquardt with time per iteration.  The script prints one line of JSON;
`--out` is the file of the ids and the estimated positions.
"""

import argparse
import json
import statistics
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gtsam
import numpy as np

INLIER_PROBABILITY = 0.99
"""Probability that a right measurement passes the inlier threshold, as in asker."""


def read(path: Path) -> tuple[gtsam.NonlinearFactorGraph, gtsam.Values, list[int]]:
    """Return the factors with a prior on the first pose, the initial guess, and the indices of the known inliers."""
    in_space = any(line.startswith("EDGE_SE3") for line in path.read_text().splitlines())
    graph, start = gtsam.readG2o(str(path), in_space)
    ends = [graph.at(k).keys() for k in range(graph.size())]
    trusted = [k for k, (i, j) in enumerate(ends) if abs(i - j) == 1]
    first = min(start.keys())
    if in_space:
        hold = gtsam.PriorFactorPose3(first, start.atPose3(first), gtsam.noiseModel.Isotropic.Sigma(6, 1e-6))
    else:
        hold = gtsam.PriorFactorPose2(first, start.atPose2(first), gtsam.noiseModel.Isotropic.Sigma(3, 1e-6))
    graph.add(hold)
    return graph, start, [*trusted, graph.size() - 1]


def positions(values: gtsam.Values) -> tuple[np.ndarray, np.ndarray]:
    ids = np.array(sorted(values.keys()))
    try:
        return ids, np.array([values.atPose2(k).translation() for k in ids.tolist()])
    except (RuntimeError, ValueError):
        return ids, np.array([values.atPose3(k).translation() for k in ids.tolist()])


def graduated(graph: Any, start: Any, trusted: list[int], inner_iterations: int | None) -> tuple[Any, dict[str, Any]]:
    """Solve by GNC with at most `inner_iterations` of Levenberg-Marquardt in each step (GTSAM's default: 100)."""
    settings = gtsam.GncLMParams()
    if inner_iterations is not None:
        descent = settings.baseOptimizerParams
        descent.setMaxIterations(inner_iterations)
        settings.baseOptimizerParams = descent
    settings.setLossType(gtsam.GncLossType.TLS)
    settings.setKnownInliers(trusted)
    begin = time.perf_counter()
    optimizer = gtsam.GncLMOptimizer(graph, start, settings)
    optimizer.setInlierCostThresholdsAtProbability(INLIER_PROBABILITY)
    values = optimizer.optimize()
    kept = np.flatnonzero(np.asarray(optimizer.getWeights()) > 0.5)
    return values, {"seconds": time.perf_counter() - begin, "kept": kept[kept < graph.size() - 1].tolist()}


def with_huber(graph: Any, start: Any, trusted: list[int], radius: float) -> tuple[Any, dict[str, Any]]:
    """Solve by Levenberg-Marquardt with a Huber loss of threshold `radius` on all but the known inliers."""
    loss, sure = gtsam.noiseModel.mEstimator.Huber.Create(radius), set(trusted)
    robust = gtsam.NonlinearFactorGraph()
    for k in range(graph.size()):
        factor = graph.at(k)
        if k not in sure:
            factor = factor.cloneWithNewNoiseModel(gtsam.noiseModel.Robust.Create(loss, factor.noiseModel()))
        robust.add(factor)
    begin = time.perf_counter()
    optimizer = gtsam.LevenbergMarquardtOptimizer(robust, start)
    values = optimizer.optimize()
    return values, {"seconds": time.perf_counter() - begin, "cost": optimizer.error()}


def timed(graph: Any, start: Any, iterations: int) -> tuple[Any, dict[str, Any]]:
    optimizer = gtsam.LevenbergMarquardtOptimizer(graph, start)
    times = []
    for _ in range(iterations):
        begin = time.perf_counter()
        optimizer.iterate()
        times.append(time.perf_counter() - begin)
    return optimizer.values(), {"seconds_per_iteration": statistics.median(times[1:]), "cost": optimizer.error()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="plain g2o, not compressed")
    parser.add_argument(
        "--time-iterations", type=int, default=0, help="time this many iterations of plain least squares, at least 2"
    )
    parser.add_argument("--inner-iterations", type=int, help="limit in each step of GNC (GTSAM: 100)")
    parser.add_argument(
        "--huber", type=float, help="use a Huber loss with this threshold on whitened residuals instead of GNC"
    )
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    graph, start, trusted = read(args.file)
    if args.time_iterations:
        values, line = timed(graph, start, args.time_iterations)
    elif args.huber is not None:
        values, line = with_huber(graph, start, trusted, args.huber)
    else:
        values, line = graduated(graph, start, trusted, args.inner_iterations)
    if args.out:
        ids, where = positions(values)
        np.savez(args.out, ids=ids, positions=where)
    print(json.dumps({"name": "gtsam", "version": version("gtsam"), **line}))


if __name__ == "__main__":
    main()

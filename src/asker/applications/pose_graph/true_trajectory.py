"""The truth of a pose graph: where it has the graph's poses.  `trajectory_error` measures how far off they are."""

import numpy as np

from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.options import By
from asker.geometry import poses


def true_positions(graph: PoseGraph, truth: PoseGraph, by: By = "id") -> tuple[np.ndarray, np.ndarray]:
    """Indices of poses of the graph, and where the truth has them.

    by: "id", the poses whose ids are in both; "length", the point of the truth at the same part of the way travelled,
    for a truth that was recorded at other times.  The way is that of the graph's odometry.
    """
    if graph.kind != truth.kind:
        raise ValueError(f"the graph is {graph.kind}, but its truth is {truth.kind}")
    where = poses.positions(truth.kind, truth.poses)
    if by == "length":
        order = np.argsort(graph.ids)
        return order, _at(where[np.argsort(truth.ids)], _way(graph))
    common, k, m = np.intersect1d(graph.ids, truth.ids, return_indices=True)
    if len(common) < 3:
        raise ValueError(f"the graph and its truth have {len(common)} ids in common; an alignment needs 3")
    return k, where[m]


def _way(graph: PoseGraph) -> np.ndarray:
    """The part of the way travelled up to each pose, in the order of ids."""
    order = np.argsort(graph.ids)
    rank = np.empty(len(order), int)
    rank[order] = np.arange(len(order))
    odometry = graph.is_odometry
    steps = np.zeros(graph.n_poses)
    later = np.maximum(rank[graph.i], rank[graph.j])[odometry]
    steps[later] = np.linalg.norm(poses.positions(graph.kind, graph.measurements[odometry]), axis=1)
    way = np.cumsum(steps)
    if not way[-1] > 0:
        raise ValueError("the graph has no odometry to measure the way with")
    return way / way[-1]


def _at(path: np.ndarray, way: np.ndarray) -> np.ndarray:
    """Points of a path at parts of its length."""
    length = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1))])
    return np.stack([np.interp(way * length[-1], length, axis) for axis in path.T], axis=1)

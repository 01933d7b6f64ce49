"""True positions of the poses of a graph, for `trajectory_error`."""

import numpy as np

from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.options import TruthMatching
from asker.geometry import poses


def true_positions(graph: PoseGraph, truth: PoseGraph, by: TruthMatching = "id") -> tuple[np.ndarray, np.ndarray]:
    """Return the poses of a graph whose true positions are known, and these positions.

    Parameters
    ----------
    graph
        Graph to evaluate.
    truth
        True trajectory, as a graph of the same kind.
    by
        "id" matches poses with equal ids.  "length" matches each pose with the point of the true trajectory at the same
        fraction of the travelled distance, for a truth recorded at other times; odometry measures the graph's distance.

    Returns
    -------
    index : ndarray, (m,)
        Indices of poses of the graph.
    positions : ndarray, (m, 2) or (m, 3)
        True positions.

    Raises
    ------
    ValueError
        If the two differ in kind, or have fewer than three ids in common.
    """
    if graph.kind != truth.kind:
        raise ValueError(f"the graph is {graph.kind}, but its truth is {truth.kind}")
    positions = poses.positions(truth.kind, truth.poses)
    if by == "length":
        order = np.argsort(graph.ids)
        return order, _points_at(positions[np.argsort(truth.ids)], _travelled_fraction(graph))
    common, k, m = np.intersect1d(graph.ids, truth.ids, return_indices=True)
    if len(common) < 3:
        raise ValueError(f"the graph and its truth have {len(common)} ids in common; an alignment needs 3")
    return k, positions[m]


def _travelled_fraction(graph: PoseGraph) -> np.ndarray:
    """Return the fraction of the odometry's length travelled up to each pose, in the order of ids."""
    order = np.argsort(graph.ids)
    rank = np.empty(len(order), int)
    rank[order] = np.arange(len(order))
    odometry = graph.is_odometry
    steps = np.zeros(graph.n_poses)
    later = np.maximum(rank[graph.i], rank[graph.j])[odometry]
    steps[later] = np.linalg.norm(poses.positions(graph.kind, graph.measurements[odometry]), axis=1)
    distance = np.cumsum(steps)
    if not distance[-1] > 0:
        raise ValueError("the graph has no odometry to measure the travelled distance; use --truth-by id")
    return distance / distance[-1]


def _points_at(path: np.ndarray, fraction: np.ndarray) -> np.ndarray:
    """Return the points of a path at given fractions of its length."""
    length = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1))])
    return np.stack([np.interp(fraction * length[-1], length, axis) for axis in path.T], axis=1)

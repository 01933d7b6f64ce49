"""Initial poses without a vertex line, composed from edges.

Edges are composed along a minimum spanning tree in which a known pose costs 1, odometry 2 and a loop closure 3, so that
loop closures are used only where odometry is missing.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from asker.geometry import poses
from asker.geometry.spanning import spanning_tree

if TYPE_CHECKING:
    from asker.applications.pose_graph.graph import PoseGraph

ODOMETRY_COST, LOOP_COST = 2.0, 3.0


def spanning_tree_poses(graph: "PoseGraph") -> NDArray[np.float64]:
    """Return all poses of a connected graph whose `poses` has the first ones only; without any, one is the origin."""
    n, n_known = graph.n_poses, len(graph.poses)
    if n == n_known:
        return graph.poses
    T = list(np.tile(np.eye(poses.N_AXES[graph.kind] + 1), (n, 1, 1)))
    T[:n_known] = poses.matrices(graph.kind, graph.poses)
    cost = np.where(graph.is_odometry, ODOMETRY_COST, LOOP_COST)
    order, parent, edge = spanning_tree(graph.i, graph.j, cost, n, max(n_known, 1))
    forward = poses.matrices(graph.kind, graph.measurements)
    backward = poses.inverses(graph.kind, forward)
    for k, p, e in zip(order, parent, edge, strict=True):
        T[k] = T[p] @ (forward[e] if graph.j[e] == k else backward[e])
    return np.concatenate([graph.poses, poses.rows(graph.kind, np.array(T[n_known:]))])


def odometry_poses(graph: "PoseGraph") -> NDArray[np.float64]:
    """Return the poses composed from the edges of a connected graph, with the smallest id at its present pose."""
    order = np.argsort(graph.ids)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order))
    first = graph.poses[order[:1]]
    return spanning_tree_poses(replace(graph, ids=graph.ids[order], poses=first, i=rank[graph.i], j=rank[graph.j]))[
        rank
    ]

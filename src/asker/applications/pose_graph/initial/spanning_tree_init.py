"""Poses that a file does not give, from the edges that lead to them.

They are put along a minimum spanning tree in which a given pose costs 1, odometry 2 and a loop 3: so odometry is
followed as far as it reaches, and loops only where it does not.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from asker.geometry import poses
from asker.geometry.spanning import spanning_tree

if TYPE_CHECKING:
    from asker.applications.pose_graph.graph import PoseGraph

ODOMETRY, LOOP = 2.0, 3.0


def filled_poses(graph: "PoseGraph") -> NDArray[np.float64]:
    """The poses of a connected graph of which `graph.poses` holds the first few; without any, the first id's pose is
    the origin."""
    n, n_given = graph.n_poses, len(graph.poses)
    if n == n_given:
        return graph.poses
    T = list(np.tile(np.eye(poses.N_AXES[graph.kind] + 1), (n, 1, 1)))
    T[:n_given] = poses.matrices(graph.kind, graph.poses)
    price = np.where(graph.is_odometry, ODOMETRY, LOOP)
    order, parent, edge = spanning_tree(graph.i, graph.j, price, n, max(n_given, 1))
    forward = poses.matrices(graph.kind, graph.measurements)
    backward = poses.inverses(graph.kind, forward)
    for k, p, e in zip(order, parent, edge, strict=True):
        T[k] = T[p] @ (forward[e] if graph.j[e] == k else backward[e])
    found = poses.rows(graph.kind, np.array(T[n_given:]))
    return np.concatenate([graph.poses, found])


def odometry_poses(graph: "PoseGraph") -> NDArray[np.float64]:
    """Where a connected graph's edges alone put its poses, the one with the smallest id at its place."""
    order = np.argsort(graph.ids)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order))
    first = graph.poses[order[:1]]
    return filled_poses(replace(graph, ids=graph.ids[order], poses=first, i=rank[graph.i], j=rank[graph.j]))[rank]

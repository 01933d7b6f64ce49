"""Poses that a file does not give, from the edges that lead to them.

They are put along a minimum spanning tree in which a given pose costs 1, odometry 2 and a loop 3: so odometry is
followed as far as it reaches, and loops only where it does not.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from asker import poses

if TYPE_CHECKING:
    from asker.io.g2o import PoseGraph

GIVEN, ODOMETRY, LOOP = 1.0, 2.0, 3.0


def filled_poses(graph: "PoseGraph") -> NDArray[np.float64]:
    """The poses of a connected graph of which `graph.poses` holds the first few; without any, the first id's pose is
    the origin."""
    n, n_given = graph.n_poses, len(graph.poses)
    if n == n_given:
        return graph.poses
    T = list(np.tile(np.eye(poses.N_AXES[graph.kind] + 1), (n, 1, 1)))
    T[:n_given] = poses.matrices(graph.kind, graph.poses)
    order, parent, edge = _tree(graph, max(n_given, 1))
    forward = poses.matrices(graph.kind, graph.measurements)
    backward = poses.inverses(forward)
    for k, p, e in zip(order, parent, edge, strict=True):
        T[k] = T[p] @ (forward[e] if graph.j[e] == k else backward[e])
    found = poses.rows(graph.kind, np.array(T[n_given:]))
    return np.concatenate([graph.poses, found])


def _tree(graph: "PoseGraph", n_known: int) -> tuple[list[int], list[int], list[int]]:
    """The poses from `n_known` on in an order in which each comes after its parent; their parents; the edges."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

    n = graph.n_poses
    price = np.where(graph.is_odometry, ODOMETRY, LOOP)
    pair, edge = np.unique(_pairs(graph.i, graph.j, n), return_index=True)  # one edge for each pair
    known = np.arange(n_known)
    ends = np.concatenate([graph.i[edge], known]), np.concatenate([graph.j[edge], np.full(n_known, n)])
    prices = np.concatenate([price[edge], np.full(n_known, GIVEN)])
    tree = minimum_spanning_tree(csr_array((prices, ends), shape=(n + 1, n + 1)))
    order, parent = breadth_first_order(tree, n, directed=False)
    order = order[(order >= n_known) & (order < n)]
    parent = parent[order]
    used = edge[np.searchsorted(pair, _pairs(order, parent, n))]
    return order.tolist(), parent.tolist(), used.tolist()


def _pairs(a: NDArray[Any], b: NDArray[Any], n: int) -> NDArray[np.int64]:
    """One number for each unordered pair."""
    return np.minimum(a, b).astype(np.int64) * n + np.maximum(a, b)


def odometry_poses(graph: "PoseGraph") -> NDArray[np.float64]:
    """Where a connected graph's edges alone put its poses, the one with the smallest id at its place."""
    order = np.argsort(graph.ids)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order))
    first = graph.poses[order[:1]]
    return filled_poses(replace(graph, ids=graph.ids[order], poses=first, i=rank[graph.i], j=rank[graph.j]))[rank]

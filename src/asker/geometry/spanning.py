"""Minimum spanning trees, spanning forests and connected components of graphs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

KNOWN_POSE_COST = 1.0
"""Cost of the edge from the root to a known pose; costs of all other edges should be higher."""


def spanning_tree(
    i: NDArray[Any], j: NDArray[Any], cost: NDArray[np.float64], n: int, n_known: int
) -> tuple[list[int], list[int], list[int]]:
    """Return a minimum spanning tree that is rooted at the known poses.

    Parameters
    ----------
    i, j
        Endpoints of each edge, below `n`; the graph is connected.
    cost
        Cost of each edge.
    n
        Number of poses.
    n_known
        Number of known poses, which are the first ones; at least 1.

    Returns
    -------
    order, parents, edges
        All unknown poses, each after its parent; their parents; the edges to the parents.
    """
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

    pair, edge = np.unique(_pairs(i, j, n), return_index=True)  # one edge for each pair
    known = np.arange(n_known)
    ends = np.concatenate([i[edge], known]), np.concatenate([j[edge], np.full(n_known, n)])
    costs = np.concatenate([cost[edge], np.full(n_known, KNOWN_POSE_COST)])
    tree = minimum_spanning_tree(_matrix(costs, *ends, n + 1))
    order, parent = breadth_first_order(tree, n, directed=False)
    order = order[(order >= n_known) & (order < n)]
    parent = parent[order]
    used = edge[np.searchsorted(pair, _pairs(order, parent, n))]
    return order.tolist(), parent.tolist(), used.tolist()


def spanning_forest(i: NDArray[Any], j: NDArray[Any], cost: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Return the edges of a minimum spanning forest of a graph; costs are positive."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    by = np.argsort(cost, kind="stable")  # the cheapest of parallel edges
    pair, first = np.unique(_pairs(i, j, n)[by], return_index=True)
    edge = by[first]
    tree = minimum_spanning_tree(_matrix(cost[edge], i[edge], j[edge], n)).tocoo()
    return edge[np.searchsorted(pair, _pairs(tree.row, tree.col, n))]


def connected_parts(i: NDArray[Any], j: NDArray[Any], n: int) -> tuple[int, NDArray[Any]]:
    """Return the number of connected components of a graph with `n` nodes, and the component of each node."""
    from scipy.sparse.csgraph import connected_components

    return connected_components(_matrix(np.ones(len(i)), i, j, n), directed=False)


def _matrix(values: NDArray[Any], i: NDArray[Any], j: NDArray[Any], n: int) -> Any:
    """Return the graph as a sparse matrix; algorithms of SciPy up to 1.15 take 32-bit indices only."""
    from scipy.sparse import csr_array

    return csr_array((values, (i.astype(np.int32), j.astype(np.int32))), shape=(n, n))


def _pairs(a: NDArray[Any], b: NDArray[Any], n: int) -> NDArray[np.int64]:
    """Return a unique number of each unordered pair."""
    return np.minimum(a, b).astype(np.int64) * n + np.maximum(a, b)

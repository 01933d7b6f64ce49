"""Minimum spanning trees and forests, and the connected parts of a graph."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

GIVEN = 1.0
"""What a known pose costs; the price of an edge should be higher."""


def spanning_tree(
    i: NDArray[Any], j: NDArray[Any], price: NDArray[np.float64], n: int, n_known: int
) -> tuple[list[int], list[int], list[int]]:
    """The poses from `n_known` on, each after its parent; their parents; the edges that lead there.

    i, j     the ends of each edge, below `n`; the graph is connected
    price    of each edge
    n_known  how many poses, the first ones, are where they should be; at least one
    """
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

    pair, edge = np.unique(_pairs(i, j, n), return_index=True)  # one edge for each pair
    known = np.arange(n_known)
    ends = np.concatenate([i[edge], known]), np.concatenate([j[edge], np.full(n_known, n)])
    prices = np.concatenate([price[edge], np.full(n_known, GIVEN)])
    tree = minimum_spanning_tree(_matrix(prices, *ends, n + 1))
    order, parent = breadth_first_order(tree, n, directed=False)
    order = order[(order >= n_known) & (order < n)]
    parent = parent[order]
    used = edge[np.searchsorted(pair, _pairs(order, parent, n))]
    return order.tolist(), parent.tolist(), used.tolist()


def spanning_forest(i: NDArray[Any], j: NDArray[Any], price: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """The edges of the cheapest forest that leaves the parts of the graph connected; prices are positive."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    by = np.argsort(price, kind="stable")  # of several edges of a pair the cheapest one
    pair, first = np.unique(_pairs(i, j, n)[by], return_index=True)
    edge = by[first]
    tree = minimum_spanning_tree(_matrix(price[edge], i[edge], j[edge], n)).tocoo()
    return edge[np.searchsorted(pair, _pairs(tree.row, tree.col, n))]


def connected_parts(i: NDArray[Any], j: NDArray[Any], n: int) -> tuple[int, NDArray[Any]]:
    """How many parts the edges leave of `n` poses, and the part of each."""
    from scipy.sparse.csgraph import connected_components

    return connected_components(_matrix(np.ones(len(i)), i, j, n), directed=False)


def _matrix(values: NDArray[Any], i: NDArray[Any], j: NDArray[Any], n: int) -> Any:
    """The graph as a sparse matrix; up to SciPy 1.15 its algorithms take 32-bit indices only."""
    from scipy.sparse import csr_array

    return csr_array((values, (i.astype(np.int32), j.astype(np.int32))), shape=(n, n))


def _pairs(a: NDArray[Any], b: NDArray[Any], n: int) -> NDArray[np.int64]:
    """One number for each unordered pair."""
    return np.minimum(a, b).astype(np.int64) * n + np.maximum(a, b)

"""Approximate minimum degree ordering.

Amestoy, Davis, Duff: An Approximate Minimum Degree Ordering Algorithm, 1996.

Problem     eliminate the vertices of a graph so that few edges fill in
Symbols     E_i, A_i -> the list of vertex i, elements first    L_e -> members[at[e] : at[e] + size[e]]    d_i -> degree
Algorithm   (1) take the vertex p of least degree   (2) L_p = A_p ∪ ⋃ L_e over E_p, without p; those e are absorbed
            (3) w_e = |L_e \\ L_p|   (4) for each i in L_p: p joins E_i, what L_p implies leaves A_i
            (5) d_i = min(d_i + |L_p \\ i|, |A_i| + |L_p \\ i| + Σ w_e), a bound on the degree
Deviations  vertices are weighted by their number of unknowns and indistinguishable vertices are not merged (a vertex
            already is a block of unknowns); no aggressive absorption, so that an element is absorbed by its parent in
            the elimination tree
"""

from typing import NamedTuple

import numpy as np

from asker.engines.cpu.compiler import compiled


def eliminate(ptr: np.ndarray, neighbours: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the order, the parent of each vertex in the elimination tree, and the unknowns it is then coupled to.

    The neighbours of v are neighbours[ptr[v]:ptr[v + 1]], without duplicates and without v.
    """
    n, total = len(weight), int(weight.sum())
    order, load, degree, n_elements, at, size, outside, pruned = np.zeros((8, n), np.int64)
    parent, after, before, mark, counted = np.full((5, n), -1)
    queues = Queues(np.full(total + 1, -1), after, before)
    elements = Elements(np.empty(len(neighbours) + 2 * n, np.int64), at, size, load, parent)
    lists, length = neighbours.copy(), np.diff(ptr)
    degree[:] = np.diff(np.concatenate([[0], np.cumsum(weight[neighbours])])[ptr])
    _eliminate(
        total, ptr, weight, lists, length, n_elements, degree, queues, elements, order, mark, counted, outside, pruned
    )
    return order, parent, load


class Queues(NamedTuple):
    """A doubly linked list of the vertices of each degree."""

    head: np.ndarray
    after: np.ndarray
    before: np.ndarray


class Elements(NamedTuple):
    """The elements of eliminated vertices: L_e = members[at[e] : at[e] + size[e]], of `load[e]` unknowns."""

    members: np.ndarray
    at: np.ndarray
    size: np.ndarray
    load: np.ndarray
    parent: np.ndarray


@compiled
def _eliminate(
    total: int, ptr: np.ndarray, weight: np.ndarray, lists: np.ndarray, length: np.ndarray, n_elements: np.ndarray,
    degree: np.ndarray, queues: Queues, E: Elements, order: np.ndarray, mark: np.ndarray, counted: np.ndarray,
    outside: np.ndarray, pruned: np.ndarray,
) -> None:  # fmt: skip
    """Write the elimination order of all vertices to `order`."""
    n = len(order)
    for v in range(n):
        _list(v, degree[v], queues)
    end, least = 0, 0
    for k in range(n):
        while queues.head[least] < 0:
            least += 1
        p = queues.head[least]  # (1)
        _unlist(p, least, queues)
        if end + n > len(E.members):
            end = _compact(order[:k], E)
        order[k], mark[p], E.at[p] = p, k, end
        for e in lists[ptr[p] : ptr[p] + n_elements[p]]:  # (2)
            E.parent[e] = p
            end = _join(E.members[E.at[e] : E.at[e] + E.size[e]], k, mark, E.members, end)
        end = _join(lists[ptr[p] + n_elements[p] : ptr[p] + length[p]], k, mark, E.members, end)
        E.size[p] = end - E.at[p]
        L = E.members[E.at[p] : end]
        for i in L:
            E.load[p] += weight[i]
        for i in L:  # (3)
            for e in lists[ptr[i] : ptr[i] + n_elements[i]]:
                if E.parent[e] < 0:
                    if counted[e] != k:
                        counted[e], outside[e] = k, E.load[e]
                    outside[e] -= weight[i]
        for i in L:
            both = lists[ptr[i] : ptr[i] + length[i]]
            n_elements[i], length[i], more = _prune(
                both, n_elements[i], p, k, E.parent, mark, outside, weight, pruned
            )  # (4)
            _unlist(i, degree[i], queues)
            degree[i] = min(E.load[p] - weight[i] + min(degree[i], more), total)  # (5)
            _list(i, degree[i], queues)
            least = min(least, degree[i])


@compiled
def _prune(
    both: np.ndarray, n_elements: int, p: int, k: int, parent: np.ndarray, mark: np.ndarray, outside: np.ndarray,
    weight: np.ndarray, pruned: np.ndarray,
) -> tuple[int, int, int]:  # fmt: skip
    """Add p to a vertex's elements, and remove elements and vertices that p covers.

    Returns the number of elements, the number of elements and vertices, and Σ w_e + |A_i|.
    """
    m, more = 0, 0
    for e in both[:n_elements]:
        if parent[e] < 0:
            pruned[m] = e
            m += 1
            more += outside[e]
    pruned[m] = p
    m += 1
    elements = m
    for j in both[n_elements:]:
        if mark[j] != k:
            pruned[m] = j
            m += 1
            more += weight[j]
    for q in range(m):
        both[q] = pruned[q]
    return elements, m, more


@compiled
def _list(v: int, degree: int, queues: Queues) -> None:
    """Add vertex v to the queue of its degree."""
    first = queues.head[degree]
    queues.after[v], queues.before[v] = first, -1
    if first >= 0:
        queues.before[first] = v
    queues.head[degree] = v


@compiled
def _unlist(v: int, degree: int, queues: Queues) -> None:
    """Remove vertex v from the queue of its degree."""
    if queues.before[v] >= 0:
        queues.after[queues.before[v]] = queues.after[v]
    else:
        queues.head[degree] = queues.after[v]
    if queues.after[v] >= 0:
        queues.before[queues.after[v]] = queues.before[v]


@compiled
def _join(vertices: np.ndarray, k: int, mark: np.ndarray, members: np.ndarray, end: int) -> int:
    """Append the vertices that are not marked with k yet to `members`."""
    for v in vertices:
        if mark[v] != k:
            mark[v] = k
            members[end] = v
            end += 1
    return end


@compiled
def _compact(order: np.ndarray, E: Elements) -> int:
    """Close the gaps of absorbed elements; the others are stored in the order of elimination."""
    end = 0
    for e in order:
        if E.parent[e] < 0:
            for m in range(E.size[e]):
                E.members[end + m] = E.members[E.at[e] + m]
            E.at[e] = end
            end += E.size[e]
    return end

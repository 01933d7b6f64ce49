"""Nested dissection: the order in which a sparse matrix is eliminated, and the tree of its fronts.

A graph is cut by a small set of vertices into two parts that do not touch, each part again, and so on; a cut is
eliminated after both of its parts (George: Nested Dissection of a Regular Finite Element Mesh, 1973).  A cut is the
thinnest level of a breadth-first search that leaves enough on either side (George, Liu 1978).
"""

from typing import NamedTuple

import numpy as np
from numba import njit

LEAF = 28  # unknowns up to which a part is one front
SIDE = 0.25  # least share of the unknowns on either side of a cut
HUB = 10.0  # a vertex with more than HUB·√n neighbours is eliminated last
WORTH = 0.4  # a cut with more than this share of the unknowns is not made


class Tree(NamedTuple):
    """Fronts in the order of elimination: each comes after its children."""

    order: np.ndarray
    """The vertex in each place."""
    first: np.ndarray
    """(n + 1,): front k eliminates the vertices order[first[k]:first[k + 1]]."""
    parent: np.ndarray
    """The front that takes what front k leaves; −1 for none."""


def dissect(ptr: np.ndarray, neighbours: np.ndarray, weight: np.ndarray) -> Tree:
    """Of the graph in which the neighbours of v are neighbours[ptr[v]:ptr[v + 1]]; `weight`: unknowns of a vertex.

    A few vertices that meet nearly all others would leave no thin cut; they become the root.
    """
    degree = np.diff(ptr)
    hubs = np.flatnonzero(degree > max(HUB * np.sqrt(len(degree)), LEAF))
    if not len(hubs):
        return _tree(*_dissect(ptr, neighbours, weight, LEAF, SIDE, WORTH))
    others = np.setdiff1d(np.arange(len(degree)), hubs)
    number = np.full(len(degree), -1)
    number[others] = np.arange(len(others))
    source, target = number[np.repeat(np.arange(len(degree)), degree)], number[neighbours]
    inside = (source >= 0) & (target >= 0)
    inner_ptr = np.concatenate([[0], np.cumsum(np.bincount(source[inside], minlength=len(others)))])
    order, first, parent = _dissect(inner_ptr, target[inside], weight[others], LEAF, SIDE, WORTH)
    root = len(first)
    parent = np.where(parent < 0, root, parent)
    return _tree(np.concatenate([others[order], hubs]), np.append(first, len(others)), np.append(parent, -1))


def _tree(order: np.ndarray, first: np.ndarray, parent: np.ndarray) -> Tree:
    by_place = np.argsort(first, kind="stable")
    rank = np.empty(len(first) + 1, dtype=np.int64)
    rank[by_place], rank[-1] = np.arange(len(first)), -1
    return Tree(order, np.append(first[by_place], len(order)), rank[parent[by_place]])


@njit(nogil=True, cache=True)
def _search(start, part, label, ptr, neighbours, level, queue):
    """Breadth-first within one part; returns how many were reached.  They lie in `queue`, their distance in `level`."""
    queue[0] = start
    level[start] = 0
    reached, done = 1, 0
    while done < reached:
        v = queue[done]
        done += 1
        for e in range(ptr[v], ptr[v + 1]):
            w = neighbours[e]
            if part[w] == label and level[w] < 0:
                level[w] = level[v] + 1
                queue[reached] = w
                reached += 1
    return reached


@njit(nogil=True, cache=True)
def _far_search(start, part, label, ptr, neighbours, level, queue):
    """A search from a vertex that is far from others."""
    reached = _search(start, part, label, ptr, neighbours, level, queue)
    deepest = 0
    for _ in range(4):
        depth = level[queue[reached - 1]]
        if depth <= deepest:
            break
        deepest = depth
        end = queue[reached - 1]
        for k in range(reached):
            level[queue[k]] = -1
        _search(end, part, label, ptr, neighbours, level, queue)
    return reached


@njit(nogil=True, cache=True)
def _choose_level(queue, reached, level, weight, total, side):
    """The lightest level with enough on either side; −1 where there is none."""
    below, here, k = 0, 0, 0
    best, lightest = -1, total
    for depth in range(1, level[queue[reached - 1]]):
        while k < reached and level[queue[k]] < depth:
            below += weight[queue[k]]
            k += 1
        here, m = 0, k
        while m < reached and level[queue[m]] == depth:
            here += weight[queue[m]]
            m += 1
        above = total - below - here
        if min(below, above) >= side * total and here < lightest:
            best, lightest = depth, here
    return best


@njit(nogil=True, cache=True)
def _queue_components(order, lo, hi, reached, weight, leaf, above, part, label, ptr, neighbours, level, queue, todo):
    """Parts that do not touch anyway; small ones go together.  The first one has been searched already."""
    begin, size, total = 0, 0, 0
    for k in range(lo, hi + 1):
        if reached > size:  # a component has just been searched
            heavy = 0
            for m in range(size, reached):
                heavy += weight[queue[m]]
            if total + heavy > leaf and size > begin:
                todo.append((lo + begin, lo + size, above))
                begin, total = size, 0
            size, total = reached, total + heavy
        if k < hi and level[order[k]] < 0:
            reached += _search(order[k], part, label, ptr, neighbours, level, queue[size:])
    todo.append((lo + begin, hi, above))
    order[lo:hi] = queue[: hi - lo]


@njit(nogil=True, cache=True)
def _dissect(ptr, neighbours, weight, leaf, side, worth):
    n = len(ptr) - 1
    order = np.arange(n)
    part = np.zeros(n, np.int64)  # each vertex's part; parts are told apart by growing labels
    level = np.full(n, -1, np.int64)
    queue = np.empty(n, np.int64)
    moved = np.empty(n, np.int64)
    first = np.empty(n + 1, np.int64)
    parent = np.empty(n + 1, np.int64)
    n_fronts, label = 0, 0
    todo = [(0, n, -1)]
    while len(todo):
        lo, hi, above = todo.pop()
        if lo == hi:
            continue
        label += 1
        total = 0
        for k in range(lo, hi):
            part[order[k]] = label
            level[order[k]] = -1
            total += weight[order[k]]
        if total > leaf:
            reached = _far_search(order[lo], part, label, ptr, neighbours, level, queue)
            if reached < hi - lo:
                _queue_components(
                    order, lo, hi, reached, weight, leaf, above, part, label, ptr, neighbours, level, queue, todo
                )
                continue
            cut = _choose_level(queue, reached, level, weight, total, side)
            if cut >= 0:
                a, b, c, heavy = lo, 0, 0, 0
                for k in range(reached):
                    v = queue[k]
                    in_cut = False
                    if level[v] == cut:  # only those that touch the far side
                        for e in range(ptr[v], ptr[v + 1]):
                            w = neighbours[e]
                            if part[w] == label and level[w] > cut:
                                in_cut = True
                    if in_cut:
                        c += 1
                        moved[n - c] = v
                        heavy += weight[v]
                    elif level[v] <= cut:
                        order[a] = v
                        a += 1
                    else:
                        moved[b] = v
                        b += 1
                if heavy <= worth * total:
                    order[a : a + b] = moved[:b]
                    order[a + b : hi] = moved[n - c :]
                    first[n_fronts], parent[n_fronts] = a + b, above
                    todo.append((lo, a, n_fronts))
                    todo.append((a, a + b, n_fronts))
                    n_fronts += 1
                    continue
                order[lo:hi] = queue[:reached]
        first[n_fronts], parent[n_fronts] = lo, above
        n_fronts += 1
    return order, first[:n_fronts].copy(), parent[:n_fronts].copy()

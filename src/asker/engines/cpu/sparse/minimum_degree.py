"""Minimum degree: an order of elimination for graphs that no thin cut takes apart.

Amestoy, Davis, Duff: An Approximate Minimum Degree Ordering Algorithm, 1996.

Problem     eliminate the vertices of a graph so that few edges fill in
Symbols     E_i, A_i -> the list of vertex i, elements first    L_e -> members[at[e] : at[e] + size[e]]    d_i -> degree
Algorithm   (1) take the vertex p of least degree   (2) L_p = A_p ∪ ⋃ L_e over E_p, without p; those e are absorbed
            (3) w_e = |L_e \\ L_p|   (4) for each i in L_p: p joins E_i, what L_p implies leaves A_i
            (5) d_i = min(d_i + |L_p \\ i|, |A_i| + |L_p \\ i| + Σ w_e), a bound on the degree
Deviations  vertices weigh as many unknowns as they have and are not merged when they become alike (blocks are alike
            already); no aggressive absorption, so that an element is absorbed by its parent in the elimination tree
"""

import numpy as np

from asker.engines.cpu.machine_code import compiled


@compiled()
def eliminate(ptr, neighbours, weight):
    """Order, parent of each vertex in the elimination tree, and how many unknowns it is still coupled to.

    The neighbours of v are neighbours[ptr[v]:ptr[v + 1]], each of them once and v not among them.
    """
    n, total = len(ptr) - 1, 0
    lists, length, n_elements = neighbours.copy(), np.empty(n, np.int64), np.zeros(n, np.int64)
    for v in range(n):
        length[v] = ptr[v + 1] - ptr[v]
        total += weight[v]
    members = np.empty(len(neighbours) + 2 * n, np.int64)  # of elements
    at, size, load = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    order, parent, degree = np.empty(n, np.int64), np.full(n, -1, np.int64), np.zeros(n, np.int64)
    head, after, before = np.full(total + 1, -1, np.int64), np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    mark, counted, outside = np.full(n, -1, np.int64), np.full(n, -1, np.int64), np.zeros(n, np.int64)
    pruned = np.empty(n, np.int64)
    for v in range(n):
        for e in range(ptr[v], ptr[v + 1]):
            degree[v] += weight[neighbours[e]]
        _list(v, degree[v], head, after, before)
    end, least = 0, 0
    for k in range(n):
        while head[least] < 0:
            least += 1
        p = head[least]  # (1)
        _unlist(p, least, head, after, before)
        if end + n > len(members):
            end = _compact(order[:k], parent, at, size, members)
        order[k], mark[p], at[p] = p, k, end
        for e in lists[ptr[p] : ptr[p] + n_elements[p]]:  # (2)
            parent[e] = p
            end = _join(members[at[e] : at[e] + size[e]], k, mark, members, end)
        end = _join(lists[ptr[p] + n_elements[p] : ptr[p] + length[p]], k, mark, members, end)
        size[p] = end - at[p]
        L = members[at[p] : end]
        for i in L:
            load[p] += weight[i]
        for i in L:  # (3)
            for e in lists[ptr[i] : ptr[i] + n_elements[i]]:
                if parent[e] < 0:
                    if counted[e] != k:
                        counted[e], outside[e] = k, load[e]
                    outside[e] -= weight[i]
        for i in L:
            both = lists[ptr[i] : ptr[i] + length[i]]
            n_elements[i], length[i], more = _prune(
                both, n_elements[i], p, k, parent, mark, outside, weight, pruned
            )  # (4)
            _unlist(i, degree[i], head, after, before)
            degree[i] = load[p] - weight[i] + min(degree[i], more)  # (5)
            degree[i] = min(degree[i], total)
            _list(i, degree[i], head, after, before)
            least = min(least, degree[i])
    return order, parent, load


@compiled()
def _prune(both, n_elements, p, k, parent, mark, outside, weight, pruned):
    """Of a vertex's elements and vertices: p joins, what p implies leaves.  How many of each, and Σ w_e + |A_i|."""
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


@compiled()
def _list(v, degree, head, after, before):
    after[v], before[v] = head[degree], -1
    if head[degree] >= 0:
        before[head[degree]] = v
    head[degree] = v


@compiled()
def _unlist(v, degree, head, after, before):
    if before[v] >= 0:
        after[before[v]] = after[v]
    else:
        head[degree] = after[v]
    if after[v] >= 0:
        before[after[v]] = before[v]


@compiled()
def _join(vertices, k, mark, members, end):
    """Those that step k has not seen yet go to the end of `members`."""
    for v in vertices:
        if mark[v] != k:
            mark[v] = k
            members[end] = v
            end += 1
    return end


@compiled()
def _compact(elements, parent, at, size, members):
    """Close the gaps of absorbed elements; the others lie in the order of their making."""
    end = 0
    for e in elements:
        if parent[e] < 0:
            for m in range(size[e]):
                members[end + m] = members[at[e] + m]
            at[e] = end
            end += size[e]
    return end

"""Nested dissection: thin cuts that take a graph apart.

A graph is cut by a small set of vertices into two parts that do not touch, each part again, and so on; a cut is
eliminated after both of its parts (George: Nested Dissection of a Regular Finite Element Mesh, 1973).  A cut is the
thinnest level of a breadth-first search that leaves enough on either side (George, Liu 1978).  It is made if it is as
thin as a planar graph always has one, √8 √n of n vertices (Lipton, Tarjan 1979).  What has none, such as a pose graph
with loops between places that have nothing to do with each other, is left whole.
"""

import numpy as np

from asker.engines.cpu.compiler import compiled

SIDE = 0.25  # least share of the vertices on either side of a cut


def cuts(ptr: np.ndarray, neighbours: np.ndarray, whole: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The number of each vertex's cut, −1 for none; the cut above each vertex's part; the cut above each cut.

    The neighbours of v are neighbours[ptr[v]:ptr[v + 1]].  A part of up to `whole` vertices is not cut.  A cut has a
    smaller number than those of its parts.
    """
    n = len(ptr) - 1
    own, over, level = np.full((3, n), -1)
    part, queue, moved, parent = np.zeros((4, n), np.int64)
    todo = np.empty((n + 2, 3), np.int64)
    n_cuts = _cuts(whole, ptr, neighbours, np.arange(n), own, over, part, level, queue, moved, parent, todo)
    return own, over, parent[:n_cuts].copy()


@compiled
def _cuts(whole, ptr, neighbours, order, own, over, part, level, queue, moved, parent, todo):
    """`part`: of each vertex; parts are told apart by growing labels.  `todo`: begin, end, and the cut above."""
    n = len(order)
    n_cuts, label = 0, 0
    waiting = _push(todo, 0, 0, n, -1)
    while waiting > 0:
        waiting -= 1
        lo, hi, above = todo[waiting, 0], todo[waiting, 1], todo[waiting, 2]
        for k in range(lo, hi):
            over[order[k]] = above
        if hi - lo <= whole:
            continue
        label += 1
        for k in range(lo, hi):
            part[order[k]], level[order[k]] = label, -1
        reached = _far_search(order[lo], part, label, ptr, neighbours, level, queue)
        if reached < hi - lo:
            waiting = _queue_components(
                order, lo, hi, reached, above, whole, part, label, ptr, neighbours, level, queue, todo, waiting
            )
            continue
        cut = _thinnest_level(queue[:reached], level)
        if cut < 0:
            continue
        a, b, c = lo, 0, 0
        for v in queue[:reached]:
            if level[v] == cut and _meets_beyond(v, part, label, ptr, neighbours, level):
                c += 1
                moved[n - c] = v
            elif level[v] <= cut:
                order[a] = v
                a += 1
            else:
                moved[b] = v
                b += 1
        for k in range(b):
            order[a + k] = moved[k]
        for k in range(c):
            order[a + b + k] = moved[n - c + k]
        if c * c > 8 * (hi - lo):
            continue
        for k in range(n - c, n):
            own[moved[k]] = n_cuts
        parent[n_cuts] = above
        waiting = _push(todo, waiting, lo, a, n_cuts)
        waiting = _push(todo, waiting, a, a + b, n_cuts)
        n_cuts += 1
    return n_cuts


@compiled
def _push(todo, waiting, begin, end, above):
    todo[waiting, 0], todo[waiting, 1], todo[waiting, 2] = begin, end, above
    return waiting + 1


@compiled
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


@compiled
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


@compiled
def _thinnest_level(queue, level):
    """The level of fewest vertices with enough on either side; −1 where there is none."""
    n = len(queue)
    begin, best, fewest = 1, -1, n
    for depth in range(1, level[queue[n - 1]]):
        end = begin
        while level[queue[end]] == depth:
            end += 1
        if min(begin, n - end) >= SIDE * n and end - begin < fewest:
            best, fewest = depth, end - begin
        begin = end
    return best


@compiled
def _meets_beyond(v, part, label, ptr, neighbours, level):
    for e in range(ptr[v], ptr[v + 1]):
        w = neighbours[e]
        if part[w] == label and level[w] > level[v]:
            return True
    return False


@compiled
def _queue_components(order, lo, hi, reached, above, whole, part, label, ptr, neighbours, level, queue, todo, waiting):
    """Parts that do not touch anyway; small ones go together.  The first one has been searched already."""
    begin, size = 0, 0
    for k in range(lo, hi + 1):
        if reached > size:  # a component has just been searched
            if reached - begin > whole and size > begin:
                waiting = _push(todo, waiting, lo + begin, lo + size, above)
                begin = size
            size = reached
        if k < hi and level[order[k]] < 0:
            reached += _search(order[k], part, label, ptr, neighbours, level, queue[size:])
    waiting = _push(todo, waiting, lo + begin, hi, above)
    for k in range(lo, hi):
        order[k] = queue[k - lo]
    return waiting

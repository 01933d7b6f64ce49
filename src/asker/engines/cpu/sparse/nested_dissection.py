"""Nested dissection: recursive splitting of a graph by small vertex separators.

A separator splits a graph into two parts without edges between them, which are split recursively; it is eliminated
after both parts (George: Nested Dissection of a Regular Finite Element Mesh, 1973).  The separator is the smallest
level of a breadth-first search that leaves a minimum fraction of the vertices on either side (George, Liu 1978).  It is
used if it is no larger than the bound for planar graphs, √8 √n of n vertices (Lipton, Tarjan 1979).  A graph without
such a separator, such as a pose graph with loop closures between arbitrary places, is not split.
"""

import numpy as np

from asker.engines.cpu.compiler import compiled

MIN_SIDE_FRACTION = 0.25  # minimum fraction of the vertices on either side of a separator


def separators(ptr: np.ndarray, neighbours: np.ndarray, max_uncut: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the separator of each vertex, the one above each vertex's part, and the one above each separator.

    The neighbours of v are neighbours[ptr[v]:ptr[v + 1]].  A part of up to `max_uncut` vertices is not split.  A
    separator has a smaller number than those of its parts; −1 stands for none.
    """
    n = len(ptr) - 1
    separator, over, level = np.full((3, n), -1)
    part, queue, moved, parent = np.zeros((4, n), np.int64)
    todo = np.empty((n + 2, 3), np.int64)
    order = np.arange(n)
    n_cuts = _separators(max_uncut, ptr, neighbours, order, separator, over, part, level, queue, moved, parent, todo)
    return separator, over, parent[:n_cuts].copy()


@compiled
def _separators(
    max_uncut: int, ptr: np.ndarray, neighbours: np.ndarray, order: np.ndarray, separator: np.ndarray,
    over: np.ndarray, part: np.ndarray, level: np.ndarray, queue: np.ndarray, moved: np.ndarray, parent: np.ndarray,
    todo: np.ndarray,
) -> int:  # fmt: skip
    """Split the graph and return the number of separators.

    `part` labels the part of each vertex, with increasing labels; a row of the stack `todo` is (begin, end, separator
    above).
    """
    n = len(order)
    n_cuts, label = 0, 0
    waiting = _push(todo, 0, 0, n, -1)
    while waiting > 0:
        waiting -= 1
        lo, hi, above = todo[waiting, 0], todo[waiting, 1], todo[waiting, 2]
        for k in range(lo, hi):
            over[order[k]] = above
        if hi - lo <= max_uncut:
            continue
        label += 1
        for k in range(lo, hi):
            part[order[k]], level[order[k]] = label, -1
        reached = _far_search(order[lo], part, label, ptr, neighbours, level, queue)
        if reached < hi - lo:
            waiting = _queue_components(
                order, lo, hi, reached, above, max_uncut, part, label, ptr, neighbours, level, queue, todo, waiting
            )
            continue
        cut = _smallest_level(queue[:reached], level)
        if cut < 0:
            continue
        a, b, c = lo, 0, 0
        for v in queue[:reached]:
            if level[v] == cut and _has_deeper_neighbour(v, part, label, ptr, neighbours, level):
                c += 1
                moved[n - c] = v
            elif level[v] <= cut:
                order[a] = v
                a += 1
            else:
                moved[b] = v
                b += 1
        _append_moved(order, a, moved, b, c)
        if c * c > 8 * (hi - lo):
            continue
        for k in range(n - c, n):
            separator[moved[k]] = n_cuts
        parent[n_cuts] = above
        waiting = _push(todo, waiting, lo, a, n_cuts)
        waiting = _push(todo, waiting, a, a + b, n_cuts)
        n_cuts += 1
    return n_cuts


@compiled
def _append_moved(order: np.ndarray, a: int, moved: np.ndarray, b: int, c: int) -> None:
    """Append the first b and the last c of the moved vertices to the first a vertices in the order."""
    for k in range(b):
        order[a + k] = moved[k]
    for k in range(c):
        order[a + b + k] = moved[len(moved) - c + k]


@compiled
def _push(todo: np.ndarray, waiting: int, begin: int, end: int, above: int) -> int:
    """Add the range begin…end to the stack; return the new size of the stack."""
    todo[waiting, 0], todo[waiting, 1], todo[waiting, 2] = begin, end, above
    return waiting + 1


@compiled
def _search(
    start: int, part: np.ndarray, label: int, ptr: np.ndarray, neighbours: np.ndarray, level: np.ndarray,
    queue: np.ndarray,
) -> int:  # fmt: skip
    """Search one part breadth-first; return the number of vertices reached, with `queue` and `level` filled."""
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
def _far_search(
    start: int, part: np.ndarray, label: int, ptr: np.ndarray, neighbours: np.ndarray, level: np.ndarray,
    queue: np.ndarray,
) -> int:  # fmt: skip
    """Search from a pseudo-peripheral vertex."""
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
def _smallest_level(queue: np.ndarray, level: np.ndarray) -> int:
    """Return the level of fewest vertices with the minimum fraction on either side, −1 if there is none."""
    n = len(queue)
    begin, best, fewest = 1, -1, n
    for depth in range(1, level[queue[n - 1]]):
        end = begin
        while level[queue[end]] == depth:
            end += 1
        if min(begin, n - end) >= MIN_SIDE_FRACTION * n and end - begin < fewest:
            best, fewest = depth, end - begin
        begin = end
    return best


@compiled
def _has_deeper_neighbour(
    v: int, part: np.ndarray, label: int, ptr: np.ndarray, neighbours: np.ndarray, level: np.ndarray
) -> bool:
    for e in range(ptr[v], ptr[v + 1]):
        w = neighbours[e]
        if part[w] == label and level[w] > level[v]:
            return True
    return False


@compiled
def _queue_components(
    order: np.ndarray, lo: int, hi: int, reached: int, above: int, max_uncut: int, part: np.ndarray, label: int,
    ptr: np.ndarray, neighbours: np.ndarray, level: np.ndarray, queue: np.ndarray, todo: np.ndarray, waiting: int,
) -> int:  # fmt: skip
    """Push the connected components of a part; small ones are combined.  The first one has been searched already."""
    begin, size = 0, 0
    for k in range(lo, hi + 1):
        if reached > size:  # a component has just been searched
            if reached - begin > max_uncut and size > begin:
                waiting = _push(todo, waiting, lo + begin, lo + size, above)
                begin = size
            size = reached
        if k < hi and level[order[k]] < 0:
            reached += _search(order[k], part, label, ptr, neighbours, level, queue[size:])
    waiting = _push(todo, waiting, lo + begin, hi, above)
    for k in range(lo, hi):
        order[k] = queue[k - lo]
    return waiting

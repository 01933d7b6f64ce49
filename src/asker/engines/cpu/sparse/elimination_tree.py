"""The order in which a sparse matrix is eliminated, and the tree of its fronts.

Thin cuts take the graph apart (dissection.py), minimum degree orders what lies between them (minimum_degree.py).
Cuts suit meshes, and they give work to all threads; long ways that meet here and there are better left whole.  So both
are tried where that takes little time.  A front is a cut, or a few vertices that were put together because that stores
few zeros; one of its vertices names it.
"""

from typing import NamedTuple

import numpy as np

from asker.engines.cpu.compiler import compiled
from asker.engines.cpu.sparse.minimum_degree import eliminate
from asker.engines.cpu.sparse.nested_dissection import cuts

HUB = 10.0  # a vertex with more than HUB·√n neighbours, or more than
MOST = 1000  # this, is eliminated last: minimum degree would look at all its neighbours again and again
WHOLE = 200  # vertices up to which a part is not cut
BOTH = 100_000  # vertices up to which the order without cuts is tried too
LESS = 0.8  # it is taken if it does less than this share of the work
NARROW = 28  # unknowns up to which a front, with those it is coupled to, may hold any zeros
ZEROS = 0.15  # share of zeros in a larger one


class Tree(NamedTuple):
    """Fronts in the order of elimination: each comes after its children, and every subtree is in a row."""

    order: np.ndarray
    """The vertex in each place."""
    first: np.ndarray
    """(n + 1,): front k eliminates the vertices order[first[k]:first[k + 1]]."""
    parent: np.ndarray
    """The front that takes what front k leaves; −1 for none."""


class Graph(NamedTuple):
    """The neighbours of v are neighbours[ptr[v]:ptr[v + 1]]."""

    ptr: np.ndarray
    neighbours: np.ndarray
    weight: np.ndarray
    """Unknowns of each vertex."""


class Cutting(NamedTuple):
    """What `dissection.cuts` returns; −1 stands for none."""

    own: np.ndarray
    """The cut that a vertex is in."""
    over: np.ndarray
    """The cut above a vertex that is in none."""
    above: np.ndarray
    """The cut above each cut."""


def elimination_tree(graph: Graph) -> Tree:
    cut, whole = elimination_trees(graph, BOTH)
    if whole is None:
        return cut
    return whole if work_of(whole.order, graph) < LESS * work_of(cut.order, graph) else cut


def elimination_trees(graph: Graph, most: int) -> tuple[Tree, Tree | None]:
    """One with cuts, and one without, if there are cuts and no more than `most` vertices."""
    degree = np.diff(graph.ptr)
    is_hub = degree > max(min(HUB * np.sqrt(len(degree)), MOST), NARROW)
    others = np.flatnonzero(~is_hub)
    cutting = Cutting(*cuts(*_among(others, graph)[:2], WHOLE))
    tree = _tree(_below_hubs(is_hub, cutting), graph)
    if len(degree) > most or not len(cutting.above):
        return tree, None
    none = np.full(len(others), -1)
    return tree, _tree(_below_hubs(is_hub, Cutting(none, none, none[:0])), graph)


def work_of(order: np.ndarray, graph: Graph) -> float:
    """Multiply-adds of a factorisation: over the vertices, unknowns × (unknowns they are coupled to)²."""
    n, total = len(order), np.zeros(1)
    _add_up_work(order, graph, np.argsort(order), *np.full((3, n), -1), np.zeros(n, np.int64), total)
    return float(total[0])


def _below_hubs(is_hub: np.ndarray, cutting: Cutting) -> Cutting:
    """A few vertices that meet nearly all others leave no thin cut: they are a cut above all."""
    if not is_hub.any():
        return cutting
    own, over = np.zeros(len(is_hub), dtype=np.int64), np.full(len(is_hub), -1)
    own[~is_hub], over[~is_hub] = np.where(cutting.own >= 0, cutting.own + 1, -1), cutting.over + 1
    return Cutting(own, over, np.concatenate([[-1], cutting.above + 1]))


def _tree(cutting: Cutting, graph: Graph) -> Tree:
    n, own = len(graph.weight), cutting.own
    cut, rest = np.flatnonzero(own >= 0), np.flatnonzero(own < 0)
    cut = cut[np.argsort(-own[cut], kind="stable")]  # those below come first
    name = np.full(len(cutting.above) + 1, -1)
    name[own[cut]] = cut  # the last entry stands for none
    between = _among(rest, graph)
    order, parent, load = eliminate(*between)
    inner, above_inner = put_together(order, parent, load, between.weight, NARROW, ZEROS)
    front, above = np.empty(n, dtype=np.int64), np.full(n, -1)
    front[cut], front[rest] = name[own[cut]], rest[inner]
    above[name[:-1]] = name[cutting.above]
    above[rest] = np.where(above_inner >= 0, rest[above_inner], name[cutting.over[rest]])
    order = np.concatenate([rest[order], cut])
    rank = np.full(n, -1)
    _postorder(order[front[order] == order], above, *np.zeros((2, n), np.int64), rank)
    order = order[np.argsort(rank[front[order]], kind="stable")]
    names = order[front[order] == order]
    first = np.searchsorted(rank[front[order]], np.arange(len(names) + 1))
    return Tree(order, first, np.where(above[names] >= 0, rank[above[names]], -1))


def _among(some: np.ndarray, graph: Graph) -> Graph:
    """The graph of some vertices, which are numbered anew."""
    n = len(graph.weight)
    number = np.full(n, -1)
    number[some] = np.arange(len(some))
    source, target = number[np.repeat(np.arange(n), np.diff(graph.ptr))], number[graph.neighbours]
    inside = (source >= 0) & (target >= 0)
    counts = np.bincount(source[inside], minlength=len(some))
    return Graph(np.concatenate([[0], np.cumsum(counts)]), target[inside], graph.weight[some])


def put_together(
    order: np.ndarray, parent: np.ndarray, load: np.ndarray, weight: np.ndarray, narrow: int, share: float
) -> tuple[np.ndarray, np.ndarray]:
    """The front of each vertex, and the one above each front; −1 for none.

    `load`: unknowns that a vertex is still coupled to; a front of up to `narrow` unknowns, with those it is coupled to,
    may hold any zeros, a larger one a share.
    """
    n = len(order)
    front, above = np.arange(n), np.full(n, -1)
    _gather(order, parent, load, weight.copy(), np.zeros(n, np.int64), front, above, narrow, share)
    return front, above


@compiled
def _gather(order, parent, load, width, zeros, front, above, narrow, share):
    """`width`: unknowns of a vertex, later those of its front; `zeros`: in a front."""
    for c in order:  # children come before parents, so the front of c is complete
        p = parent[c]
        if p >= 0:
            wide = width[c] + width[p]
            empty = zeros[c] + zeros[p] + width[c] * (width[p] + load[p] - load[c])
            if wide + load[p] <= narrow or empty <= share * wide * (wide / 2 + load[p]):
                front[c], width[p], zeros[p] = p, wide, empty
    for k in range(len(order) - 1, -1, -1):
        v = order[k]
        front[v] = front[front[v]]
        if front[v] == v and parent[v] >= 0:
            above[v] = front[parent[v]]


@compiled
def _postorder(fronts, above, inside, taken, rank):
    """The rank of each front, so that a subtree has ranks in a row; `fronts`: children before parents."""
    for f in fronts:
        inside[f] += 1
        if above[f] >= 0:
            inside[above[f]] += inside[f]
    end = len(fronts)
    for k in range(len(fronts) - 1, -1, -1):  # a subtree ends where the one of the sibling met before begins
        last = fronts[k]
        over = above[last]
        if over < 0:
            rank[last] = end - 1
            end -= inside[last]
        else:
            rank[last] = rank[over] - 1 - taken[over]
            taken[over] += inside[last]


@compiled
def _add_up_work(order, graph: Graph, rank, parent, ancestor, mark, height, total):
    """`rank`: the place of each vertex in the order."""
    n = len(order)
    for k in range(n):  # the elimination tree (Liu 1986)
        for e in range(graph.ptr[order[k]], graph.ptr[order[k] + 1]):
            i = rank[graph.neighbours[e]]
            while i < k and i >= 0 and ancestor[i] != k:
                above = ancestor[i]
                ancestor[i] = k
                if above < 0:
                    parent[i] = k
                i = above
    for k in range(n):  # row k of L lies on the ways up from its neighbours
        mark[k] = k
        for e in range(graph.ptr[order[k]], graph.ptr[order[k] + 1]):
            i = rank[graph.neighbours[e]]
            while i < k and mark[i] != k:
                mark[i] = k
                height[i] += graph.weight[order[k]]
                i = parent[i]
    for k in range(n):
        own = float(graph.weight[order[k]])
        total[0] += own * (own + height[k]) * (own + height[k])

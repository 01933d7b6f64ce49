"""The elimination order of a sparse matrix, and its tree of fronts (supernodes).

Nested dissection splits the graph by separators (nested_dissection.py), and minimum degree orders the parts between
them (minimum_degree.py).  Separators suit meshes and expose parallelism; long trajectories with few loop closures are
ordered better by minimum degree alone.  Both are tried if that takes little time.  A front is a separator, or several
vertices that were amalgamated because that stores few zeros; it is identified by one of its vertices.
"""

from typing import NamedTuple

import numpy as np

from asker.engines.cpu.compiler import compiled
from asker.engines.cpu.sparse.minimum_degree import eliminate
from asker.engines.cpu.sparse.nested_dissection import separators

HUB_DEGREE_FACTOR = 10.0  # a vertex with more than HUB_DEGREE_FACTOR·√n or MAX_HUB_DEGREE neighbours is a hub, which is
MAX_HUB_DEGREE = 1000  # eliminated last: minimum degree would traverse its neighbours again and again
MAX_UNCUT_VERTICES = 200  # parts of at most this many vertices are not dissected
MAX_VERTICES_FOR_BOTH = 100_000  # graphs of at most this many vertices are also ordered without dissection,
MAX_UNCUT_WORK_RATIO = 0.8  # which is chosen if it needs less than this fraction of the work
SMALL_FRONT_UNKNOWNS = 28  # fronts with at most this many rows may contain any number of zeros,
MAX_ZERO_FRACTION = 0.15  # larger ones at most this fraction


class Tree(NamedTuple):
    """Fronts in postorder: children come before their parent, and each subtree is contiguous."""

    order: np.ndarray
    """The vertices in the order of elimination."""
    first: np.ndarray
    """(n + 1,): front k eliminates the vertices order[first[k]:first[k + 1]]."""
    parent: np.ndarray
    """The front that the update of front k is added to; −1 for none."""


class Graph(NamedTuple):
    """A graph in CSR form: the neighbours of v are neighbours[ptr[v]:ptr[v + 1]]."""

    ptr: np.ndarray
    neighbours: np.ndarray
    weight: np.ndarray
    """Number of unknowns of each vertex."""


class Dissection(NamedTuple):
    """The result of `nested_dissection.separators`; −1 stands for none."""

    separator: np.ndarray
    """The separator that contains a vertex."""
    over: np.ndarray
    """The innermost separator around a vertex that is in none."""
    above: np.ndarray
    """The parent of each separator."""


def elimination_tree(graph: Graph) -> Tree:
    """Return the tree of fronts with dissection, or without if that needs less work."""
    cut, uncut = elimination_trees(graph, MAX_VERTICES_FOR_BOTH)
    if uncut is None:
        return cut
    return uncut if work_of(uncut.order, graph) < MAX_UNCUT_WORK_RATIO * work_of(cut.order, graph) else cut


def elimination_trees(graph: Graph, max_vertices: int) -> tuple[Tree, Tree | None]:
    """Return the tree with dissection, and the one without if there are separators and at most `max_vertices`."""
    degree = np.diff(graph.ptr)
    is_hub = degree > max(min(HUB_DEGREE_FACTOR * np.sqrt(len(degree)), MAX_HUB_DEGREE), SMALL_FRONT_UNKNOWNS)
    others = np.flatnonzero(~is_hub)
    dissection = Dissection(*separators(*_subgraph(others, graph)[:2], MAX_UNCUT_VERTICES))
    tree = _tree(_with_hubs_on_top(is_hub, dissection), graph)
    if len(degree) > max_vertices or not len(dissection.above):
        return tree, None
    none = np.full(len(others), -1)
    return tree, _tree(_with_hubs_on_top(is_hub, Dissection(none, none, none[:0])), graph)


def work_of(order: np.ndarray, graph: Graph) -> float:
    """Return the multiply-adds of a factorisation: the sum over vertices of unknowns × (rows of their columns)²."""
    n, total = len(order), np.zeros(1)
    _count_work(order, graph, np.argsort(order), *np.full((3, n), -1), np.zeros(n, np.int64), total)
    return float(total[0])


def _with_hubs_on_top(is_hub: np.ndarray, dissection: Dissection) -> Dissection:
    """Add the hubs as the topmost separator: with them the graph has no thin separator."""
    if not is_hub.any():
        return dissection
    separator, over = np.zeros(len(is_hub), dtype=np.int64), np.full(len(is_hub), -1)
    separator[~is_hub] = np.where(dissection.separator >= 0, dissection.separator + 1, -1)
    over[~is_hub] = dissection.over + 1
    return Dissection(separator, over, np.concatenate([[-1], dissection.above + 1]))


def _tree(dissection: Dissection, graph: Graph) -> Tree:
    """Return the elimination tree of a dissected graph: its parts by minimum degree, then the separators."""
    n, separator = len(graph.weight), dissection.separator
    cut, rest = np.flatnonzero(separator >= 0), np.flatnonzero(separator < 0)
    cut = cut[np.argsort(-separator[cut], kind="stable")]  # inner separators come first
    name = np.full(len(dissection.above) + 1, -1)
    name[separator[cut]] = cut  # the last entry stands for none
    between = _subgraph(rest, graph)
    order, parent, load = eliminate(*between)
    inner, above_inner = amalgamate(order, parent, load, between.weight, SMALL_FRONT_UNKNOWNS, MAX_ZERO_FRACTION)
    front, above = np.empty(n, dtype=np.int64), np.full(n, -1)
    front[cut], front[rest] = name[separator[cut]], rest[inner]
    above[name[:-1]] = name[dissection.above]
    above[rest] = np.where(above_inner >= 0, rest[above_inner], name[dissection.over[rest]])
    order = np.concatenate([rest[order], cut])
    rank = np.full(n, -1)
    _postorder(order[front[order] == order], above, *np.zeros((2, n), np.int64), rank)
    order = order[np.argsort(rank[front[order]], kind="stable")]
    names = order[front[order] == order]
    first = np.searchsorted(rank[front[order]], np.arange(len(names) + 1))
    return Tree(order, first, np.where(above[names] >= 0, rank[above[names]], -1))


def _subgraph(vertices: np.ndarray, graph: Graph) -> Graph:
    """Return the subgraph induced by some vertices, which are renumbered."""
    n = len(graph.weight)
    number = np.full(n, -1)
    number[vertices] = np.arange(len(vertices))
    source, target = number[np.repeat(np.arange(n), np.diff(graph.ptr))], number[graph.neighbours]
    inside = (source >= 0) & (target >= 0)
    counts = np.bincount(source[inside], minlength=len(vertices))
    return Graph(np.concatenate([[0], np.cumsum(counts)]), target[inside], graph.weight[vertices])


def amalgamate(
    order: np.ndarray, parent: np.ndarray, load: np.ndarray, weight: np.ndarray, max_small: int, max_zeros: float
) -> tuple[np.ndarray, np.ndarray]:
    """Merge the vertices of an elimination tree to fronts.

    Returns the front of each vertex and the parent of each front, −1 for none.  `load` is the number of unknowns that a
    vertex is coupled to when it is eliminated.  Fronts of up to `max_small` rows may contain any number of zeros,
    larger ones the fraction `max_zeros`.
    """
    n = len(order)
    front, above = np.arange(n), np.full(n, -1)
    _merge_fronts(order, parent, load, weight.copy(), np.zeros(n, np.int64), front, above, max_small, max_zeros)
    return front, above


@compiled
def _merge_fronts(
    order: np.ndarray, parent: np.ndarray, load: np.ndarray, width: np.ndarray, zeros: np.ndarray, front: np.ndarray,
    above: np.ndarray, max_small: int, max_zeros: float,
) -> None:  # fmt: skip
    """Merge fronts into their parents; `width` becomes the unknowns of each front, `zeros` its number of zeros."""
    for c in order:  # children come before parents, so the front of c is complete
        p = parent[c]
        if p >= 0:
            wide = width[c] + width[p]
            empty = zeros[c] + zeros[p] + width[c] * (width[p] + load[p] - load[c])
            if wide + load[p] <= max_small or empty <= max_zeros * wide * (wide / 2 + load[p]):
                front[c], width[p], zeros[p] = p, wide, empty
    for k in range(len(order) - 1, -1, -1):
        v = order[k]
        front[v] = front[front[v]]
        if front[v] == v and parent[v] >= 0:
            above[v] = front[parent[v]]


@compiled
def _postorder(fronts: np.ndarray, above: np.ndarray, inside: np.ndarray, taken: np.ndarray, rank: np.ndarray) -> None:
    """Compute the postorder rank of each front, from fronts in any order with children before parents."""
    for f in fronts:
        inside[f] += 1
        if above[f] >= 0:
            inside[above[f]] += inside[f]
    end = len(fronts)
    for k in range(len(fronts) - 1, -1, -1):  # a subtree ends where the subtree of the previous sibling begins
        last = fronts[k]
        over = above[last]
        if over < 0:
            rank[last] = end - 1
            end -= inside[last]
        else:
            rank[last] = rank[over] - 1 - taken[over]
            taken[over] += inside[last]


@compiled
def _count_work(
    order: np.ndarray, graph: Graph, rank: np.ndarray, parent: np.ndarray, ancestor: np.ndarray, mark: np.ndarray,
    height: np.ndarray, total: np.ndarray,
) -> None:  # fmt: skip
    """Add up the work of a factorisation; `rank` is the position of each vertex in the order."""
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
    for k in range(n):  # the pattern of row k of L is the union of the paths from its neighbours towards the root
        mark[k] = k
        for e in range(graph.ptr[order[k]], graph.ptr[order[k] + 1]):
            i = rank[graph.neighbours[e]]
            while i < k and mark[i] != k:
                mark[i] = k
                height[i] += graph.weight[order[k]]
                i = parent[i]
    for k in range(n):
        width = float(graph.weight[order[k]])
        total[0] += width * (width + height[k]) * (width + height[k])

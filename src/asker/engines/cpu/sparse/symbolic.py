"""Symbolic factorisation: index structures and memory layout, computed once per sparsity pattern.

A front that eliminates many unknowns is split into a chain of narrower ones, whose panels fit into the cache; a very
wide one is not split and is factorised in tiles.  Whole subtrees with little work are parallel tasks.  Updates are
stored on stacks: the update of a front is computed on top of those of its children and then moved down to replace them.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

from asker.engines.cpu.compiler import compiled
from asker.engines.cpu.sparse.elimination_tree import Graph, elimination_tree

MAX_FRONT_PIVOTS = 96  # unknowns eliminated by one front; wider fronts are split into a chain,
MIN_UNSPLIT_PIVOTS = 384  # except from this width on, if they are a large part of the work
N_TASKS = 32  # a subtree with less than 1/N_TASKS of the work is one task
MIN_SHARED_WORK = 2e6  # multiply-adds from which a front above the subtrees is processed by several threads
MAX_CACHED_VALUES = 1_000_000  # matrix values of a cached pattern: for more, the numeric part takes most of the time


class Fronts(NamedTuple):
    """The index structure of the fronts; unknowns are numbered in the order of elimination."""

    first: np.ndarray
    """Front k eliminates the unknowns first[k] … first[k + 1] − 1."""
    coupled_ptr: np.ndarray
    coupled: np.ndarray
    """The unknowns that each front is coupled to when it is eliminated, ascending."""
    place: np.ndarray
    """The index of each entry of `coupled` in the parent's front."""
    child_ptr: np.ndarray
    child: np.ndarray
    value_ptr: np.ndarray
    source: np.ndarray
    """The values of the matrix that are assembled into each front,"""
    target: np.ndarray
    """and their positions in the panels."""
    panel: np.ndarray
    """The position of each panel."""
    update: np.ndarray
    """The position where each update, the upper triangle of a square, is computed,"""
    rest: np.ndarray
    """and the position where the parent reads it."""


class Symbolic(NamedTuple):
    """The symbolic factorisation of a pattern."""

    order: np.ndarray
    """The unknowns in the order of elimination."""
    fronts: Fronts
    work: np.ndarray
    """Multiply-adds of each front."""
    tasks: list[tuple[int, int]]
    """Independent ranges of fronts."""
    top: list[tuple[int, int, bool]]
    """Ranges of the fronts above them, in order, and whether they are small; a large front is a range of its own."""
    n_panels: int
    n_updates: int


def analyse(
    block_pattern: tuple[np.ndarray, np.ndarray], dims: np.ndarray, at: tuple[np.ndarray, np.ndarray]
) -> Symbolic:
    """Return the symbolic factorisation of a pattern, from the cache if it equals one of the last patterns.

    block_pattern  CSR pointers and columns of the lower triangle over the variables
    dims           number of unknowns of each variable
    at             row and column of every value of the matrix; values above the diagonal are ignored
    """
    pattern = (*block_pattern, dims, *at)
    for known, symbolic in tuple(RECENT_PATTERNS):
        if all(map(np.array_equal, known, pattern)):
            return symbolic
    symbolic = _analysed(block_pattern, dims, at)
    if len(at[0]) <= MAX_CACHED_VALUES:
        RECENT_PATTERNS.append((pattern, symbolic))
    return symbolic


def _analysed(
    block_pattern: tuple[np.ndarray, np.ndarray], dims: np.ndarray, at: tuple[np.ndarray, np.ndarray]
) -> Symbolic:
    """Compute what `analyse` returns for a new pattern."""
    starts = np.concatenate([[0], np.cumsum(dims)])
    tree = elimination_tree(graph_of(*block_pattern, dims.astype(np.int64)))
    sizes = dims[tree.order]
    order = np.repeat(starts[tree.order] - np.cumsum(sizes) + sizes, sizes) + np.arange(starts[-1])
    rank = np.empty(starts[-1], dtype=np.int64)
    rank[order] = np.arange(len(rank))
    first, parent = _chains(np.concatenate([[0], np.cumsum(sizes)])[tree.first], tree.parent)
    source = np.flatnonzero(at[0] >= at[1])
    i, j = rank[at[0][source]], rank[at[1][source]]
    i, j = np.minimum(i, j), np.maximum(i, j)
    front = np.searchsorted(first, i, side="right") - 1
    by_front = np.argsort(front, kind="stable")
    source, i, j = source[by_front], i[by_front], j[by_front]
    value_ptr = pointers(front, len(parent))
    child_ptr, child = children_of(parent)
    coupled_ptr, coupled = coupled_later(first, child_ptr, child, value_ptr, j)
    place = np.zeros(len(coupled), np.int64)
    _find_places(first, parent, coupled_ptr, coupled, place)
    pivots, left = np.diff(first), np.diff(coupled_ptr)
    panel = np.concatenate([[0], np.cumsum(pivots * (pivots + left))])
    target = np.empty(len(i), np.int64)
    _find_targets(first, coupled_ptr, coupled, value_ptr, panel, i, j, target)
    work = ((pivots + left) ** 3.0 - left**3.0) / 3
    tasks, top = _subtrees(parent, work, pivots >= MIN_UNSPLIT_PIVOTS)
    update, rest, size = _memory(child_ptr, child, left, tasks, top)
    fronts = Fronts(
        first, coupled_ptr, coupled, place, child_ptr, child, value_ptr, source, target, panel, update, rest
    )
    return Symbolic(order, fronts, work, tasks, _group_top(top, work[top] < MIN_SHARED_WORK), int(panel[-1]), size)


RECENT_PATTERNS: deque[tuple[tuple[np.ndarray, ...], Symbolic]] = deque(maxlen=4)
"""The patterns analysed last: a problem is often solved again with other values."""


def pointers(numbers: np.ndarray, n: int) -> np.ndarray:
    """Return CSR pointers to the groups of items with the numbers 0 … n − 1."""
    return np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=n))])


def children_of(parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return CSR pointers and numbers of the children of each front."""
    return pointers(parent + 1, len(parent) + 1)[1:], np.argsort(parent, kind="stable")


def graph_of(ptr: np.ndarray, columns: np.ndarray, weight: np.ndarray) -> Graph:
    """Return the graph whose edges are the entries of a lower triangle."""
    n = len(ptr) - 1
    rows = np.repeat(np.arange(n), np.diff(ptr))
    edge = rows != columns
    a, b = np.concatenate([rows[edge], columns[edge]]), np.concatenate([columns[edge], rows[edge]])
    return Graph(pointers(a, n), b[np.argsort(a, kind="stable")], weight)


def _chains(first: np.ndarray, parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split fronts that eliminate many unknowns into chains, unless they are large enough for all threads."""
    widths = np.diff(first)
    is_broad = (widths >= MIN_UNSPLIT_PIVOTS) & (widths**3.0 > (widths**3.0).sum() / N_TASKS)
    links = np.where(is_broad, 1, np.maximum(1, -(-widths // MAX_FRONT_PIVOTS)))
    ends = np.cumsum(links)
    begins = ends - links
    number = np.arange(ends[-1] if len(ends) else 0)
    link = number - np.repeat(begins, links)
    cut_first = np.repeat(first[:-1], links) + np.repeat(widths, links) * link // np.repeat(links, links)
    is_last = link == np.repeat(links, links) - 1
    above = np.repeat(np.where(parent >= 0, begins[parent], -1), links)
    return np.append(cut_first, first[-1]), np.where(is_last, above, number + 1)


def _subtrees(parent: np.ndarray, work: np.ndarray, is_broad: np.ndarray) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Return ranges of fronts that are whole subtrees with little work, and the fronts above them."""
    total, begin = np.where(is_broad, np.inf, work), np.arange(len(parent))
    _accumulate(parent, total, begin)
    limit = work.sum() / N_TASKS
    small = total <= limit
    roots = np.flatnonzero(small & ~np.where(parent >= 0, small[parent], False))
    # Adjacent subtrees are combined, up to that limit.
    done = np.cumsum(total[roots])
    new = (begin[roots] != np.append(-1, roots[:-1] + 1)) | (done // limit != np.append(-1, done[:-1] // limit))
    return [(int(begin[g[0]]), int(g[-1]) + 1) for g in _split(roots, new)], np.flatnonzero(~small)


def _split(numbers: np.ndarray, is_first: np.ndarray) -> list[np.ndarray]:
    """Split numbers into groups that begin where `is_first` is true."""
    return [group for group in np.split(numbers, np.flatnonzero(is_first)) if len(group)]


def _group_top(fronts: np.ndarray, is_small: np.ndarray) -> list[tuple[int, int, bool]]:
    """Return ranges of consecutive small fronts, and of single large ones, as (first, end, is_small)."""
    alone = ~is_small | ~np.append(False, is_small[:-1])
    runs = _split(fronts, alone | (np.diff(fronts, prepend=-2) > 1))
    small = dict(zip(fronts.tolist(), is_small.tolist(), strict=True))
    return [(int(run[0]), int(run[-1]) + 1, small[run[0]]) for run in runs]


@compiled
def _accumulate(parent: np.ndarray, total: np.ndarray, begin: np.ndarray) -> None:
    """Add totals of each node to its parent, and set the first node of each subtree; children come first."""
    for k in range(len(parent)):
        p = parent[k]
        if p >= 0:
            total[p] += total[k]
            begin[p] = min(begin[p], begin[k])


def coupled_later(
    first: np.ndarray, child_ptr: np.ndarray, child: np.ndarray, value_ptr: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the unknowns that each front is coupled to, as CSR pointers and numbers.

    They are those of its matrix values and of its children that are eliminated later.
    """
    n, size = len(first) - 1, int(first[-1])
    ptr, mark, coupled = np.zeros(n + 1, np.int64), np.full(size, -1), np.empty(max(1024, 4 * size), np.int64)
    k = 0
    while (k := _couple(k, first, child_ptr, child, value_ptr, columns, mark, ptr, coupled)) < n:
        coupled = np.concatenate([coupled, np.empty_like(coupled)])
    before = np.repeat(np.arange(n) * size, np.diff(ptr))
    return ptr, np.sort(coupled[: ptr[n]] + before) - before  # ascending within each front


@compiled
def _couple(
    begin: int, first: np.ndarray, child_ptr: np.ndarray, child: np.ndarray, value_ptr: np.ndarray,
    columns: np.ndarray, mark: np.ndarray, ptr: np.ndarray, coupled: np.ndarray,
) -> int:  # fmt: skip
    """Continue with the front `begin`; return the front at which `coupled` is full, or the number of fronts."""
    n = len(first) - 1
    for k in range(begin, n):
        size = ptr[k]
        bound = value_ptr[k + 1] - value_ptr[k]
        for c in child[child_ptr[k] : child_ptr[k + 1]]:
            bound += ptr[c + 1] - ptr[c]
        if size + bound > len(coupled):
            return k
        for j in columns[value_ptr[k] : value_ptr[k + 1]]:
            if j >= first[k + 1] and mark[j] != k:
                mark[j], coupled[size] = k, j
                size += 1
        for c in child[child_ptr[k] : child_ptr[k + 1]]:
            for j in coupled[ptr[c] : ptr[c + 1]]:
                if j >= first[k + 1] and mark[j] != k:
                    mark[j], coupled[size] = k, j
                    size += 1
        ptr[k + 1] = size
    return n


@compiled
def _find_places(
    first: np.ndarray, parent: np.ndarray, coupled_ptr: np.ndarray, coupled: np.ndarray, place: np.ndarray
) -> None:
    """Compute the index of each coupled unknown in the parent's front."""
    for k in range(len(parent)):
        p = parent[k]
        if p >= 0:
            pivots = first[p + 1] - first[p]
            q = coupled_ptr[p]
            for m in range(coupled_ptr[k], coupled_ptr[k + 1]):
                j = coupled[m]
                if j < first[p + 1]:
                    place[m] = j - first[p]
                else:
                    while coupled[q] < j:
                        q += 1
                    place[m] = pivots + q - coupled_ptr[p]


@compiled
def _find_targets(
    first: np.ndarray, coupled_ptr: np.ndarray, coupled: np.ndarray, value_ptr: np.ndarray, panel: np.ndarray,
    i: np.ndarray, j: np.ndarray, target: np.ndarray,
) -> None:  # fmt: skip
    """Compute the position of each matrix value in the panels."""
    for k in range(len(first) - 1):
        pivots = first[k + 1] - first[k]
        width = pivots + coupled_ptr[k + 1] - coupled_ptr[k]
        for v in range(value_ptr[k], value_ptr[k + 1]):
            if j[v] < first[k + 1]:
                at = j[v] - first[k]
            else:
                at = pivots + _number_of(j[v], coupled[coupled_ptr[k] : coupled_ptr[k + 1]])
            target[v] = panel[k] + (i[v] - first[k]) * width + at


@compiled
def _number_of(x: int, ascending: np.ndarray) -> int:
    """Return the index of x in an ascending array."""
    low, high = 0, len(ascending)
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < x:
            low = middle + 1
        else:
            high = middle
    return low


def _memory(
    child_ptr: np.ndarray, child: np.ndarray, left: np.ndarray, tasks: list[tuple[int, int]], top: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the positions of updates before and after they are moved, and the size of all stacks.

    Each task has its own stack, and the fronts above the tasks share one.
    """
    update, rest = np.zeros(len(left), np.int64), np.zeros(len(left), np.int64)
    size = 0
    for begin, end in tasks:
        size = _stack(np.arange(begin, end), child_ptr, child, left, size, update, rest)
    return update, rest, _stack(top, child_ptr, child, left, size, update, rest)


@compiled
def _stack(
    fronts: np.ndarray, child_ptr: np.ndarray, child: np.ndarray, left: np.ndarray, base: int, update: np.ndarray,
    rest: np.ndarray,
) -> int:  # fmt: skip
    """Assign positions on one stack, which begins at `base`; return its maximum end."""
    end, highest = base, base
    for k in fronts:
        bottom = end
        for c in child[child_ptr[k] : child_ptr[k + 1]]:
            if rest[c] >= base:
                bottom = min(bottom, rest[c])
        update[k], rest[k] = end, bottom
        highest = max(highest, end + left[k] * left[k])
        end = bottom + left[k] * left[k]
    return highest

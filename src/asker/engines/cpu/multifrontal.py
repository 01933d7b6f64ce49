"""Sparse Cholesky factorisation by fronts.

Duff, Reid: The Multifrontal Solution of Indefinite Sparse Symmetric Linear Equations, 1983.

A front is a small dense matrix: the unknowns that it eliminates, then those they are still coupled to.  It sums the
matrix's own numbers and what its children left, eliminates, and leaves the rest to its parent.  Kept is its panel
R = [R₁₁ R₁₂], the rows of Lᵀ.  Whole subtrees are tasks for the threads; the few fronts above them are done one after
the other, their rows shared out.  Everything but the numbers themselves is worked out once.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from asker.engines.cpu.dissection import dissect
from asker.engines.cpu.threads import even_bounds, run_tasks

WIDEST = 96  # unknowns eliminated by one front; wider ones become a chain
TASKS = 32  # a subtree with less than 1/TASKS of the work is one task
SHARED = 4e6  # multiply-adds from which a front above the subtrees is shared out
STRIP = 512  # columns updated at a time: a strip of a panel stays in the cache
RULES: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"contract", "reassoc"}}


class Fronts(NamedTuple):
    """Where everything is; unknowns are numbered in the order of elimination."""

    first: np.ndarray
    """Front k eliminates the unknowns first[k] … first[k + 1] − 1."""
    rows_ptr: np.ndarray
    rows: np.ndarray
    """Those they are coupled to, ascending."""
    place: np.ndarray
    """Of each of `rows`: its number in the parent's front."""
    child_ptr: np.ndarray
    child: np.ndarray
    value_ptr: np.ndarray
    source: np.ndarray
    """Which values of the matrix a front holds,"""
    target: np.ndarray
    """and where in the panels."""
    panel: np.ndarray
    """Where its panel begins."""
    update: np.ndarray
    """Where its update, the upper triangle of a square, is computed,"""
    rest: np.ndarray
    """and where it is left for the parent."""


class Multifrontal:
    """Analysed once for a pattern; then `solve` for any values and right-hand side."""

    def __init__(self, meeting: tuple[np.ndarray, np.ndarray], dims: np.ndarray, at: tuple[np.ndarray, np.ndarray]):
        """`meeting`: which variables meet, pointers and columns of a lower triangle; `dims`: the unknowns of each;
        `at`: row and column of every value that will come.  Those above the diagonal are passed over."""
        starts = np.concatenate([[0], np.cumsum(dims)])
        tree = dissect(*_graph(*meeting), dims.astype(np.int64))
        sizes = dims[tree.order]
        self.order = np.repeat(starts[tree.order] - np.cumsum(sizes) + sizes, sizes) + np.arange(starts[-1])
        rank = np.empty(starts[-1], dtype=np.int64)
        rank[self.order] = np.arange(len(rank))
        first, parent = _chains(np.concatenate([[0], np.cumsum(sizes)])[tree.first], tree.parent)
        source = np.flatnonzero(at[0] >= at[1])
        i, j = rank[at[0][source]], rank[at[1][source]]
        i, j = np.minimum(i, j), np.maximum(i, j)
        front = np.searchsorted(first, i, side="right") - 1
        by_front = np.argsort(front, kind="stable")
        source, i, j = source[by_front], i[by_front], j[by_front]
        value_ptr = _pointers(front, len(parent))
        child, child_ptr = np.argsort(parent, kind="stable"), _pointers(parent + 1, len(parent) + 1)[1:]
        rows_ptr, rows = _coupled(first, child_ptr, child, value_ptr, j)
        place = _places(first, parent, rows_ptr, rows)
        kept, left = np.diff(first), np.diff(rows_ptr)
        panel = np.concatenate([[0], np.cumsum(kept * (kept + left))])
        target = _targets(first, rows_ptr, rows, value_ptr, panel, i, j)
        self.work = kept * (kept + left) ** 2.0
        self.tasks, self.top = _subtrees(parent, self.work)
        update, rest, size = _memory(child_ptr, child, left, self.tasks, self.top)
        self.fronts = Fronts(
            first, rows_ptr, rows, place, child_ptr, child, value_ptr, source, target, panel, update, rest
        )
        self.panels, self.updates, self.left = np.empty(panel[-1]), np.empty(size), np.empty(len(rows))

    def solve(self, values: np.ndarray, b: np.ndarray) -> np.ndarray | None:
        """x with A x = b; None when A is not positive definite."""
        x = b[self.order]
        arrays = (values, self.panels, self.updates, self.left, x)
        ok = np.ones(len(self.tasks) + 1, dtype=bool)

        def subtree(t: int) -> None:
            ok[t] = factorise_fronts(*self.tasks[t], self.fronts, *arrays)

        run_tasks(subtree, len(self.tasks))
        for k in self.top.tolist():
            if not ok.all():
                return None
            ok[-1] = self._factorise_shared(k, arrays)
        if not ok.all():
            return None
        for k in self.top[::-1].tolist():
            substitute_fronts(k, k + 1, self.fronts, self.panels, self.left, x)
        run_tasks(lambda t: substitute_fronts(*self.tasks[t], self.fronts, self.panels, self.left, x), len(self.tasks))
        out = np.empty_like(x)
        out[self.order] = x
        return out

    def _factorise_shared(self, k: int, arrays: tuple[np.ndarray, ...]) -> bool:
        if self.work[k] < SHARED:
            return factorise_fronts(k, k + 1, self.fronts, *arrays)
        if not begin_front(k, self.fronts, *arrays):
            return False
        n = int(self.fronts.rows_ptr[k + 1] - self.fronts.rows_ptr[k])
        cuts = even_bounds(n, smallest=64, most=32).astype(np.int64)
        run_tasks(lambda t: update_rows(k, cuts[t], cuts[t + 1], self.fronts, *arrays[1:3]), len(cuts) - 1)
        leave_update(k, self.fronts, self.updates)
        return True


def _pointers(numbers: np.ndarray, n: int) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=n))])


def _graph(ptr: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both neighbours of every edge, from a lower triangle."""
    n = len(ptr) - 1
    rows = np.repeat(np.arange(n), np.diff(ptr))
    edge = rows != columns
    a, b = np.concatenate([rows[edge], columns[edge]]), np.concatenate([columns[edge], rows[edge]])
    return _pointers(a, n), b[np.argsort(a, kind="stable")]


def _chains(first: np.ndarray, parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fronts that eliminate too many unknowns are cut into chains."""
    widths = np.diff(first)
    links = np.maximum(1, -(-widths // WIDEST))
    ends = np.cumsum(links)
    begins = ends - links
    number = np.arange(ends[-1] if len(ends) else 0)
    link = number - np.repeat(begins, links)
    cut_first = np.repeat(first[:-1], links) + np.repeat(widths, links) * link // np.repeat(links, links)
    is_last = link == np.repeat(links, links) - 1
    above = np.repeat(np.where(parent >= 0, begins[parent], -1), links)
    return np.append(cut_first, first[-1]), np.where(is_last, above, number + 1)


def _subtrees(parent: np.ndarray, work: np.ndarray) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Ranges of fronts that are whole subtrees with little work, and the fronts above them."""
    total, begin = work.copy(), np.arange(len(parent))
    _accumulate(parent, total, begin)
    small = total <= work.sum() / TASKS
    root = small & ~np.where(parent >= 0, small[parent], False)
    roots = np.flatnonzero(root)
    return list(zip(begin[roots].tolist(), (roots + 1).tolist(), strict=True)), np.flatnonzero(~small)


@njit(**RULES)
def _accumulate(parent, total, begin):
    for k in range(len(parent)):
        p = parent[k]
        if p >= 0:
            total[p] += total[k]
            begin[p] = min(begin[p], begin[k])


@njit(**RULES)
def _coupled(first, child_ptr, child, value_ptr, columns):
    """The unknowns that each front is coupled to: its values' and its children's, as far as they come later."""
    n = len(first) - 1
    seen = np.full(first[-1], -1, np.int64)
    rows_ptr = np.zeros(n + 1, np.int64)
    rows = np.empty(max(1024, 4 * first[-1]), np.int64)
    for k in range(n):
        size = rows_ptr[k]
        most = value_ptr[k + 1] - value_ptr[k]
        for c in child[child_ptr[k] : child_ptr[k + 1]]:
            most += rows_ptr[c + 1] - rows_ptr[c]
        while size + most > len(rows):
            longer = np.empty(2 * len(rows), np.int64)
            longer[:size] = rows[:size]
            rows = longer
        for v in range(value_ptr[k], value_ptr[k + 1]):
            j = columns[v]
            if j >= first[k + 1] and seen[j] != k:
                seen[j] = k
                rows[size] = j
                size += 1
        for c in child[child_ptr[k] : child_ptr[k + 1]]:
            for q in range(rows_ptr[c], rows_ptr[c + 1]):
                j = rows[q]
                if j >= first[k + 1] and seen[j] != k:
                    seen[j] = k
                    rows[size] = j
                    size += 1
        rows[rows_ptr[k] : size].sort()
        rows_ptr[k + 1] = size
    return rows_ptr, rows[: rows_ptr[n]].copy()


@njit(**RULES)
def _places(first, parent, rows_ptr, rows):
    place = np.empty(len(rows), np.uint64)
    for k in range(len(parent)):
        p = parent[k]
        if p < 0:
            continue
        kept = first[p + 1] - first[p]
        q = rows_ptr[p]
        for m in range(rows_ptr[k], rows_ptr[k + 1]):
            j = rows[m]
            if j < first[p + 1]:
                place[m] = j - first[p]
            else:
                while rows[q] < j:
                    q += 1
                place[m] = kept + q - rows_ptr[p]
    return place


@njit(**RULES)
def _targets(first, rows_ptr, rows, value_ptr, panel, i, j):
    target = np.empty(len(i), np.int64)
    for k in range(len(first) - 1):
        kept = first[k + 1] - first[k]
        width = kept + rows_ptr[k + 1] - rows_ptr[k]
        for v in range(value_ptr[k], value_ptr[k + 1]):
            if j[v] < first[k + 1]:
                at = j[v] - first[k]
            else:
                at = kept + np.searchsorted(rows[rows_ptr[k] : rows_ptr[k + 1]], j[v])
            target[v] = panel[k] + (i[v] - first[k]) * width + at
    return target


def _memory(child_ptr, child, left, tasks, top) -> tuple[np.ndarray, np.ndarray, int]:
    """Where updates are computed and left: a stack for each task, and one for the fronts above."""
    update, rest = np.zeros(len(left), np.int64), np.zeros(len(left), np.int64)
    size = 0
    for begin, end in tasks:
        size = _stack(np.arange(begin, end), child_ptr, child, left, size, update, rest)
    return update, rest, _stack(top, child_ptr, child, left, size, update, rest)


@njit(**RULES)
def _stack(fronts, child_ptr, child, left, base, update, rest):
    """Returns the end of the highest place used.  What lies below `base` belongs to others."""
    end, highest = base, base
    for k in fronts:
        bottom = end
        for c in child[child_ptr[k] : child_ptr[k + 1]]:
            if rest[c] >= base:
                bottom = min(bottom, rest[c])
        update[k], rest[k] = end, bottom
        highest = max(highest, end + left[k] ** 2)
        end = bottom + left[k] ** 2
    return highest


@njit(**RULES)
def _subtract(out, R, n, column, begin):
    """out −= Σ_k R[k, column] R[k, begin:] over the first n rows, as many numbers as `out` has."""
    end = begin + len(out)
    k = 0
    while k + 8 <= n:
        r0, r1, r2, r3 = R[k, begin:end], R[k + 1, begin:end], R[k + 2, begin:end], R[k + 3, begin:end]
        r4, r5, r6, r7 = R[k + 4, begin:end], R[k + 5, begin:end], R[k + 6, begin:end], R[k + 7, begin:end]
        c0, c1, c2, c3 = R[k, column], R[k + 1, column], R[k + 2, column], R[k + 3, column]
        c4, c5, c6, c7 = R[k + 4, column], R[k + 5, column], R[k + 6, column], R[k + 7, column]
        for j in range(len(out)):
            first = c0 * r0[j] + c1 * r1[j] + c2 * r2[j] + c3 * r3[j]
            out[j] -= first + c4 * r4[j] + c5 * r5[j] + c6 * r6[j] + c7 * r7[j]
        k += 8
    while k < n:
        c0, r0 = R[k, column], R[k, begin:end]
        for j in range(len(out)):
            out[j] -= c0 * r0[j]
        k += 1


@njit(inline="always")
def _front(k, F, panels):
    """Number of unknowns eliminated, number left, and the panel."""
    kept, left = F.first[k + 1] - F.first[k], F.rows_ptr[k + 1] - F.rows_ptr[k]
    return kept, left, panels[F.panel[k] : F.panel[k + 1]].reshape(kept, kept + left)


@njit(**RULES)
def begin_front(k, F, values, panels, updates, left_over, x):
    """Sum up a front, eliminate in its panel, substitute forward in x.  False if a pivot is not positive."""
    kept, left, R = _front(k, F, panels)
    U = updates[F.update[k] : F.update[k] + left * left].reshape(left, left)
    t = left_over[F.rows_ptr[k] : F.rows_ptr[k + 1]]
    f = F.first[k]
    width = np.uint64(kept)  # with an unsigned index nothing is counted from the end
    R[:] = 0.0
    t[:] = 0.0
    for i in range(left):
        U[i, i:] = 0.0
    for v in range(F.value_ptr[k], F.value_ptr[k + 1]):
        panels[F.target[v]] = values[F.source[v]]
    for c in F.child[F.child_ptr[k] : F.child_ptr[k + 1]]:
        place = F.place[F.rows_ptr[c] : F.rows_ptr[c + 1]]
        n = len(place)
        C = updates[F.rest[c] : F.rest[c] + n * n].reshape(n, n)
        t_child = left_over[F.rows_ptr[c] : F.rows_ptr[c + 1]]
        for i in range(n):
            p = place[i]
            if p < width:
                x[f + p] += t_child[i]
                row, shift = R[p], np.uint64(0)
            else:
                t[p - width] += t_child[i]
                row, shift = U[p - width], width
            for j in range(i, n):
                row[place[j] - shift] += C[i, j]
    for i in range(kept):
        _subtract(R[i, i:], R, i, i, i)
        pivot = R[i, i]
        if not pivot > 0.0:
            return False
        root = 1.0 / np.sqrt(pivot)
        for j in range(i, kept + left):
            R[i, j] *= root
        y = x[f + i] * root
        x[f + i] = y
        for j in range(i + 1, kept):
            x[f + j] -= y * R[i, j]
        for j in range(left):
            t[j] -= y * R[i, kept + j]
    return True


@njit(**RULES)
def update_rows(k, begin, end, F, panels, updates):
    """The rows begin … end − 1 of a front's update, U −= R₁₂ᵀ R₁₂."""
    kept, left, R = _front(k, F, panels)
    U = updates[F.update[k] : F.update[k] + left * left].reshape(left, left)
    for strip in range(begin // STRIP * STRIP, left, STRIP):
        stop = min(strip + STRIP, left)
        for i in range(begin, min(end, stop)):
            _subtract(U[i, max(i, strip) : stop], R, kept, kept + i, kept + max(i, strip))


@njit(**RULES)
def leave_update(k, F, updates):
    """Move it to where the parent looks; the places may overlap."""
    left = F.rows_ptr[k + 1] - F.rows_ptr[k]
    if F.rest[k] != F.update[k]:
        for i in range(left):
            begin, end = i * left + i, (i + 1) * left
            updates[F.rest[k] + begin : F.rest[k] + end] = updates[F.update[k] + begin : F.update[k] + end]


@njit(**RULES)
def factorise_fronts(begin, end, F, values, panels, updates, left_over, x):
    for k in range(begin, end):
        if not begin_front(k, F, values, panels, updates, left_over, x):
            return False
        update_rows(k, 0, F.rows_ptr[k + 1] - F.rows_ptr[k], F, panels, updates)
        leave_update(k, F, updates)
    return True


@njit(**RULES)
def substitute_fronts(begin, end, F, panels, left_over, x):
    """Substitute backward, from the last front to the first."""
    for k in range(end - 1, begin - 1, -1):
        kept, left, R = _front(k, F, panels)
        f = F.first[k]
        t = left_over[F.rows_ptr[k] : F.rows_ptr[k + 1]]
        for q in range(left):
            t[q] = x[F.rows[F.rows_ptr[k] + q]]
        for i in range(kept - 1, -1, -1):
            s = 0.0
            for j in range(i + 1, kept):
                s += R[i, j] * x[f + j]
            for q in range(left):
                s += R[i, kept + q] * t[q]
            x[f + i] = (x[f + i] - s) / R[i, i]

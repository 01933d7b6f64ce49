"""Multifrontal sparse Cholesky factorisation.

Duff, Reid: The Multifrontal Solution of Indefinite Sparse Symmetric Linear Equations, 1983.

A front is a small dense matrix over the unknowns that it eliminates and those that they are coupled to.  It sums the
entries of the matrix and the updates of its children, eliminates, and passes its update (Schur complement) to its
parent.  Its panel R = [R₁₁ R₁₂], the rows of Lᵀ, is kept.  Whole subtrees are parallel tasks; the few fronts above them
are processed one after the other, the large ones in parallel by rows or tiles (cholesky.py).  Everything except the
numeric values is computed once (symbolic.py).
"""

import math

import numpy as np

from asker.engines.cpu import cholesky
from asker.engines.cpu.compiler import compiled
from asker.engines.cpu.sparse.symbolic import Fronts, analyse
from asker.engines.cpu.threads import even_bounds, run_tasks

MIN_TILED_NUMBERS = 100_000  # numbers in a panel, from which on tiles are faster than rows
STRIP = 512  # columns updated at a time: a strip of a panel fits into the cache


class Multifrontal:
    """A solver that is analysed once for a pattern, and then solves for any values and right-hand side."""

    def __init__(
        self, block_pattern: tuple[np.ndarray, np.ndarray], dims: np.ndarray, at: tuple[np.ndarray, np.ndarray]
    ):
        """Analyse the pattern; the arguments are those of `analyse`."""
        self.order, self.fronts, self.work, self.tasks, self.top, n_panels, n_updates = analyse(block_pattern, dims, at)
        self.panels, self.updates = np.empty(n_panels), np.empty(n_updates)
        self.left = np.empty(len(self.fronts.coupled))

    def solve(self, values: np.ndarray, b: np.ndarray) -> np.ndarray | None:
        """Return x with A x = b, or None if A is not positive definite."""
        x = b[self.order]
        arrays = (values, self.panels, self.updates, self.left, x)
        ok = np.ones(len(self.tasks) + 1, dtype=bool)

        def subtree(t: int) -> None:
            ok[t] = factorise_fronts(*self.tasks[t], self.fronts, *arrays)

        run_tasks(subtree, len(self.tasks))
        if not (ok.all() and self._factorise_top(arrays)):
            return None
        for begin, end, _ in reversed(self.top):
            substitute_fronts(begin, end, self.fronts, self.panels, self.left, x)
        run_tasks(lambda t: substitute_fronts(*self.tasks[t], self.fronts, self.panels, self.left, x), len(self.tasks))
        out = np.empty_like(x)
        out[self.order] = x
        return out

    def precompile(self, values: np.ndarray, b: np.ndarray) -> None:
        """Enqueue the compilation of the functions of `solve` (`asker.engines.cpu.background_compile`)."""
        factorise_fronts(0, 0, self.fronts, values, self.panels, self.updates, self.left, b)
        substitute_fronts(0, 0, self.fronts, self.panels, self.left, b)

    def _factorise_top(self, arrays: tuple[np.ndarray, ...]) -> bool:
        """Factorise the fronts above the subtrees."""
        with cholesky.one_blas_thread():
            for begin, end, is_small in self.top:
                run = factorise_fronts(begin, end, self.fronts, *arrays) if is_small else self._parallel(begin, *arrays)
                if not run:
                    return False
        return True

    def _parallel(self, k: int, values: np.ndarray, *arrays: np.ndarray) -> bool:
        """Factorise one large front with all threads."""
        assemble_front(k, self.fronts, values, *arrays)
        pivots, R, U, y, t = parts_of_front.python(k, self.fronts, *arrays)
        in_tiles = R.size >= MIN_TILED_NUMBERS
        if not (cholesky.factorise_rows(R) if in_tiles else eliminate_in_panel(R)):
            return False
        substitute_forward(R, y, t)
        if in_tiles:
            cholesky.subtract_gram(U, R[:, pivots:])
        else:
            cuts = even_bounds(len(U), min_size=64, max_tasks=32).astype(np.int64)
            run_tasks(lambda i: update_rest(R, U, cuts[i], cuts[i + 1]), len(cuts) - 1)
        leave_update(k, self.fronts, self.updates)
        return True


@compiled
def subtract_rows(out: np.ndarray, times: np.ndarray, A: np.ndarray) -> None:
    """Subtract Σ_k times[k] A[k] from `out`, over the length of `out`."""
    k = 0
    while k + 8 <= len(times):
        r0, r1, r2, r3, r4, r5, r6, r7 = A[k], A[k + 1], A[k + 2], A[k + 3], A[k + 4], A[k + 5], A[k + 6], A[k + 7]
        t0, t1, t2, t3 = times[k], times[k + 1], times[k + 2], times[k + 3]
        t4, t5, t6, t7 = times[k + 4], times[k + 5], times[k + 6], times[k + 7]
        for j in range(len(out)):
            first = t0 * r0[j] + t1 * r1[j] + t2 * r2[j] + t3 * r3[j]
            out[j] -= first + t4 * r4[j] + t5 * r5[j] + t6 * r6[j] + t7 * r7[j]
        k += 8
    while k < len(times):
        row, factor = A[k], times[k]
        for j in range(len(out)):
            out[j] -= factor * row[j]
        k += 1


@compiled
def parts_of_front(
    k: int, F: Fronts, panels: np.ndarray, updates: np.ndarray, left_over: np.ndarray, x: np.ndarray
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the number of pivots of a front, its panel and update, and the right-hand sides of both."""
    pivots, left = F.first[k + 1] - F.first[k], F.coupled_ptr[k + 1] - F.coupled_ptr[k]
    R = panels[F.panel[k] : F.panel[k + 1]].reshape(pivots, pivots + left)
    U = updates[F.update[k] : F.update[k] + left * left].reshape(left, left)
    return pivots, R, U, x[F.first[k] : F.first[k + 1]], left_over[F.coupled_ptr[k] : F.coupled_ptr[k + 1]]


@compiled
def assemble_front(
    k: int, F: Fronts, values: np.ndarray, panels: np.ndarray, updates: np.ndarray, left_over: np.ndarray,
    x: np.ndarray,
) -> None:  # fmt: skip
    """Sum the entries of the matrix and the updates of the children into a front."""
    pivots, R, U, y, t = parts_of_front(k, F, panels, updates, left_over, x)
    for m in range(F.panel[k], F.panel[k + 1]):
        panels[m] = 0.0
    for i in range(len(t)):
        t[i] = 0.0
        for j in range(i, len(t)):
            U[i, j] = 0.0
    for v in range(F.value_ptr[k], F.value_ptr[k + 1]):
        panels[F.target[v]] = values[F.source[v]]
    for c in F.child[F.child_ptr[k] : F.child_ptr[k + 1]]:
        place = F.place[F.coupled_ptr[c] : F.coupled_ptr[c + 1]]
        n = len(place)
        C = updates[F.rest[c] : F.rest[c] + n * n].reshape(n, n)
        t_child = left_over[F.coupled_ptr[c] : F.coupled_ptr[c + 1]]
        for i in range(n):
            p = place[i]
            if p < pivots:
                y[p] += t_child[i]
                _scatter(R[p], 0, C[i], place, i)
            else:
                t[p - pivots] += t_child[i]
                _scatter(U[p - pivots], pivots, C[i], place, i)


@compiled
def _scatter(row: np.ndarray, shift: int, numbers: np.ndarray, place: np.ndarray, begin: int) -> None:
    """Add numbers to a row at given positions."""
    for j in range(begin, len(place)):
        row[place[j] - shift] += numbers[j]


@compiled
def substitute_forward(R: np.ndarray, y: np.ndarray, t: np.ndarray) -> None:
    """Substitute forward in a front: y becomes R₁₁⁻ᵀ y, then t −= R₁₂ᵀ y."""
    pivots = len(y)
    for i in range(pivots):
        y[i] /= R[i, i]
        for j in range(i + 1, pivots):
            y[j] -= y[i] * R[i, j]
        for j in range(len(t)):
            t[j] -= y[i] * R[i, pivots + j]


@compiled
def eliminate_in_panel(R: np.ndarray) -> bool:
    """Factorise a panel in place; return False if a pivot is not positive."""
    for i in range(len(R)):
        subtract_rows(R[i, i:], R[:i, i], R[:i, i:])
        pivot = R[i, i]
        if not pivot > 0.0:
            return False
        root = 1.0 / math.sqrt(pivot)
        for j in range(i, len(R[0])):
            R[i, j] *= root
    return True


@compiled
def update_rest(R: np.ndarray, U: np.ndarray, begin: int, end: int) -> None:
    """Subtract the rows begin … end − 1 of R₁₂ᵀ R₁₂ from U."""
    pivots = len(R)
    for strip in range(begin // STRIP * STRIP, len(U), STRIP):
        stop = min(strip + STRIP, len(U))
        for i in range(begin, min(end, stop)):
            first = max(i, strip)
            subtract_rows(U[i, first:stop], R[:, pivots + i], R[:, pivots + first :])


@compiled
def leave_update(k: int, F: Fronts, updates: np.ndarray) -> None:
    """Move the update of a front to the position where its parent reads it; the two may overlap."""
    left = F.coupled_ptr[k + 1] - F.coupled_ptr[k]
    if F.rest[k] != F.update[k]:
        for i in range(left):
            for j in range(i * left + i, (i + 1) * left):
                updates[F.rest[k] + j] = updates[F.update[k] + j]


@compiled
def factorise_fronts(
    begin: int, end: int, F: Fronts, values: np.ndarray, panels: np.ndarray, updates: np.ndarray,
    left_over: np.ndarray, x: np.ndarray,
) -> bool:  # fmt: skip
    """Factorise the fronts begin … end − 1 and substitute forward; return False if a pivot is not positive."""
    for k in range(begin, end):
        assemble_front(k, F, values, panels, updates, left_over, x)
        _, R, U, y, t = parts_of_front(k, F, panels, updates, left_over, x)
        if not eliminate_in_panel(R):
            return False
        substitute_forward(R, y, t)
        update_rest(R, U, 0, len(U))
        leave_update(k, F, updates)
    return True


@compiled
def substitute_fronts(
    begin: int, end: int, F: Fronts, panels: np.ndarray, left_over: np.ndarray, x: np.ndarray
) -> None:
    """Substitute backward, from the last front to the first."""
    for k in range(end - 1, begin - 1, -1):
        pivots, left = F.first[k + 1] - F.first[k], F.coupled_ptr[k + 1] - F.coupled_ptr[k]
        R = panels[F.panel[k] : F.panel[k + 1]].reshape(pivots, pivots + left)
        f = F.first[k]
        t = left_over[F.coupled_ptr[k] : F.coupled_ptr[k + 1]]
        for q in range(left):
            t[q] = x[F.coupled[F.coupled_ptr[k] + q]]
        for i in range(pivots - 1, -1, -1):
            s = 0.0
            for j in range(i + 1, pivots):
                s += R[i, j] * x[f + j]
            for q in range(left):
                s += R[i, pivots + q] * t[q]
            x[f + i] = (x[f + i] - s) / R[i, i]

"""Blocked dense Cholesky factorisation of up to a few hundred unknowns, by multithreaded compiled loops.

Single-threaded LAPACK takes as long for them as the rest of an iteration on two threads, and the rounding of
multithreaded LAPACK depends on the number of threads.  The matrix is A = RᵀR with R stored by rows.  The right-hand
side is an additional column of A, so that the factorisation also computes R⁻ᵀb.

Rows are processed in blocks of 8 and panels of 32, and columns in panels: a task is one panel of rows and columns.  The
task with the columns of the next diagonal block also factorises that block, so that other tasks seldom wait for it.
Entries to the left of the diagonal may be uninitialised.

A matrix of a single panel is factorised by plain loops, which are as fast there and compile in a tenth of the time.
"""

import math
from functools import cache

import numpy as np

from asker.engines.cpu.compiler import Printed, compile_source, compiled
from asker.engines.cpu.system.codegen import WAIT_FOR, aligned, indented
from asker.engines.cpu.threads import run_together

BLOCK, STRIP, PANEL = 8, 16, 32
MIN_SHARED_UNKNOWNS = 384  # unknowns from which several threads are faster than one


class SmallCholesky:
    """The storage and solver of a system of n unknowns."""

    def __init__(self, n: int):
        self.n, self.padded = n, -(-n // STRIP) * STRIP
        self.R = aligned(self.padded, self.padded + STRIP)
        self.R[...] = 0.0  # rows of padding are those of the identity
        self.diagonal = self.R.reshape(-1)[:: self.R.shape[1] + 1][: self.padded]
        """The diagonal of A, an input."""
        self.right = self.R[:n, self.padded]
        """The right-hand side b, an input."""
        n_rows, self._n_columns = (-(-length // PANEL) for length in self.R.shape)
        items = [(rows, columns) for rows in range(n_rows) for columns in range(rows + 1, self._n_columns)]
        self._items = np.array([(-1, 0), *items], dtype=np.int64)
        self._bounds = np.arange(len(self._items) + 1, dtype=np.uint64)
        self._corners = aligned(self.padded, BLOCK + 1)

    def solve(self) -> np.ndarray | None:
        """Return x with A x = b for the current A and b, or None if a pivot is not positive."""
        x = np.empty(self.n)
        if _factor_panel(self.R, self.padded, x) if self.n <= PANEL else self._has_failed():
            return None
        _substitute_back(self.R, self.padded, x)
        return x

    def _has_failed(self) -> bool:
        """Factorise in blocks, and return whether a pivot is not positive."""
        self.diagonal[self.n :] = 1.0
        counter, finished = np.zeros(1, dtype=np.int64), np.zeros(self._n_columns, dtype=np.int64)
        failed, loop = np.zeros(1, dtype=bool), _panels()
        arguments = counter, self._bounds, self._items, finished, self.R, self._corners, failed
        loop.prepare(*arguments)
        run_together(lambda: loop.share(*arguments), len(self._items) if self.n >= MIN_SHARED_UNKNOWNS else 1)
        return bool(failed[0])


@cache
def _panels() -> Printed:
    """Return the loop over items (panel of rows, panel of columns), which computes these rows of R in these columns.

    The item whose columns contain the next diagonal block factorises that block too; panel −1 has no rows.
    finished[columns] is the number of finished panels of rows.
    """
    driver = """
def panels(start, stop, items, finished, R, corners, failed):
    n, n_columns = np.uint64(len(R)), np.uint64(len(R[0]))
    for item in range(start, stop):
        rows, columns = items[item, 0], items[item, 1]
        wait_for(finished, max(rows, 0), rows + 1)
        wait_for(finished, columns, rows)
        first, begin = np.uint64(max(rows, 0) * PANEL), np.uint64(columns * PANEL)
        rows_end = min(np.uint64((rows + 1) * PANEL), n)
        last = min(begin + np.uint64(PANEL), n_columns)
        is_next = columns == rows + 1
        for i in range(first, min(last, n) if is_next else rows_end, BLOCK):
            for j in range(max(begin, i & np.uint64(ALIGNED)), last, STRIP):
                subtract_rows_above(i, j, R)
                if j <= i:
                    factor_corner(i, R, corners, failed)
                divide_by_corner(i, j, R, corners)
        store_release(finished, columns, rows + (2 if is_next else 1))
"""
    numbers = f"STRIP = {STRIP}\nPANEL = {PANEL}\nBLOCK = {BLOCK}\nALIGNED = {2**62 - STRIP}\n"
    parts = [numbers, WAIT_FOR, _subtract_rows_above(), _factor_corner(), _divide(), driver]
    return compile_source("panels", "\n".join(parts))


def _row(x: str, q: int) -> str:
    """Return the expression of a strip of columns of row q of a block."""
    return f"vector(R[{x} + np.uint64({q})], j, {STRIP})"


def _put(q: int, value: str) -> str:
    """Return the line of source that stores a strip of row i + q of R."""
    return f"R[i + np.uint64({q}), j : j + np.uint64({STRIP})] = {value}"


def _subtract_rows_above() -> str:
    """Return the function A −= Σ_k R[k]ᵀR[k] for a block of rows and a strip of columns, over all rows k above."""
    lines = [f"y{m} = {_row('k', m)}" for m in range(BLOCK)]
    for q in range(BLOCK):
        terms = [f" - R[k + np.uint64({m}), i + np.uint64({q})] * y{m}" for m in range(BLOCK)]
        lines.append(_put(q, _row("i", q) + "".join(terms)))
    head = ["def subtract_rows_above(i, j, R):", f"    for k in range(np.uint64(0), i, {BLOCK}):"]
    return "\n".join([*head, *indented(2, lines)])


def _factor_corner() -> str:
    """Return the function that factorises a diagonal block into `corners`, with inverse pivots at the ends of rows."""
    lines = []
    for q in range(BLOCK):
        for s in range(q, BLOCK):
            terms = "".join(f" - c{m}_{q} * c{m}_{s}" for m in range(q))
            lines.append(f"a{q}_{s} = R[i + np.uint64({q}), i + np.uint64({s})]{terms}")
        lines += [f"bad |= not a{q}_{q} > 0.0", f"d{q} = 1.0 / math.sqrt(a{q}_{q} if a{q}_{q} > 0.0 else 1.0)"]
        lines += [f"c{q}_{s} = a{q}_{s} * d{q}" for s in range(q, BLOCK)]
        lines += [f"corners[i + np.uint64({q}), {s}] = c{q}_{s}" for s in range(q, BLOCK)]
        lines += [f"corners[i + np.uint64({q}), {BLOCK}] = d{q}"]
    head = ["def factor_corner(i, R, corners, failed):", "    bad = False"]
    return "\n".join([*head, *indented(1, lines), "    if bad:", "        failed[0] = True"])


def _divide() -> str:
    """Return the function that divides a block of rows of A by its transposed corner, in a strip of columns."""
    lines = [f"c{m}_{q} = corners[i + np.uint64({m}), {q}]" for q in range(BLOCK) for m in range(q)]
    lines += [f"d{q} = corners[i + np.uint64({q}), {BLOCK}]" for q in range(BLOCK)]
    for q in range(BLOCK):
        terms = "".join(f" - c{m}_{q} * v{m}" for m in range(q))
        lines.append(f"v{q} = ({_row('i', q)}{terms}) * d{q}")
    lines += [_put(q, f"v{q}") for q in range(BLOCK)]
    return "\n".join(["def divide_by_corner(i, j, R, corners):", *indented(1, lines)])


@compiled
def _factor_panel(R: np.ndarray, column: int, x: np.ndarray) -> int:
    """Compute R and, in one of its columns, R⁻ᵀb for len(x) unknowns; return 1 if a pivot is not positive."""
    n = len(x)
    for i in range(n):
        for k in range(i):
            r = R[k, i]
            for j in range(i, n):
                R[i, j] -= r * R[k, j]
            R[i, column] -= r * R[k, column]
        if not R[i, i] > 0.0:
            return 1
        d = 1.0 / math.sqrt(R[i, i])
        for j in range(i, n):
            R[i, j] *= d
        R[i, column] *= d
    return 0


@compiled
def _substitute_back(R: np.ndarray, column: int, x: np.ndarray) -> None:
    """Compute x = R⁻¹ y, with y in a column of R."""
    n = len(x)
    for i in range(n - 1, -1, -1):
        s = 0.0
        for j in range(i + 1, n):
            s += R[i, j] * x[j]
        x[i] = (R[i, column] - s) / R[i, i]

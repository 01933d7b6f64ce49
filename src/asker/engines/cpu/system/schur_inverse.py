"""The inverse of the Schur complement: solutions, and blocks of the inverse.

A dense matrix is inverted completely, a sparse one only on the pattern of its Cholesky factor.
"""

from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol

import numpy as np

from asker.engines.cpu import cholesky
from asker.engines.cpu.compiler import compiled
from asker.engines.cpu.system.schur_complement import ReducedMatrix
from asker.engines.inverse_blocks import ReducedFactorisation

MAX_SERIAL_UNKNOWNS = 2000
"""Unknowns up to which a dense inverse is computed by one thread, since more would save little time."""


class Layout(NamedTuple):
    """The memory layout of a matrix, in which the block of two variables is located."""

    n: int
    """Number of rows and columns of a dense matrix; 0 for a sparse one, which stores only the lower triangle."""
    starts: np.ndarray
    dims: np.ndarray
    pattern_ptr: np.ndarray
    pattern: np.ndarray
    offset: np.ndarray
    """The first column of each block of the pattern within the rows of its variable."""


_NONE, _NO_PATTERN = np.zeros(0, dtype=np.int64), np.zeros((0, 4), dtype=np.int64)
NO_LAYOUT = Layout(0, _NONE, _NONE, _NO_PATTERN, _NONE, _NONE)
"""The layout of a matrix without rows."""


class PlacedInverse(ReducedFactorisation, Protocol):
    """The inverse of the Schur complement, with values in a known layout."""

    layout: Layout


class DenseInverse:
    """The dense inverse, by tiled Cholesky factorisation."""

    def __init__(self, reduced: ReducedMatrix):
        self.reduced, n = reduced, reduced.structure.n_kept
        self.layout = NO_LAYOUT._replace(n=n, starts=reduced.starts, dims=reduced.dims)
        self.places = _diagonal_blocks(reduced.starts * (n + 1), np.full(len(reduced.dims), n), reduced.dims)
        self.lower = np.zeros((n, n))

    def factorise(self, K: np.ndarray, diagonal: np.ndarray) -> bool:
        self.reduced.copy_scaled(np.ones(len(self.lower)), self.lower)
        self.lower.ravel()[self.places] += K
        self.lower[np.diag_indices(len(self.lower))] += diagonal
        with cholesky.one_blas_thread():
            return cholesky.factorise_rows(self.lower.T)

    def solve(self, B: np.ndarray) -> np.ndarray:
        return cholesky.solve(self.lower.T, B)

    def values(self) -> np.ndarray:
        from scipy.linalg import lapack

        with cholesky.one_blas_thread() if len(self.lower) <= MAX_SERIAL_UNKNOWNS else nullcontext():
            Z, _ = lapack.dpotri(self.lower.T, lower=0)
        upper = np.triu(Z)
        return (upper + np.triu(Z, 1).T).ravel()


class SparseInverse:
    """The sparse selected inverse, by multifrontal Cholesky factorisation."""

    def __init__(self, reduced: ReducedMatrix):
        from asker.engines.cpu.sparse import Multifrontal

        self.reduced, self.dims = reduced, reduced.dims
        rows, columns = reduced.coordinates()
        self.diagonal = np.flatnonzero(rows == columns)
        self.fronts = Multifrontal(reduced.block_pattern(), reduced.dims, (rows, columns))
        widths = reduced.pattern_ptr[:, 3]
        before = np.concatenate([[0], np.cumsum(reduced.dims[reduced.pattern])])
        first = before[reduced.pattern_ptr[:, 0]]
        counts = np.diff(reduced.pattern_ptr[:, :2], axis=1)[:, 0]
        offset = before[:-1] - np.repeat(first, counts)
        self.layout = Layout(0, reduced.starts, reduced.dims, reduced.pattern_ptr, reduced.pattern, offset)
        first = reduced.pattern_ptr[:, 2] + widths - reduced.dims  # the diagonal block comes last
        self.places = _diagonal_blocks(first, widths, reduced.dims)
        mirrored = _diagonal_blocks(first, widths, reduced.dims, transposed=True)
        is_upper = self.places < mirrored
        self.upper, self.lower = self.places[is_upper], mirrored[is_upper]

    def factorise(self, K: np.ndarray, diagonal: np.ndarray) -> bool:
        v = self.reduced.values.copy()
        v[self.places] += K
        v[self.diagonal] += diagonal
        return self.fronts.solve(v, np.zeros(len(diagonal))) is not None

    def solve(self, B: np.ndarray) -> np.ndarray:
        from asker.engines.cpu.sparse import solve_factorised

        return solve_factorised(self.fronts, B)

    def values(self) -> np.ndarray:
        from asker.engines.cpu.sparse import selected_inverse

        Z = selected_inverse(self.fronts, len(self.reduced.values))
        Z[self.upper] = Z[self.lower]
        return Z


def _diagonal_blocks(first: np.ndarray, width: np.ndarray, dims: np.ndarray, transposed: bool = False) -> np.ndarray:
    """Return the positions of the numbers of all diagonal blocks, row by row, one block after the other."""
    sizes = dims**2
    number = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    d = np.repeat(dims, sizes)
    row, column = number // d, number % d
    if transposed:
        row, column = column, row
    return np.repeat(first, sizes) + row * np.repeat(width, sizes) + column


@compiled
def _place(v: int, w: int, layout: Layout) -> Any:
    """Return the first position of the block of two variables, its row width, and whether it is stored transposed.

    The position is −1 if the block is not stored.
    """
    if layout.n > 0:
        return layout.starts[v] * layout.n + layout.starts[w], layout.n, False
    row, column = max(v, w), min(v, w)
    low, high = layout.pattern_ptr[row, 0], layout.pattern_ptr[row, 1]
    end = high
    while low < high:
        middle = (low + high) // 2
        if layout.pattern[middle] < column:
            low = middle + 1
        else:
            high = middle
    if low == end or layout.pattern[low] != column:
        return -1, 0, False
    return layout.pattern_ptr[row, 2] + layout.offset[low], layout.pattern_ptr[row, 3], v < w


@compiled
def blocks_of_pairs(v: np.ndarray, w: np.ndarray, layout: Layout, values: np.ndarray, out: np.ndarray) -> int:
    """Copy the block of the variables v[k] and w[k] to out[k]; return the number of blocks that are not stored."""
    missing = 0
    for k in range(len(v)):
        base, width, is_transposed = _place(v[k], w[k], layout)
        if base < 0:
            missing += 1
            continue
        along, down = width if is_transposed else 1, 1 if is_transposed else width
        block = out[k]
        for q in range(len(block)):
            for s in range(len(block[0])):
                block[q, s] = values[base + q * down + s * along]
    return missing


def invert_eliminated(
    begin: int, end: int, ptr: np.ndarray, number: np.ndarray, where: np.ndarray, stride: np.ndarray, Y: np.ndarray,
    L: np.ndarray, layout: Layout, values: np.ndarray, out: np.ndarray, cross: np.ndarray,
) -> None:  # fmt: skip
    """Compute out = L⁻ᵀ(I + YᵀZY)L⁻¹ of each eliminated variable and, unless `cross` is empty, cross = −Z Y L⁻¹.

    Coupling e is to the kept variable number[e]; its numbers in Y begin at where[e], in rows of stride[e].  Since Z is
    symmetric, a pair of couplings is visited once and counted twice if `cross` is empty.
    """
    d = out.shape[1]
    work = np.empty((layout.dims.max(initial=0), d)), np.empty((d, d)), np.empty((d, d))
    _invert_eliminated(begin, end, ptr, number, where, stride, Y, L, layout, values, out, cross, *work)


@compiled
def _invert_eliminated(
    begin: int, end: int, ptr: np.ndarray, number: np.ndarray, where: np.ndarray, stride: np.ndarray, Y: np.ndarray,
    L: np.ndarray, layout: Layout, values: np.ndarray, out: np.ndarray, cross: np.ndarray, t: np.ndarray,
    inner: np.ndarray, G: np.ndarray,
) -> None:  # fmt: skip
    """Write the inverse blocks of the eliminated variables begin…end to `out`, and their couplings to `cross`."""
    d, is_whole = len(G), len(cross) > 0
    for j in range(begin, end):
        for m in range(d):
            for o in range(d):
                inner[m, o] = 1.0 if m == o else 0.0
        _invert_lower(L[j], G)
        for e in range(ptr[j], ptr[j + 1]):
            n = layout.dims[number[e]]
            for q in range(n):
                for m in range(d):
                    t[q, m] = 0.0
            for f in range(ptr[j], ptr[j + 1] if is_whole else e + 1):
                base, width, is_transposed = _place(number[e], number[f], layout)
                along, down = width if is_transposed else 1, 1 if is_transposed else width
                times = 1.0 if is_whole or f == e else 2.0
                for q in range(n):
                    for m in range(d):
                        total, row, column = 0.0, base + q * down, where[f] + m * stride[f]
                        for s in range(layout.dims[number[f]]):
                            total += values[row + s * along] * Y[column + s]
                        t[q, m] += times * total
            for m in range(d):
                for q in range(n):
                    y = Y[where[e] + m * stride[e] + q]
                    for o in range(d):
                        inner[m, o] += y * t[q, o]
            if is_whole:
                for q in range(n):
                    for o in range(d):
                        total = 0.0
                        for m in range(o, d):
                            total -= t[q, m] * G[m, o]
                        cross[e, q, o] = total
        for q in range(d):
            for s in range(q + 1):
                total = 0.0
                for m in range(q, d):
                    for o in range(s, d):
                        total += G[m, q] * (inner[m, o] + inner[o, m]) / 2 * G[o, s]
                out[j, q, s] = total
                out[j, s, q] = total


@compiled
def _invert_lower(L: np.ndarray, G: np.ndarray) -> None:
    """Invert a packed lower triangle, G = L⁻¹."""
    for s in range(len(G)):
        for q in range(s, len(G)):
            total = 1.0 if q == s else 0.0
            for m in range(s, q):
                total -= L[q * (q + 1) // 2 + m] * G[m, s]
            G[q, s] = total / L[q * (q + 1) // 2 + q]

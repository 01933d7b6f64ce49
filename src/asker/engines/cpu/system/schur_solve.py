"""Solve (S + damping) x = −g for the kept variables, by dense or by sparse Cholesky.

If Cholesky fails, a factorisation with pivoting is tried on the same matrix, scaled to a unit diagonal; if that fails
too, the result is None.
"""

from typing import Any

import numpy as np

from asker.engines.cpu import cholesky
from asker.engines.cpu.system.schur_complement import ReducedMatrix
from asker.engines.cpu.system.small_cholesky import STRIP, SmallCholesky

SYMMETRIC_MODE: dict[str, Any] = {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}


def _unit_scale(diagonal: np.ndarray) -> np.ndarray:
    """Return the scale of rows and columns with which the diagonal is 1."""
    return 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))


def if_finite(x: np.ndarray) -> np.ndarray | None:
    """Return x, or None if it is not finite."""
    return x if np.isfinite(x).all() else None


class DenseCholesky:
    """The dense solver: blocked Cholesky, or tiled for large matrices; LAPACK's indefinite solver if that fails."""

    def __init__(self, reduced: ReducedMatrix):
        self.reduced, self.scaled = reduced, np.empty((0, 0))
        self.small: SmallCholesky | None = None

    def __call__(self, damping: np.ndarray) -> np.ndarray | None:
        """Return x for the assembled matrix."""
        d, unit, right = self.reduced.unit_scale(damping)
        is_small = len(d) <= cholesky.MAX_UNTILED_UNKNOWNS
        x = (self._in_blocks if is_small else self._in_tiles)(d, unit, right)
        if x is None:
            x = self._pivoted(d, unit, right)
        return None if x is None else if_finite(d * x)

    def precompile(self) -> None:
        """Enqueue the compilation of the functions of a call."""
        n = self.reduced.structure.n_kept
        if 0 < n <= cholesky.MAX_UNTILED_UNKNOWNS:
            self._in_blocks(*self.reduced.unit_scale(np.zeros(n)))

    def _in_blocks(self, d: np.ndarray, unit: np.ndarray, right: np.ndarray) -> np.ndarray | None:
        """Solve by the compiled kernel for small matrices; return None if the matrix is not positive definite."""
        if self.small is None:
            self.small = SmallCholesky(len(d))
        self.reduced.copy_upper(d, unit, right, self.small.R, self.small.padded, STRIP)
        return self.small.solve()

    def _in_tiles(self, d: np.ndarray, unit: np.ndarray, right: np.ndarray) -> np.ndarray | None:
        """Factorise the lower triangle of a row-major matrix, and solve."""
        self._fill(d, unit)
        with cholesky.one_blas_thread():
            return cholesky.solve(self.scaled.T, right) if cholesky.factorise_rows(self.scaled.T) else None

    def _pivoted(self, d: np.ndarray, unit: np.ndarray, right: np.ndarray) -> np.ndarray | None:
        """Solve by LDLᵀ with pivots, also if the matrix is indefinite; return None if it is singular."""
        from scipy.linalg import lapack

        self._fill(d, unit)
        with cholesky.one_blas_thread():
            *_, x, failed = lapack.dsysv(self.scaled.T, right[:, None], lower=0, overwrite_a=1)
        return None if failed else x[:, 0]

    def _fill(self, d: np.ndarray, unit: np.ndarray) -> None:
        """Copy the matrix, scaled by d, with the diagonal `unit`."""
        if len(self.scaled) != len(d):
            self.scaled = np.zeros((len(d), len(d)))
        self.reduced.copy_scaled(d, self.scaled)
        np.fill_diagonal(self.scaled, unit)


class Symmetric:
    """A full symmetric sparse matrix from the values of its lower triangle; the pattern is computed once."""

    def __init__(self, n: int, rows: np.ndarray, columns: np.ndarray, rank: np.ndarray | None = None):
        """Values above the diagonal are ignored; `rank` permutes rows and columns."""
        from scipy import sparse

        lower = np.flatnonzero(rows >= columns)
        strict = np.flatnonzero(rows > columns)
        source = np.concatenate([lower, strict])
        i, j = np.concatenate([rows[lower], columns[strict]]), np.concatenate([columns[lower], rows[strict]])
        if rank is not None:
            i, j = rank[i], rank[j]
        self.matrix = sparse.csc_array((source + 1.0, (i, j)), (n, n))
        self.matrix.sort_indices()
        self.source = self.matrix.data.astype(np.int64) - 1
        self.diagonal = np.flatnonzero(self.matrix.indices == np.repeat(np.arange(n), np.diff(self.matrix.indptr)))

    def __call__(self, values: np.ndarray, damping: np.ndarray | float = 0.0) -> Any:
        self.matrix.data = values[self.source]
        self.matrix.data[self.diagonal] += damping
        return self.matrix


ANALYSIS_WORK_PER_VALUE = 1000  # time of the analysis of a pattern, in multiply-adds per value of the matrix
MAX_WORK_RATIO = 0.5  # a pattern without zero blocks is used if it needs at most this fraction of the work
MAX_BLOCK_RATIO = 0.99  # it is analysed if it has at most this fraction of the blocks of the last analysis


class SparseCholesky:
    """The sparse solver: multifrontal Cholesky; SuperLU if a pivot is not positive.

    Observations of weight 0 leave zero blocks.  If the factorisation takes longer than its analysis, the pattern is
    analysed again without them, so that a rejected loop closure of a pose graph causes no fill-in.
    """

    def __init__(self, reduced: ReducedMatrix):
        """Analyse the complete pattern once."""
        from asker.engines.cpu.sparse import Multifrontal

        self.reduced = reduced
        rows, columns = self.at = reduced.coordinates()
        self.diagonal = np.flatnonzero(rows == columns)
        self.fronts = Multifrontal(reduced.block_pattern(), reduced.dims, self.at)
        self.pruned: _Pruned | None = None
        self._n_analysed = len(reduced.pattern)  # number of blocks at the last analysis

    def __call__(self, damping: np.ndarray) -> np.ndarray | None:
        """Return x for the assembled matrix."""
        v, g = self.reduced.values.copy(), self.reduced.gradient
        pruned = self._pruned(v)
        v[self.diagonal] += damping
        x = self.fronts.solve(v, -g) if pruned is None else pruned.fronts.solve(v[pruned.source], -g)
        return if_finite(x) if x is not None else self._pivoted(v, -g)

    def precompile(self) -> None:
        """Enqueue the compilation of the functions of a call."""
        self.fronts.precompile(self.reduced.values, self.reduced.gradient)

    def _pruned(self, values: np.ndarray) -> "_Pruned | None":
        """Return the factorisation without zero blocks, or None if it does not pay."""
        full, heavy = self.fronts.work.sum(), ANALYSIS_WORK_PER_VALUE * len(values)
        if full < heavy:
            return None
        used, pruned = self.reduced.blocks_with(values != 0), self.pruned
        is_fewer = np.count_nonzero(used) <= MAX_BLOCK_RATIO * self._n_analysed
        if pruned is not None and not (used & ~pruned.blocks).any() and (pruned.work < heavy or not is_fewer):
            return pruned
        if pruned is not None or is_fewer:
            pruned, self._n_analysed = _Pruned(self.reduced, self.at, used), int(np.count_nonzero(used))
            self.pruned = pruned if pruned.work <= MAX_WORK_RATIO * full else None
        return self.pruned

    def _pivoted(self, v: np.ndarray, b: np.ndarray) -> np.ndarray | None:
        """Solve by a sparse LU with pivots; return None if the matrix is singular."""
        from scipy.sparse.linalg import splu

        d = _unit_scale(v[self.diagonal])
        order = self.fronts.order
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        rows, columns = self.at
        permuted = Symmetric(len(order), rows, columns, rank)(v * d[rows] * d[columns])
        if not np.isfinite(permuted.data).all():
            return None
        try:
            lu = splu(permuted, permc_spec="NATURAL", **SYMMETRIC_MODE)
        except RuntimeError:  # exactly singular
            return None
        return if_finite(d * lu.solve((d * b)[order])[rank])


class _Pruned:
    """The factorisation of a subset of the blocks of a sparse matrix."""

    def __init__(self, reduced: ReducedMatrix, at: tuple[np.ndarray, np.ndarray], blocks: np.ndarray):
        from asker.engines.cpu.sparse import Multifrontal

        self.blocks = blocks
        self.source = np.flatnonzero(blocks[reduced.block_of_value])
        ptr, columns = reduced.block_pattern()
        kept = np.concatenate([[0], np.cumsum(blocks)])[ptr]
        self.fronts = Multifrontal((kept, columns[blocks]), reduced.dims, (at[0][self.source], at[1][self.source]))
        self.work = float(self.fronts.work.sum())

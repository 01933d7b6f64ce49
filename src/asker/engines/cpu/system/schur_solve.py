"""Solve (S + damping) x = −g for the kept variables, by dense or by sparse Cholesky.

When Cholesky fails, a factorisation that may pivot is tried on the same matrix, scaled to a unit diagonal; when that
fails too, the answer is None.
"""

from typing import Any

import numpy as np

from asker.engines.cpu import cholesky
from asker.engines.cpu.system.schur_complement import ReducedMatrix
from asker.engines.cpu.system.small_cholesky import STRIP, SmallCholesky

SYMMETRIC_MODE: dict[str, Any] = {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}


def _unit_scale(diagonal: np.ndarray) -> np.ndarray:
    """What rows and columns are multiplied with so that the diagonal is 1."""
    return 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))


def if_finite(x: np.ndarray) -> np.ndarray | None:
    """x, or None where it is no answer."""
    return x if np.isfinite(x).all() else None


class DenseCholesky:
    """Cholesky of the dense matrix, in blocks or, where it is large, in tiles; LAPACK's indefinite solver where that
    fails."""

    def __init__(self, reduced: ReducedMatrix):
        self.reduced, self.scaled = reduced, np.empty((0, 0))
        self.small: SmallCholesky | None = None

    def __call__(self, damping: np.ndarray) -> np.ndarray | None:
        """x, once the matrix is assembled."""
        d, unit, right = self.reduced.unit_scale(damping)
        is_small = len(d) <= cholesky.IN_ONE_CALL
        x = (self._in_blocks if is_small else self._in_tiles)(d, unit, right)
        if x is None:
            x = self._pivoted(d, unit, right)
        return None if x is None else if_finite(d * x)

    def ask(self) -> None:
        """Ask for what a call will run."""
        n = self.reduced.structure.n_kept
        if 0 < n <= cholesky.IN_ONE_CALL:
            self._in_blocks(*self.reduced.unit_scale(np.zeros(n)))

    def _in_blocks(self, d: np.ndarray, unit: np.ndarray, right: np.ndarray) -> np.ndarray | None:
        if self.small is None:
            self.small = SmallCholesky(len(d))
        self.reduced.copy_upper(d, unit, right, self.small.R, self.small.padded, STRIP)
        return self.small.solve()

    def _in_tiles(self, d: np.ndarray, unit: np.ndarray, right: np.ndarray) -> np.ndarray | None:
        """Of the lower triangle of a row-major matrix."""
        self._fill(d, unit)
        with cholesky.one_blas_thread():
            return cholesky.solve(self.scaled.T, right) if cholesky.factorise_rows(self.scaled.T) else None

    def _pivoted(self, d: np.ndarray, unit: np.ndarray, right: np.ndarray) -> np.ndarray | None:
        from scipy.linalg import lapack

        self._fill(d, unit)
        with cholesky.one_blas_thread():
            *_, x, failed = lapack.dsysv(self.scaled.T, right[:, None], lower=0, overwrite_a=1)
        return None if failed else x[:, 0]

    def _fill(self, d: np.ndarray, unit: np.ndarray) -> None:
        if len(self.scaled) != len(d):
            self.scaled = np.zeros((len(d), len(d)))
        self.reduced.copy_scaled(d, self.scaled)
        np.fill_diagonal(self.scaled, unit)


class Symmetric:
    """A whole sparse matrix from the values of its lower triangle, with the pattern found once."""

    def __init__(self, n: int, rows: np.ndarray, columns: np.ndarray, rank: np.ndarray | None = None):
        """Values above the diagonal are passed over; `rank` permutes rows and columns."""
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


ANALYSIS = 1000  # multiply-adds in the time that a pattern is analysed in, for each of its values
WORTH = 0.5  # share of the work that a factorisation without them may cost
FEWER = 0.99  # share of the blocks from which on it is tried again


class SparseCholesky:
    """By fronts (multifrontal.py); by SuperLU where a pivot is not positive.

    Observations of weight 0 leave blocks of zeros.  Where the factorisation takes longer than its analysis, it is
    analysed again without them: a false loop of a pose graph that is refused fills nothing in.
    """

    def __init__(self, reduced: ReducedMatrix):
        """The pattern is analysed here, once."""
        from asker.engines.cpu.sparse import Multifrontal

        self.reduced = reduced
        rows, columns = self.at = reduced.coordinates()
        self.diagonal = np.flatnonzero(rows == columns)
        self.fronts = Multifrontal(reduced.meeting(), reduced.dims, self.at)
        self.thin: _Thin | None = None
        self._tried = len(reduced.pattern)  # so many blocks were used when it was last analysed

    def __call__(self, damping: np.ndarray) -> np.ndarray | None:
        """x, once the matrix is assembled."""
        v, g = self.reduced.values.copy(), self.reduced.gradient
        thin = self._thin(v)
        v[self.diagonal] += damping
        x = self.fronts.solve(v, -g) if thin is None else thin.fronts.solve(v[thin.source], -g)
        return if_finite(x) if x is not None else self._pivoted(v, -g)

    def ask(self) -> None:
        """Ask for what a call will run."""
        self.fronts.ask(self.reduced.values, self.reduced.gradient)

    def _thin(self, values: np.ndarray) -> "_Thin | None":
        """The factorisation without blocks of zeros, if that is worth it."""
        full, heavy = self.fronts.work.sum(), ANALYSIS * len(values)
        if full < heavy:
            return None
        used, thin = self.reduced.blocks_with(values != 0), self.thin
        is_fewer = np.count_nonzero(used) <= FEWER * self._tried
        if thin is not None and not (used & ~thin.blocks).any() and (thin.work < heavy or not is_fewer):
            return thin
        if thin is not None or is_fewer:
            thin, self._tried = _Thin(self.reduced, self.at, used), int(np.count_nonzero(used))
            self.thin = thin if thin.work <= WORTH * full else None
        return self.thin

    def _pivoted(self, v: np.ndarray, b: np.ndarray) -> np.ndarray | None:
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


class _Thin:
    """The factorisation of some blocks of a sparse matrix."""

    def __init__(self, reduced: ReducedMatrix, at: tuple[np.ndarray, np.ndarray], blocks: np.ndarray):
        from asker.engines.cpu.sparse import Multifrontal

        self.blocks = blocks
        self.source = np.flatnonzero(blocks[reduced.block_of_value])
        ptr, columns = reduced.meeting()
        kept = np.concatenate([[0], np.cumsum(blocks)])[ptr]
        self.fronts = Multifrontal((kept, columns[blocks]), reduced.dims, (at[0][self.source], at[1][self.source]))
        self.work = float(self.fronts.work.sum())

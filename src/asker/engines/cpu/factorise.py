"""Solve (S + damping) x = −g for the kept variables, by dense Cholesky, sparse Cholesky or conjugate gradients.

When Cholesky fails, a factorisation that may pivot is tried on the same matrix, scaled to a unit diagonal; when that
fails too, the answer is None.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from asker.engines.cpu import cholesky
from asker.engines.solvers import CG

__all__ = ["CG", "DenseCholesky", "SparseCholesky", "Symmetric", "conjugate_gradients"]

SYMMETRIC_MODE: dict[str, Any] = {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}


def _unit_scale(diagonal: np.ndarray) -> np.ndarray:
    return 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))


def _if_finite(x: np.ndarray) -> np.ndarray | None:
    return x if np.isfinite(x).all() else None


class DenseCholesky:
    """Tiled Cholesky of the lower triangle of a row-major matrix; LAPACK's indefinite solver where that fails."""

    def __init__(self) -> None:
        self.scaled = np.empty((0, 0))

    def __call__(self, reduced: Any, g: np.ndarray, damping: np.ndarray) -> np.ndarray | None:
        """`reduced` is an assembled, dense `ReducedMatrix`."""
        from scipy.linalg import lapack

        n = len(g)
        if self.scaled.shape != (n, n):
            self.scaled = np.zeros((n, n))
        diagonal = reduced.diagonal_of_S() + damping
        d = _unit_scale(diagonal)

        def refill() -> None:
            reduced.copy_scaled(d, self.scaled)
            np.fill_diagonal(self.scaled, diagonal * d * d)

        refill()
        rhs = -d * g
        with cholesky.one_blas_thread():
            if cholesky.factorise_rows(self.scaled.T):
                return _if_finite(d * cholesky.solve(self.scaled.T, rhs))
            refill()
            *_, x, failed = lapack.dsysv(self.scaled.T, rhs[:, None], lower=0, overwrite_a=1)
        return None if failed else _if_finite(d * x[:, 0])


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


class SparseCholesky:
    """By fronts (multifrontal.py); by SuperLU where a pivot is not positive."""

    def __init__(self, reduced: Any):
        """`reduced` is a sparse `ReducedMatrix`; its pattern is analysed here, once."""
        from asker.engines.cpu.multifrontal import Multifrontal

        rows, columns = self.at = reduced.coordinates()
        self.diagonal = np.flatnonzero(rows == columns)
        self.fronts = Multifrontal(reduced.meeting(), reduced.dims, self.at)

    def __call__(self, reduced: Any, g: np.ndarray, damping: np.ndarray) -> np.ndarray | None:
        v = reduced.values.copy()
        v[self.diagonal] += damping
        x = self.fronts.solve(v, -g)
        return _if_finite(x) if x is not None else self._pivoted(v, -g)

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
        return _if_finite(d * lu.solve((d * b)[order])[rank])


def conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray],
    precondition: Callable[[np.ndarray], np.ndarray],
    b: np.ndarray,
    tol: float,
    max_iterations: int,
) -> np.ndarray | None:
    """Preconditioned conjugate gradients; stops at ‖b − Ax‖ ≤ tol ‖b‖.  None where a number stops being finite."""
    x = np.zeros_like(b)
    r = b.copy()
    z = precondition(r)
    p = z.copy()
    rz = r @ z
    target = tol * np.linalg.norm(b)
    for _ in range(max_iterations):
        if np.linalg.norm(r) <= target:
            break
        Ap = product(p)
        curvature = p @ Ap
        if not curvature > 0:  # rounding, or not positive definite: what we have is a descent direction
            break
        step = rz / curvature
        x += step * p
        r -= step * Ap
        z = precondition(r)
        rz, before = r @ z, rz
        p = z + (rz / before) * p
    return _if_finite(x)

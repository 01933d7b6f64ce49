"""Directions in which a single variable is not determined, and their regularisation.

If no observation depends on a direction v of one variable, then Jv = 0 for all observations, and H is singular.  A
matrix kkᵀ with kᵀv ≠ 0 is added to the block of the variable.  This does not change the solution for other variables,
since kᵀx = 0 for every right-hand side that is 0 in the direction v.
"""

from typing import NamedTuple

import numpy as np

from asker.problem.variables import Variables

MAX_NULL_EIGENVALUE = 1e-13
"""Eigenvalue of a block with unit diagonal below which its direction is not determined."""
MAX_SUSPECT_PIVOT = 1e-6
"""Pivot of a block with unit diagonal below which its eigenvalues are computed.  The inverse of a pivot amplifies the
rounding errors of later pivots, which must stay far below this threshold."""
MIN_COMPONENT = 1e-7
"""Component of a null vector above which the number is considered undetermined."""


class BlockRegularisation(NamedTuple):
    """The regularisation of the diagonal blocks of one group of variables."""

    K: np.ndarray
    """(n, d, d): matrices that are added to the blocks."""
    free: np.ndarray
    """(n,): number of directions in which each variable is not determined; 0 for constant variables."""
    is_open: np.ndarray
    """(n, d): mask of the numbers that these directions change."""
    scale: np.ndarray
    """(n, d): square roots of the diagonals; 1 for a diagonal of 0."""


def regularised(v: Variables, B: np.ndarray) -> BlockRegularisation:
    """Return the regularisation of the blocks B of a variable group, for constant variables and null directions."""
    d = B.shape[1]
    K, free, is_open = np.zeros_like(B), np.zeros(len(v), dtype=int), np.zeros((len(v), d), dtype=bool)
    K[v.fixed] = np.eye(d)
    scale, unit = _unit(B)
    suspects = np.flatnonzero((_smallest_pivot(unit) < MAX_SUSPECT_PIVOT) & ~v.fixed)
    if suspects.size:
        U, free[suspects], is_open[suspects] = _open_directions(unit[suspects])
        U = U * scale[suspects][:, :, None]
        K[suspects] = U @ np.swapaxes(U, 1, 2)
    return BlockRegularisation(K, free, is_open, scale)


def open_entries(H: np.ndarray, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mask (n, d) of numbers that matrices (n, d, d) do not determine, and the number of directions (n,).

    Parameters
    ----------
    fixed
        Mask (n, d) of numbers that are known.
    """
    either = fixed[:, :, None] | fixed[:, None, :]
    _, free, is_open = _open_directions(np.where(either, np.eye(H.shape[1]), _unit(H)[1]))
    return is_open, free


def _unit(B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the square roots of the diagonals, or 1 for a diagonal of 0, and the matrices with unit diagonal."""
    diagonal = np.einsum("nqq->nq", B)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    return scale, B / (scale[:, :, None] * scale[:, None, :])


def _open_directions(unit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return null vectors of matrices with unit diagonal, padded with 0, their count, and the numbers they change."""
    eigenvalues, U = np.linalg.eigh(unit)
    is_null = eigenvalues < MAX_NULL_EIGENVALUE
    U = U * is_null[:, None, :]
    return U, is_null.sum(axis=1), np.linalg.norm(U, axis=2) > MIN_COMPONENT


def packed_lower(K: np.ndarray) -> np.ndarray:
    """Return the lower triangles (n, d(d+1)/2), row by row."""
    rows, columns = np.tril_indices(K.shape[1])
    return np.ascontiguousarray(K[:, rows, columns])


def _smallest_pivot(A: np.ndarray) -> np.ndarray:
    """Return the smallest pivot in the Cholesky factorisation of each block."""
    L, smallest = np.zeros_like(A), np.full(len(A), np.inf)
    for q in range(A.shape[1]):
        pivot = A[:, q, q] - np.einsum("ns,ns->n", L[:, q, :q], L[:, q, :q])
        smallest = np.minimum(smallest, pivot)
        root = np.sqrt(np.maximum(pivot, MAX_SUSPECT_PIVOT / 10))
        L[:, q, q] = root
        for m in range(q + 1, A.shape[1]):
            L[:, m, q] = (A[:, m, q] - np.einsum("ns,ns->n", L[:, m, :q], L[:, q, :q])) / root
    return smallest

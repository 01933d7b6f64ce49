"""Directions in which a single variable is not determined, and what holds it there.

Where no observation sees a direction v of one variable, Jv = 0 for all of them, and H is singular.  A stiffness kkᵀ
with kᵀv ≠ 0 is added to the block of the variable.  That changes nothing for all others: whatever is asked of them,
kᵀx = 0.
"""

from typing import NamedTuple

import numpy as np

from asker.problem.variables import Variables

NOTHING = 1e-13
"""An eigenvalue of a block with unit diagonal, below which its direction is not determined."""
SUSPECT = 1e-6
"""A pivot of such a block, below which its eigenvalues are looked at.  Rounding of later pivots grows by the inverse of
earlier ones: it must stay far below this."""


TOUCHED = 1e-7
"""The part of a number in a direction, above which the direction moves it."""


class Stiffness(NamedTuple):
    """What is added to the blocks of one group of variables."""

    K: np.ndarray
    """(n, d, d)"""
    free: np.ndarray
    """(n,): in how many directions each is not determined; 0 for those that are fixed."""
    is_open: np.ndarray
    """(n, d): which of its numbers these directions move."""
    scale: np.ndarray
    """(n, d): the roots of the diagonals, 1 where one is 0."""


def held(v: Variables, B: np.ndarray) -> Stiffness:
    """What holds the variables of a group whose blocks are B: those that are fixed, and directions that nobody sees."""
    d = B.shape[1]
    K, free, is_open = np.zeros_like(B), np.zeros(len(v), dtype=int), np.zeros((len(v), d), dtype=bool)
    K[v.fixed] = np.eye(d)
    scale, unit = _unit(B)
    suspects = np.flatnonzero((_smallest_pivot(unit) < SUSPECT) & ~v.fixed)
    if suspects.size:
        U, free[suspects], is_open[suspects] = _open_directions(unit[suspects])
        U = U * scale[suspects][:, :, None]
        K[suspects] = U @ np.swapaxes(U, 1, 2)
    return Stiffness(K, free, is_open, scale)


def open_entries(H: np.ndarray, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which numbers (n, d) matrices (n, d, d) leave open, and in how many directions (n,); `fixed` (n, d) are known."""
    either = fixed[:, :, None] | fixed[:, None, :]
    _, free, is_open = _open_directions(np.where(either, np.eye(H.shape[1]), _unit(H)[1]))
    return is_open, free


def _unit(B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The roots of the diagonals, 1 where one is 0, and the matrices with unit diagonal."""
    diagonal = np.einsum("nqq->nq", B)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    return scale, B / (scale[:, :, None] * scale[:, None, :])


def _open_directions(unit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Those of matrices with unit diagonal: vectors, others 0; how many; and which numbers they move."""
    eigenvalues, U = np.linalg.eigh(unit)
    U = U * (eigenvalues < NOTHING)[:, None, :]
    return U, (eigenvalues < NOTHING).sum(axis=1), np.linalg.norm(U, axis=2) > TOUCHED


def packed_lower(K: np.ndarray) -> np.ndarray:
    """Lower triangles (n, d(d+1)/2), row by row."""
    rows, columns = np.tril_indices(K.shape[1])
    return np.ascontiguousarray(K[:, rows, columns])


def _smallest_pivot(A: np.ndarray) -> np.ndarray:
    """Of the Cholesky factorisation of each block, or 0."""
    L, smallest = np.zeros_like(A), np.full(len(A), np.inf)
    for q in range(A.shape[1]):
        pivot = A[:, q, q] - np.einsum("ns,ns->n", L[:, q, :q], L[:, q, :q])
        smallest = np.minimum(smallest, pivot)
        root = np.sqrt(np.maximum(pivot, SUSPECT / 10))
        L[:, q, q] = root
        for m in range(q + 1, A.shape[1]):
            L[:, m, q] = (A[:, m, q] - np.einsum("ns,ns->n", L[:, m, :q], L[:, q, :q])) / root
    return smallest

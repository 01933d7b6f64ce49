"""Directions in which a single variable is not determined, and what holds it there.

Where no observation sees a direction v of one variable, Jv = 0 for all of them, and H is singular.  A stiffness kkᵀ
with kᵀv ≠ 0 is added to the block of the variable.  That changes nothing for all others: whatever is asked of them,
kᵀx = 0.
"""

from typing import NamedTuple

import numpy as np

from asker.variables import Variables

NOTHING = 1e-13
"""An eigenvalue of a block with unit diagonal, below which its direction is not determined."""
SUSPECT = 1e-6
"""A pivot of such a block, below which its eigenvalues are looked at.  Rounding of later pivots grows by the inverse of
earlier ones: it must stay far below this."""


class Held(NamedTuple):
    """What is added to the blocks of one group of variables."""

    K: np.ndarray
    """(n, d, d)"""
    free: np.ndarray
    """(n,): in how many directions each is not determined; 0 for those that are fixed."""


def held(v: Variables, B: np.ndarray) -> Held:
    """What holds the variables of a group whose blocks are B: those that are fixed, and directions that nobody sees."""
    d = B.shape[1]
    K, free = np.zeros_like(B), np.zeros(len(v), dtype=int)
    K[v.fixed] = np.eye(d)
    scale = np.einsum("nqq->nq", B)
    scale = np.sqrt(np.where(scale > 0, scale, 1.0))
    unit = B / (scale[:, :, None] * scale[:, None, :])
    suspects = np.flatnonzero((_smallest_pivot(unit) < SUSPECT) & ~v.fixed)
    if suspects.size:
        eigenvalues, U = np.linalg.eigh(unit[suspects])
        U = U * (eigenvalues < NOTHING)[:, None, :] * scale[suspects][:, :, None]
        K[suspects] = U @ np.swapaxes(U, 1, 2)
        free[suspects] = (eigenvalues < NOTHING).sum(axis=1)
    return Held(K, free)


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

"""Dense Cholesky factorisation in tiles, shared among asker's own threads.

A LAPACK that brings its own threads lets them wait for each other at every step, which is slow on a machine that has
other work too, and its rounding depends on their number.  Here each tile is a task for whichever thread is free, done
by single-threaded BLAS; the result does not depend on the number of threads.
"""

from collections.abc import Callable

import numpy as np

from asker.engines.cpu.threads import run_tasks

TILE = 256
WHOLE = 768  # up to this size a single call is faster


def factorise_in_place(A: np.ndarray) -> bool:
    """A = L Lᵀ, L in the lower triangle of A (row-major; what is above is not used).  False if A is not positive."""
    from scipy.linalg import lapack

    n = len(A)
    tile = n if n <= WHOLE else TILE
    cuts = [slice(k, min(k + tile, n)) for k in range(0, n, tile)]
    for k, panel in enumerate(cuts):
        L, failed = lapack.dpotrf(A[panel, panel].T, lower=0, clean=1)  # row-major lower is LAPACK's upper
        if failed:
            return False
        A[panel, panel] = L.T
        below = cuts[k + 1 :]
        if not below:
            break
        inverse, _ = lapack.dtrtri(L, lower=0)  # U⁻¹ = L⁻ᵀ
        inverse = np.ascontiguousarray(inverse)
        run_tasks(_in(below, lambda i, p=panel, x=inverse: _panel(A, i, p, x)), len(below))
        pairs = [(i, j) for m, i in enumerate(below) for j in below[: m + 1]]
        run_tasks(_in(pairs, lambda ij, p=panel: _update(A, *ij, p)), len(pairs))
    return True


def _in(items: list, work: Callable) -> Callable[[int], None]:
    return lambda k: work(items[k])


def _panel(A: np.ndarray, i: slice, k: slice, inverse: np.ndarray) -> None:
    """A_ik ← A_ik L_kk⁻ᵀ"""
    A[i, k] = A[i, k] @ inverse


def _update(A: np.ndarray, i: slice, j: slice, k: slice) -> None:
    """A_ij ← A_ij − A_ik A_jkᵀ"""
    A[i, j] -= A[i, k] @ A[j, k].T


def solve(L: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x with L Lᵀ x = b."""
    from scipy.linalg import lapack

    x, _ = lapack.dpotrs(L.T, b, lower=0)
    return x

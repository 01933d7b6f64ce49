"""Dense Cholesky factorisation in tiles, shared among asker's own threads.

A LAPACK that brings its own threads lets them wait for each other at every step, which is slow on a machine that has
other work too, and its rounding depends on their number.  Here each tile is a task for whichever thread is free, done
by single-threaded BLAS; the result does not depend on the number of threads.
"""

import numpy as np

from asker.engines.cpu.threads import run_tasks

TILE = 256
WHOLE = 768  # up to this size a single call is faster


def factorise_in_place(A: np.ndarray) -> bool:
    """A = L Lᵀ, L in the lower triangle of A (row-major; what is above is not used).  False if A is not positive."""
    n = len(A)
    if n <= WHOLE:
        return _in_one_call(A)
    cuts = [slice(k, min(k + TILE, n)) for k in range(0, n, TILE)]
    return all(_finish_panel(A, panel, cuts[k + 1 :]) for k, panel in enumerate(cuts))


def _in_one_call(A: np.ndarray) -> bool:
    from scipy.linalg import lapack

    U, failed = lapack.dpotrf(A.T, lower=0, overwrite_a=1, clean=0)  # row-major lower is LAPACK's upper: U = Lᵀ
    if not failed and not np.shares_memory(U, A):
        A[...] = U.T
    return not failed


def _finish_panel(A: np.ndarray, k: slice, below: list[slice]) -> bool:
    """One block column of L, and its part in everything to the right."""
    from scipy.linalg import blas, lapack

    U, failed = lapack.dpotrf(A[k, k].T, lower=0, clean=1)
    if failed:
        return False
    A[k, k] = U.T
    if not below:
        return True

    def column(m: int) -> None:  # X U = A_ik, as Uᵀ Xᵀ = A_ikᵀ
        A[below[m], k] = blas.dtrsm(1.0, U, A[below[m], k].T, lower=0, trans_a=1).T

    run_tasks(column, len(below))
    pairs = [(i, j) for m, i in enumerate(below) for j in below[: m + 1]]

    def update(m: int) -> None:
        i, j = pairs[m]
        A[i, j] -= A[i, k] @ A[j, k].T

    run_tasks(update, len(pairs))
    return True


def solve(L: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x with L Lᵀ x = b."""
    from scipy.linalg import lapack

    x, _ = lapack.dpotrs(L.T, b, lower=0)
    return x

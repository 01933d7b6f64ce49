"""Tiled dense Cholesky factorisation on asker's thread team.

The threads of a multithreaded LAPACK synchronise at every step, which is slow on a machine with other load, and its
rounding depends on their number.  Here each tile is a task for a free thread, computed by single-threaded BLAS, so that
the result does not depend on the number of threads.

Matrices are upper triangles, A = RᵀR, in either memory order: the transpose of a row-major lower triangle is one too.
Entries below the diagonal are not used.

`system/small_cholesky.py` is a second kernel because it takes a quarter to two thirds of the time of LAPACK up to
`MAX_UNTILED_UNKNOWNS`, but 2.5 times that of tiles at 4000 unknowns, and does not factorise the panels of fronts.
"""

import os
import threading
from functools import cached_property
from typing import Any

import numpy as np

from asker.engines.cpu.threads import run_tasks

TILE_SIZE = 256  # rows and columns
MAX_UNTILED_UNKNOWNS = 768  # up to this size one call of LAPACK is faster than tiles


class _OneThread:
    """A reentrant context that limits BLAS and LAPACK to one thread.

    The limit applies to the whole process: the first thread to enter saves the former limit, the last to leave restores
    it.
    """

    def __init__(self) -> None:
        self._reset_after_fork()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset_after_fork)

    def _reset_after_fork(self) -> None:
        self._lock, self._inside = threading.Lock(), 0

    @cached_property
    def _controller(self) -> Any:
        import scipy.linalg  # noqa: F401  loads SciPy's BLAS, so that the controller detects it
        from threadpoolctl import ThreadpoolController

        return ThreadpoolController()

    def _take_control(self) -> None:
        """Let any thread change the limit: newer versions of threadpoolctl reserve that to the thread that set it."""
        import threadpoolctl

        controller: Any = getattr(threadpoolctl, "OpenBLASController", None)
        if hasattr(controller, "clear_controlling_thread"):
            controller.clear_controlling_thread(force=True)

    def __enter__(self) -> None:
        with self._lock:
            self._take_control()
            limits = self._controller.limit(limits=1)
            if not self._inside:
                self._before = limits
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._take_control()
                self._before.restore_original_limits()
                self._take_control()


_one_thread = _OneThread()


def one_blas_thread() -> _OneThread:
    """Return a context manager in which BLAS and LAPACK are single-threaded."""
    return _one_thread


def factorise_rows(R: np.ndarray) -> bool:
    """Replace the first n rows of A, (n, m), by those of R in place.  Return False if a pivot is not positive."""
    n, m = R.shape
    if n == m <= MAX_UNTILED_UNKNOWNS:
        return _in_one_call(R)
    rows, columns = _tiles(0, n), _tiles(0, n) + _tiles(n, m)
    return all(_finish_row(R, row, rows[k + 1 :], columns[k + 1 :]) for k, row in enumerate(rows))


def subtract_gram(A: np.ndarray, R: np.ndarray) -> None:
    """Subtract RᵀR from the upper triangle of A."""
    tiles = _tiles(0, len(A))
    pairs = [(i, j) for k, i in enumerate(tiles) for j in tiles[k:]]
    run_tasks(lambda t: _subtract_product(A[pairs[t]], R[:, pairs[t][0]], R[:, pairs[t][1]]), len(pairs))


def solve(R: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return x with RᵀR x = b."""
    from scipy.linalg import lapack

    x, _ = lapack.dpotrs(R, b, lower=0)
    return x


def _tiles(begin: int, end: int) -> list[slice]:
    """Return the tiles of the rows begin…end."""
    return [slice(k, min(k + TILE_SIZE, end)) for k in range(begin, end, TILE_SIZE)]


def _corner(A: np.ndarray, **flags: int) -> np.ndarray | None:
    """Return R of a small A, or None if a pivot is not positive.  LAPACK does not report a NaN."""
    from scipy.linalg import lapack

    R, failed = lapack.dpotrf(A, lower=0, **flags)
    return None if failed or not (R.diagonal() > 0).all() else R


def _in_one_call(A: np.ndarray) -> bool:
    """Factorise A in place by one call of LAPACK; return False if it is not positive definite."""
    R = _corner(A, overwrite_a=1, clean=0)
    if R is not None and not np.shares_memory(R, A):
        A[...] = R
    return R is not None


def _finish_row(R: np.ndarray, k: slice, rows: list[slice], columns: list[slice]) -> bool:
    """Compute one block row of R, and update the rows below it."""
    from scipy.linalg import blas

    corner = _corner(R[k, k], clean=1)
    if corner is None:
        return False
    R[k, k] = corner

    def divide(t: int) -> None:
        R[k, columns[t]] = blas.dtrsm(1.0, corner, R[k, columns[t]], lower=0, trans_a=1)

    run_tasks(divide, len(columns))
    pairs = [(i, j) for t, i in enumerate(rows) for j in columns[t:]]
    run_tasks(lambda t: _subtract_product(R[pairs[t]], R[k, pairs[t][0]], R[k, pairs[t][1]]), len(pairs))
    return True


def _subtract_product(out: np.ndarray, X: np.ndarray, Y: np.ndarray) -> None:
    """Subtract XᵀY from `out`, in the memory order of `out`; entries below its diagonal may be uninitialised."""
    with np.errstate(all="ignore"):
        if out.strides[0] < out.strides[1]:
            out.T[...] -= Y.T @ X
        else:
            out -= X.T @ Y

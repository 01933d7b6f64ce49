"""Run a compiled loop over tasks on several threads.

Compiled loops release the interpreter's lock, so plain threads suffice.  How the work is cut into tasks depends on
the work alone, never on the number of threads: sums are then the same whoever does them.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import count

import numpy as np

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_threads = 0


def _default_threads() -> int:
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(asked)) if asked.isdigit() else cores


def set_threads(n: int) -> None:
    """Use `n` threads from now on."""
    global _pool, _threads
    if n < 1:
        raise ValueError(f"the number of threads must be at least 1, not {n}")
    with _lock:
        if _pool is not None:
            _pool.shutdown()
        _pool = ThreadPoolExecutor(n - 1, "asker") if n > 1 else None
        _threads = n


def n_threads() -> int:
    """How many threads asker uses."""
    if not _threads:
        set_threads(_default_threads())
    return _threads


def run_tasks(task: Callable[[int], None], n_tasks: int) -> None:
    """Call `task(0)` … `task(n_tasks - 1)`, each on whichever thread is free."""
    threads = min(n_threads(), n_tasks)
    if threads <= 1 or _pool is None:
        for k in range(n_tasks):
            task(k)
        return
    counter = count()

    def work() -> None:
        while (k := next(counter)) < n_tasks:
            task(k)

    helpers: list[Future] = [_pool.submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        while next(counter) < n_tasks:  # after an error or Ctrl-C nothing new is begun
            pass
        for helper in helpers:
            helper.result()


@lru_cache(maxsize=256)
def even_bounds(n: int, smallest: int = 4096, most: int = 64) -> np.ndarray:
    """Cut 0…n into tasks of equal length."""
    n_tasks = max(1, min(most, -(-n // smallest)))
    bounds = np.linspace(0, n, n_tasks + 1).astype(np.uint64)
    bounds.setflags(write=False)  # it is given out again
    return bounds


def balanced_bounds(work: np.ndarray, most: int = 64) -> np.ndarray:
    """Cut the items 0…len(work) into tasks of about equal work."""
    done = np.concatenate([[0.0], np.cumsum(work, dtype=float)])
    cuts = np.searchsorted(done, np.linspace(0, done[-1], min(most, max(1, len(work))) + 1)[1:-1])
    return np.unique(np.concatenate([[0], cuts, [len(work)]])).astype(np.uint64)

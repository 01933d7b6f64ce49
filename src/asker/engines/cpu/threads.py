"""Run a compiled loop over tasks on several threads.

Compiled loops release the interpreter's lock, so plain threads suffice.  How the work is cut into tasks depends on
the work alone, never on the number of threads: sums are then the same whoever does them.

A solve has a team of its own, so that solves in several Python threads do not share one.  What is computed outside of
a solve is done by the team of the process.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from itertools import count
from operator import index

import numpy as np


class Team:
    """The thread that calls, and helpers that wait for work."""

    def __init__(self, n: int):
        self.n = index(n)
        if self.n < 1:
            raise ValueError(f"the number of threads must be at least 1, not {n}")
        self._helpers: ThreadPoolExecutor | None = None
        self._process = 0

    def run(self, task: Callable[[int], None], n_tasks: int) -> None:
        """As `run_tasks`."""
        counter = count()

        def work() -> None:
            while (k := next(counter)) < n_tasks:
                task(k)

        helpers: list[Future] = []
        try:
            for _ in range(min(self.n, n_tasks) - 1):
                helpers.append(self._pool().submit(work))
            work()
        finally:
            while next(counter) < n_tasks:  # after an error or Ctrl-C nothing new is begun
                pass
            for helper in helpers:
                if not helper.cancel():  # one that never began has nothing to do any more
                    helper.result()

    def _pool(self) -> ThreadPoolExecutor:
        if self._helpers is None or self._process != os.getpid():  # threads do not survive a fork
            self._helpers, self._process = ThreadPoolExecutor(self.n - 1, "asker"), os.getpid()
        return self._helpers

    def dissolve(self) -> None:
        """Let the helpers go."""
        if self._helpers is not None and self._process == os.getpid():
            self._helpers.shutdown()


_of_the_process: Team | None = None
_of_a_solve: ContextVar[Team | None] = ContextVar("team", default=None)


def _default_threads() -> int:
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(asked)) if asked.isdecimal() else cores


def set_threads(n: int) -> None:
    """Use `n` threads where a solve is not told how many; all cores, or `OMP_NUM_THREADS`, when never called."""
    global _of_the_process
    _of_the_process = Team(n)  # another thread may be at work with the former one: it goes when nobody has it


def _team() -> Team:
    if (team := _of_a_solve.get() or _of_the_process) is None:
        set_threads(_default_threads())
        return _team()
    return team


def n_threads() -> int:
    """How many threads asker uses here and now."""
    return _team().n


@contextmanager
def team_of(n: int | None) -> Iterator[None]:
    """While this is open, `n` threads work for what this thread computes; as many as ever when None."""
    team = Team(n_threads() if n is None else n)
    before = _of_a_solve.set(team)
    try:
        yield
    finally:
        _of_a_solve.reset(before)
        team.dissolve()


def run_tasks(task: Callable[[int], None], n_tasks: int) -> None:
    """Call `task(0)` … `task(n_tasks - 1)`, each on whichever thread is free."""
    _team().run(task, n_tasks)


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

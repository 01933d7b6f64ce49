"""Thread teams that run the tasks of a compiled loop.

Compiled loops release the interpreter's lock, so Python threads suffice.  The partition of the work into tasks does not
depend on the number of threads, so that sums are reproducible.

Each solve has its own team, so that solves in several Python threads do not share one.  Computations outside of a solve
use the team of the process.

Waking a thread takes longer than many loops do.  A thread that waits for work, or for the end of others, therefore
spins for a short time before it sleeps (`_spin`).
"""

import ctypes
import os
import platform
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from itertools import count
from queue import SimpleQueue
from typing import Any

import numpy as np

from asker._arguments import check_number
from asker.engines.cpu.code_cache import Code

SPIN_ITERATIONS = 3000
"""Iterations for which a thread spins before it sleeps: about 50 µs."""


class _Job:
    """Work that helper threads share with the calling thread."""

    def __init__(self, work: Callable[[], None], n: int):
        self.work = work
        self.tickets = list(range(n))  # one for each helper, which takes it when it begins
        self.ended: SimpleQueue[BaseException | None] = SimpleQueue()
        self.signal = np.zeros(1, dtype=np.int64)

    def run(self) -> None:
        """Run the work in a helper thread, unless all tickets have been taken."""
        error: BaseException | None = None
        try:
            ticket = self.tickets.pop()
        except IndexError:
            return
        try:
            self.work()
        except BaseException as e:
            error = e
        self.ended.put(error)
        self.signal[0] = 1 + ticket

    def finish(self, n: int) -> None:
        """Withdraw the tickets of helpers that have not begun, and wait for the others."""
        begun = n
        try:
            while True:
                self.tickets.pop()
                begun -= 1
        except IndexError:
            pass
        errors = [_get(self.ended, self.signal) for _ in range(begun)]
        for error in errors:
            if error is not None:
                raise error


class _Helpers:
    """Threads that wait for jobs."""

    def __init__(self, n: int):
        self.process = os.getpid()
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.signal = np.zeros(1, dtype=np.int64)
        names, target = [f"asker_{k}" for k in range(n)], (self.jobs, self.signal)
        self.threads = [threading.Thread(target=_work_off, args=target, name=name, daemon=True) for name in names]
        _spin()  # compile it once, in this thread
        for thread in self.threads:
            thread.start()

    def submit(self, job: _Job, n: int) -> None:
        """Offer a job to n threads."""
        for _ in range(n):
            self.jobs.put(job)
        self.signal[0] += 1

    def stop(self) -> None:
        """Let all threads end after their current job."""
        for _ in self.threads:
            self.jobs.put(None)
        self.signal[0] += 1


def _work_off(jobs: "SimpleQueue[_Job | None]", signal: np.ndarray) -> None:
    while (job := _get(jobs, signal)) is not None:
        job.run()
        del job  # it references arrays


def _get(queue: "SimpleQueue[Any]", signal: np.ndarray) -> Any:
    """Wait for the next item of a queue; the number in `signal` changes whenever an item is put."""
    before = int(signal[0])
    if queue.empty():
        _spin()(signal.ctypes.data, before, SPIN_ITERATIONS)
    return queue.get()


@cache
def _spin() -> Callable[[int, int, int], int]:
    """Return a function (address, value, n) that spins while the address has the value, for n iterations at most."""
    code = _spin_code()
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code.make())


@cache
def _spin_code() -> Code:
    """Return the code of `_spin`; this reference keeps it loaded."""
    return Code("spin", SPIN, lambda symbol: SPIN.format(symbol=symbol), lambda _: None)


PAUSE = "llvm.x86.sse2.pause" if platform.machine() in ("x86_64", "AMD64") else "llvm.donothing"
SPIN = f"""
declare void @{PAUSE}()
define i64 @"{{symbol}}"(ptr %place, i64 %before, i64 %n) {{{{
entry:
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %again ]
  %now = load atomic i64, ptr %place acquire, align 8
  %same = icmp eq i64 %now, %before
  %more = icmp ult i64 %k, %n
  %on = and i1 %same, %more
  br i1 %on, label %again, label %end
again:
  call void @{PAUSE}()
  %next = add i64 %k, 1
  br label %look
end:
  ret i64 %k
}}}}
"""


class Team:
    """The calling thread and helper threads that wait for work."""

    def __init__(self, n: int):
        check_number("the number of threads", n, 1, whole=True)
        self.n = int(n)
        self._helpers: _Helpers | None = None

    def run(self, task: Callable[[int], None], n_tasks: int) -> None:
        """Call `task(0)` … `task(n_tasks - 1)`, each on a free thread of the team."""
        counter = count()

        def work() -> None:
            while (k := next(counter)) < n_tasks:
                task(k)

        def skip_remaining_tasks() -> None:
            while next(counter) < n_tasks:
                pass

        self.run_concurrently(work, n_tasks, skip_remaining_tasks)

    def run_concurrently(
        self, work: Callable[[], None], max_calls: int, on_exit: Callable[[], None] = lambda: None
    ) -> None:
        """Call `work()` in this thread and concurrently in helpers: `max_calls` calls in all, or fewer if the call in
        this thread ends before helpers have begun.

        `on_exit` runs after the call in this thread, also after an error or Ctrl-C.
        """
        n = min(self.n, max_calls) - 1
        if n < 1:
            work()
            return
        job, helpers = _Job(work, n), self._started_helpers()
        try:
            helpers.submit(job, n)
            work()
        finally:
            on_exit()
            job.finish(n)

    def _started_helpers(self) -> _Helpers:
        if self._helpers is None or self._helpers.process != os.getpid():  # threads do not survive a fork
            self._helpers = _Helpers(self.n - 1)
            weakref.finalize(self, self._helpers.stop).atexit = False
        return self._helpers

    def dissolve(self) -> None:
        """Stop the helpers and wait until they have ended."""
        if self._helpers is not None and self._helpers.process == os.getpid():
            self._helpers.stop()
            for thread in self._helpers.threads:
                thread.join()


_process_team: Team | None = None
_solve_team: ContextVar[Team | None] = ContextVar("team", default=None)


def _default_threads() -> int:
    setting = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(setting)) if setting.isdecimal() else cores


def set_threads(n: int) -> None:
    """Set the default number of threads of a solve.

    Parameters
    ----------
    n
        Number of threads, used by every solve without `threads=`.  Without a call of this function it is the value of
        `OMP_NUM_THREADS`, or else the number of cores.
    """
    global _process_team
    _process_team = Team(n)  # another thread may be using the former team, which ends with its last reference


def _team() -> Team:
    if (team := _solve_team.get() or _process_team) is None:
        set_threads(_default_threads())
        return _team()
    return team


def n_threads() -> int:
    """Return the number of threads of the current team."""
    return _team().n


@contextmanager
def team_of(n: int | None) -> Iterator[None]:
    """Run computations of this thread with a team of `n` threads in a context; None keeps the current number."""
    team = Team(n_threads() if n is None else n)
    before = _solve_team.set(team)
    try:
        yield
    finally:
        _solve_team.reset(before)
        team.dissolve()


def run_tasks(task: Callable[[int], None], n_tasks: int) -> None:
    """Call `task(0)` … `task(n_tasks - 1)`, each on a free thread of the current team."""
    _team().run(task, n_tasks)


def run_together(work: Callable[[], None], max_calls: int) -> None:
    """Call `work()` concurrently on at most `max_calls` threads; each call takes tasks until none remain."""
    _team().run_concurrently(work, max_calls)


@lru_cache(maxsize=256)
def even_bounds(n: int, min_size: int = 4096, max_tasks: int = 64) -> np.ndarray:
    """Return the bounds of tasks of equal length that partition the items 0…n."""
    n_tasks = max(1, min(max_tasks, -(-n // min_size)))
    bounds = np.linspace(0, n, n_tasks + 1).astype(np.uint64)
    bounds.setflags(write=False)  # the cache returns the same array again
    return bounds


def balanced_bounds(work: np.ndarray, max_tasks: int = 64) -> np.ndarray:
    """Return the bounds of tasks of about equal work that partition the items 0…len(work)."""
    done = np.concatenate([[0.0], np.cumsum(work, dtype=float)])
    cuts = np.searchsorted(done, np.linspace(0, done[-1], min(max_tasks, max(1, len(work))) + 1)[1:-1])
    return np.unique(np.concatenate([[0], cuts, [len(work)]])).astype(np.uint64)

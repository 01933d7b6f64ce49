"""Run a compiled loop over tasks on several threads.

Compiled loops release the interpreter's lock, so plain threads suffice.  How the work is cut into tasks depends on
the work alone, never on the number of threads: sums are then the same whoever does them.

A solve has a team of its own, so that solves in several Python threads do not share one.  What is computed outside of
a solve is done by the team of the process.

To wake a thread takes longer than many a loop does.  So who waits, for work or for the others' end, looks for a moment
whether it is there before it sleeps (`_watch`).
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

LOOKS = 3000
"""How often a thread looks before it sleeps: about 50 µs."""


class _Job:
    """What helpers are asked to do together with the thread that asks."""

    def __init__(self, work: Callable[[], None], n: int):
        self.work = work
        self.tickets = list(range(n))  # one for each helper; who takes one begins
        self.ended: SimpleQueue[BaseException | None] = SimpleQueue()
        self.news = np.zeros(1, dtype=np.int64)

    def take_part(self) -> None:
        """By a helper: the work, if it is still wanted."""
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
        self.news[0] = 1 + ticket

    def finish(self, n: int) -> None:
        """Wait for those of n helpers that have begun; the others need not begin any more."""
        begun = n
        try:
            while True:
                self.tickets.pop()
                begun -= 1
        except IndexError:
            pass
        errors = [_next_of(self.ended, self.news) for _ in range(begun)]
        for error in errors:
            if error is not None:
                raise error


class _Helpers:
    """Threads that wait for jobs."""

    def __init__(self, n: int):
        self.process = os.getpid()
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.news = np.zeros(1, dtype=np.int64)
        names = [f"asker_{k}" for k in range(n)]
        self.threads = [threading.Thread(target=_help, args=(self.jobs, self.news), name=k, daemon=True) for k in names]
        _watch()  # is made here, once
        for thread in self.threads:
            thread.start()

    def ask(self, job: _Job, n: int) -> None:
        for _ in range(n):
            self.jobs.put(job)
        self.news[0] += 1

    def let_go(self) -> None:
        for _ in self.threads:
            self.jobs.put(None)
        self.news[0] += 1


def _help(jobs: "SimpleQueue[_Job | None]", news: np.ndarray) -> None:
    while (job := _next_of(jobs, news)) is not None:
        job.take_part()
        del job  # it holds arrays


def _next_of(queue: "SimpleQueue[Any]", news: np.ndarray) -> Any:
    """The next of a queue; `news` is another number whenever something has come."""
    before = int(news[0])
    if queue.empty():
        _watch()(news.ctypes.data, before, LOOKS)
    return queue.get()


@cache
def _watch() -> Callable[[int, int, int], int]:
    """A function (address, value, n): look n times, or until there is another value at the address."""
    code = _watch_code()
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code.make())


@cache
def _watch_code() -> Code:
    """It is released when nobody has it."""
    return Code("watch", WATCH, lambda symbol: WATCH.format(symbol=symbol), lambda _: None)


PAUSE = "llvm.x86.sse2.pause" if platform.machine() in ("x86_64", "AMD64") else "llvm.donothing"
WATCH = f"""
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
    """The thread that calls, and helpers that wait for work."""

    def __init__(self, n: int):
        check_number("the number of threads", n, 1, whole=True)
        self.n = int(n)
        self._helpers: _Helpers | None = None

    def run(self, task: Callable[[int], None], n_tasks: int) -> None:
        """As `run_tasks`."""
        counter = count()

        def work() -> None:
            while (k := next(counter)) < n_tasks:
                task(k)

        def begin_nothing_new() -> None:
            while next(counter) < n_tasks:
                pass

        self.together(work, n_tasks, begin_nothing_new)

    def together(self, work: Callable[[], None], most: int, at_the_end: Callable[[], None] = lambda: None) -> None:
        """Call `work()` here, and at the same time in helpers: `most` calls in all, or fewer if the first one has
        ended before others have begun.

        `at_the_end` is called after the first call, also after an error or Ctrl-C.
        """
        n = min(self.n, most) - 1
        if n < 1:
            work()
            return
        job, helpers = _Job(work, n), self._helping()
        try:
            helpers.ask(job, n)
            work()
        finally:
            at_the_end()
            job.finish(n)

    def _helping(self) -> _Helpers:
        if self._helpers is None or self._helpers.process != os.getpid():  # threads do not survive a fork
            self._helpers = _Helpers(self.n - 1)
            weakref.finalize(self, self._helpers.let_go).atexit = False
        return self._helpers

    def dissolve(self) -> None:
        """Let the helpers go."""
        if self._helpers is not None and self._helpers.process == os.getpid():
            self._helpers.let_go()
            for thread in self._helpers.threads:
                thread.join()


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


def run_together(work: Callable[[], None], most: int) -> None:
    """Call `work()` on at most so many threads at once; each is to do what is left until nothing is."""
    _team().together(work, most)


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

"""Many runs in parallel processes, within a budget of memory."""

import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from asker.experiments.plan import Run
from asker.experiments.records import is_finished
from asker.experiments.runs import execute, n_iterations, needed_mb
from asker.io.folders import make_folder

LOOK_EVERY = 0.5  # seconds
SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals of Ctrl-C, and of `timeout`, Slurm and containers."""


@dataclass(frozen=True)
class Standing:
    """The progress of a plan."""

    done: int
    total: int
    active: dict[str, tuple[int, int | None]]
    """The iterations so far and in total of every active run; the total is None if it is not limited."""


def available_mb() -> float:
    """Return the available memory in MB, including the caches of the operating system."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) / 1e3
    except (OSError, StopIteration):
        return 4000.0


def run_all(
    runs: list[Run], root: Path, processes: int, memory_mb: float, tell: Callable[[Standing], None] = lambda _: None
) -> dict[str, str]:
    """Perform all unfinished runs, and return the error messages of failed ones by folder.

    Ctrl-C and SIGTERM terminate the worker processes, then this one.
    """
    make_folder(root)
    todo = [run for run in runs if not is_finished(root / run.folder)]
    done, failed = len(runs) - len(todo), {}
    if not todo:
        tell(Standing(done, len(runs), {}))
        return {}
    processes = max(1, min(processes, len(todo)))
    threads = max(1, len(os.sched_getaffinity(0)) // processes) if hasattr(os, "sched_getaffinity") else 1
    active: dict[Future[Path], Run] = {}
    with _signals_noted() as signals, _workers(processes) as pool:
        while todo or active:
            for run in _fitting(todo, list(active.values()), processes, memory_mb):
                todo.remove(run)
                with _signals_blocked():
                    active[pool.submit(execute, run, root, threads)] = run
            finished, _ = wait(active, timeout=LOOK_EVERY, return_when=FIRST_COMPLETED)
            if signals:
                raise KeyboardInterrupt
            for future in finished:
                run = active.pop(future)
                done += 1
                if (error := future.exception()) is not None:
                    if isinstance(error, BrokenProcessPool):
                        raise error
                    failed[run.folder] = f"{type(error).__name__}: {error}"
            tell(Standing(done, len(runs), {r.folder: (n_iterations(root, r), r.iterations) for r in active.values()}))
    return failed


@contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """Collect termination signals within the context, to be handled at a safe point."""
    noted: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # `nohup` and `&` ignore it
                before[number] = signal.signal(number, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block signals within the context; a process started in it inherits the mask."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    multiprocessing.resource_tracker.ensure_running()  # started by the first process, it would unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _workers(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Start worker processes; they are killed after an error in this process, and terminate with it."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with_the_parent)
    try:
        yield pool
    except BaseException as error:
        for process in list((pool._processes or {}).values()):
            process.kill()
        if isinstance(error, BrokenProcessPool):
            raise ValueError("a process died, perhaps for lack of memory: lower --processes") from error
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_with_the_parent() -> None:
    """Ignore signals, which the parent handles, and exit when the parent terminates for any reason."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        assert parent is not None
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _fitting(todo: list[Run], active: list[Run], processes: int, memory_mb: float) -> Iterator[Run]:
    """Yield the runs that fit into the memory budget now; a single run is always admitted."""
    used, n = sum(map(needed_mb, active)), len(active)
    for run in list(todo):
        if n < processes and (n == 0 or used + needed_mb(run) <= memory_mb):
            used, n = used + needed_mb(run), n + 1
            yield run

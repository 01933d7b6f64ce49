"""Many runs in parallel processes, within a budget of memory."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from asker.io.files import FileError
from asker.study.plan import Run
from asker.study.runs import PARTIAL, execute, needed_mb

LOOK_EVERY = 0.5  # seconds


@dataclass(frozen=True)
class Standing:
    """How far a plan is."""

    done: int
    total: int
    active: dict[str, tuple[int, int]]
    """Iterations so far and in all, of every run under way."""


def available_mb() -> float:
    """Memory that is free for use, what the system caches included."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) / 1e3
    except (OSError, StopIteration):
        return 4000.0


def run_all(
    runs: list[Run], root: Path, processes: int, memory_mb: float, tell: Callable[[Standing], None] = lambda _: None
) -> dict[str, str]:
    """Do what is not done yet; returns what went wrong, by the folder of the run."""
    root.mkdir(parents=True, exist_ok=True)
    todo = [run for run in runs if not (root / run.folder / "result.json").exists()]
    done, failed = len(runs) - len(todo), {}
    if not todo:
        tell(Standing(done, len(runs), {}))
        return {}
    processes = max(1, min(processes, len(todo)))
    threads = max(1, len(os.sched_getaffinity(0)) // processes) if hasattr(os, "sched_getaffinity") else 1
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_leave_interrupts_to_the_parent)
    active: dict[Future[Path], Run] = {}
    try:
        while todo or active:
            for run in _fitting(todo, list(active.values()), processes, memory_mb):
                todo.remove(run)
                active[pool.submit(execute, run, root, threads)] = run
            finished, _ = wait(active, timeout=LOOK_EVERY, return_when=FIRST_COMPLETED)
            for future in finished:
                run = active.pop(future)
                done += 1
                if (error := future.exception()) is not None:
                    failed[run.folder] = f"{type(error).__name__}: {error}"
                    if isinstance(error, BrokenProcessPool):
                        raise FileError(
                            root / run.folder, "a process died, perhaps for want of memory: lower --processes"
                        )
            tell(Standing(done, len(runs), {r.folder: (_lines(root, r), r.iterations) for r in active.values()}))
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return failed


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _fitting(todo: list[Run], active: list[Run], processes: int, memory_mb: float) -> Iterator[Run]:
    """What can begin now.  One run alone may always begin, or nothing ever would."""
    used, n = sum(map(needed_mb, active)), len(active)
    for run in list(todo):
        if n < processes and (n == 0 or used + needed_mb(run) <= memory_mb):
            used, n = used + needed_mb(run), n + 1
            yield run


def _lines(root: Path, run: Run) -> int:
    """Iterations written so far."""
    try:
        with open(root / (run.folder + PARTIAL) / "history.jsonl", "rb") as file:
            return max(0, sum(1 for _ in file) - 1)
    except OSError:
        return 0

"""What a trial of the campaign is, and the processes of a trial."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MOST_SECONDS = 600
"""A process that takes longer hangs; a busy machine is no fault."""


class Trial(NamedTuple):
    """One trial: what was tried, what went wrong, and whether the input was refused as it should be."""

    what: str
    fault: str | None = None
    refused: bool = False


class Part(NamedTuple):
    """A part of the campaign: a generator of about `n` trials, with a folder of its own."""

    name: str
    run: Callable[[Path, int, np.random.Generator], Iterator[Trial]]
    short: int
    """How many trials the short campaign has,"""
    full: int
    """and the full one."""


def usual_signals() -> None:
    """For a new process: the signals that `nohup` and shells may have it ignore end it as usual."""
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def in_child(work: Callable[[], Any], seconds: int = 120) -> tuple[int, str]:
    """Do some work in a forked process: its exit code, negative for a signal, and what the work returned as text.

    An exception ends the process with code 1 and its text; a process that hangs is killed.
    """
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        code, told = 0, ""
        try:
            os.close(read)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            told = str(work())
        except BaseException as error:
            code, told = 1, f"{type(error).__name__}: {error}"
        finally:
            os.write(write, told.encode(errors="replace")[:60_000])
            os._exit(code)
    os.close(write)
    with open(read, "rb") as pipe:
        told = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), told


def all_gone(session: int, seconds: float = 60) -> bool:
    """Whether no process of a session is left, after a while."""
    deadline = time.monotonic() + seconds
    while any(_session(path) == session for path in Path("/proc").glob("[0-9]*/stat")):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _session(path: Path) -> int:
    try:
        state, *rest = path.read_text().rpartition(")")[2].split()
        return -1 if state == "Z" else int(rest[2])
    except OSError:
        return -1


def temporary_files(*folders: Path) -> list[str]:
    """The names of files and folders that only a process at work may have."""
    return [
        str(path.relative_to(folder))
        for folder in folders
        for path in folder.rglob("*")
        if path.name.startswith(".asker-") or path.name.endswith((".tmp", ".partial"))
    ]

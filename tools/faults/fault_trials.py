"""Types of the campaign, and utilities for processes and temporary files."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MAX_SECONDS = 600
"""Time after which a process counts as hanging; it allows for a busy machine."""


class Trial(NamedTuple):
    """One trial: its kind, the fault or None, and whether the input was rejected as it should be."""

    what: str
    fault: str | None = None
    refused: bool = False


class Part(NamedTuple):
    """Part of the campaign: a generator of about `n` trials in a separate folder."""

    name: str
    run: Callable[[Path, int, np.random.Generator], Iterator[Trial]]
    short: int
    """Number of trials in the short campaign."""
    full: int
    """Number of trials in the full campaign."""


def usual_signals() -> None:
    """Restore the default handlers of signals that `nohup` and shells may have set to be ignored."""
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def in_child(work: Callable[[], Any], seconds: int = 120) -> tuple[int, str]:
    """Call `work` in a forked process; return the exit code, negative for a signal, and the returned value as text.

    An exception is returned as exit code 1 and its text; a process that hangs is killed.
    """
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        code, text = 0, ""
        try:
            os.close(read)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            text = str(work())
        except BaseException as error:
            code, text = 1, f"{type(error).__name__}: {error}"
        finally:
            os.write(write, text.encode(errors="replace")[:60_000])
            os._exit(code)
    os.close(write)
    with open(read, "rb") as pipe:
        text = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


def all_gone(session: int, seconds: float = 60) -> bool:
    """Wait until all processes of a session have ended; return False if some remain after `seconds`."""
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
    """Return the files and folders with the names of temporary ones, which should not outlive their process."""
    return [
        str(path.relative_to(folder))
        for folder in folders
        for path in folder.rglob("*")
        if path.name.startswith(".asker-") or path.name.endswith((".tmp", ".partial"))
    ]

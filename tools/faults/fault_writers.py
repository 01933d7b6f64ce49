"""Trials of writers and locks: files and folders appear whole or not at all, and one process at a time is at work."""

import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asker.applications.bundle.bal import read_bal, write_bal
from asker.applications.colmap.formats.folder import read_model, write_model
from asker.io.files import FileError
from asker.io.folders import alone_in
from bundles import some_bundle
from colmap_models import some_model
from fault_trials import Trial, in_child, temporary_files, usual_signals

ENOUGH = 300_000
"""Bytes: more than the largest of the files takes."""


@dataclass
class Writer:
    """Two values of a kind, written one over the other."""

    values: tuple[Any, Any]
    write: Callable[[Any], None]
    which: Callable[[], int]
    """The number of the value that is there, whole; an error where neither is."""


def _model_writer(folder: Path) -> Writer:
    models = tuple(some_model(("PINHOLE",), n_images=20, n_points=400, seed=seed) for seed in (0, 1))
    folder.mkdir()
    (folder / "project.ini").write_text("a user's file")

    def which() -> int:
        assert (folder / "project.ini").read_text() == "a user's file"
        found = read_model(folder)
        same = [np.array_equal(found.points.xyz, m.points.xyz) and np.array_equal(found.images.xys, m.images.xys)
                for m in models]  # fmt: skip
        return same.index(True)

    return Writer(models, lambda model: write_model(folder, model), which)


def _file_writer(folder: Path) -> Writer:
    bundles = tuple(some_bundle(20, 300, 2000, seed=seed) for seed in (0, 1))
    folder.mkdir()
    path = folder / "a.txt"

    def which() -> int:
        found = read_bal(path)
        return [np.array_equal(found.uv, b.uv) and np.array_equal(found.points, b.points) for b in bundles].index(True)

    return Writer(bundles, lambda bundle: write_bal(path, bundle), which)


def kill_writers(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """`n` values written one over the other by a process that is killed, or may write no more than some bytes."""
    makers = {"model": _model_writer, "file": _file_writer}
    for name, make in makers.items():
        home = folder / name
        writer = make(home)
        seconds = [_write_elsewhere(writer, k) for k in (0, 1, 0)]
        for how in ("killed", "no room"):
            for _ in range(-(-n // 4)):
                code = (
                    _killed(writer, rng.uniform(0, 3 * min(seconds))) if how == "killed" else _without_room(writer, rng)
                )
                fault = _what_is_wrong(writer, home) if code in (0, 2, -signal.SIGKILL) else f"exit code {code}"
                yield Trial(f"{name}, {how}", fault, refused=code != 0)


def _killed(writer: Writer, seconds: float) -> int:
    """Write again and again until the process is killed."""
    pid = os.fork()
    if not pid:
        try:
            while True:
                for value in writer.values:
                    writer.write(value)
        finally:
            os._exit(1)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _without_room(writer: Writer, rng: np.random.Generator) -> int:
    """Write the other value where files may not grow beyond some size."""
    size = int(rng.integers(ENOUGH))
    other = writer.values[1 - writer.which()]

    def write() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        try:
            writer.write(other)
        except FileError:
            os._exit(2)

    return in_child(write)[0]


def _what_is_wrong(writer: Writer, folder: Path) -> str | None:
    """Neither value is there whole, or something of a process that has ended stays after the next one."""
    try:
        at = writer.which()
        _write_elsewhere(writer, 1 - at)
        if writer.which() == at:
            return "what is written is not what is read"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    left = temporary_files(folder.parent)
    for name in left:
        _remove(folder.parent / name)
    return f"left over after the next write: {left[:3]}" if left else None


def _write_elsewhere(writer: Writer, k: int) -> float:
    """Write a value in a process of its own, since each one removes once what others have left; returns the seconds."""
    begin = time.monotonic()
    code, said = in_child(lambda: writer.write(writer.values[k]))
    if code:
        raise RuntimeError(f"exit code {code}: {said}")
    return time.monotonic() - begin


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)


def hold_locks(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """`n` times a process works in a folder: nobody else may, and everybody when it has ended, however that was."""
    folder.mkdir(exist_ok=True)
    for _ in range(n):
        ready, told = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                usual_signals()
                with alone_in(folder):
                    os.write(told, b".")
                    time.sleep(60)
            finally:
                os._exit(1)
        os.close(told)
        os.read(ready, 1)
        os.close(ready)
        others = [in_child(lambda: _enter(folder))[1] for _ in range(2)]
        os.kill(pid, int(rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])))
        os.waitpid(pid, 0)
        after = _enter(folder)
        fault = "two processes are at work" if others != ["refused"] * 2 else None
        yield Trial("lock of a folder", fault or ("the lock outlives its process" if after != "entered" else None))


def _enter(folder: Path) -> str:
    try:
        with alone_in(folder):
            return "entered"
    except FileError:
        return "refused"

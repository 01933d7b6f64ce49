"""Trials of writers and locks: files and folders are written completely or not at all, and locks are exclusive."""

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
from colmap_models import some_model
from fault_trials import Trial, in_child, temporary_files, usual_signals
from random_bundles import some_bundle

MAX_FILE_BYTES = 300_000
"""Upper limit of the random file size limits: more than the largest of the files."""


@dataclass
class Writer:
    """Two values of a kind, which are written alternately to the same place."""

    values: tuple[Any, Any]
    write: Callable[[Any], None]
    which: Callable[[], int]
    """Return the index of the value that is stored; an exception if neither is stored completely."""


def _model_writer(folder: Path) -> Writer:
    models = tuple(some_model(("PINHOLE",), n_images=20, n_points=400, seed=seed) for seed in (0, 1))
    folder.mkdir()
    (folder / "project.ini").write_text("a user's file")

    def which() -> int:
        assert (folder / "project.ini").read_text() == "a user's file"
        read = read_model(folder)
        same = [np.array_equal(read.points.xyz, m.points.xyz) and np.array_equal(read.images.xys, m.images.xys)
                for m in models]  # fmt: skip
        return same.index(True)

    return Writer(models, lambda model: write_model(folder, model), which)


def _file_writer(folder: Path) -> Writer:
    bundles = tuple(some_bundle(20, 300, 2000, seed=seed) for seed in (0, 1))
    folder.mkdir()
    path = folder / "a.txt"

    def which() -> int:
        read = read_bal(path)
        return [np.array_equal(read.uv, b.uv) and np.array_equal(read.points, b.points) for b in bundles].index(True)

    return Writer(bundles, lambda bundle: write_bal(path, bundle), which)


def kill_writers(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Overwrite a value `n` times by a process that is killed or has a file size limit."""
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
    """Write repeatedly in a process that is killed after some seconds; return its exit code."""
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
    """Write the other value with a random file size limit; return the exit code."""
    size = int(rng.integers(MAX_FILE_BYTES))
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
    """Return the fault if neither value is complete, or if temporary files remain after the next write; else None."""
    try:
        at = writer.which()
        _write_elsewhere(writer, 1 - at)
        if writer.which() == at:
            return "the file read differs from the file written"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    remaining = temporary_files(folder.parent)
    for name in remaining:
        _remove(folder.parent / name)
    return f"temporary files remain after the next write: {remaining[:3]}" if remaining else None


def _write_elsewhere(writer: Writer, k: int) -> float:
    """Write a value in a new process, which removes the temporary files of ended ones; return the seconds."""
    begin = time.monotonic()
    code, text = in_child(lambda: writer.write(writer.values[k]))
    if code:
        raise RuntimeError(f"exit code {code}: {text}")
    return time.monotonic() - begin


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)


def hold_locks(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Lock a folder `n` times: other processes must be rejected until the process has ended in any way."""
    folder.mkdir(exist_ok=True)
    for _ in range(n):
        ready, locked = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                usual_signals()
                with alone_in(folder):
                    os.write(locked, b".")
                    time.sleep(60)
            finally:
                os._exit(1)
        os.close(locked)
        os.read(ready, 1)
        os.close(ready)
        others = [in_child(lambda: _enter(folder))[1] for _ in range(2)]
        os.kill(pid, int(rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])))
        os.waitpid(pid, 0)
        after = _enter(folder)
        fault = "a second process gets the lock" if others != ["refused"] * 2 else None
        yield Trial("lock of a folder", fault or ("the lock outlives its process" if after != "entered" else None))


def _enter(folder: Path) -> str:
    try:
        with alone_in(folder):
            return "entered"
    except FileError:
        return "refused"

"""Temporary files and folders, and the removal of those that a killed process has left behind.

Names       .asker-<kernel>-<random>.tmp, in the folder of what they are to replace
            kernel   a digest of the boot id of the running system
Algorithm   (1) a process locks what it makes (`flock`); the lock ends with the process, however that ends
            (2) before a process makes its first one in a folder, it removes those of the same kernel whose lock is free
Several     A drive may keep locks within one host.  Hence a process only judges names of its own kernel, whose locks it
hosts       sees whatever the drive; those of another host, or from before a restart, stay as they are.
"""

import hashlib
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing is locked, and nothing is removed
    fcntl = None  # type: ignore[assignment]

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
END = ".tmp"


@contextmanager
def temporary_file(folder: Path, mode: int = 0o666) -> Iterator[Path]:
    """Make an empty file that is removed at the end, unless it has been moved to another name by then."""

    def make(path: Path) -> None:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))

    with _locked(folder, make) as path:
        try:
            yield path
        finally:
            with suppress(OSError):
                path.unlink()


@contextmanager
def temporary_folder(folder: Path, mode: int = 0o777) -> Iterator[Path]:
    """Make an empty folder; whatever has its name at the end is removed with its content."""
    with _locked(folder, lambda path: path.mkdir(mode)) as path:
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


@cache
def prefix() -> str:
    """The beginning of the names that processes under this kernel give."""
    try:
        kernel = BOOT_ID.read_text()
    except OSError:  # not Linux
        kernel = socket.gethostname()
    return f".asker-{hashlib.sha256(kernel.encode()).hexdigest()[:12]}-"


@contextmanager
def _locked(folder: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Make something under a new name, and lock it (1)."""
    _remove_abandoned(Path(os.path.abspath(folder)))
    path, lock = _made(folder, make)
    try:
        yield path
    finally:
        if lock is not None:
            os.close(lock)


def _made(folder: Path, make: Callable[[Path], None]) -> tuple[Path, int | None]:
    """The path, and the descriptor that locks it; made again if another process has removed it before it was locked."""
    while True:
        path = folder / f"{prefix()}{secrets.token_hex(8)}{END}"
        make(path)
        with suppress(BlockingIOError, FileNotFoundError):
            lock = _lock(path)
            if lock is None or os.fstat(lock).st_nlink:
                return path, lock
            os.close(lock)


def _lock(path: Path) -> int | None:
    """Open and lock a file or a folder; None if the system or the drive has no locks.

    A `BlockingIOError` means that another process has locked it.
    """
    if fcntl is None:
        return None
    access = os.O_RDONLY if path.is_dir() else os.O_RDWR
    handle = os.open(path, access | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return handle


@cache
def _remove_abandoned(folder: Path) -> None:
    """Remove what killed processes have left in a folder (2); once in the life of a process."""
    with suppress(OSError):
        for path in folder.glob(f"{prefix()}*{END}"):
            with suppress(OSError):
                _remove_if_abandoned(path)


def _remove_if_abandoned(path: Path) -> None:
    lock = _lock(path)
    if lock is None:
        return
    try:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    finally:
        os.close(lock)

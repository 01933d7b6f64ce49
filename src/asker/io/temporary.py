"""Temporary files and folders, and the removal of those that killed processes have left behind.

Names       .asker-<kernel>-<random>.tmp, in the folder of the file or folder to be replaced
            kernel   a digest of the boot id of the running system
Algorithm   (1) a process locks its temporary files (`flock`); a lock ends with its process, for any reason
            (2) before its first temporary file in a folder, a process removes those of the same kernel without a lock
Several     Some drives do not share locks between hosts.  Hence a process only removes files of its own kernel, whose
hosts       locks are visible on every drive; files of other hosts, or from before a restart, are kept.
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
    """Create an empty file that is removed at the end, unless it has been renamed."""

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
    """Create an empty folder; the folder with its name is removed at the end with its content."""
    with _locked(folder, lambda path: path.mkdir(mode)) as path:
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


@cache
def prefix() -> str:
    """Return the prefix of temporary names of processes under this kernel."""
    try:
        kernel = BOOT_ID.read_text()
    except OSError:  # not Linux
        kernel = socket.gethostname()
    return f".asker-{hashlib.sha256(kernel.encode()).hexdigest()[:12]}-"


@contextmanager
def _locked(folder: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Create a file or folder with a new name, and lock it (1)."""
    _remove_abandoned(Path(os.path.abspath(folder)))
    path, lock = _made(folder, make)
    try:
        yield path
    finally:
        if lock is not None:
            os.close(lock)


def _made(folder: Path, make: Callable[[Path], None]) -> tuple[Path, int | None]:
    """Return the path and the descriptor of its lock; try again if another process removes it before it is locked."""
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
    """Remove temporary files of killed processes from a folder (2), once per process."""
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

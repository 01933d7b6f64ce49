"""Atomic replacement of folders, and locks for folders."""

import ctypes
import os
import secrets
import shutil
import socket
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from asker.io.files import NOT_REGULAR, FileError, FilePath
from asker.io.temporary import temporary_folder

RENAME_EXCHANGE = 2  # flag of Linux' renameat2 that exchanges two paths atomically
AT_FDCWD = -100
LOCK = ".lock"
"""The lock file of a folder, which names the process that has it."""


def make_folder(path: FilePath) -> None:
    """Create a folder and its parents if they do not exist."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise FileError(path, "this is a file, and not a folder") from error
    except OSError as error:
        raise FileError(path, f"this folder cannot be created: {error.strerror or error}") from error


@contextmanager
def write_folder(path: FilePath, names: Collection[str]) -> Iterator[Path]:
    """Yield an empty folder whose files all move to `path` at the end, or none of them.

    `names` are the names of all files that may be written.  If `path` has none of them yet, the new files are moved
    there.  Otherwise a reader could meet old and new files: all other files of the old folder are linked into the new
    one, and the two folders are exchanged.
    """
    target = Path(os.path.realpath(path))
    try:
        swapped = not target.is_dir() or _holds(target, names)
        with temporary_folder(target.parent if swapped else target) as temporary:  # after a swap it is the old one
            yield temporary
            _swap(temporary, target) if swapped else _move_in(temporary, target)
    except OSError as error:
        raise FileError(path, f"this folder cannot be written: {error.strerror or error}") from error


class _Untouched(Exception):
    """Raised to leave `write_folder` before the target is changed."""


def check_folder(path: FilePath, names: Collection[str]) -> None:
    """Raise a `FileError` if `write_folder` could not write the folder."""
    target = Path(os.path.realpath(path))
    if os.path.exists(target) and not os.path.isdir(target):
        raise FileError(path, "this is a file, and not a folder")
    if not os.path.isdir(target.parent):
        raise FileError(path, f"there is no folder {str(target.parent)!r} to write into")
    in_use = os.path.ismount(target) or Path.cwd().is_relative_to(target)
    if in_use and _holds(target, names):
        raise FileError(path, "this folder is mounted, or the current one, and cannot be swapped: name another one")
    with suppress(_Untouched), write_folder(path, names):
        raise _Untouched


def _holds(folder: Path, names: Collection[str]) -> bool:
    """Return True if the folder contains one of these names."""
    return any(os.path.lexists(folder / name) for name in names)


def _move_in(new: Path, target: Path) -> None:
    """Move all files of a new folder into an existing one, or none."""
    moved = []
    try:
        for name in sorted(os.listdir(new)):
            os.replace(new / name, target / name)
            moved.append(target / name)
    except OSError:
        for path in moved:
            path.unlink(missing_ok=True)
        raise


def _swap(new: Path, target: Path) -> None:
    """Replace a folder by a new one, to which the other files of the folder are added first."""
    if not target.is_dir():
        os.rename(new, target)
        return
    for entry in os.scandir(target):
        if not os.path.lexists(new / entry.name):
            _bring(entry, new / entry.name)
    shutil.copymode(target, new)
    if not _exchanged(new, target):
        old = target.with_name(f".asker-{secrets.token_hex(8)}.old")  # kept if the process is killed here
        os.rename(target, old)
        try:
            os.rename(new, target)
        except OSError:
            os.rename(old, target)
            raise
        os.rename(old, new)


def _bring(entry: "os.DirEntry[str]", to: Path) -> None:
    """Link or copy a file or folder to another place."""
    if entry.is_dir(follow_symlinks=False):
        shutil.copytree(entry.path, to, symlinks=True, copy_function=_link)
    else:
        _link(entry.path, str(to))


def _link(source: str, to: str) -> None:
    """Create a hard link, or a copy on file systems without hard links."""
    try:
        os.link(source, to, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, to, follow_symlinks=False)


def _exchanged(a: Path, b: Path) -> bool:
    """Exchange two folders atomically; return False if the system cannot."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return rename(AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), RENAME_EXCHANGE) == 0


@contextmanager
def alone_in(folder: Path) -> Iterator[bool]:
    """Lock a folder within the context; raise a `FileError` that names the process if another one has the lock.

    The lock ends with the process, for any reason.  Yields False if the system or the drive has no locks.
    """
    try:
        import fcntl
    except ImportError:
        yield False
        return
    try:
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise FileError(folder, f"cannot be written: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise FileError(folder / LOCK, NOT_REGULAR)
        alone = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            who = os.read(file, 200).decode(errors="replace").strip() or "another process"
            raise FileError(folder, f"{who} is at work here: wait for it, or name another folder") from error
        except OSError:
            alone = False
        with suppress(OSError):  # a full disk is no reason to stop
            os.ftruncate(file, 0)
            os.write(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield alone
    finally:
        os.close(file)

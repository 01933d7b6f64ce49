"""Reading and writing whole files, plain or compressed, with errors that name the file."""

import bz2
import gzip
import os
import secrets
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

FilePath = str | os.PathLike[str]

PART = ".part"
"""The end of the name of a file that is not yet complete."""

CHUNK = 1 << 22
SMALL = 1 << 26  # bytes
MOST = 100
"""A compressed file holds at most so many times its size, or is `SMALL`: text with numbers shrinks to a fifth or so."""


class FileError(ValueError):
    """Bad input from a file, or a file that cannot be written.

    The message is `path: what is wrong`, or `path:line: what is wrong` where the line is known.
    """

    def __init__(self, path: FilePath, what: str, line: int | None = None):
        super().__init__(path, what, line)
        self.path = os.fspath(path)
        self.what = what
        self.line = line

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.what}"


def read_text_bytes(path: FilePath) -> bytes:
    """All bytes of a file, decompressed."""
    with opened(path) as file:
        return file.read()


def beginning(path: FilePath, n: int = 1 << 16) -> bytes:
    """The first bytes of a file, decompressed: enough to see what it is."""
    with opened(path) as file:
        return file.read(n)


@contextmanager
def opened(path: FilePath) -> Iterator[IO[bytes]]:
    """A file to read.  A `.bz2` or `.gz` file is decompressed, also with `.part` after its name."""
    readers: dict[str, Callable[..., IO[Any]]] = {".bz2": bz2.open, ".gz": gzip.open}
    reader = readers.get(Path(os.fspath(path).removesuffix(PART)).suffix.lower(), open)
    try:
        if _has_no_end(path):
            raise FileError(path, "this is a device or a pipe, not a file")
        with reader(path, "rb") as file:
            yield file if reader is open else _Unpacked(path, file)  # type: ignore[misc]
    except FileNotFoundError as error:
        raise FileError(path, "there is no such file") from error
    except IsADirectoryError as error:
        raise FileError(path, "this is a folder, not a file") from error
    except PermissionError as error:
        raise FileError(path, "there is no permission to read this file") from error
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise FileError(path, f"cannot be read: {error.strerror}") from error
        raise FileError(path, "the compressed data is broken or cut short") from error


def _has_no_end(path: FilePath) -> bool:
    """Whether reading might never end; what is not there, or cannot be seen, is told when it is opened."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


class _Unpacked:
    """What a compressed file holds, unless that is more than its size can mean."""

    def __init__(self, path: FilePath, file: IO[bytes]):
        self.path, self.file = path, file
        self.size = os.path.getsize(path)
        self.left = self.most = max(SMALL, MOST * self.size)

    def read(self, n: int = -1) -> bytes:
        if n < 0:
            return b"".join(iter(lambda: self.read(CHUNK), b""))
        chunk = self.file.read(n)
        self.left -= len(chunk)
        if self.left < 0:
            what = f"its {self.size} bytes unpack to more than {self.most >> 20} MB: this holds no numbers"
            raise FileError(self.path, what)
        return chunk


@contextmanager
def write_whole(path: FilePath) -> Iterator[IO[bytes]]:
    """A binary handle for a file that appears whole or not at all.

    The bytes go to a temporary file in the same folder, which takes the target's place at the end.
    After any exception the temporary file is gone and an existing target is as it was.
    A `.bz2` or `.gz` file is compressed; equal content gives equal bytes.
    """
    target = Path(path)
    temporary = beside(target)
    try:
        if target.exists() and not target.is_file():  # a folder, or a device such as /dev/null
            raise FileError(path, "this exists and is not a plain file, so it is not replaced")
        with open(temporary, "xb") as raw:
            with _compressed(raw, target.suffix.lower()) as file:
                yield file
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()  # after a success it is gone already


def beside(target: Path) -> Path:
    """A name in the same folder that nobody else has, for what is to take the target's place."""
    return target.parent / f".asker-{secrets.token_hex(8)}.tmp"


def _compressed(raw: IO[bytes], suffix: str) -> AbstractContextManager[Any]:
    if suffix == ".bz2":
        return bz2.BZ2File(raw, "wb")
    if suffix == ".gz":
        # no name and no time in the header: the bytes depend on the content only
        return gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0)
    return nullcontext(raw)

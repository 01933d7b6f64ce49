"""Reading and writing whole files, plain or compressed, with errors that name the file."""

import bz2
import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from asker.io.temporary import temporary_file

FilePath = str | os.PathLike[str]

PART = ".part"
"""The suffix of an incomplete file."""

BOM = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, which some editors and spreadsheets write at the beginning of a text."""
NOT_REGULAR = "this is a device or a pipe, not a file"

CHUNK = 1 << 22
SMALL = 1 << 26  # bytes
MOST = 100
"""The largest accepted compression ratio of files above `SMALL`; text with numbers has a ratio of about 5."""


class FileError(ValueError):
    """Bad input from a file, or a file that cannot be written.

    The message is `path: problem`, or `path:line: problem` if the line is known.
    """

    def __init__(self, path: FilePath, what: str, line: int | None = None):
        super().__init__(path, what, line)
        self.path = os.fspath(path)
        self.what = what
        self.line = line

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.what}"


def read_bytes(path: FilePath) -> bytes:
    """Return all bytes of a file, decompressed."""
    with opened(path) as file:
        return file.read()


def read_text_bytes(path: FilePath) -> bytes:
    """Return the bytes of a text file, decompressed, without a UTF-8 byte order mark."""
    return read_bytes(path).removeprefix(BOM)


def beginning(path: FilePath, n: int = 1 << 16) -> bytes:
    """Return the first bytes of a text file, as `read_text_bytes` does: enough to recognise its format."""
    with opened(path) as file:
        return file.read(n).removeprefix(BOM)


@contextmanager
def opened(path: FilePath) -> Iterator[IO[bytes]]:
    """Open a file to read.  A `.bz2` or `.gz` file is decompressed, also with `.part` after its name."""
    readers: dict[str, Callable[[IO[bytes]], IO[Any]]] = {".bz2": bz2.BZ2File, ".gz": _gunzipped}
    reader = readers.get(Path(os.fspath(path).removesuffix(PART)).suffix.lower())
    try:
        with open_regular(path) as raw:
            if reader is None:
                yield raw
                return
            with reader(raw) as file:
                yield _Unpacked(path, file, os.fstat(raw.fileno()).st_size)  # type: ignore[misc]
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


def open_regular(path: FilePath) -> IO[bytes]:
    """Open a regular file to read its bytes.  A device or a pipe, which may have no end, is a `FileError`."""

    def opener(name: str, flags: int) -> int:
        handle = os.open(name, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe would wait for its other end
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # `open` itself refuses a folder
            os.close(handle)
            raise FileError(path, NOT_REGULAR)
        return handle

    return open(path, "rb", opener=opener)


def _gunzipped(raw: IO[bytes]) -> IO[Any]:
    return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]


class _Unpacked:
    """Reader of a compressed file that raises a `FileError` above a plausible compression ratio."""

    def __init__(self, path: FilePath, file: IO[bytes], size: int):
        """`size` is that of the compressed file in bytes."""
        self.path, self.file, self.size = path, file, size
        self.left = self.most = max(SMALL, MOST * self.size)

    def read(self, n: int = -1) -> bytes:
        if n < 0:
            return b"".join(iter(lambda: self.read(CHUNK), b""))
        chunk = self.file.read(n)
        self.left -= len(chunk)
        if self.left < 0:
            what = f"its {self.size} bytes decompress to more than {self.most >> 20} MB: this is no file of numbers"
            raise FileError(self.path, what)
        return chunk


@contextmanager
def write_whole(path: FilePath) -> Iterator[IO[bytes]]:
    """Open a file to write it atomically: it appears complete or not at all.

    The bytes are written to a temporary file in the same folder, which replaces the target at the end.  After an
    exception the temporary file is removed and an existing target is unchanged; after a kill, the next process that
    writes to the folder removes it.  A `.bz2` or `.gz` file is compressed; equal content gives equal bytes.
    """
    target = Path(path)
    try:
        if target.exists() and not target.is_file():  # a folder, or a device such as /dev/null
            raise FileError(path, "this exists and is not a regular file, so it is not replaced")
        with temporary_file(target.parent) as temporary:
            with open(temporary, "wb") as raw:
                with _compressed(raw, target.suffix.lower()) as file:
                    yield file
                raw.flush()
                os.fsync(raw.fileno())
            os.replace(temporary, target)
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror or error}") from error


def _compressed(raw: IO[bytes], suffix: str) -> AbstractContextManager[Any]:
    if suffix == ".bz2":
        return bz2.BZ2File(raw, "wb")
    if suffix == ".gz":
        # no name and no time in the header: the bytes depend on the content only
        return gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0)
    return nullcontext(raw)

"""Atomic downloads of files over HTTP.

The bytes are written to `<name>.part`.  After an interruption this file is kept, and the next attempt continues from
its end, in this run or in a later one.  It is renamed when its length is correct and its content could be read.  A file
above the expected size is rejected, since the server may have changed.
"""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from asker.io.files import NOT_REGULAR, PART, FileError

Check = Callable[[Path], object]
"""Reads a file, and raises a `FileError` if it is not valid."""
Say = Callable[[str], None]
"""Receives progress messages."""

CHUNK_BYTES = 1 << 16
PAUSE = 1.0  # seconds before an interrupted download continues
TIMEOUT = (10.0, 30.0)  # seconds to connect, and to wait for more bytes


class Unreachable(FileError):
    """Error if there is no connection to the server."""


def download(url: str, path: Path, check: Check, say: Say, most_bytes: int) -> None:
    """Download `url` to `path`, unless this file exists."""
    part = path.with_name(path.name + PART)
    try:
        if path.exists():
            return
        if part.exists() and not part.is_file():
            raise FileError(part, NOT_REGULAR)
        path.parent.mkdir(parents=True, exist_ok=True)
        _complete(url, part, path, say, most_bytes)
        say(f"{path.name}, checking")
        _check(url, part, path, check)
        os.replace(part, path)
    except OSError as e:
        raise FileError(path, f"cannot be written: {e.strerror or e}") from e


def _complete(url: str, part: Path, path: Path, say: Say, most_bytes: int) -> None:
    """Complete the partial file; after an interruption continue, as long as every attempt adds bytes."""
    before = _size(part)
    while not _continue(url, part, path, say, most_bytes):
        have = _size(part)
        if have <= before:
            raise FileError(path, f"the download of {url} broke off after {have} bytes; run it again to continue")
        before = have
        time.sleep(PAUSE)


def _continue(url: str, part: Path, path: Path, say: Say, most_bytes: int) -> bool:
    """Request the missing bytes of `part` and append them; return True if the file is complete."""
    have = _size(part)
    with _get(url, path, have) as response:
        start, total = _span(response)
        if response.status_code == 416 and 0 < have == total:  # nothing is missing
            return True
        if have and response.status_code in (206, 416) and start != have:  # this does not continue what we have
            part.unlink()
            return _continue(url, part, path, say, most_bytes)
        if response.status_code not in (200, 206) or start not in (0, have):
            raise FileError(path, f"cannot be downloaded: {url} answers {response.status_code} {response.reason}")
        try:
            if total is not None and total > most_bytes:
                raise _TooLarge
            return _append(response, part, start, total, say, most_bytes)
        except _TooLarge:
            part.unlink(missing_ok=True)
            what = f"is larger than {most_bytes / 1e6:.1f} MB, the limit for this data set"
            raise FileError(path, f"cannot be downloaded: {url} {what}") from None


def _get(url: str, path: Path, have: int) -> Any:
    """Return the response of the server for the bytes after the first `have`."""
    import requests

    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        return requests.get(url, headers=headers, stream=True, timeout=TIMEOUT)
    except requests.RequestException as e:
        kind = "safe connection" if isinstance(e, requests.exceptions.SSLError) else "connection"
        raise Unreachable(path, f"there is no {kind} to {urlsplit(url).netloc or url}") from e


def _span(response: Any) -> tuple[int, int | None]:
    """Return the position of the response in the file, and the length of the file if the server reports it."""
    if response.status_code in (206, 416):
        match = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", response.headers.get("Content-Range", ""))
        if not match:
            return -1, None
        return int(match[1] or -1), None if match[2] == "*" else int(match[2])
    length = response.headers.get("Content-Length", "")
    plain = "Content-Encoding" not in response.headers  # else the length is that of the encoded bytes
    return 0, int(length) if plain and length.isdecimal() else None


class _TooLarge(Exception):
    """Raised if a file is larger than expected."""


def _append(response: Any, part: Path, start: int, total: int | None, say: Say, most_bytes: int) -> bool:
    """Write the bytes as they arrive; return True if the file is complete."""
    import requests

    have = start
    with open(part, "ab" if start else "wb") as file:
        try:
            for chunk in response.iter_content(CHUNK_BYTES):
                file.write(chunk)
                have += len(chunk)
                if have > most_bytes:
                    raise _TooLarge
                of = f" of {total / 1e6:.1f}" if total else ""
                say(f"{part.name.removesuffix(PART)}, {have / 1e6:.1f}{of} MB")
        except requests.RequestException:
            return False
        finally:
            file.flush()
        os.fsync(file.fileno())
    return total is None or have == total


def _check(url: str, part: Path, path: Path, check: Check) -> None:
    """Raise a `FileError` if the file cannot be read, and remove it, so that the next attempt starts from scratch."""
    try:
        check(part)
    except FileError as e:
        part.unlink(missing_ok=True)
        raise FileError(path, f"the file from {url} is not valid: {e.what}") from e


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0

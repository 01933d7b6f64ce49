"""Files of Bundle Adjustment in the Large (Agarwal, Snavely, Seitz, Szeliski, ECCV 2010).

    n_cameras n_points n_observations
    camera point x y          one line per observation
    number                    nine per camera
    number                    three per point

Only the order of the numbers counts: any white space may stand between them.
Numbers are read and written exactly: reading a written bundle gives the same bits.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from asker.io.files import FileError, FilePath, read_text_bytes, write_whole

CHUNK_BYTES = 1 << 20
CHUNK_ROWS = 1 << 14

_HEADER = re.compile(rb"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})(?!\S)")
_SPACE = re.compile(rb"\s")
_TOKEN = re.compile(rb"\S+")


@dataclass(frozen=True, eq=False)
class Bundle:
    """Cameras, points, and where each point was seen."""

    cameras: NDArray[np.float64]
    """(n_cameras, 9): rotation as angle-axis (3), translation (3), f, k1, k2."""
    points: NDArray[np.float64]
    """(n_points, 3): positions in the world."""
    camera_index: NDArray[np.int32]
    """(n_observations,): the camera of each observation."""
    point_index: NDArray[np.int32]
    """(n_observations,): the point of each observation."""
    uv: NDArray[np.float64]
    """(n_observations, 2): where the point was seen, in pixels from the image centre, y up."""

    @property
    def n_cameras(self) -> int:
        return len(self.cameras)

    @property
    def n_points(self) -> int:
        return len(self.points)

    @property
    def n_observations(self) -> int:
        return len(self.uv)


def read_bal(path: FilePath) -> Bundle:
    """Read a BAL file (`.txt`, `.txt.bz2`, `.txt.gz`).  Anything wrong in it is a `FileError`."""
    text = read_text_bytes(path)
    (n_cameras, n_points, n_observations), start = _read_header(path, text)
    n_numbers = 4 * n_observations + 9 * n_cameras + 3 * n_points
    numbers = _read_numbers(path, text, start, n_numbers)

    observations = numbers[: 4 * n_observations].reshape(-1, 4)
    for column, name, count in ((0, "camera", n_cameras), (1, "point", n_points)):
        index = observations[:, column]
        bad = (index < 0) | (index >= count) | (index != np.floor(index))
        if bad.any():
            k = 4 * int(bad.argmax()) + column
            token, line = _find_number(text, start, k)
            what = f"the {name} index must be an integer from 0 to {count - 1}, found {token}"
            raise FileError(path, what, line)
    del text

    rest = numbers[4 * n_observations :]
    return Bundle(
        cameras=rest[: 9 * n_cameras].reshape(-1, 9).copy(),
        points=rest[9 * n_cameras :].reshape(-1, 3).copy(),
        camera_index=observations[:, 0].astype(np.int32),
        point_index=observations[:, 1].astype(np.int32),
        uv=observations[:, 2:].copy(),
    )


def write_bal(path: FilePath, bundle: Bundle) -> None:
    """Write a BAL file, compressed by suffix.  A `ValueError` names an array that does not fit."""
    _check(bundle)
    with write_whole(path) as file:
        file.write(f"{bundle.n_cameras} {bundle.n_points} {bundle.n_observations}\n".encode())
        columns = (bundle.camera_index, bundle.point_index, *np.asarray(bundle.uv, np.float64).T)
        for start in range(0, bundle.n_observations, CHUNK_ROWS):
            rows = list(zip(*(column[start : start + CHUNK_ROWS].tolist() for column in columns), strict=True))
            file.write(("%d %d %r %r\n" * len(rows) % tuple(chain.from_iterable(rows))).encode())
        for array in (bundle.cameras, bundle.points):
            numbers = np.asarray(array, np.float64).ravel()
            for start in range(0, len(numbers), CHUNK_ROWS):
                part = numbers[start : start + CHUNK_ROWS].tolist()
                file.write(("%r\n" * len(part) % tuple(part)).encode())


def _read_header(path: FilePath, text: bytes) -> tuple[list[int], int]:
    """The three counts, and where the text goes on after them."""
    first = _TOKEN.search(text)
    if first is None:
        raise FileError(path, "the file is empty")
    header = _HEADER.match(text)
    counts = [int(count) for count in header.groups()] if header else []
    if header is None or 0 in counts:
        found = _shown(text[first.start() : first.start() + 200].splitlines()[0])
        what = f"the header must be three positive integers (cameras, points, observations), found {found}"
        raise FileError(path, what, _line(text, first.start()))
    return counts, header.end()


def _read_numbers(path: FilePath, text: bytes, start: int, n_numbers: int) -> NDArray[np.float64]:
    """The `n_numbers` finite numbers that the text holds from `start` to its end."""
    if 2 * n_numbers > len(text) - start + 1:  # a number takes two bytes: do not trust the header with memory
        _refuse_count(path, text, start, n_numbers)
    numbers = np.empty(n_numbers)
    filled = 0
    for begin, end in _chunks(text, start):
        try:
            values = _parse(text[begin:end])
        except ValueError:
            _refuse_token(path, text, begin, end)
        if filled + len(values) > n_numbers:
            _refuse_count(path, text, start, n_numbers)
        numbers[filled : filled + len(values)] = values
        filled += len(values)
    if filled < n_numbers:
        _refuse_count(path, text, start, n_numbers)
    return numbers


def _parse(text: bytes) -> NDArray[np.float64]:
    tokens = text.split()
    values = np.fromiter(map(float, tokens), np.float64, len(tokens))
    if b"_" in text or not np.isfinite(values).all():  # Python alone reads 1_000 as a number
        raise ValueError
    return values


def _chunks(text: bytes, start: int) -> Iterator[tuple[int, int]]:
    """Cut the text from `start` on at white space into pieces of about `CHUNK_BYTES`."""
    while start < len(text):
        space = _SPACE.search(text, start + CHUNK_BYTES)
        end = space.start() if space else len(text)
        yield start, end
        start = end


def _refuse_token(path: FilePath, text: bytes, begin: int, end: int) -> NoReturn:
    for match in _TOKEN.finditer(text, begin, end):
        try:
            _parse(match[0])
        except ValueError:
            what = f"expected a finite number, found {_shown(match[0])}"
            raise FileError(path, what, _line(text, match.start())) from None
    raise AssertionError("every token is a number, but the whole is not")


def _refuse_count(path: FilePath, text: bytes, start: int, n_numbers: int) -> NoReturn:
    found = sum(len(text[begin:end].split()) for begin, end in _chunks(text, start))
    promise = f"the header promises {n_numbers} numbers after it, found {found}"
    if found < n_numbers:
        raise FileError(path, f"the file ends too early: {promise}", _line(text, len(text.rstrip())))
    token, line = _find_number(text, start, n_numbers)
    raise FileError(path, f"the file should have ended before {token}: {promise}", line)


def _find_number(text: bytes, start: int, k: int) -> tuple[str, int]:
    """The token of number `k` after the header, and its line."""
    for begin, end in _chunks(text, start):
        n_tokens = len(text[begin:end].split())
        if k < n_tokens:
            match = list(_TOKEN.finditer(text, begin, end))[k]
            return _shown(match[0]), _line(text, match.start())
        k -= n_tokens
    raise IndexError(k)


def _line(text: bytes, position: int) -> int:
    return text.count(b"\n", 0, position) + 1


def _shown(token: bytes) -> str:
    return repr(token[:40])[1:]


def _check(bundle: Bundle) -> None:
    """What `read_bal` would refuse is not written."""
    for name, tail in (("cameras", (9,)), ("points", (3,)), ("uv", (2,))):
        array = np.asarray(getattr(bundle, name))
        if array.shape[1:] != tail or array.size == 0:
            raise ValueError(f"{name} must have shape (n, {tail[0]}) with n > 0, got {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or infinity")
    for name, count in (("camera_index", bundle.n_cameras), ("point_index", bundle.n_points)):
        index = np.asarray(getattr(bundle, name))
        if index.shape != (bundle.n_observations,):
            raise ValueError(f"{name} must have shape ({bundle.n_observations},) as uv, got {index.shape}")
        if index.dtype.kind not in "iu" or index.min() < 0 or index.max() >= count:
            raise ValueError(f"{name} must hold integers from 0 to {count - 1}")

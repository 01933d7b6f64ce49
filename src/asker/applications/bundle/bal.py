"""Files of Bundle Adjustment in the Large (Agarwal, Snavely, Seitz, Szeliski, ECCV 2010).

    n_cameras n_points n_observations
    camera point x y          one line per observation
    number                    nine per camera
    number                    three per point

Numbers may be separated by any white space.  They are written exactly: reading a written bundle gives the same bits.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import IO, NoReturn

import numpy as np
from numpy.typing import NDArray

from asker.io.files import BOM, FileError, FilePath, opened, write_whole

CHUNK_BYTES = 1 << 20
CHUNK_ROWS = 1 << 14
MAX_TOKEN_BYTES = 1 << 16  # largest number of bytes without white space, and largest size of a header

_HEADER = re.compile(rb"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})(?!\S)")
_SPACES = [bytes([c]) for c in b" \n\t\r\v\f"]
_TOKEN = re.compile(rb"\S+")


@dataclass(frozen=True, eq=False)
class Bundle:
    """Cameras, points and image observations of points."""

    cameras: NDArray[np.float64]
    """(n_cameras, 9): rotation as angle-axis (3), translation (3), f, k1, k2."""
    points: NDArray[np.float64]
    """(n_points, 3): positions in the world."""
    camera_index: NDArray[np.int32]
    """(n_observations,): the camera of each observation."""
    point_index: NDArray[np.int32]
    """(n_observations,): the point of each observation."""
    uv: NDArray[np.float64]
    """(n_observations, 2): the observed pixel, relative to the image centre, y up."""

    @property
    def n_cameras(self) -> int:
        return len(self.cameras)

    @property
    def n_points(self) -> int:
        return len(self.points)

    @property
    def n_observations(self) -> int:
        return len(self.uv)

    def with_observations(self, mask: NDArray[np.bool_]) -> "Bundle":
        """Return the bundle with the observations of a mask (n_observations,), and all cameras and points."""
        index = self.camera_index[mask], self.point_index[mask]
        return Bundle(self.cameras, self.points, *index, self.uv[mask])


@dataclass(frozen=True, eq=False)
class BundlePortion:
    """The part of a bundle on one of several processes: all cameras, some points, and the observations of these."""

    bundle: Bundle
    """The local bundle; `point_index` refers to its points."""
    points: NDArray[np.int64]
    """(n,): the number of each local point in the file."""
    observations: NDArray[np.int64]
    """(n,): the number of each local observation in the file."""
    n_points: int
    """The number of points in the file."""
    n_observations: int
    """The number of observations in the file."""
    checksum: int
    """A checksum of the file, the same on all processes."""
    path: FilePath
    in_parts: bool = False
    """True if each process keeps its part of the result, and none gathers the whole."""

    @property
    def n_cameras(self) -> int:
        return self.bundle.n_cameras

    def whole(self) -> Bundle:
        """Read the whole bundle from the file and return it."""
        return read_bal(self.path)


def read_bal(path: FilePath) -> Bundle:
    """Read a BAL file.

    Parameters
    ----------
    path
        A file ending with `.txt`, `.txt.bz2` or `.txt.gz`.

    Returns
    -------
    Bundle
        Its cameras, points and observations.

    Raises
    ------
    FileError
        If the file is invalid; the message has the line.
    """
    return read_bal_portion(path, 0, 1).bundle


def read_bal_portion(path: FilePath, part: int, n_parts: int) -> BundlePortion:
    """Read one of several parts of a BAL file, chunk by chunk.

    Parameters
    ----------
    path
        A BAL file.
    part
        The number of the part: it has the points part, part + n_parts, …
    n_parts
        The number of parts.

    Returns
    -------
    BundlePortion
        All cameras, the points of the part, and their observations.

    Raises
    ------
    FileError
        If the file is invalid, or has fewer points than parts.
    """
    with opened(path) as file:
        text = _Text(path, file)
        n_cameras, n_points, n_observations = text.header()
        if n_points < n_parts:
            raise FileError(path, f"{n_points} points cannot be distributed to {n_parts} processes")
        first_camera = 4 * n_observations
        first_point = first_camera + 9 * n_cameras
        observations = _Observations(part, n_parts)
        cameras, points = [], []
        for k, values in text.numbers(first_point + 3 * n_points):
            if k < first_camera:
                numbers = values[: first_camera - k]
                for column, name, count in ((0, "camera", n_cameras), (1, "point", n_points)):
                    text.check_index(k, numbers, column, name, count)
                if text.bad_index is None:
                    observations.add(numbers)
            cameras.append(_between(k, values, first_camera, first_point))
            coordinates = _between(k, values, first_point)
            position = max(k - first_point, 0) + np.arange(len(coordinates))
            points.append(coordinates[position // 3 % n_parts == part])
    return BundlePortion(
        bundle=Bundle(
            cameras=np.concatenate(cameras).reshape(-1, 9),
            points=np.concatenate(points).reshape(-1, 3),
            camera_index=np.concatenate(observations.camera),
            point_index=np.concatenate(observations.point),
            uv=np.concatenate(observations.uv),
        ),
        points=np.arange(part, n_points, n_parts),
        observations=np.concatenate(observations.number),
        n_points=n_points,
        n_observations=n_observations,
        checksum=text.checksum,
        path=path,
    )


def read_header(path: FilePath, file: IO[bytes]) -> list[int]:
    """Return the numbers of cameras, points and observations of an open file."""
    return _Text(path, file).header()


def write_bal(path: FilePath, bundle: Bundle) -> None:
    """Write a BAL file.

    Parameters
    ----------
    path
        The file; `.bz2` and `.gz` at the end select compression.
    bundle
        Cameras, points and observations.

    Raises
    ------
    ValueError
        If an array has a wrong shape or type, or values that `read_bal` would reject.
    """
    _check(bundle)
    with write_whole(path) as file:
        file.write(f"{bundle.n_cameras} {bundle.n_points} {bundle.n_observations}\n".encode())
        columns = (bundle.camera_index, bundle.point_index, *np.asarray(bundle.uv, np.float64).T)
        for start in range(0, bundle.n_observations, CHUNK_ROWS):
            rows = list(zip(*(column[start : start + CHUNK_ROWS].tolist() for column in columns), strict=True))
            file.write(formatted("%d %d %r %r\n", list(chain.from_iterable(rows)), len(rows)))
        for array in (bundle.cameras, bundle.points):
            numbers = np.asarray(array, np.float64).ravel()
            for start in range(0, len(numbers), CHUNK_ROWS):
                part = numbers[start : start + CHUNK_ROWS].tolist()
                file.write(formatted("%r\n", part))


def formatted(line: str, numbers: list[float], n_lines: int | None = None) -> bytes:
    """Return `n_lines` formatted lines, by default one for each number."""
    return (line * (len(numbers) if n_lines is None else n_lines) % tuple(numbers)).encode()


def numbers_of_file(path: FilePath) -> tuple[list[int], Iterator[tuple[int, NDArray[np.float64]]]]:
    """Return the three counts of a BAL file, and an iterator over chunks of all later numbers (see `_Text.numbers`)."""
    with opened(path) as file:
        sizes = _Text(path, file).header()

    def chunks() -> Iterator[tuple[int, NDArray[np.float64]]]:
        with opened(path) as file:
            text = _Text(path, file)
            n_cameras, n_points, n_observations = text.header()
            yield from text.numbers(4 * n_observations + 9 * n_cameras + 3 * n_points)

    return sizes, chunks()


def _between(k: int, values: NDArray, first: int, end: int | None = None) -> NDArray:
    """Return the numbers at positions `first` to `end` of the file; `values` begin at position k."""
    return values[max(first - k, 0) : None if end is None else max(end - k, 0)]


class _Observations:
    """Collects the observations of the points of one part."""

    def __init__(self, part: int, n_parts: int):
        self.part, self.n_parts, self.n = part, n_parts, 0
        self.rest = np.empty(0)
        self.camera: list[NDArray] = []
        self.point: list[NDArray] = []
        self.uv: list[NDArray] = []
        self.number: list[NDArray] = []

    def add(self, values: NDArray) -> None:
        values = np.concatenate([self.rest, values])
        whole = len(values) // 4 * 4
        rows, self.rest = values[:whole].reshape(-1, 4), values[whole:]
        point = rows[:, 1].astype(np.int64)
        local = np.flatnonzero(point % self.n_parts == self.part)
        self.camera.append(rows[local, 0].astype(np.int32))
        self.point.append((point[local] // self.n_parts).astype(np.int32))
        self.uv.append(rows[local, 2:])
        self.number.append(self.n + local)
        self.n += len(rows)


class _Text:
    """Parses the text of a file chunk by chunk."""

    def __init__(self, path: FilePath, file: IO[bytes]):
        self.path, self.file = path, file
        self.rest = file.read(len(BOM)).removeprefix(BOM)
        """Text that has been read but not parsed."""
        self.checksum = zlib.crc32(self.rest)
        self.line = 1
        """The line number at the start of `rest`."""
        self.bad_index: FileError | None = None
        """The first invalid index, raised only if the file has no other error: a wrong count shifts all numbers."""

    def header(self) -> list[int]:
        """Return the three counts."""
        while len(self.rest) < MAX_TOKEN_BYTES and self._read(MAX_TOKEN_BYTES):
            self._consume(len(self.rest) - len(self.rest.lstrip()))
        if not self.rest.strip():
            raise FileError(self.path, "the file is empty")
        first = _TOKEN.search(self.rest)
        header = _HEADER.match(self.rest)
        counts = [int(count) for count in header.groups()] if header else []
        if first is None or header is None or 0 in counts:
            at = first.start() if first else 0
            actual = _quoted(self.rest[at : at + 200].splitlines()[0])
            what = f"the header must be three positive integers (cameras, points, observations), got {actual}"
            raise FileError(self.path, what, self._line(at))
        self._consume(header.end())
        return counts

    def numbers(self, n: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield the `n` numbers after the header in chunks, each with the position of its first number."""
        done, last_line, extra = 0, self.line, None
        for end in self._ends():
            try:
                values = parse(self.rest[:end])
            except ValueError:
                self._raise_bad_token(end)
            if len(values):
                last_line = self._line(len(self.rest[:end].rstrip()))
            if extra is None and done + len(values) > n:
                extra = self._token(n - done)
            if done < n:
                yield done, values[: n - done]
            done += len(values)
            self._consume(end)
        expected = f"the header implies {n} numbers after it, got {done}"
        if extra is not None:
            raise FileError(self.path, f"unexpected data from {extra[0]} on: {expected}", extra[1])
        if done < n:
            raise FileError(self.path, f"the file ends too early: {expected}", last_line)
        if self.bad_index is not None:
            raise self.bad_index

    def check_index(self, k: int, values: NDArray, column: int, name: str, count: int) -> None:
        """Record an error if a number in `column` of an observation is not an index below `count`.

        `values` begin at position k.
        """
        first = (column - k) % 4
        index = values[first::4]
        bad = (index < 0) | (index >= count) | (index != np.floor(index))
        if self.bad_index is None and bad.any():
            token, line = self._token(first + 4 * int(bad.argmax()))
            what = f"the {name} index must be an integer from 0 to {count - 1}, got {token}"
            self.bad_index = FileError(self.path, what, line)

    def _ends(self) -> Iterator[int]:
        """Read chunks, and yield the end in `rest` of the part of each that contains complete numbers."""
        while self._read(CHUNK_BYTES):
            end = last_space(self.rest)
            if end > 0 or len(self.rest) > MAX_TOKEN_BYTES:
                yield end if end > 0 else len(self.rest)
        if self.rest:
            yield len(self.rest)

    def _read(self, n: int) -> bool:
        """Append up to n bytes of the file to `rest`; return False at its end."""
        block = self.file.read(n)
        self.checksum = zlib.crc32(block, self.checksum)
        self.rest += block
        return bool(block)

    def _consume(self, end: int) -> None:
        """Drop the text up to `end`, and count its lines."""
        self.line += self.rest.count(b"\n", 0, end)
        self.rest = self.rest[end:]

    def _line(self, position: int) -> int:
        return self.line + self.rest.count(b"\n", 0, position)

    def _token(self, k: int) -> tuple[str, int]:
        """Return the k-th number of `rest` as text, and its line."""
        match = next(islice(_TOKEN.finditer(self.rest), k, None))
        return _quoted(match[0]), self._line(match.start())

    def _raise_bad_token(self, end: int) -> NoReturn:
        for match in _TOKEN.finditer(self.rest, 0, end):
            try:
                parse(match[0])
            except ValueError:
                what = f"expected a finite number, got {_quoted(match[0])}"
                raise FileError(self.path, what, self._line(match.start())) from None
        raise AssertionError("every token is a number, but parsing all of them failed")


def last_space(text: bytes) -> int:
    """Return the position of the last white space; −1 if there is none."""
    return max(text.rfind(space) for space in _SPACES)


def parse(text: bytes) -> NDArray[np.float64]:
    """Return finite numbers separated by white space; raise a `ValueError` for anything else."""
    tokens = text.split()
    values = np.fromiter(map(float, tokens), np.float64, len(tokens))
    if b"_" in text or not np.isfinite(values).all():  # Python accepts 1_000, other readers do not
        raise ValueError
    return values


def _quoted(token: bytes) -> str:
    return repr(token[:40])[1:]


def _check(bundle: Bundle) -> None:
    """Raise a `ValueError` if `read_bal` would reject the bundle."""
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

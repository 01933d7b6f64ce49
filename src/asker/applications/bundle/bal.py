"""Files of Bundle Adjustment in the Large (Agarwal, Snavely, Seitz, Szeliski, ECCV 2010).

    n_cameras n_points n_observations
    camera point x y          one line per observation
    number                    nine per camera
    number                    three per point

Only the order of the numbers counts: any white space may stand between them.
Numbers are read and written exactly: reading a written bundle gives the same bits.
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
LONGEST = 1 << 16  # bytes that may pass without white space, and that a header may take

_HEADER = re.compile(rb"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})(?!\S)")
_SPACES = [bytes([c]) for c in b" \n\t\r\v\f"]
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

    def with_observations(self, chosen: NDArray[np.bool_]) -> "Bundle":
        """All cameras and points, and the observations of a mask."""
        index = self.camera_index[chosen], self.point_index[chosen]
        return Bundle(self.cameras, self.points, *index, self.uv[chosen])


@dataclass(frozen=True, eq=False)
class BundlePortion:
    """What one of several processes holds: all cameras, every so many-th point, and the observations of these."""

    bundle: Bundle
    """`point_index` counts the own points."""
    points: NDArray[np.int64]
    """The number in the file of each own point,"""
    observations: NDArray[np.int64]
    """and of each own observation."""
    n_points: int
    """In the whole file."""
    n_observations: int
    checksum: int
    """Of the whole text."""
    path: FilePath
    in_parts: bool = False
    """Whether each process keeps what it finds to itself: no one holds the whole result."""

    @property
    def n_cameras(self) -> int:
        return self.bundle.n_cameras

    def whole(self) -> Bundle:
        """The bundle that this is a part of, read again."""
        return read_bal(self.path)


def read_bal(path: FilePath) -> Bundle:
    """Read a BAL file (`.txt`, `.txt.bz2`, `.txt.gz`).  Anything wrong in it is a `FileError`."""
    return read_bal_portion(path, 0, 1).bundle


def read_bal_portion(path: FilePath, part: int, n_parts: int) -> BundlePortion:
    """Read points part, part + n_parts, … of a BAL file.  The text is never in memory as a whole."""
    with opened(path) as file:
        text = _Text(path, file)
        n_cameras, n_points, n_observations = text.header()
        if n_points < n_parts:
            raise FileError(path, f"{n_points} points cannot be dealt to {n_parts} processes")
        first_camera = 4 * n_observations
        first_point = first_camera + 9 * n_cameras
        seen = _Observations(part, n_parts)
        cameras, points = [], []
        for k, values in text.numbers(first_point + 3 * n_points):
            if k < first_camera:
                own = values[: first_camera - k]
                for column, name, count in ((0, "camera", n_cameras), (1, "point", n_points)):
                    text.check_index(k, own, column, name, count)
                if text.bad_index is None:
                    seen.add(own)
            cameras.append(_between(k, values, first_camera, first_point))
            own = _between(k, values, first_point)
            number = max(k - first_point, 0) + np.arange(len(own))
            points.append(own[number // 3 % n_parts == part])
    return BundlePortion(
        bundle=Bundle(
            cameras=np.concatenate(cameras).reshape(-1, 9),
            points=np.concatenate(points).reshape(-1, 3),
            camera_index=np.concatenate(seen.camera),
            point_index=np.concatenate(seen.point),
            uv=np.concatenate(seen.uv),
        ),
        points=np.arange(part, n_points, n_parts),
        observations=np.concatenate(seen.number),
        n_points=n_points,
        n_observations=n_observations,
        checksum=text.checksum,
        path=path,
    )


def read_header(path: FilePath, file: IO[bytes]) -> list[int]:
    """How many cameras, points and observations an open file has."""
    return _Text(path, file).header()


def write_bal(path: FilePath, bundle: Bundle) -> None:
    """Write a BAL file, compressed by suffix.  A `ValueError` names an array that does not fit."""
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
    """So many lines; one for each number when not given."""
    return (line * (len(numbers) if n_lines is None else n_lines) % tuple(numbers)).encode()


def numbers_of_file(path: FilePath) -> tuple[list[int], Iterator[tuple[int, NDArray[np.float64]]]]:
    """The three counts of a BAL file, and all numbers after them as `_Text.numbers` gives them, a piece at a time."""
    with opened(path) as file:
        sizes = _Text(path, file).header()

    def pieces() -> Iterator[tuple[int, NDArray[np.float64]]]:
        with opened(path) as file:
            text = _Text(path, file)
            n_cameras, n_points, n_observations = text.header()
            yield from text.numbers(4 * n_observations + 9 * n_cameras + 3 * n_points)

    return sizes, pieces()


def _between(k: int, values: NDArray, first: int, end: int | None = None) -> NDArray:
    """Those of the numbers k, k + 1, … that are number `first` to `end` of the file."""
    return values[max(first - k, 0) : None if end is None else max(end - k, 0)]


class _Observations:
    """Collects the observations of the own points."""

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
        own = np.flatnonzero(point % self.n_parts == self.part)
        self.camera.append(rows[own, 0].astype(np.int32))
        self.point.append((point[own] // self.n_parts).astype(np.int32))
        self.uv.append(rows[own, 2:])
        self.number.append(self.n + own)
        self.n += len(rows)


class _Text:
    """The text of a file, a piece at a time."""

    def __init__(self, path: FilePath, file: IO[bytes]):
        self.path, self.file = path, file
        self.rest = file.read(len(BOM)).removeprefix(BOM)
        """Read, but not yet looked at."""
        self.checksum = zlib.crc32(self.rest)
        self.line = 1
        """Where that begins."""
        self.bad_index: FileError | None = None
        """The first one, told when all else is well: after a wrong count every number is at a wrong place."""

    def header(self) -> list[int]:
        """The three counts."""
        while len(self.rest) < LONGEST and self._read(LONGEST):
            self._pass(len(self.rest) - len(self.rest.lstrip()))
        if not self.rest.strip():
            raise FileError(self.path, "the file is empty")
        first = _TOKEN.search(self.rest)
        header = _HEADER.match(self.rest)
        counts = [int(count) for count in header.groups()] if header else []
        if first is None or header is None or 0 in counts:
            at = first.start() if first else 0
            found = _shown(self.rest[at : at + 200].splitlines()[0])
            what = f"the header must be three positive integers (cameras, points, observations), found {found}"
            raise FileError(self.path, what, self._line(at))
        self._pass(header.end())
        return counts

    def numbers(self, n: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """All of them, and the number of the first of each piece: `n` finite numbers, or an error."""
        done, last_line, extra = 0, self.line, None
        for end in self._ends():
            try:
                values = parse(self.rest[:end])
            except ValueError:
                self._refuse_token(end)
            if len(values):
                last_line = self._line(len(self.rest[:end].rstrip()))
            if extra is None and done + len(values) > n:
                extra = self._token(n - done)
            if done < n:
                yield done, values[: n - done]
            done += len(values)
            self._pass(end)
        promise = f"the header promises {n} numbers after it, found {done}"
        if extra is not None:
            raise FileError(self.path, f"the file should have ended before {extra[0]}: {promise}", extra[1])
        if done < n:
            raise FileError(self.path, f"the file ends too early: {promise}", last_line)
        if self.bad_index is not None:
            raise self.bad_index

    def check_index(self, k: int, values: NDArray, column: int, name: str, count: int) -> None:
        """Among the numbers k, k + 1, … those in `column` of an observation are indices below `count`."""
        first = (column - k) % 4
        index = values[first::4]
        bad = (index < 0) | (index >= count) | (index != np.floor(index))
        if self.bad_index is None and bad.any():
            token, line = self._token(first + 4 * int(bad.argmax()))
            what = f"the {name} index must be an integer from 0 to {count - 1}, found {token}"
            self.bad_index = FileError(self.path, what, line)

    def _ends(self) -> Iterator[int]:
        """Where to cut: `rest` up to there is a piece, whose last number is whole."""
        while self._read(CHUNK_BYTES):
            end = last_space(self.rest)
            if end > 0 or len(self.rest) > LONGEST:
                yield end if end > 0 else len(self.rest)
        if self.rest:
            yield len(self.rest)

    def _read(self, n: int) -> bool:
        block = self.file.read(n)
        self.checksum = zlib.crc32(block, self.checksum)
        self.rest += block
        return bool(block)

    def _pass(self, end: int) -> None:
        self.line += self.rest.count(b"\n", 0, end)
        self.rest = self.rest[end:]

    def _line(self, position: int) -> int:
        return self.line + self.rest.count(b"\n", 0, position)

    def _token(self, k: int) -> tuple[str, int]:
        """The k-th of the piece that is looked at, and its line."""
        match = next(islice(_TOKEN.finditer(self.rest), k, None))
        return _shown(match[0]), self._line(match.start())

    def _refuse_token(self, end: int) -> NoReturn:
        for match in _TOKEN.finditer(self.rest, 0, end):
            try:
                parse(match[0])
            except ValueError:
                what = f"expected a finite number, found {_shown(match[0])}"
                raise FileError(self.path, what, self._line(match.start())) from None
        raise AssertionError("every token is a number, but the whole is not")


def last_space(text: bytes) -> int:
    """Where the last white space stands; −1 where there is none."""
    return max(text.rfind(space) for space in _SPACES)


def parse(text: bytes) -> NDArray[np.float64]:
    """Finite numbers with white space between them; a `ValueError` where something else stands."""
    tokens = text.split()
    values = np.fromiter(map(float, tokens), np.float64, len(tokens))
    if b"_" in text or not np.isfinite(values).all():  # Python alone reads 1_000 as a number
        raise ValueError
    return values


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

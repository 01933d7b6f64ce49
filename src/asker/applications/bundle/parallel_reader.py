"""BAL text read by several processes, each its own share of the bytes.

Numbers have no fixed width, so nobody knows where in the file the k-th number stands.  Hence:

(1) each process counts the numbers in its share of the bytes, piece by piece, without parsing them; together they then
    know the first number of every piece;
(2) each parses its share of the observations.  Where these are sorted by point, as in most files, it takes the points
    that they show; else points are dealt in equal runs;
(3) observations of others' points are handed over;
(4) each parses all cameras, and its own points.

Where something is wrong in the file, all of them read through all of it and tell it as one process does.
"""

import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TypeVar

import numpy as np
from numpy.typing import NDArray

from asker.applications.bundle.bal import Bundle, BundlePortion, last_space, parse, read_bal_portion, read_header
from asker.io.files import BOM, FileError, FilePath, opened

PIECE = 1 << 20
HANDED = 1 << 16
"""Observations that a process hands over at a time."""
T = TypeVar("T")
OfAll = Callable[[np.ndarray], np.ndarray]
"""Gives what each process has, (n_processes, ...)."""
IS_SPACE = np.zeros(256, dtype=bool)
IS_SPACE[list(b" \n\t\r\v\f")] = True
N_HEADER = 3


def can_be_sought(path: FilePath) -> bool:
    """Whether a process can begin to read in the middle: compressed text has no middle."""
    return not os.fspath(path).lower().removesuffix(".part").endswith((".bz2", ".gz"))


def read_bal_together(path: FilePath, part: int, n_parts: int, of_all: OfAll) -> BundlePortion:
    """The portion of a plain BAL file that process `part` of `n_parts` holds; all of them must call this."""
    with opened(path) as file:
        sizes = read_header(path, file)
        text = _Ranges(file, os.path.getsize(path), part, n_parts, of_all)
        if sizes[1] < n_parts:
            raise FileError(path, f"{sizes[1]} points cannot be dealt to {n_parts} processes")
        portion = _Portion(path, text, *sizes).read() if text.n_numbers == N_HEADER + n_numbers(*sizes) else None
    return read_bal_portion(path, part, n_parts) if portion is None else portion


def n_numbers(n_cameras: int, n_points: int, n_observations: int) -> int:
    """After the header."""
    return 4 * n_observations + 9 * n_cameras + 3 * n_points


class _Ranges:
    """Numbers of a file by their place among all of them."""

    def __init__(self, file: IO[bytes], size: int, part: int, n_parts: int, of_all: OfAll):
        self.file, self.part, self.n_parts, self.of_all = file, part, n_parts, of_all
        self.offsets = np.append(np.arange(0, size, PIECE), size)
        n = len(self.offsets) - 1
        shares = np.arange(n_parts + 1) * n // n_parts
        own = np.zeros(int(np.diff(shares).max()), dtype=np.int64)
        for k in range(shares[part], shares[part + 1]):
            own[k - shares[part]] = self._n_begun(*self.offsets[k : k + 2])
        each = [counts[:m] for counts, m in zip(of_all(own), np.diff(shares), strict=True)]
        self.first = np.concatenate([[0], np.cumsum(np.concatenate(each))])
        """The number that each piece begins with."""

    @property
    def n_numbers(self) -> int:
        return int(self.first[-1])

    def _n_begun(self, begin: int, end: int) -> int:
        """How many numbers begin in these bytes (1)."""
        self.file.seek(max(begin - 1, 0))
        is_space = IS_SPACE[np.frombuffer(self.file.read(end - max(begin - 1, 0)), dtype=np.uint8)]
        if begin == 0:
            is_space = np.concatenate([[True], is_space])
        return int(np.count_nonzero(is_space[:-1] & ~is_space[1:]))

    def numbers(self, begin: int, end: int) -> Iterator[NDArray[np.float64]]:
        """Numbers `begin` to `end` of the file, some at a time; a `ValueError` where one is none."""
        if begin == end:
            return
        piece = int(np.searchsorted(self.first, begin, side="right")) - 1
        at, offset = int(self.first[piece]), int(self.offsets[piece])
        self.file.seek(max(offset - 1, 0))
        rest = self.file.read(PIECE + 1).removeprefix(b"" if offset else BOM)
        if offset and not IS_SPACE[rest[0]]:  # the end of a number that begins before
            rest = rest[int(np.argmax(IS_SPACE[np.frombuffer(rest, dtype=np.uint8)])) :]
        while at < end:
            block = self.file.read(PIECE)
            cut = max(last_space(rest), 0) if block else len(rest)
            values = parse(rest[:cut])
            yield values[max(begin - at, 0) : end - at]
            at += len(values)
            rest = rest[cut:] + block
            if at < end and not rest:
                raise ValueError("the file has become shorter")


@dataclass
class _Portion:
    path: FilePath
    text: _Ranges
    n_cameras: int
    n_points: int
    n_observations: int

    def read(self) -> BundlePortion | None:
        """None where something is wrong in the file, in any process."""
        rows = self._or_nothing(self._observations)
        if rows is None:
            return None
        bounds = self._dealt(rows)  # (2)
        rows = self._handed_over(rows, bounds)
        low, high = bounds[self.text.part : self.text.part + 2]
        found = self._or_nothing(lambda: (self._cameras(), self._points(low, high)))  # (4)
        if found is None:
            return None
        cameras, points = found
        camera, point, u, v, number = rows.T
        index = camera.astype(np.int32), (point - low).astype(np.int32)
        return BundlePortion(
            bundle=Bundle(cameras, points, *index, np.column_stack([u, v])),
            points=np.arange(low, high),
            observations=number.astype(np.int64),
            n_points=self.n_points,
            n_observations=self.n_observations,
            checksum=zlib.crc32(cameras.tobytes(), zlib.crc32(self.text.first.tobytes())),
            path=self.path,
        )

    def _or_nothing(self, read: Callable[[], T]) -> T | None:
        """What is read, or None where that fails in any process."""
        try:
            found = read()
        except ValueError:
            found = None
        return None if self.text.of_all(np.array([found is None])).any() else found

    def _flat(self, begin: int, end: int) -> NDArray[np.float64]:
        return np.concatenate([np.zeros(0), *self.text.numbers(N_HEADER + begin, N_HEADER + end)])

    def _observations(self) -> NDArray[np.float64]:
        """(n, 5): camera, point, u, v and the number of each observation of this process's share."""
        first, end = (self.n_observations * k // self.text.n_parts for k in (self.text.part, self.text.part + 1))
        rows = self._flat(4 * first, 4 * end).reshape(-1, 4)
        for column, count in ((0, self.n_cameras), (1, self.n_points)):
            index = rows[:, column]
            if ((index < 0) | (index >= count) | (index != np.floor(index))).any():
                raise ValueError("an index is none")
        return np.column_stack([rows, np.arange(first, end)])

    def _cameras(self) -> NDArray[np.float64]:
        begin = 4 * self.n_observations
        return self._flat(begin, begin + 9 * self.n_cameras).reshape(-1, 9)

    def _points(self, low: int, high: int) -> NDArray[np.float64]:
        begin = 4 * self.n_observations + 9 * self.n_cameras
        return self._flat(begin + 3 * low, begin + 3 * high).reshape(-1, 3)

    def _dealt(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Where the points of each process begin, and the last ones end."""
        n, point = self.text.n_parts, rows[:, 1]
        is_sorted = len(point) > 0 and bool((np.diff(point) >= 0).all())
        ends = (point[0], point[-1]) if is_sorted else (-1, -1)
        each = self.text.of_all(np.array([is_sorted, *ends], dtype=np.int64))
        bounds = np.array([0, *each[1:, 1], self.n_points], dtype=np.int64)
        if each[:, 0].all() and (each[1:, 1] >= each[:-1, 2]).all() and (np.diff(bounds) > 0).all():
            return bounds
        return np.arange(n + 1) * self.n_points // n

    def _handed_over(self, rows: NDArray[np.float64], bounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """The observations of the own points, in the order of the file (3)."""
        of_all, part = self.text.of_all, self.text.part
        owner = np.searchsorted(bounds, rows[:, 1], side="right") - 1
        kept, others = [rows[owner == part]], rows[owner != part]
        for k in range(0, int(of_all(np.array([len(others)])).max()), HANDED):
            most = int(of_all(np.array([len(others[k : k + HANDED])])).max())
            filled = np.full((most, 5), -1.0)
            filled[: len(others[k : k + HANDED])] = others[k : k + HANDED]
            given = of_all(filled).reshape(-1, 5)
            kept.append(given[(given[:, 1] >= bounds[part]) & (given[:, 1] < bounds[part + 1])])
        found = np.concatenate(kept)
        return found[np.argsort(found[:, 4], kind="stable")]

"""Parallel reading of a BAL file: each process reads its range of the bytes.

Numbers have no fixed width, so that the position of the k-th number in the file is not known in advance.

(1) Each process counts the numbers in its byte range, chunk by chunk, without parsing them; after an exchange all
    processes know the index of the first number of every chunk.
(2) Each parses a range of the observations.  If these are sorted by point, as in most files, the process takes the
    points that its observations refer to; otherwise each process takes an equal range of points.
(3) The processes exchange the observations of points that belong to others.
(4) Each parses all cameras, and its own points.

If the file is invalid, every process reads all of it and raises the same error as a single process.
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

CHUNK_BYTES = 1 << 20
EXCHANGE_ROWS = 1 << 16
"""Observations that a process sends at a time."""
T = TypeVar("T")
AllGather = Callable[[np.ndarray], np.ndarray]
"""Returns the arrays of all processes, stacked along a new first axis."""
IS_SPACE = np.zeros(256, dtype=bool)
IS_SPACE[list(b" \n\t\r\v\f")] = True
N_HEADER = 3


def is_seekable(path: FilePath) -> bool:
    """Return True if reading can start at any byte, which compressed files do not allow."""
    return not os.fspath(path).lower().removesuffix(".part").endswith((".bz2", ".gz"))


def read_bal_together(path: FilePath, part: int, n_parts: int, all_gather: AllGather) -> BundlePortion:
    """Return the portion of an uncompressed BAL file for process `part` of `n_parts`; all processes must call this."""
    with opened(path) as file:
        sizes = read_header(path, file)
        text = _Ranges(file, os.path.getsize(path), part, n_parts, all_gather)
        if sizes[1] < n_parts:
            raise FileError(path, f"{sizes[1]} points cannot be distributed to {n_parts} processes")
        portion = _Portion(path, text, *sizes).read() if text.n_numbers == N_HEADER + n_numbers(*sizes) else None
    return read_bal_portion(path, part, n_parts) if portion is None else portion


def n_numbers(n_cameras: int, n_points: int, n_observations: int) -> int:
    """Return how many numbers follow the header."""
    return 4 * n_observations + 9 * n_cameras + 3 * n_points


class _Ranges:
    """Random access to the numbers of a file by their index."""

    def __init__(self, file: IO[bytes], size: int, part: int, n_parts: int, all_gather: AllGather):
        self.file, self.part, self.n_parts, self.all_gather = file, part, n_parts, all_gather
        self.offsets = np.append(np.arange(0, size, CHUNK_BYTES), size)
        n = len(self.offsets) - 1
        shares = np.arange(n_parts + 1) * n // n_parts
        local_counts = np.zeros(int(np.diff(shares).max()), dtype=np.int64)
        for k in range(shares[part], shares[part + 1]):
            local_counts[k - shares[part]] = self._n_starting(*self.offsets[k : k + 2])
        each = [counts[:m] for counts, m in zip(all_gather(local_counts), np.diff(shares), strict=True)]
        self.first = np.concatenate([[0], np.cumsum(np.concatenate(each))])
        """The index of the first number of each chunk."""

    @property
    def n_numbers(self) -> int:
        return int(self.first[-1])

    def _n_starting(self, begin: int, end: int) -> int:
        """Return how many numbers start within a range of bytes (1)."""
        self.file.seek(max(begin - 1, 0))
        is_space = IS_SPACE[np.frombuffer(self.file.read(end - max(begin - 1, 0)), dtype=np.uint8)]
        if begin == 0:
            is_space = np.concatenate([[True], is_space])
        return int(np.count_nonzero(is_space[:-1] & ~is_space[1:]))

    def numbers(self, begin: int, end: int) -> Iterator[NDArray[np.float64]]:
        """Yield the numbers `begin` to `end` of the file in chunks; raise a `ValueError` for anything else."""
        if begin == end:
            return
        chunk = int(np.searchsorted(self.first, begin, side="right")) - 1
        at, offset = int(self.first[chunk]), int(self.offsets[chunk])
        self.file.seek(max(offset - 1, 0))
        rest = self.file.read(CHUNK_BYTES + 1).removeprefix(b"" if offset else BOM)
        if offset and not IS_SPACE[rest[0]]:  # skip the end of a number of the previous chunk
            rest = rest[int(np.argmax(IS_SPACE[np.frombuffer(rest, dtype=np.uint8)])) :]
        while at < end:
            block = self.file.read(CHUNK_BYTES)
            cut = max(last_space(rest), 0) if block else len(rest)
            values = parse(rest[:cut])
            yield values[max(begin - at, 0) : end - at]
            at += len(values)
            rest = rest[cut:] + block
            if at < end and not rest:
                raise ValueError("the file was truncated while it was read")


@dataclass
class _Portion:
    path: FilePath
    text: _Ranges
    n_cameras: int
    n_points: int
    n_observations: int

    def read(self) -> BundlePortion | None:
        """Return the portion; None if the file is invalid on any process."""
        rows = self._or_none(self._observations)
        if rows is None:
            return None
        bounds = self._partition(rows)  # (2)
        rows = self._exchange(rows, bounds)
        low, high = bounds[self.text.part : self.text.part + 2]
        parsed = self._or_none(lambda: (self._cameras(), self._points(low, high)))  # (4)
        if parsed is None:
            return None
        cameras, points = parsed
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

    def _or_none(self, read: Callable[[], T]) -> T | None:
        """Return the result of `read`, or None if it fails on any process."""
        try:
            value = read()
        except ValueError:
            value = None
        return None if self.text.all_gather(np.array([value is None])).any() else value

    def _flat(self, begin: int, end: int) -> NDArray[np.float64]:
        return np.concatenate([np.zeros(0), *self.text.numbers(N_HEADER + begin, N_HEADER + end)])

    def _observations(self) -> NDArray[np.float64]:
        """Return camera, point, u, v and number of each observation in the range of this process, (n, 5)."""
        first, end = (self.n_observations * k // self.text.n_parts for k in (self.text.part, self.text.part + 1))
        rows = self._flat(4 * first, 4 * end).reshape(-1, 4)
        for column, count in ((0, self.n_cameras), (1, self.n_points)):
            index = rows[:, column]
            if ((index < 0) | (index >= count) | (index != np.floor(index))).any():
                raise ValueError("an index is invalid")
        return np.column_stack([rows, np.arange(first, end)])

    def _cameras(self) -> NDArray[np.float64]:
        begin = 4 * self.n_observations
        return self._flat(begin, begin + 9 * self.n_cameras).reshape(-1, 9)

    def _points(self, low: int, high: int) -> NDArray[np.float64]:
        begin = 4 * self.n_observations + 9 * self.n_cameras
        return self._flat(begin + 3 * low, begin + 3 * high).reshape(-1, 3)

    def _partition(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the first point of each process, followed by the number of points."""
        n, point = self.text.n_parts, rows[:, 1]
        is_sorted = len(point) > 0 and bool((np.diff(point) >= 0).all())
        ends = (point[0], point[-1]) if is_sorted else (-1, -1)
        each = self.text.all_gather(np.array([is_sorted, *ends], dtype=np.int64))
        bounds = np.array([0, *each[1:, 1], self.n_points], dtype=np.int64)
        if each[:, 0].all() and (each[1:, 1] >= each[:-1, 2]).all() and (np.diff(bounds) > 0).all():
            return bounds
        return np.arange(n + 1) * self.n_points // n

    def _exchange(self, rows: NDArray[np.float64], bounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the observations of the points of this process, in the order of the file (3)."""
        all_gather, part = self.text.all_gather, self.text.part
        owner = np.searchsorted(bounds, rows[:, 1], side="right") - 1
        local, others = [rows[owner == part]], rows[owner != part]
        for k in range(0, int(all_gather(np.array([len(others)])).max()), EXCHANGE_ROWS):
            most = int(all_gather(np.array([len(others[k : k + EXCHANGE_ROWS])])).max())
            padded = np.full((most, 5), -1.0)
            padded[: len(others[k : k + EXCHANGE_ROWS])] = others[k : k + EXCHANGE_ROWS]
            received = all_gather(padded).reshape(-1, 5)
            local.append(received[(received[:, 1] >= bounds[part]) & (received[:, 1] < bounds[part + 1])])
        merged = np.concatenate(local)
        return merged[np.argsort(merged[:, 4], kind="stable")]

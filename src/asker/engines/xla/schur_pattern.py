"""Where kept variables meet, in an eliminated variable or in a factor: the blocks of the reduced matrix.

The list of blocks is the same on all devices, so that what they sum can be added up.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from asker.engines.sparsity import KeptSlot
from asker.engines.xla.layout import Chunks, Layout, collect

SPARSE = 8
"""So many places for each pair of observations are a table; more are searched for."""


class SlotPair(NamedTuple):
    """Two kept slots, of factor groups that share eliminated variables."""

    f: int
    s: int
    g: int
    t: int


class Blocks(NamedTuple):
    """Blocks of one size, off the diagonal blocks."""

    row: np.ndarray
    """First row of each block,"""
    column: np.ndarray
    """and its first column."""
    shape: tuple[int, int]

    def coordinates(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column of every number, block by block."""
        i, j = np.indices(self.shape)
        return tuple((x[:, None] + k.ravel()).ravel() for x, k in ((self.row, i), (self.column, j)))  # type: ignore[return-value]


def n_pairs(layout: Layout) -> float:
    """How many pairs of observations the reduced matrix is a sum over, on the devices of a layout."""
    total = 0.0
    counts = [np.diff(f.eliminated.ptr) * len(f.kept) for f in layout.structure.factors if f.eliminated is not None]
    if counts:
        length = np.sum(counts, axis=0).astype(float)
        total = float((length * (length - 1) / 2).sum())
    return float(layout.agreed(int(total)))


class Meetings:
    """Every two kept slots that meet, with arrays for the devices."""

    def __init__(self, layout: Layout, union: Callable[[np.ndarray], np.ndarray] = np.unique):
        """`union`: of numbers that each process has some of."""
        self.layout, self.union = layout, union
        slots = [
            (k, s)
            for k, f in enumerate(layout.structure.factors)
            if f.eliminated is not None
            for s in range(len(f.kept))
        ]
        self.pairs = tuple(SlotPair(f, s, g, t) for a, (f, s) in enumerate(slots) for g, t in slots[a:])
        """Those that meet in an eliminated variable."""
        found = [self._in_variables(which) for which in self.pairs]
        edges = [self._in_factors(k) for k in range(len(layout.structure.factors))]
        self.blocks = tuple(blocks for blocks, _ in (*found, *(pair for of_factor in edges for pair in of_factor)))
        """Of each pair; then of every two kept slots of each factor group."""
        chunks = tuple(chunks for _, chunks in found)
        self.arrays: tuple[tuple[Chunks[np.ndarray], ...], tuple[tuple[np.ndarray, ...], ...]] = (
            chunks,
            tuple(tuple(number for _, number in of_factor) for of_factor in edges),
        )
        """Pairs of observations by block, and the block of each observation of a factor group."""

    def places(self) -> np.ndarray:
        """(3, n): row, column and number of every value of the lower triangle, which are sums over these.

        Values are numbered in the diagonal blocks, then in `blocks`; S has those of `blocks` in both triangles.
        """
        kept, first = self.layout.structure.kept, self.layout.structure.first
        found, n = [], 0
        for v in kept:
            at, d = first[v] + np.arange(len(v)) * v.manifold.tangent, v.manifold.tangent
            row, column = Blocks(at, at, (d, d)).coordinates()
            number = np.flatnonzero(row >= column)
            found.append(np.stack([row[number], column[number], n + number]))
            n += len(row)
        for blocks in self.blocks:
            row, column = blocks.coordinates()
            own = np.stack([np.maximum(row, column), np.minimum(row, column), n + np.arange(len(row))])
            found += [own, own[:, row == column]]  # from both triangles
            n += len(row)
        return np.concatenate(found, axis=1)

    def pattern(self) -> tuple[np.ndarray, np.ndarray]:
        """Which kept variables meet: a lower triangle, as pointers and columns over variables."""
        starts, _ = self.layout.structure.kept_variables
        n = len(starts)
        keys = [np.arange(n) * (n + 1)]
        for blocks in self.blocks:
            i, j = (np.searchsorted(starts, x) for x in (blocks.row, blocks.column))
            keys.append(np.maximum(i, j) * n + np.minimum(i, j))
        row, column = np.divmod(np.unique(np.concatenate(keys)), n)
        return np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]), column

    def _in_variables(self, which: SlotPair) -> tuple[Blocks, Chunks[np.ndarray]]:
        layout = self.layout
        factors = layout.structure.factors
        A, B = factors[which.f].kept[which.s], factors[which.g].kept[which.t]
        same = which[:2] == which[2:]
        keys, items = [], []
        for device in range(layout.n_devices):
            point_a, kept_a = self._on_device(which.f, which.s, device)
            point_b, kept_b = self._on_device(which.g, which.t, device)
            ptr = np.searchsorted(point_b, np.arange(layout.n_local + 1))
            first = np.arange(len(point_a)) + 1 if same else ptr[point_a]
            count = ptr[point_a + 1] - first
            left = np.repeat(np.arange(len(point_a)), count)
            right = np.arange(len(left)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
            if same:  # the larger variable first, so that both triangles fall together
                swap = kept_a[left] < kept_a[right]
                left, right = np.where(swap, right, left), np.where(swap, left, right)
            keys.append(kept_a[left].astype(np.int64) * B.n_variables + kept_b[right])
            items.append((left.astype(np.int32), right.astype(np.int32)))
        blocks, segments = self._blocks(A, B, keys)
        dummies = tuple(len(layout.sources[f]) // layout.n_devices - 1 for f in (which.f, which.g))
        return blocks, collect(segments, items, dummies, max(1, len(blocks.row)), layout.agreed)

    def _in_factors(self, k: int) -> list[tuple[Blocks, np.ndarray]]:
        """Of every two kept slots: the blocks, and which each observation adds to."""
        kept, index = self.layout.structure.factors[k].kept, self.layout.observations[k].indices
        out = []
        for s, A in enumerate(kept):
            for B in kept[s + 1 :]:
                key = index[A.number].astype(np.int64) * B.n_variables + index[B.number]
                blocks, (number,) = self._blocks(A, B, [key])
                out.append((blocks, number.astype(np.int32)))
        return out

    def _blocks(self, A: KeptSlot, B: KeptSlot, keys: list[np.ndarray]) -> tuple[Blocks, list[np.ndarray]]:
        """The blocks that any key stands for, and the number of each key's."""
        all_keys = np.concatenate(keys)
        n = A.n_variables * B.n_variables
        is_there = np.zeros(n, dtype=bool) if n <= SPARSE * len(all_keys) else None
        if is_there is not None:  # no sorting
            is_there[all_keys] = True
            all_keys = np.flatnonzero(is_there)
        there = self.union(all_keys)
        row, column = np.divmod(there, B.n_variables)
        at = (A.first + row * A.dim).astype(np.int32), (B.first + column * B.dim).astype(np.int32)
        if is_there is None:
            return Blocks(*at, (A.dim, B.dim)), [np.searchsorted(there, key) for key in keys]
        number = np.empty(n, dtype=np.int32)
        number[there] = np.arange(len(there))
        return Blocks(*at, (A.dim, B.dim)), [number[key] for key in keys]

    def _on_device(self, k: int, s: int, device: int) -> tuple[np.ndarray, np.ndarray]:
        """Eliminated and kept variable of each observation that is no dummy."""
        f, o = self.layout.structure.factors[k], self.layout.observations[k]
        assert f.eliminated is not None
        m = len(self.layout.sources[k]) // self.layout.n_devices
        part = slice(device * m, device * m + int(o.n_used[device]))
        return o.indices[f.eliminated.number][part], o.indices[f.kept[s].number][part]

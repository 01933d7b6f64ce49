"""Sparsity pattern of the reduced matrix: blocks of kept variables that share an eliminated variable or a factor.

The list of blocks is the same on all devices, so that their sums can be added over the devices.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from asker.engines.sparsity import KeptSlot
from asker.engines.xla.layout import Chunks, Layout, collect

MAX_TABLE_ENTRIES_PER_PAIR = 8
"""Possible blocks per pair of observations up to which a lookup table is used instead of a binary search."""


class SlotPair(NamedTuple):
    """Two kept slots, of factor groups that share eliminated variables."""

    f: int
    s: int
    g: int
    t: int


class Blocks(NamedTuple):
    """Blocks of one size of the reduced matrix."""

    row: np.ndarray
    """First row of each block."""
    column: np.ndarray
    """First column of each block."""
    shape: tuple[int, int]

    def coordinates(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the row and column of every number, block by block."""
        i, j = np.indices(self.shape)
        return tuple((x[:, None] + k.ravel()).ravel() for x, k in ((self.row, i), (self.column, j)))  # type: ignore[return-value]


def n_pairs(layout: Layout) -> float:
    """Return the number of pairs of observations that the reduced matrix is a sum over, on the devices of a layout."""
    total = 0.0
    counts = [np.diff(f.eliminated.ptr) * len(f.kept) for f in layout.structure.factors if f.eliminated is not None]
    if counts:
        length = np.sum(counts, axis=0).astype(float)
        total = float((length * (length - 1) / 2).sum())
    return float(layout.max_size(int(total)))


class SchurPattern:
    """The blocks of the reduced matrix, with arrays for the devices."""

    def __init__(self, layout: Layout, union: Callable[[np.ndarray], np.ndarray] = np.unique):
        """
        Parameters
        ----------
        union
            Returns the sorted union of the numbers of all processes.
        """
        self.layout, self.union = layout, union
        slots = [
            (k, s)
            for k, f in enumerate(layout.structure.factors)
            if f.eliminated is not None
            for s in range(len(f.kept))
        ]
        self.pairs = tuple(SlotPair(f, s, g, t) for a, (f, s) in enumerate(slots) for g, t in slots[a:])
        """Pairs of slots that share an eliminated variable."""
        couplings = [self._of_pair(pair) for pair in self.pairs]
        edges = [self._of_factors(k) for k in range(len(layout.structure.factors))]
        self.blocks = tuple(blocks for blocks, _ in (*couplings, *(edge for of_factor in edges for edge in of_factor)))
        """The off-diagonal blocks of each pair, then of every two kept slots of each factor group."""
        chunks = tuple(chunks for _, chunks in couplings)
        self.arrays: tuple[tuple[Chunks[np.ndarray], ...], tuple[tuple[np.ndarray, ...], ...]] = (
            chunks,
            tuple(tuple(number for _, number in of_factor) for of_factor in edges),
        )
        """Pairs of observations by block, and the block of each observation of a factor group."""

    def entries(self) -> np.ndarray:
        """Return (3, n): row and column in the lower triangle of S, and number, of every value to be added there.

        Values are numbered by the diagonal blocks, then by `blocks`, whose values S has in both triangles.
        """
        kept, first = self.layout.structure.kept, self.layout.structure.first
        out, n = [], 0
        for v in kept:
            at, d = first[v] + np.arange(len(v)) * v.manifold.tangent, v.manifold.tangent
            row, column = Blocks(at, at, (d, d)).coordinates()
            number = np.flatnonzero(row >= column)
            out.append(np.stack([row[number], column[number], n + number]))
            n += len(row)
        for blocks in self.blocks:
            row, column = blocks.coordinates()
            lower = np.stack([np.maximum(row, column), np.minimum(row, column), n + np.arange(len(row))])
            out += [lower, lower[:, row == column]]  # a diagonal entry is in both triangles
            n += len(row)
        return np.concatenate(out, axis=1)

    def by_variable(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower triangle of the pattern over kept variables, as CSR pointers and columns."""
        starts, _ = self.layout.structure.kept_variables
        n = len(starts)
        keys = [np.arange(n) * (n + 1)]
        for blocks in self.blocks:
            i, j = (np.searchsorted(starts, x) for x in (blocks.row, blocks.column))
            keys.append(np.maximum(i, j) * n + np.minimum(i, j))
        row, column = np.divmod(np.unique(np.concatenate(keys)), n)
        return np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]), column

    def _of_pair(self, pair: SlotPair) -> tuple[Blocks, Chunks[np.ndarray]]:
        """Return the blocks of two slots that share eliminated variables, and the pairs of observations of each."""
        layout = self.layout
        factors = layout.structure.factors
        A, B = factors[pair.f].kept[pair.s], factors[pair.g].kept[pair.t]
        same = pair[:2] == pair[2:]
        keys, items = [], []
        for device in range(layout.n_devices):
            point_a, kept_a = self._on_device(pair.f, pair.s, device)
            point_b, kept_b = self._on_device(pair.g, pair.t, device)
            ptr = np.searchsorted(point_b, np.arange(layout.n_local + 1))
            first = np.arange(len(point_a)) + 1 if same else ptr[point_a]
            count = ptr[point_a + 1] - first
            left = np.repeat(np.arange(len(point_a)), count)
            right = np.arange(len(left)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
            if same:  # the larger variable first, so that both triangles add to the same block
                swap = kept_a[left] < kept_a[right]
                left, right = np.where(swap, right, left), np.where(swap, left, right)
            keys.append(kept_a[left].astype(np.int64) * B.n_variables + kept_b[right])
            items.append((left.astype(np.int32), right.astype(np.int32)))
        blocks, segments = self._blocks(A, B, keys)
        dummies = tuple(len(layout.sources[f]) // layout.n_devices - 1 for f in (pair.f, pair.g))
        return blocks, collect(segments, items, dummies, max(1, len(blocks.row)), layout.max_size)

    def _of_factors(self, k: int) -> list[tuple[Blocks, np.ndarray]]:
        """Return, for every two kept slots of a factor group, the blocks and the block of each observation."""
        kept, index = self.layout.structure.factors[k].kept, self.layout.observations[k].indices
        out = []
        for s, A in enumerate(kept):
            for B in kept[s + 1 :]:
                key = index[A.number].astype(np.int64) * B.n_variables + index[B.number]
                blocks, (number,) = self._blocks(A, B, [key])
                out.append((blocks, number.astype(np.int32)))
        return out

    def _blocks(self, A: KeptSlot, B: KeptSlot, keys: list[np.ndarray]) -> tuple[Blocks, list[np.ndarray]]:
        """Return the blocks of all keys, and the number of each key's block."""
        all_keys = np.concatenate(keys)
        n = A.n_variables * B.n_variables
        is_present = np.zeros(n, dtype=bool) if n <= MAX_TABLE_ENTRIES_PER_PAIR * len(all_keys) else None
        if is_present is not None:  # avoids sorting
            is_present[all_keys] = True
            all_keys = np.flatnonzero(is_present)
        present = self.union(all_keys)
        row, column = np.divmod(present, B.n_variables)
        at = (A.first + row * A.dim).astype(np.int32), (B.first + column * B.dim).astype(np.int32)
        if is_present is None:
            return Blocks(*at, (A.dim, B.dim)), [np.searchsorted(present, key) for key in keys]
        number = np.empty(n, dtype=np.int32)
        number[present] = np.arange(len(present))
        return Blocks(*at, (A.dim, B.dim)), [number[key] for key in keys]

    def _on_device(self, k: int, s: int, device: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the eliminated and the kept variable of each observation that is not a dummy."""
        f, o = self.layout.structure.factors[k], self.layout.observations[k]
        assert f.eliminated is not None
        m = len(self.layout.sources[k]) // self.layout.n_devices
        part = slice(device * m, device * m + int(o.n_used[device]))
        return o.indices[f.eliminated.number][part], o.indices[f.kept[s].number][part]

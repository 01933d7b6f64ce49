"""Order of variables and observations on the devices, determined once per problem.

Eliminated variables are distributed over the devices by the length of their tracks, which balances the work; their
observations are on the same device.  All other variables are on every device.  On a device the observations of a factor
group are sorted by eliminated variable and end in at least one dummy, whose weight, residual and derivatives are 0.
Every device has arrays of the same size; an array over all devices is their concatenation.  If each process has a
portion of the problem, a layout covers the devices of one process, and the processes agree on the sizes.

Segmented sums, over the observations of a camera or over the pairs of observations of one block of the reduced matrix,
have two steps.  `Chunks` divides the members of each segment into chunks of equal size; each chunk is summed, and few
additions remain.  The intermediate results of one observation take a thousand bytes, so a device processes its
observations in slabs.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple

import numpy as np

from asker.engines.interface import A
from asker.engines.sparsity import FactorStructure, Structure
from asker.tracing.array_namespace import as_argument

CHUNK_WIDTHS = (4, 8, 16, 32)
MAX_SLAB_PAIRS = 1 << 22  # pairs of observations in a slab: bounds the memory
MAX_SLAB_OBSERVATIONS = 1 << 21
CHUNK_MULTIPLE = 32  # the number of chunks of a slab is a multiple of this; a kernel processes a divisor at a time
UNUSED = -1


class Chunks(NamedTuple, Generic[A]):
    """Chunks of the members of segments, padded to the same size."""

    members: tuple[A, ...]
    """(slabs, chunks, width) each: positions of observations on their device."""
    segment: A
    """(slabs, chunks), ascending."""


class Observations(NamedTuple, Generic[A]):
    """The arrays of one factor group; the devices divide the first axis."""

    n_used: A
    """Number of observations that are not dummies, for each device."""
    indices: tuple[A, ...]
    """Index of the variable in each slot; for the eliminated slot, the index among the variables of the device."""
    data: tuple[A, ...]
    tau: A | None
    """√w·τ; None if τ is the same for all observations."""
    root_weight: A | None
    by_kept: tuple[Chunks[A], ...]
    """The observations of each variable of each kept slot, as positions in their slab; out of range for padding."""


class Layout:
    """The arrays of a problem on `n_devices` devices, as NumPy arrays over all of them."""

    def __init__(self, structure: Structure, n_devices: int, max_size: Callable[[int], int] = lambda size: size):
        """
        Parameters
        ----------
        max_size
            Returns the maximum of a size over the processes.
        """
        self.structure, self.n_devices, self.max_size = structure, n_devices, max_size
        self._distribute()
        self.sources = [self._source(f) for f in structure.factors]
        """The user's number of each observation of each factor group; `UNUSED` for a dummy."""
        self.observations: tuple[Observations[np.ndarray], ...] = tuple(
            map(self._observations, structure.factors, self.sources)
        )

    def release(self) -> None:
        """Release the arrays of observations, after their transfer to the devices."""
        self.observations = ()

    # ------------------------------------------------------------ variables

    def _distribute(self) -> None:
        """Assign eliminated variables to devices: the longest tracks first, in alternating order of the devices."""
        n, k = self.structure.n_eliminated, self.n_devices
        length = np.zeros(n, dtype=np.int64)
        for f in self.structure.factors:
            if f.eliminated is not None:
                length += np.diff(f.eliminated.ptr)
        if k == 1:
            self.device = np.zeros(n, dtype=np.int64)
        else:
            phase = np.arange(n) % (2 * k)
            self.device = np.empty(n, dtype=np.int64)
            self.device[np.argsort(-length, kind="stable")] = np.minimum(phase, 2 * k - 1 - phase)
        counts = np.bincount(self.device, minlength=k)
        self.n_local = self.max_size(int(counts.max(initial=0))) + 1
        """Number of eliminated variables per device, with at least one that is unused."""
        order = np.argsort(self.device, kind="stable")
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        self.local_index = np.empty(n, dtype=np.int64)
        """Index of each eliminated variable on its device."""
        self.local_index[order] = np.arange(n) - np.repeat(starts, counts)
        self.at = self.device * self.n_local + self.local_index
        """Index of each eliminated variable in the array over all devices."""

    def spread(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows of the eliminated variables over all devices; unused rows are copies of another row."""
        out = np.empty((self.n_devices * self.n_local, *rows.shape[1:]), dtype=rows.dtype)
        out[...] = rows[:1] if len(rows) else 0
        out[self.at] = rows
        return out

    # ------------------------------------------------------------ observations

    def _source(self, f: FactorStructure) -> np.ndarray:
        """Return the user's numbers of the observations of each device, padded with dummies."""
        k = self.n_devices
        e = f.eliminated
        device = np.arange(f.n) * k // max(f.n, 1) if e is None else self.device[e.index]
        counts = np.bincount(device, minlength=k)
        m = self.max_size(int(counts.max(initial=0))) + 1
        m = -(-m // n_slabs(m)) * n_slabs(m)
        order = np.argsort(device, kind="stable") if k > 1 else np.arange(f.n)
        source = np.full((k, m), UNUSED, dtype=np.int64)
        source[np.arange(m) < counts[:, None]] = order
        users = np.arange(f.n) if f.order is None else f.order
        return np.where(source == UNUSED, UNUSED, users[source] if f.n else UNUSED).ravel()

    def sorted(self, f: int, per_observation: np.ndarray, fill: Any = 0) -> np.ndarray:
        """Return numbers in the order of the engine, from the user's order; dummies get `fill`."""
        source = self.sources[f]
        out = np.full((len(source), *per_observation.shape[1:]), fill, dtype=per_observation.dtype)
        used = source != UNUSED
        out[used] = per_observation[source[used]]
        return out

    def unsorted(self, f: int, per_observation: np.ndarray) -> np.ndarray:
        """Return numbers in the user's order, from that of the engine."""
        source = self.sources[f]
        out = np.empty((self.structure.factors[f].n, *per_observation.shape[1:]), dtype=per_observation.dtype)
        used = source != UNUSED
        out[source[used]] = per_observation[used]
        return out

    def _observations(self, f: FactorStructure, source: np.ndarray) -> Observations[np.ndarray]:
        """Return the observations of a factor group in the order of the devices, with dummies that fill it up."""
        k = self.n_devices
        used = source != UNUSED
        at = np.where(used, source, 0)

        def pick(array: np.ndarray, fill: Any) -> np.ndarray:
            """Return an array in the engine's order; a dummy copies an observation, so that its residual is finite."""
            return array[at] if f.n else np.full((len(source), *array.shape[1:]), fill, dtype=array.dtype)

        index = []
        for slot in f.factors.slots:
            if slot.variables is self.structure.eliminated:
                local = self.local_index[pick(slot.index, 0)] if len(self.local_index) else at
                index.append(np.where(used, local, self.n_local - 1).astype(np.int32))
            else:
                index.append(pick(slot.index, 0))
        weight, tau = f.factors.weight, f.factors.tau
        root = None if weight is None else np.sqrt(pick(weight, 1.0))
        if isinstance(tau, np.ndarray):
            tau = pick(tau, 1.0) * (1.0 if root is None else np.where(root > 0, root, 1.0))
        chunks = [self._by_variable(used, index[s.number], s.n_variables) for s in f.kept]
        return Observations(
            n_used=used.reshape(k, -1).sum(axis=1).astype(np.int32),
            indices=tuple(index),
            data=tuple(pick(as_argument(d), 0) for d in f.factors.data),
            tau=tau if isinstance(tau, np.ndarray) else None,
            root_weight=root,
            by_kept=tuple(chunks),
        )

    def _by_variable(self, used: np.ndarray, index: np.ndarray, n: int) -> Chunks[np.ndarray]:
        """Return the observations of each of `n` variables, without dummies."""
        m = len(used) // self.n_devices
        slabs = self.n_devices * n_slabs(m)
        index_of_slab, used_of_slab = index.reshape(slabs, -1), used.reshape(slabs, -1)
        keys = [i[u] for i, u in zip(index_of_slab, used_of_slab, strict=True)]
        items = [(np.flatnonzero(u),) for u in used_of_slab]
        return collect(keys, items, (len(used) // slabs,), n, self.max_size, in_slabs=False)


def n_slabs(m: int) -> int:
    """Return the number of slabs for `m` observations on a device."""
    return -(-m // MAX_SLAB_OBSERVATIONS)


def collect(
    keys: list[np.ndarray],
    items: Sequence[tuple[np.ndarray, ...]],
    fillers: tuple[int, ...],
    n: int,
    max_size: Callable[[int], int],
    in_slabs: bool = True,
) -> Chunks[np.ndarray]:
    """Return chunks of the items with equal keys, for each device; keys are segments below `n`."""
    counts = [np.bincount(key, minlength=n) for key in keys]
    width = max_size(min(CHUNK_WIDTHS, key=lambda w: sum(int((-(-c // w)).sum()) for c in counts) * (w + 4)))
    n_chunks = max_size(max(1, *(int((-(-c // width)).sum()) for c in counts)))
    slabs = -(-n_chunks * width // MAX_SLAB_PAIRS) if in_slabs else 1
    per_slab = -(-n_chunks // (slabs * CHUNK_MULTIPLE)) * CHUNK_MULTIPLE
    members = [np.full((len(keys), slabs * per_slab, width), filler, dtype=np.int32) for filler in fillers]
    segment = np.full((len(keys), slabs * per_slab), n - 1, dtype=np.int32)
    for d, (key, item, count) in enumerate(zip(keys, items, counts, strict=True)):
        order = _counting_sort(key, n)
        chunks = -(-count // width)
        rank = np.arange(len(key)) - np.repeat(np.cumsum(count) - count, count)
        chunk = np.repeat(np.cumsum(chunks) - chunks, count) + rank // width
        for positions, device_items in zip(members, item, strict=True):
            positions[d, chunk, rank % width] = device_items[order]
        segment[d, : chunks.sum()] = np.repeat(np.arange(n), chunks)
    shape = (len(keys) * slabs, per_slab)
    return Chunks(tuple(m.reshape(*shape, width) for m in members), segment.reshape(shape))


def _counting_sort(key: np.ndarray, n: int) -> np.ndarray:
    """Return the order that sorts keys below `n`, by a stable counting sort."""
    from scipy import sparse

    ones = np.ones(len(key), dtype=np.int8)
    return sparse.csr_array((ones, (key, np.arange(len(key)))), shape=(n, len(key))).indices

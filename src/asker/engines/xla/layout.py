"""Where everything lies on the devices, worked out once per problem.

Eliminated variables are dealt to the devices by the length of their tracks, so that all devices get the same work;
their observations go with them.  All other variables are on every device.  On a device the observations of a factor
group are sorted by eliminated variable and end in at least one dummy: no weight, no residual, no derivative.  Every
device has arrays of the same size; one array over all devices is the concatenation.  Where each process has a portion
of the problem, a layout is of its own devices, and the processes agree on the sizes.

A sum over the observations of a camera, or over the pairs of observations that meet in one block of the reduced matrix,
is done in two steps.  `Chunks` lists the members of each segment, some at a time; a chunk becomes one sum, and few
additions remain.  What an iteration computes of an observation on the way is a thousand bytes, so a device takes many
observations slab by slab.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple

import numpy as np

from asker.engines.interface import A
from asker.engines.sparsity import FactorStructure, Structure
from asker.tracing.array_namespace import as_argument

WIDTHS = (4, 8, 16, 32)
SLAB = 1 << 22  # pairs of observations at a time: bounds the memory
MOST_AT_ONCE = 1 << 21  # observations of a slab
ROUND = 32  # chunks of a slab: what a kernel takes at a time is a part of this
UNUSED = -1


class Chunks(NamedTuple, Generic[A]):
    """Members of segments, the same number in every chunk; a filler fills up."""

    members: tuple[A, ...]
    """(slabs, chunks, width) each, on every device: positions of observations."""
    segment: A
    """(slabs, chunks), ascending."""


class Observations(NamedTuple, Generic[A]):
    """The arrays of one factor group; the first axis is shared by the devices."""

    n_used: A
    """One number per device: how many observations are no dummies."""
    indices: tuple[A, ...]
    """Which variable, for each slot; of the device's own ones, for the eliminated slot."""
    data: tuple[A, ...]
    tau: A | None
    """√w·τ, where it is not the same for all."""
    root_weight: A | None
    by_kept: tuple[Chunks[A], ...]
    """For each kept slot, the observations of each variable, slab by slab: positions in it, or beyond it for none."""


class Layout:
    """The arrays of a problem on `n_devices` devices, as NumPy arrays over all of them."""

    def __init__(self, structure: Structure, n_devices: int, agreed: Callable[[int], int] = lambda size: size):
        """`agreed`: the largest of the sizes that the processes need."""
        self.structure, self.n_devices, self.agreed = structure, n_devices, agreed
        self._deal()
        self.sources = [self._source(f) for f in structure.factors]
        """For each factor group: the user's number of each observation, `UNUSED` for a dummy."""
        self.observations: tuple[Observations[np.ndarray], ...] = tuple(
            map(self._observations, structure.factors, self.sources)
        )

    def release(self) -> None:
        """Once the devices have the arrays."""
        self.observations = ()

    # ------------------------------------------------------------ variables

    def _deal(self) -> None:
        """The longest tracks first, to and fro over the devices."""
        n, k = self.structure.n_eliminated, self.n_devices
        length = np.zeros(n, dtype=np.int64)
        for f in self.structure.factors:
            if f.eliminated is not None:
                length += np.diff(f.eliminated.ptr)
        if k == 1:
            self.device = np.zeros(n, dtype=np.int64)
        else:
            turn = np.arange(n) % (2 * k)
            self.device = np.empty(n, dtype=np.int64)
            self.device[np.argsort(-length, kind="stable")] = np.minimum(turn, 2 * k - 1 - turn)
        counts = np.bincount(self.device, minlength=k)
        self.n_local = self.agreed(int(counts.max(initial=0))) + 1
        """Eliminated variables per device, one unused one at least."""
        order = np.argsort(self.device, kind="stable")
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        self.place = np.empty(n, dtype=np.int64)
        """Of each eliminated variable on its device."""
        self.place[order] = np.arange(n) - np.repeat(starts, counts)
        self.at = self.device * self.n_local + self.place
        """Of each eliminated variable in the array over all devices."""

    def spread(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the eliminated variables, over all devices; a copy of some row where nothing is used."""
        out = np.empty((self.n_devices * self.n_local, *rows.shape[1:]), dtype=rows.dtype)
        out[...] = rows[:1] if len(rows) else 0
        out[self.at] = rows
        return out

    # ------------------------------------------------------------ observations

    def _source(self, f: FactorStructure) -> np.ndarray:
        """Observations by device, then as in the structure; at least one dummy at the end of each."""
        k = self.n_devices
        e = f.eliminated
        device = np.arange(f.n) * k // max(f.n, 1) if e is None else self.device[e.index]
        counts = np.bincount(device, minlength=k)
        m = self.agreed(int(counts.max(initial=0))) + 1
        m = -(-m // n_slabs(m)) * n_slabs(m)
        order = np.argsort(device, kind="stable") if k > 1 else np.arange(f.n)
        source = np.full((k, m), UNUSED, dtype=np.int64)
        source[np.arange(m) < counts[:, None]] = order
        users = np.arange(f.n) if f.order is None else f.order
        return np.where(source == UNUSED, UNUSED, users[source] if f.n else UNUSED).ravel()

    def sorted(self, f: int, per_observation: np.ndarray, fill: Any = 0) -> np.ndarray:
        """From the user's order to the engine's; dummies get `fill`."""
        source = self.sources[f]
        out = np.full((len(source), *per_observation.shape[1:]), fill, dtype=per_observation.dtype)
        used = source != UNUSED
        out[used] = per_observation[source[used]]
        return out

    def unsorted(self, f: int, per_observation: np.ndarray) -> np.ndarray:
        """From the engine's order to the user's."""
        source = self.sources[f]
        out = np.empty((self.structure.factors[f].n, *per_observation.shape[1:]), dtype=per_observation.dtype)
        used = source != UNUSED
        out[source[used]] = per_observation[used]
        return out

    def _observations(self, f: FactorStructure, source: np.ndarray) -> Observations[np.ndarray]:
        k = self.n_devices
        used = source != UNUSED
        at = np.where(used, source, 0)

        def pick(array: np.ndarray, fill: Any) -> np.ndarray:
            """A dummy has the data of some observation, so that its residual is a number."""
            return array[at] if f.n else np.full((len(source), *array.shape[1:]), fill, dtype=array.dtype)

        index = []
        for slot in f.factors.slots:
            if slot.variables is self.structure.eliminated:
                local = self.place[pick(slot.index, 0)] if len(self.place) else at
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
        """The observations of each of `n` variables, dummies left out."""
        m = len(used) // self.n_devices
        slabs = self.n_devices * n_slabs(m)
        own = [x.reshape(slabs, -1) for x in (index, used)]
        keys = [i[u] for i, u in zip(*own, strict=True)]
        items = [(np.flatnonzero(u),) for u in own[1]]
        return collect(keys, items, (len(used) // slabs,), n, self.agreed, in_slabs=False)


def n_slabs(m: int) -> int:
    """Of so many observations on a device."""
    return -(-m // MOST_AT_ONCE)


def collect(
    keys: list[np.ndarray],
    items: Sequence[tuple[np.ndarray, ...]],
    fillers: tuple[int, ...],
    n: int,
    agreed: Callable[[int], int],
    in_slabs: bool = True,
) -> Chunks[np.ndarray]:
    """Chunks of the items with equal keys, for each device; `keys` are segments below `n`."""
    counts = [np.bincount(key, minlength=n) for key in keys]
    width = agreed(min(WIDTHS, key=lambda w: sum(int((-(-c // w)).sum()) for c in counts) * (w + 4)))
    n_chunks = agreed(max(1, *(int((-(-c // width)).sum()) for c in counts)))
    slabs = -(-n_chunks * width // SLAB) if in_slabs else 1
    per_slab = -(-n_chunks // (slabs * ROUND)) * ROUND
    members = [np.full((len(keys), slabs * per_slab, width), filler, dtype=np.int32) for filler in fillers]
    segment = np.full((len(keys), slabs * per_slab), n - 1, dtype=np.int32)
    for d, (key, item, count) in enumerate(zip(keys, items, counts, strict=True)):
        order = _by(key, n)
        chunks = -(-count // width)
        rank = np.arange(len(key)) - np.repeat(np.cumsum(count) - count, count)
        chunk = np.repeat(np.cumsum(chunks) - chunks, count) + rank // width
        for whole, one in zip(members, item, strict=True):
            whole[d, chunk, rank % width] = one[order]
        segment[d, : chunks.sum()] = np.repeat(np.arange(n), chunks)
    shape = (len(keys) * slabs, per_slab)
    return Chunks(tuple(m.reshape(*shape, width) for m in members), segment.reshape(shape))


def _by(key: np.ndarray, n: int) -> np.ndarray:
    """The order that sorts keys below `n`, equal ones as they come; by counting, in one pass."""
    from scipy import sparse

    there = np.ones(len(key), dtype=np.int8)
    return sparse.csr_array((there, (key, np.arange(len(key)))), shape=(n, len(key))).indices

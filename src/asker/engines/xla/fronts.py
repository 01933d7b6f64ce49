"""Where everything lies in a sparse factorisation by batches of fronts, worked out once per pattern.

A front eliminates some unknowns, its pivots, and leaves the rest to its parent (engines/cpu/sparse).  A processor wants
fronts that fit its cache; an accelerator wants few steps, each of much work.  So fronts are larger here, and those of
one level of the tree, none of which needs another, are done together: in batches of nearly the same size, padded.
A batch is a few calls for the device, which cost the time of many numbers.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from asker.engines.cpu.sparse import WideFronts

NARROW = (64, 128, 256, 512)  # unknowns up to which a front, with those it is coupled to, may hold any zeros
ZEROS = 0.3  # share of zeros in a larger one
ROUND = 8  # sizes are multiples of this
# A batch is some sixty calls for the device, 0.4 ms of an H200.  In that time it does
NUMBERS = 1e7  # numbers of fronts written and read,
PRODUCTS = 3e9  # multiply-adds,
PIVOTS = 600  # or pivots, one after the other


class Children(NamedTuple):
    """Fronts of one batch whose parents are in another."""

    number: np.ndarray
    """(m,): of each child in its batch."""
    parent: np.ndarray
    """(m,): number of its parent in the other."""
    place: np.ndarray
    """(m, left + 1): row of the parent's front, for each row that the child leaves; too large a number for none."""


class Batch(NamedTuple):
    """Fronts of one size: rows of pivots, rows of coupled unknowns, and the right-hand side as a last row."""

    pivots: np.ndarray
    """(n, width): the unknowns; their number for none."""
    coupled: np.ndarray
    """(n, left): likewise."""
    source: np.ndarray
    """(m,): which values of the matrix belong here,"""
    target: np.ndarray
    """(3, m): and where: front, row, column."""


class Fronts(NamedTuple):
    """Batches in the order of elimination."""

    arrays: tuple[tuple[Batch, tuple[Children, ...]], ...]
    """Each with what it takes from those before it,"""
    takes: tuple[tuple[int, ...], ...]
    """and which these are."""
    numbers: float
    """In all fronts, padding included."""


def dense_cost(n: int) -> float:
    """Of a dense factorisation of `n` unknowns in the same unit: one call, which is busy with one column at a time."""
    return n / (1.5 * PIVOTS) + n**2 / NUMBERS + n**3 / 3 / PRODUCTS


def _costs(width: np.ndarray, left: np.ndarray, n: np.ndarray) -> np.ndarray:
    """What batches of `n` fronts cost, in calls for a small batch."""
    rest = left + 1.0
    work = width**3 / 3 + width**2 * rest + width * rest**2
    return 1 + width / PIVOTS + n * (width + rest) ** 2 / NUMBERS + n * work / PRODUCTS


class Plan(NamedTuple):
    """Fronts, and those that make up each batch, in the order of elimination."""

    fronts: "WideFronts"
    groups: list[np.ndarray]
    cost: float
    """In calls for a small batch."""
    numbers: float
    """Numbers in all fronts, without padding."""


def _plan(fronts: "WideFronts") -> Plan:
    width, left = _sizes(fronts)
    level = _levels(fronts.parent)
    by_level = np.split(np.argsort(level, kind="stable"), np.cumsum(np.bincount(level))[:-1])
    found = [_groups(width[members], left[members]) for members in by_level]
    groups = [members[group] for members, (of_level, _) in zip(by_level, found, strict=True) for group in of_level]
    return Plan(fronts, groups, sum(cost for _, cost in found), float(((width + left + 1.0) ** 2).sum()))


def _sizes(fronts: "WideFronts") -> tuple[np.ndarray, np.ndarray]:
    """Pivots and coupled unknowns of each front, rounded up."""
    return tuple(-(-np.diff(ptr) // ROUND) * ROUND for ptr in (fronts.first, fronts.coupled_ptr))  # type: ignore[return-value]


def cheapest(meeting: tuple[np.ndarray, np.ndarray], dims: np.ndarray) -> Plan:
    """Of several ways to factorise a pattern; arguments as in `symbolic.analyse`."""
    from asker.engines.cpu.sparse import wide_fronts

    return min(map(_plan, wide_fronts(meeting, dims, NARROW, ZEROS)), key=lambda plan: plan.cost)


def batched(plan: Plan, places: np.ndarray) -> Fronts:
    """All that a plan needs on a device; `places`: of `Meetings`."""
    fronts, groups = plan.fronts, plan.groups
    width, left = _sizes(fronts)
    batch, number = np.empty(len(width), dtype=np.int64), np.empty(len(width), dtype=np.int64)
    for b, members in enumerate(groups):
        batch[members], number[members] = b, np.arange(len(members))
        width[members], left[members] = width[members].max(), left[members].max()
    place = _Place(fronts, width)
    own_batches = _batches(fronts, groups, number, width, left, place, places)
    children = [_children(fronts, b, batch, number, width, left, place) for b in range(len(groups))]
    arrays = tuple((own, tuple(of.values())) for own, of in zip(own_batches, children, strict=True))
    return Fronts(arrays, tuple(map(tuple, children)), float(((width + left + 1.0) ** 2).sum()))


def _levels(parent: np.ndarray) -> np.ndarray:
    """How many fronts lie one below the other under each."""
    level, some = np.zeros(len(parent), dtype=np.int64), np.flatnonzero(parent >= 0)
    while True:
        before = level.copy()
        np.maximum.at(level, parent[some], level[some] + 1)
        if (level == before).all():
            return level


def _groups(width: np.ndarray, left: np.ndarray) -> tuple[list[np.ndarray], float]:
    """Which fronts of a level go together, so that calls and padding cost the least; and what they cost."""
    sizes, kind, counts = np.unique(
        np.stack([width + left, width, left]), axis=1, return_inverse=True, return_counts=True
    )
    m = sizes.shape[1]
    best, cut = np.zeros(m + 1), np.zeros(m, dtype=np.int64)
    for end in range(1, m + 1):  # the last group is begin … end − 1
        w, l = (np.maximum.accumulate(sizes[k, :end][::-1])[::-1] for k in (1, 2))
        n = np.cumsum(counts[:end][::-1])[::-1]
        cost = best[:end] + _costs(w, l, n)
        cut[end - 1] = np.argmin(cost)
        best[end] = cost[cut[end - 1]]
    groups, end, kind = [], m, kind.ravel()
    while end:
        begin = cut[end - 1]
        groups.append(np.flatnonzero((kind >= begin) & (kind < end)))
        end = begin
    return groups, float(best[m])


def _batches(fronts: "WideFronts", groups, number, width, left, place, places) -> tuple[Batch, ...]:
    n = len(fronts.order)
    rank = np.empty(n, dtype=np.int64)
    rank[fronts.order] = np.arange(n)
    row, column, source = places
    i, j = rank[row], rank[column]
    i, j = np.minimum(i, j), np.maximum(i, j)
    front = np.searchsorted(fronts.first, i, side="right") - 1
    target = np.stack([number[front], place(front, j), i - fronts.first[front]]).astype(np.int32)
    by_front = np.argsort(front, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(front, minlength=len(width)))])
    batches = []
    for members in groups:
        own = by_front[_ranges(ptr, members)]
        pivots = _padded(fronts.order, fronts.first, members, width[members[0]], n)
        coupled = _padded(fronts.order[fronts.coupled], fronts.coupled_ptr, members, left[members[0]], n)
        batches.append(Batch(pivots, coupled, source[own].astype(np.int32), target[:, own]))
    return tuple(batches)


def _children(fronts: "WideFronts", b: int, batch, number, width, left, place) -> dict[int, Children]:
    """Those whose parents are in batch `b`, by their own batch."""
    inside = np.flatnonzero((fronts.parent >= 0) & (batch[fronts.parent] == b))
    out = {}
    for c in np.unique(batch[inside]):
        members = inside[batch[inside] == c]
        parent = fronts.parent[members]
        counts = np.diff(fronts.coupled_ptr)[members]
        own = _ranges(fronts.coupled_ptr, members)
        rows = place(np.repeat(parent, counts), fronts.coupled[own])
        last = width[parent[0]] + left[parent[0]]
        to = np.full((len(members), left[members[0]] + 1), last + 1)
        to[np.arange(to.shape[1]) < counts[:, None]] = rows
        to[:, -1] = last
        out[int(c)] = Children(*(x.astype(np.int32) for x in (number[members], number[parent], to)))
    return out


class _Place:
    """The row of each unknown in a front that has it."""

    def __init__(self, fronts: "WideFronts", width: np.ndarray):
        self.fronts, self.width, self.n = fronts, width, len(fronts.order)
        self.keys = np.repeat(np.arange(len(width)), np.diff(fronts.coupled_ptr)) * self.n + fronts.coupled

    def __call__(self, front: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        first, ptr = self.fronts.first, self.fronts.coupled_ptr
        at = self.width[front] + np.searchsorted(self.keys, front * self.n + unknown) - ptr[front]
        return np.where(unknown < first[front + 1], unknown - first[front], at)


def _ranges(ptr: np.ndarray, members: np.ndarray) -> np.ndarray:
    """All of ptr[k] … ptr[k + 1] − 1, for each member k."""
    counts = ptr[members + 1] - ptr[members]
    return np.repeat(ptr[members] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def _padded(x: np.ndarray, ptr: np.ndarray, members: np.ndarray, size: int, fill: int) -> np.ndarray:
    """(members, size): the part of `x` that belongs to each."""
    out = np.full((len(members), size), fill, dtype=np.int32)
    out[np.arange(size) < np.diff(ptr)[members][:, None]] = x[_ranges(ptr, members)]
    return out

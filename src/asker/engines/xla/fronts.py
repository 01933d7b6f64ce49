"""Symbolic analysis for the multifrontal factorisation in batches of fronts, done once per sparsity pattern.

A front eliminates some unknowns, its pivots, and passes an update matrix to its parent (engines/cpu/sparse).  A CPU is
fastest with fronts that fit its cache; an accelerator is fastest with few steps of much work each.  So fronts are
larger here, and independent fronts of one level of the tree are factorised in batches, padded to the same size.  A
batch takes a few calls of the device, whose latency is the time of many operations.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from asker.engines.cpu.sparse import WideFronts

UNRESTRICTED_SIZES = (
    64,
    128,
    256,
    512,
)  # sizes up to which a front may have any number of explicit zeros; all are tried
MAX_ZERO_FRACTION = 0.3  # explicit zeros in larger fronts
SIZE_MULTIPLE = 8  # sizes are rounded up to multiples of this
# A batch is about sixty calls of the device, 0.4 ms on an H200.  In that time the device
NUMBERS_PER_BATCH_TIME = 1e7  # writes and reads so many entries of fronts,
PRODUCTS_PER_BATCH_TIME = 3e9  # computes so many multiply-adds,
PIVOTS_PER_BATCH_TIME = 600  # or eliminates so many pivots in sequence


class Children(NamedTuple):
    """The fronts of one batch whose parents are in another batch."""

    number: np.ndarray
    """(m,): number of each child in its batch."""
    parent: np.ndarray
    """(m,): number of its parent in the other batch."""
    row: np.ndarray
    """(m, left + 1): row of the parent's front for each row of the update matrix; out of range for padding."""


class Batch(NamedTuple):
    """Fronts of one size: rows of pivots, rows of coupled unknowns, and the right-hand side as a last row."""

    pivots: np.ndarray
    """(n, width): unknowns; the number of unknowns for padding."""
    coupled: np.ndarray
    """(n, left): the same for the coupled unknowns."""
    source: np.ndarray
    """(m,): values of the matrix that enter these fronts."""
    target: np.ndarray
    """(3, m): front, row and column of each of these values."""


class Fronts(NamedTuple):
    """Batches in the order of elimination."""

    arrays: tuple[tuple[Batch, tuple[Children, ...]], ...]
    """Each batch with its children in earlier batches."""
    takes: tuple[tuple[int, ...], ...]
    """The numbers of these earlier batches, for each batch."""
    numbers: float
    """Number of entries of all fronts, padding included."""


def dense_cost(n: int) -> float:
    """Return the cost of a dense factorisation of `n` unknowns, in the unit of `Plan.cost`.

    It is one call, which eliminates one column at a time.
    """
    return n / (1.5 * PIVOTS_PER_BATCH_TIME) + n**2 / NUMBERS_PER_BATCH_TIME + n**3 / 3 / PRODUCTS_PER_BATCH_TIME


def _costs(width: np.ndarray, left: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return the cost of batches of `n` fronts, in the time of a small batch."""
    rest = left + 1.0
    work = width**3 / 3 + width**2 * rest + width * rest**2
    entries = n * (width + rest) ** 2
    return 1 + width / PIVOTS_PER_BATCH_TIME + entries / NUMBERS_PER_BATCH_TIME + n * work / PRODUCTS_PER_BATCH_TIME


class Plan(NamedTuple):
    """Fronts, and the fronts of each batch, in the order of elimination."""

    fronts: "WideFronts"
    groups: list[np.ndarray]
    cost: float
    """Estimated cost, in the time of a small batch."""
    numbers: float
    """Number of entries of all fronts, without padding."""


def _plan(fronts: "WideFronts") -> Plan:
    """Return the fronts with their batches of the least estimated cost."""
    width, left = _sizes(fronts)
    level = _levels(fronts.parent)
    by_level = np.split(np.argsort(level, kind="stable"), np.cumsum(np.bincount(level))[:-1])
    levels = [_groups(width[members], left[members]) for members in by_level]
    groups = [members[group] for members, (of_level, _) in zip(by_level, levels, strict=True) for group in of_level]
    return Plan(fronts, groups, sum(cost for _, cost in levels), float(((width + left + 1.0) ** 2).sum()))


def _sizes(fronts: "WideFronts") -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of pivots and of coupled unknowns of each front, rounded up."""

    def rounded(ptr: np.ndarray) -> np.ndarray:
        return -(-np.diff(ptr) // SIZE_MULTIPLE) * SIZE_MULTIPLE

    return rounded(fronts.first), rounded(fronts.coupled_ptr)


def cheapest(pattern: tuple[np.ndarray, np.ndarray], dims: np.ndarray) -> Plan:
    """Return the cheapest of several plans to factorise a sparsity pattern; arguments as in `symbolic.analyse`."""
    from asker.engines.cpu.sparse import wide_fronts

    candidates = wide_fronts(pattern, dims, UNRESTRICTED_SIZES, MAX_ZERO_FRACTION)
    return min(map(_plan, candidates), key=lambda plan: plan.cost)


def batched(plan: Plan, entries: np.ndarray) -> Fronts:
    """Return the batches of a plan, for a device.

    Parameters
    ----------
    entries
        Row, column and number of each value of the matrix: `SchurPattern.entries`.
    """
    fronts, groups = plan.fronts, plan.groups
    width, left = _sizes(fronts)
    batch, number = np.empty(len(width), dtype=np.int64), np.empty(len(width), dtype=np.int64)
    for b, members in enumerate(groups):
        batch[members], number[members] = b, np.arange(len(members))
        width[members], left[members] = width[members].max(), left[members].max()
    row_in_front = _RowInFront(fronts, width)
    batches = _batches(fronts, groups, number, width, left, row_in_front, entries)
    children = [_children(fronts, b, batch, number, width, left, row_in_front) for b in range(len(groups))]
    arrays = tuple((own, tuple(of.values())) for own, of in zip(batches, children, strict=True))
    return Fronts(arrays, tuple(map(tuple, children)), float(((width + left + 1.0) ** 2).sum()))


def _levels(parent: np.ndarray) -> np.ndarray:
    """Return the height of each front above its deepest descendant."""
    level, with_parent = np.zeros(len(parent), dtype=np.int64), np.flatnonzero(parent >= 0)
    while True:
        before = level.copy()
        np.maximum.at(level, parent[with_parent], level[with_parent] + 1)
        if (level == before).all():
            return level


def _groups(width: np.ndarray, left: np.ndarray) -> tuple[list[np.ndarray], float]:
    """Return the partition of a level's fronts into batches with the least cost of calls and padding, and this cost."""
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


def _batches(
    fronts: "WideFronts",
    groups: list[np.ndarray],
    number: np.ndarray,
    width: np.ndarray,
    left: np.ndarray,
    row_in_front: "_RowInFront",
    entries: np.ndarray,
) -> tuple[Batch, ...]:
    """Return the fronts of each group as a batch, with the values of the matrix that enter them."""
    n = len(fronts.order)
    rank = np.empty(n, dtype=np.int64)
    rank[fronts.order] = np.arange(n)
    row, column, source = entries
    i, j = rank[row], rank[column]
    i, j = np.minimum(i, j), np.maximum(i, j)
    front = np.searchsorted(fronts.first, i, side="right") - 1
    target = np.stack([number[front], row_in_front(front, j), i - fronts.first[front]]).astype(np.int32)
    by_front = np.argsort(front, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(front, minlength=len(width)))])
    batches = []
    for members in groups:
        own = by_front[_ranges(ptr, members)]
        pivots = _padded(fronts.order, fronts.first, members, width[members[0]], n)
        coupled = _padded(fronts.order[fronts.coupled], fronts.coupled_ptr, members, left[members[0]], n)
        batches.append(Batch(pivots, coupled, source[own].astype(np.int32), target[:, own]))
    return tuple(batches)


def _children(
    fronts: "WideFronts",
    b: int,
    batch: np.ndarray,
    number: np.ndarray,
    width: np.ndarray,
    left: np.ndarray,
    row_in_front: "_RowInFront",
) -> dict[int, Children]:
    """Return the fronts whose parents are in batch `b`, by their own batch."""
    inside = np.flatnonzero((fronts.parent >= 0) & (batch[fronts.parent] == b))
    out = {}
    for c in np.unique(batch[inside]):
        members = inside[batch[inside] == c]
        parent = fronts.parent[members]
        counts = np.diff(fronts.coupled_ptr)[members]
        own = _ranges(fronts.coupled_ptr, members)
        rows = row_in_front(np.repeat(parent, counts), fronts.coupled[own])
        last = width[parent[0]] + left[parent[0]]
        to = np.full((len(members), left[members[0]] + 1), last + 1)
        to[np.arange(to.shape[1]) < counts[:, None]] = rows
        to[:, -1] = last
        out[int(c)] = Children(*(x.astype(np.int32) for x in (number[members], number[parent], to)))
    return out


class _RowInFront:
    """The row of an unknown in a front that contains it."""

    def __init__(self, fronts: "WideFronts", width: np.ndarray):
        self.fronts, self.width, self.n = fronts, width, len(fronts.order)
        self.keys = np.repeat(np.arange(len(width)), np.diff(fronts.coupled_ptr)) * self.n + fronts.coupled

    def __call__(self, front: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        first, ptr = self.fronts.first, self.fronts.coupled_ptr
        at = self.width[front] + np.searchsorted(self.keys, front * self.n + unknown) - ptr[front]
        return np.where(unknown < first[front + 1], unknown - first[front], at)


def _ranges(ptr: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return the ranges ptr[k] … ptr[k + 1] − 1 of all members k, one after the other."""
    counts = ptr[members + 1] - ptr[members]
    return np.repeat(ptr[members] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def _padded(x: np.ndarray, ptr: np.ndarray, members: np.ndarray, size: int, fill: int) -> np.ndarray:
    """Return the part of `x` that belongs to each member, (members, size)."""
    out = np.full((len(members), size), fill, dtype=np.int32)
    out[np.arange(size) < np.diff(ptr)[members][:, None]] = x[_ranges(ptr, members)]
    return out

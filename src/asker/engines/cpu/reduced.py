"""The matrix of the kept variables, S = H_KK − Y Yᵀ, dense or sparse, assembled row by row.

Only the lower triangle is computed.  Each variable owns the rows of its numbers, so threads never meet.
"""

from typing import Any

import numpy as np

from asker.engines.cpu import blocks
from asker.engines.cpu.structure import SPLIT, FactorLayout, KeptSlot, Structure
from asker.engines.cpu.threads import balanced_bounds, run_loop


class Rows:
    """How the rows of one kept slot are shared out: items (variable, first entry, last entry, target row)."""

    def __init__(self, slot: KeptSlot, work: np.ndarray, spare: int | None):
        """`work` per entry of slot.rows; `spare`: first spare row for the parts of long rows, None for no parts."""
        ptr = slot.rows_ptr
        counts = np.diff(ptr)
        parts = np.maximum(1, -(-counts // SPLIT)) if spare is not None else np.ones_like(counts)
        v = np.repeat(np.arange(len(counts)), parts)
        part = np.arange(len(v)) - np.repeat(np.cumsum(parts) - parts, parts)
        size = -(-counts // parts)
        first = ptr[v] + part * size[v]
        last = np.minimum(first + size[v], ptr[v + 1])
        own = slot.first + v * slot.dim
        extra = np.flatnonzero(part > 0)
        target = own.copy()
        if extra.size:
            assert spare is not None
            target[extra] = spare + np.arange(extra.size) * slot.dim
        self.items = np.ascontiguousarray(np.column_stack([v, first, last, target]).astype(np.int64))
        self.moves = [(int(own[e]), int(target[e]), slot.dim) for e in extra]  # spare rows to add at the end
        done = np.concatenate([[0], np.cumsum(work)])
        self.bounds = balanced_bounds(1.0 + done[last] - done[first])


class ReducedMatrix:
    """Storage, symbolic work and assembly.  `dense`: (N + spare rows, N).  Sparse: values over a fixed pattern."""

    def __init__(self, structure: Structure, dense: bool, eliminate: bool = True):
        """`eliminate=False` assembles H_KK alone."""
        self.structure, self.dense, self.eliminate = structure, dense, eliminate
        n = structure.n_kept
        self.rows: dict[tuple[int, int], Rows] = {}
        spare = n
        for f, layout in enumerate(structure.layouts):
            for m, slot in enumerate(layout.kept):
                rows = Rows(slot, _work_per_entry(structure, layout, slot), spare if dense else None)
                spare = max([spare, *[target + dim for _, target, dim in rows.moves]])
                self.rows[f, m] = rows
        self.g = np.zeros(spare)
        if dense:
            self.values = np.zeros((spare, n))
            self.diagonal_at = np.arange(n) * (n + 1)
        else:
            self._make_pattern()
            rows_at, columns_at = self.coordinates()
            self.diagonal_at = np.flatnonzero(rows_at == columns_at)
        self.diagonal = np.zeros(n)
        """diag H_KK of the last assembly, before the elimination."""

    def _make_pattern(self) -> None:
        ptr, variables = self.structure.pattern(after_elimination=self.eliminate)
        starts, dims = self.structure.kept_variables
        counts = np.diff(ptr)
        widths = np.add.reduceat(np.append(dims[variables], 0), ptr[:-1]) * (counts > 0)  # scalar columns of a row
        self.columns = _expand(starts[variables], dims[variables])
        first = np.concatenate([[0], np.cumsum(widths)])
        values = np.concatenate([[0], np.cumsum(widths * dims)])
        self.S_ptr = np.ascontiguousarray(np.column_stack([first[:-1], first[1:], values[:-1]]))
        self.values = np.zeros(values[-1])
        self._dims, self._starts = dims, starts

    def assemble(self, linear: Any, model: Any, Y: list[np.ndarray], z: np.ndarray) -> None:
        """S and the reduced gradient for the weights of `model`."""
        self.values[...] = 0.0
        self.g[:] = 0.0
        for (f, m), rows in self.rows.items():
            layout = self.structure.layouts[f]
            self._add_gram(layout, layout.kept[m], rows, linear[f], model[f])
        self._gather_parts()
        self.diagonal = self.values.reshape(-1)[self.diagonal_at].copy()
        for (f, m), rows in self.rows.items():
            layout = self.structure.layouts[f]
            if self.eliminate and layout.eliminated is not None:
                self._subtract_schur(layout, layout.kept[m], rows, Y, z, f)
        self._gather_parts()

    def _gather_parts(self) -> None:
        """Add the spare rows to the rows they are parts of."""
        for rows in self.rows.values():
            for own, target, dim in rows.moves:
                self.values[own : own + dim] += self.values[target : target + dim]
                self.g[own : own + dim] += self.g[target : target + dim]
                self.values[target : target + dim] = 0.0
                self.g[target : target + dim] = 0.0

    def _store(self, slot: KeptSlot) -> tuple[Any, ...]:
        if self.dense:
            return (self.values,)
        first = np.searchsorted(self._starts, slot.first)
        ptr = self.S_ptr[first : first + slot.n_variables]
        return (self.values, ptr, self.columns, self.structure.n_kept)

    def _add_gram(self, layout: FactorLayout, slot: KeptSlot, rows: Rows, lin: Any, abc: Any) -> None:
        others = layout.kept
        kernel = blocks.gram_rows(
            layout.p, layout.width, slot.offset, slot.dim,
            tuple((s.offset, s.dim) for s in others), self.dense, abc.radial,
        )  # fmt: skip
        args = (slot.rows, *[s.columns for s in others], lin.J, lin.r, abc.a, abc.b, abc.c, self.g)
        run_loop(kernel, rows.bounds, rows.items, slot.first, *args, *self._store(slot))

    def _subtract_schur(self, layout, slot, rows, Y, z, f) -> None:
        d = layout.eliminated.dim
        for f2, other in enumerate(self.structure.layouts):
            if other.eliminated is None:
                continue
            for m2, slot2 in enumerate(other.kept):
                first = f2 == f and m2 == 0  # the gradient is taken along once
                sizes = (slot.offset_in_Y, slot.dim, slot2.offset_in_Y, slot2.dim)
                kernel = blocks.schur_rows(d, *sizes, self.dense, first)
                args = (layout.eliminated.index, other.eliminated.ptr, slot2.columns, Y[f], Y[f2], z, self.g)
                run_loop(kernel, rows.bounds, rows.items, slot.first, slot.rows, *args, *self._store(slot))

    @property
    def gradient(self) -> np.ndarray:
        return self.g[: self.structure.n_kept]

    @property
    def matrix(self) -> np.ndarray:
        """The dense lower triangle, without spare rows."""
        return self.values[: self.structure.n_kept]

    def coordinates(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column of every sparse value (whole diagonal blocks are among them)."""
        first, last, _ = self.S_ptr.T
        widths = last - first
        rows = np.repeat(_expand(self._starts, self._dims), np.repeat(widths, self._dims))
        per_row = np.repeat(first, self._dims)
        columns = self.columns[_expand(per_row, np.repeat(widths, self._dims))]
        return rows, columns


def _expand(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """start, start + 1, … start + count − 1 for each pair, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts) + np.repeat(starts, counts)


def _work_per_entry(structure: Structure, layout: FactorLayout, slot: KeptSlot) -> np.ndarray:
    """About how many blocks each observation of the slot's rows adds to."""
    work = np.ones(layout.n)
    if layout.eliminated is not None:
        for other in structure.layouts:
            if other.eliminated is not None:
                work += np.diff(other.eliminated.ptr)[layout.eliminated.index] / 2
    return work[slot.rows]

"""The Schur complement of the kept variables, S = H_KK − Y Yᵀ, dense or sparse, assembled row by row.

Only the lower triangle is computed.  The rows of a variable are written by one thread at a time.
"""

from collections.abc import Sequence
from functools import cached_property, partial
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from asker.engines.cpu.compiler import Printed
from asker.engines.cpu.system.codegen import SLACK, aligned, lanes, run_loop, run_loop_with
from asker.engines.cpu.system.linearization import Derivatives, Linearization, Weights
from asker.engines.cpu.system.schur_elimination import Elimination
from asker.engines.cpu.system.schur_rows import RowsSpec, matrix_rows, scaled_lower, scaled_upper, unit_scale
from asker.engines.cpu.system.wide_residuals import WideGroup
from asker.engines.cpu.threads import balanced_bounds, even_bounds
from asker.engines.sparsity import FactorStructure, KeptSlot, Structure

MAX_ENTRIES_PER_ITEM = 1 << 16  # observations; the rows of a variable with more are summed in several items
BLOCKS_PER_TASK = 10_000  # the scheduling overhead of much smaller tasks would exceed their work
MAX_PASS_BYTES = 1 << 23  # bytes of Y in a pass over the rows, which fit into the shared cache
MAX_CORE_PASS_BYTES = 1 << 20  # the same for the cache of one core, if the matrix itself is small


class RowPasses:
    """The partition of the rows of one kept slot into items and tasks.

    An item is (variable, first entry, last entry, target row, number among all kept variables, row, pass).  A variable
    has one item, or several if it has very many observations; the later ones are summed in extra rows of the matrix.
    With several passes, each processes the observations in one range of memory for all variables, and the item of a
    variable waits for that of the previous pass.
    """

    def __init__(self, slot: KeptSlot, work: np.ndarray, number: int, first_extra: int | None, n_passes: int):
        """`work` has one number per entry of slot.observations; `first_extra` is None for one item per row."""
        n = len(slot.observations)
        done = np.concatenate([[0], np.cumsum(work)])
        self.max_tasks = int(np.clip(done[-1] / n_passes / BLOCKS_PER_TASK, 4, 64))
        v = np.arange(slot.n_variables)
        row = slot.first + v * slot.dim
        self.moves: list[tuple[int, int, int]] = []  # (row, extra row, number of rows) to add up at the end
        if n_passes == 1 and first_extra is not None:
            self.items, self.bounds = self._in_parts(slot, done, v, row, number, first_extra)
            return
        order = np.repeat(v, np.diff(slot.ptr)) * n + slot.observations  # ascending
        stops = [np.searchsorted(order, v * n + stop) for stop in np.linspace(0, n, n_passes + 1).astype(int)]
        passes = [
            self._balanced(done, [v, first, last, row, number + v, np.where(k == 0, row, -1), np.full_like(v, k)])
            for k, (first, last) in enumerate(pairwise(stops))
        ]
        self.items = np.concatenate([items for items, _ in passes])
        cuts = [bounds[:-1] + np.uint64(k * len(v)) for k, (_, bounds) in enumerate(passes)]
        self.bounds = np.append(np.concatenate(cuts), np.uint64(len(self.items)))

    def _in_parts(
        self, slot: KeptSlot, done: np.ndarray, v: np.ndarray, row: np.ndarray, number: int, first_extra: int
    ) -> tuple[np.ndarray, np.ndarray]:
        counts = np.diff(slot.ptr)
        parts = np.maximum(1, -(-counts // MAX_ENTRIES_PER_ITEM))
        size = -(-counts // parts)
        v = np.repeat(v, parts)
        part = np.arange(len(v)) - np.repeat(np.cumsum(parts) - parts, parts)
        first = slot.ptr[v] + part * size[v]
        last = np.minimum(first + size[v], slot.ptr[v + 1])
        target = row[v]
        extra = np.flatnonzero(part > 0)
        target[extra] = first_extra + np.arange(extra.size) * slot.dim
        self.moves = [(int(row[v[e]]), int(target[e]), slot.dim) for e in extra]
        return self._balanced(done, [v, first, last, target, number + v, row[v], np.zeros_like(v)])

    def _balanced(self, done: np.ndarray, columns: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the items, and the bounds of tasks of about equal work; `done` is the work before each entry."""
        items = np.ascontiguousarray(np.column_stack(columns).astype(np.int64))
        return items, balanced_bounds(1.0 + done[columns[2]] - done[columns[1]], self.max_tasks)


class ReducedMatrix:
    """The matrix S and the reduced gradient: storage, index structures and assembly.

    A dense matrix has rows of whole SIMD vectors (`codegen.lanes`), and extra rows.  A sparse one has values on a fixed
    block pattern.
    """

    def __init__(self, structure: Structure, dense: bool, eliminate: bool = True):
        """`eliminate=False` assembles H_KK only."""
        self.structure, self.dense, self.eliminate = structure, dense, eliminate
        self.starts, self.dims = structure.kept_variables
        self.lane_of = np.concatenate([[0], np.cumsum([lanes(d) for d in self.dims.tolist()])]).astype(np.int64)
        n_rows = structure.n_kept
        self._passes: dict[KeptSlot, RowPasses] = {}
        self._begins: dict[int, KeptSlot] = {}  # the slot whose rows are assembled first, by its group's first column
        for f in structure.factors:
            for slot in f.kept:
                work = _work_per_entry(structure, f, slot)
                n_passes = self._n_passes(f, slot, work)
                rows = RowPasses(slot, work, self._number(slot), n_rows if dense else None, n_passes)
                n_rows = max([n_rows, *[target + dim for _, target, dim in rows.moves]])
                self._passes[slot] = rows
                self._begins.setdefault(slot.first, slot)
        groups = [(k, f) for k, f in enumerate(structure.factors) if f.eliminated is not None]
        self._sharing = [(k, f, slot) for k, f in groups for slot in f.kept] if eliminate else []
        """Factor groups and kept slots whose variables share eliminated ones."""
        self._firsts = self._first_observations() if eliminate else {}
        self._rows_made: dict[tuple[int, int], _Rows] = {}
        self._lanes = {slot: self._lanes_of(slot) for slot in self._passes}
        self.g, self.diagonals = np.zeros(n_rows), np.zeros(n_rows)
        if dense:
            self.values = aligned(n_rows, -(-(int(self.lane_of[-1]) + SLACK) // 8) * 8)
            self.pattern_ptr, self.pattern = np.zeros((0, 4), dtype=np.int64), np.zeros(0, dtype=np.int64)
        else:
            self._make_pattern()
        wide = {k: f for k, f in enumerate(structure.factors) if f.is_wide}
        self._wide = {k: WideGroup(f, self._places(f)) for k, f in wide.items()}
        self._clears = dense and not wide
        """True if the first item of a row of the dense matrix sets it to zero."""

    def _places(self, f: FactorStructure) -> dict[tuple[KeptSlot, KeptSlot], tuple[np.ndarray, np.ndarray]]:
        """Return the argument `places` of `WideGroup`, for all pairs of kept slots."""
        places, n = {}, len(self.dims)
        number = {s: self._number(s) + (s.columns - s.first).astype(np.int64) // s.dim for s in f.kept}
        rows = np.repeat(np.arange(len(self.pattern_ptr)), self.pattern_ptr[:, 1] - self.pattern_ptr[:, 0])
        widths = self.dims[self.pattern]
        before = np.cumsum(widths) - widths
        for A, B in product(f.kept, f.kept):
            row, column = number[A], number[B]
            if self.dense:
                stride = np.full(f.n, self.values.shape[1])
                place = A.columns * stride + self.lane_of[column]
            else:
                block = np.searchsorted(rows * n + self.pattern, row * n + np.minimum(column, row))
                first, _, value, stride = self.pattern_ptr[row].T
                place = value + before[block] - before[first]
            places[A, B] = np.where(column <= row, place, -1), np.ascontiguousarray(stride)
        return places

    def _n_passes(self, f: FactorStructure, slot: KeptSlot, work: np.ndarray) -> int:
        """Return the number of passes such that Y of a pass fits into the cache.

        A sparse matrix has a single pass if adding the strips once per pass would be expensive.
        """
        if f.eliminated is None:
            return 1
        bytes_of_Y = 8 * f.kept_width * f.eliminated.dim
        is_small = self.dense and 8 * self.structure.n_kept * int(self.lane_of[-1]) <= MAX_PASS_BYTES
        wanted = max(-(-f.n * bytes_of_Y // (MAX_CORE_PASS_BYTES if is_small else MAX_PASS_BYTES)), 1)
        if self.dense:
            return wanted
        strips = 16 * slot.n_variables * slot.dim * int(self.lane_of[-1])
        return wanted if 4 * wanted * strips <= bytes_of_Y * work.sum() else 1

    def _first_observations(self) -> dict[tuple[KeptSlot, FactorStructure], np.ndarray]:
        """Return the first observation in each factor group of the eliminated variable of each entry of a slot.

        It is tabulated because two dependent lookups at the beginning of each entry would stall.
        """
        groups = [f for f in self.structure.factors if f.eliminated is not None and f.kept]
        firsts = {}
        for f, other in product(groups, groups):
            assert f.eliminated is not None
            assert other.eliminated is not None
            for slot in f.kept:
                first = other.eliminated.ptr[f.eliminated.index[slot.observations]]
                firsts[slot, other] = first.astype(np.int32)
        return firsts

    def _number(self, slot: KeptSlot) -> int:
        """Return the number of the slot's first variable among all kept variables."""
        return int(np.searchsorted(self.starts, slot.first))

    def _lanes_of(self, slot: KeptSlot) -> np.ndarray:
        """Return the first strip column of each observation's variable."""
        variable = self._number(slot) + (slot.columns - slot.first) // slot.dim
        return self.lane_of[variable].astype(np.int32)

    def _make_pattern(self) -> None:
        """Set the sparsity pattern, the position of each block, and memory for the values."""
        ptr, self.pattern = self.structure.pattern(after_elimination=self.eliminate)
        widths = np.add.reduceat(np.append(self.dims[self.pattern], 0), ptr[:-1]) * (np.diff(ptr) > 0)
        values = np.concatenate([[0], np.cumsum(widths * self.dims)])
        self.pattern_ptr = np.ascontiguousarray(np.column_stack([ptr[:-1], ptr[1:], values[:-1], widths]))
        self.values = np.zeros(values[-1])

    def assemble(self, linear: Sequence[Derivatives], model: list[Weights], elimination: Elimination) -> None:
        """Compute S and the reduced gradient for the weights of `model`."""
        first = self.structure.n_kept if self._clears else 0  # the rows before it are cleared by their first items
        for array in (self.values[first:], self.g, self.diagonals):
            array[...] = 0.0
        for k, f in enumerate(self.structure.factors):
            if k in self._wide:
                lin = linear[k]
                assert isinstance(lin, Linearization)
                self._wide[k].add(lin, model[k], self.values.reshape(-1), self.g, self.diagonals)
                continue
            for m, slot in enumerate(f.kept):
                loop, fixed, has_others = self._rows(k, m)
                named = fixed | {"finished": np.zeros(slot.n_variables, dtype=np.int64)}
                if has_others:
                    lin, w = linear[k], model[k]
                    assert isinstance(lin, Linearization)
                    named |= {"J": lin.J, "r": lin.r, "a": w.a, "b": w.b, "c": w.c, "radial": w.radial}
                if f.eliminated is not None:
                    U, G = elimination.diagonal_blocks[k][m]
                    named |= {"YA": elimination.Y[k], "z": elimination.z, "U": U, "G": G}
                    named |= {f"Y{n}": elimination.Y[other] for n, (other, _, _) in enumerate(self._sharing)}
                run_loop_with(loop, self._passes[slot].bounds, partial(self._strip, slot.dim), **named)
        for rows in self._passes.values():
            for row, extra_row, dim in rows.moves:
                for array in (self.values, self.g, self.diagonals):
                    array[row : row + dim] += array[extra_row : extra_row + dim]

    def _rows(self, k: int, m: int) -> "_Rows":
        """Return the loop of the rows of kept slot m of factor group k."""
        key = k, m
        if key not in self._rows_made:
            self._rows_made[key] = self._make_rows(*key)
        return self._rows_made[key]

    def _make_rows(self, k: int, m: int) -> "_Rows":
        """Return the loop over the rows of slot m of factor group k, with its fixed arguments."""
        f = self.structure.factors[k]
        slot, is_eliminating = f.kept[m], f.eliminated is not None
        others = [s for s in f.kept if not (is_eliminating and s is slot)]  # the elimination computes diagonal blocks
        fixed: dict[str, Any] = {"starts": self.starts, "dims": self.dims, "lane_of": self.lane_of, "S": self.values}
        fixed |= {"pattern_ptr": self.pattern_ptr, "pattern": self.pattern, "g": self.g, "diagonal": self.diagonals}
        fixed |= {"items": self._passes[slot].items, "first_lane": int(self.lane_of[self._number(slot)])}
        fixed |= {"observations": slot.observations, "clear": self._clears and slot is self._begins[slot.first]}
        for n, s in enumerate(others):
            fixed |= {f"gram_lane{n}": self._lanes[s], f"gram_at{n}": s.offset, "at": slot.offset}
        d, schur = 0, list[tuple[int, int, int, bool]]()
        if f.eliminated is not None:
            d, fixed["index"] = f.eliminated.dim, f.eliminated.index
            for n, (_, other, s) in enumerate(self._sharing):
                assert other.eliminated is not None
                schur.append((s.offset_in_Y, s.dim, other.kept_width, s is other.kept[0]))  # see Structure._order
                fixed |= {f"ptr{n}": other.eliminated.ptr, f"schur_lane{n}": self._lanes[s]}
                fixed[f"first{n}"] = self._firsts[slot, other]
        gram = tuple(s.dim for s in others)
        in_Y = (slot.offset_in_Y, f.kept_width) if d else (0, 0)
        spec = RowsSpec(f.height, f.width, slot.dim, gram, d, in_Y, tuple(schur), self.dense)
        return _Rows(matrix_rows(spec), fixed, bool(others))

    def _strip(self, dim: int) -> dict[str, np.ndarray]:
        """Allocate the strip in which a thread sums sparse rows."""
        return {} if self.dense else {"strip": np.zeros((dim, int(self.lane_of[-1]) + SLACK))}

    @property
    def gradient(self) -> np.ndarray:
        """The reduced gradient, g_K − Y z."""
        return self.g[: self.structure.n_kept]

    @property
    def diagonal(self) -> np.ndarray:
        """The diagonal of H_KK, before the elimination."""
        return self.diagonals[: self.structure.n_kept]

    def unit_scale(self, damping: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scale the dense damped matrix to a unit diagonal.

        Returns the scale of rows and columns, the scaled diagonal (1 up to rounding) and the scaled right-hand side.
        """
        scale, unit, right = np.empty((3, self.structure.n_kept))
        named = {"S": self.values, "diagonal_lane": self._diagonal_lane, "damping": damping, "g": self.g}
        run_loop(unit_scale(), even_bounds(len(scale)), scale=scale, unit=unit, right=right, **named)
        return scale, unit, right

    @cached_property
    def _diagonal_lane(self) -> np.ndarray:
        """The column of the dense matrix in which each row has its diagonal."""
        return np.arange(self.structure.n_kept) + np.repeat(self.lane_of[:-1] - self.starts, self.dims)

    def copy_scaled(self, scale: np.ndarray, out: np.ndarray) -> None:
        """Copy the lower triangle of the dense matrix, with rows and columns scaled."""
        self._copy(scaled_lower(), scale, out)

    def copy_upper(
        self, scale: np.ndarray, unit: np.ndarray, right: np.ndarray, out: np.ndarray, column: int, strip: int
    ) -> None:
        """Copy the transpose of the scaled lower triangle, with the diagonal `unit` and with `right` in a column.

        Entries to the left of the diagonal within a strip of columns are set to zero.
        """
        self._copy(scaled_upper(strip), scale, out, unit=unit, right=right, column_of_right=column)

    def _copy(self, loop: Printed, scale: np.ndarray, out: np.ndarray, **more: Any) -> None:
        """Run a loop that writes the scaled matrix into `out`."""
        places = {"starts": self.starts, "dims": self.dims, "lane_of": self.lane_of}
        run_loop(loop, self._triangle, S=self.values, scale=scale, out=out, **places, **more)

    @cached_property
    def _triangle(self) -> np.ndarray:
        """The bounds of tasks of about equal work over the rows of a triangle."""
        return balanced_bounds(np.arange(1.0, len(self.starts) + 1), max_tasks=max(1, min(64, len(self.values) // 128)))

    @property
    def matrix(self) -> np.ndarray:
        """The dense lower triangle."""
        n = self.structure.n_kept
        out = np.zeros((n, n))
        self.copy_scaled(np.ones(n), out)
        return out

    def block_pattern(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the block pattern of the sparse matrix: CSR pointers and columns of a lower triangle."""
        return np.append(self.pattern_ptr[:, 0], len(self.pattern)), self.pattern

    @cached_property
    def block_of_value(self) -> np.ndarray:
        """The number of the block of every sparse value."""
        ptr, columns = self.block_pattern()
        sizes = self.dims[columns]
        rows = np.repeat(np.arange(len(self.dims)), self.dims)  # the variable of each row of the matrix
        blocks = np.repeat(np.arange(len(columns)), sizes)  # for the values of each variable's first row
        begin = np.concatenate([[0], np.cumsum(sizes)])[ptr]
        return blocks[_expand(begin[rows], np.diff(begin)[rows])]

    def blocks_with(self, is_one: np.ndarray) -> np.ndarray:
        """Return which sparse blocks contain a value of the mask, or are on the diagonal."""
        ptr, columns = self.block_pattern()
        blocks = np.repeat(np.arange(len(self.dims)), np.diff(ptr)) == columns
        blocks[self.block_of_value[is_one]] = True
        return blocks

    def coordinates(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the row and column of every sparse value; diagonal blocks are complete."""
        widths = self.pattern_ptr[:, 3]
        rows = np.repeat(_expand(self.starts, self.dims), np.repeat(widths, self.dims))
        columns = _expand(self.starts[self.pattern], self.dims[self.pattern])  # for one row of each variable
        offset = np.concatenate([[0], np.cumsum(widths)])[:-1]
        per_row = np.repeat(offset, self.dims)
        return rows, columns[_expand(per_row, np.repeat(widths, self.dims))]


class _Rows(NamedTuple):
    """The loop of the rows of one kept slot."""

    loop: Printed
    fixed: dict[str, Any]
    """The arguments that do not change between assemblies."""
    has_others: bool
    """True if the factors have other kept slots, so that the loop needs J and weights."""


def _expand(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate the ranges start … start + count − 1."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts) + np.repeat(starts, counts)


def _work_per_entry(structure: Structure, f: FactorStructure, slot: KeptSlot) -> np.ndarray:
    """Return the approximate number of blocks that each observation of the slot's variables contributes to."""
    work = np.ones(f.n)
    if f.eliminated is not None:
        for other in structure.factors:
            if other.eliminated is not None:
                work += np.diff(other.eliminated.ptr)[f.eliminated.index] / 2
    return work[slot.observations]

"""The elimination of one group of variables: factorised blocks, couplings and back-substitution.

With V the blocks of the eliminated variables E, W = H_KE their coupling to the kept ones K and g_E their gradient:

    V + λI = L Lᵀ,   z = L⁻¹ g_E,   Yᵀ = L⁻¹ Wᵀ,   S = H_KK − Y Yᵀ,   δ_E = −L⁻ᵀ (z + Yᵀ δ_K)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from asker.engines.cpu.compiler import Printed
from asker.engines.cpu.system import blocks, fused_jacobians
from asker.engines.cpu.system.codegen import aligned, lanes, padded_rows, run_loop, run_loop_with
from asker.engines.cpu.system.linearization import Derivatives, Weights
from asker.engines.cpu.threads import even_bounds
from asker.engines.sparsity import EliminatedSlot, FactorStructure, Structure

MAX_SUM_BYTES = 1 << 26  # bytes


class DiagonalBlocks(NamedTuple):
    """The contribution of a factor group to the diagonal blocks and gradient of the variables of one kept slot.

    Each task of the elimination has a separate sum.
    """

    U: np.ndarray  # (tasks, n, dim, lanes)
    G: np.ndarray  # (tasks, n, dim)


@dataclass(frozen=True, eq=False)
class Elimination:
    """The result of an elimination for one point, model and damping.

    The next elimination overwrites the same arrays.
    """

    structure: Structure
    L: np.ndarray
    """(n, d(d+1)/2): the lower triangles, row by row."""
    z: np.ndarray
    """(n, d)"""
    Y: tuple[np.ndarray, ...]
    """L⁻¹Jᵀ(aI + brrᵀ)J of each observation, (n, d·K), for factor groups with both kinds of slots, else empty."""
    diagonal_blocks: tuple[tuple[DiagonalBlocks, ...], ...]
    """The diagonal blocks of the kept slots of each factor group with an eliminated slot."""

    @property
    def d(self) -> int:
        """Tangent dimension of the eliminated variables."""
        return self.z.shape[1]

    def coupled(self) -> Iterator[tuple[FactorStructure, EliminatedSlot, np.ndarray]]:
        """Yield the factor groups with an eliminated slot and kept slots, the eliminated slot, and their Y."""
        for f, Y in zip(self.structure.factors, self.Y, strict=True):
            if f.eliminated is not None and f.kept:
                yield f, f.eliminated, Y

    def couple_back(self, x: np.ndarray, t: np.ndarray) -> None:
        """Add Yᵀx to t."""
        for f, e, Y in self.coupled():
            loop = blocks.couple_back(self.d, tuple((s.offset_in_Y, s.dim) for s in f.kept))
            columns = {f"columns{m}": s.columns for m, s in enumerate(f.kept)}
            run_loop(loop, even_bounds(len(t), min_size=1024), ptr=e.ptr, Y=Y, x=x, t=t, **columns)

    def couple_forward(self, t: np.ndarray, y: np.ndarray) -> None:
        """Subtract Y t from y."""
        for f, e, Y in self.coupled():
            for s in f.kept:
                loop = blocks.couple_forward(self.d, s.offset_in_Y, s.dim, f.kept_width)
                named = {"ptr": s.ptr, "observations": s.observations, "index": e.index}
                run_loop(loop, even_bounds(s.n_variables, min_size=8), Y=Y, t=t, first_row=s.first, y=y, **named)

    def subtract_diagonal(self, first: int, B: np.ndarray) -> None:
        """Subtract the diagonal blocks of YYᵀ from B, for the kept group whose columns begin at `first`."""
        for f, _, Y in self.coupled():
            for s in f.kept:
                if s.first == first:
                    loop = blocks.schur_diagonal(self.d, s.offset_in_Y, s.dim, f.kept_width)
                    run_loop(loop, even_bounds(len(B), min_size=8), ptr=s.ptr, observations=s.observations, Y=Y, B=B)

    def substitute(self, x: np.ndarray) -> np.ndarray:
        """Return δ_E for δ_K = x."""
        delta, coupled, named = np.empty_like(self.z), list(self.coupled()), dict[str, np.ndarray]()
        for m, (f, e, Y) in enumerate(coupled):
            named |= {f"ptr{m}": e.ptr, f"Y{m}": Y} | {f"columns{m}_{n}": s.columns for n, s in enumerate(f.kept)}
        loop = blocks.substitute(self.d, tuple(tuple((s.offset_in_Y, s.dim) for s in f.kept) for f, _, _ in coupled))
        run_loop(loop, even_bounds(len(delta), min_size=1024), L=self.L, z=self.z, x=x, delta=delta, **named)
        return delta


class Eliminator:
    """The elimination for a problem's structure; its arrays are allocated once and reused."""

    def __init__(self, structure: Structure, relative: bool):
        """`relative` adds λ diag(V) instead of λI."""
        self.structure, self.relative = structure, relative
        e = structure.eliminated
        d, n = 0 if e is None else e.manifold.tangent, structure.n_eliminated
        self._L, self._z = np.empty((n, d * (d + 1) // 2)), np.empty((n, d))
        self._groups = [(k, f, f.eliminated) for k, f in enumerate(structure.factors) if f.eliminated is not None]
        ends = sum((g.ptr for _, _, g in self._groups), start=np.zeros(n + 1, dtype=np.int64))
        self._chunks = fused_jacobians.chunks(ends)
        self._longest = [fused_jacobians.longest(g.ptr, self._chunks) for _, _, g in self._groups]
        self._bounds, self._sums = self._tasks(int(ends[-1]))
        self._fixed: dict[str, Any] = {"chunks": self._chunks, "V": self._L, "g": self._z}
        for m, (_, f, g) in enumerate(self._groups):
            self._fixed |= {f"ptr{m}": g.ptr} | ({f"index{m}": g.index} if f.kept else {})
            for n, (s, (U, G)) in enumerate(zip(f.kept, self._sums[m], strict=True)):
                self._fixed |= {f"variable{m}_{n}": s.index, f"U{m}_{n}": U, f"G{m}_{n}": G}
        self._loops: dict[tuple[Any, ...], Printed] = {}

    @cached_property
    def _Y(self) -> tuple[np.ndarray, ...]:
        """Allocate Y of each factor group; those without an eliminated slot have no rows."""
        d = self._z.shape[1]
        widths = [(f.n, f.kept_width * d) if f.eliminated is not None else (0, 0) for f in self.structure.factors]
        return tuple(padded_rows(*shape) for shape in widths)

    def release(self) -> None:
        """Free the couplings, which take most of the memory, until the next elimination."""
        self.__dict__.pop("_Y", None)

    def _tasks(self, n_observations: int) -> tuple[np.ndarray, list[list[DiagonalBlocks]]]:
        """Return the tasks, ranges of chunks, and the diagonal blocks of each task; fewer tasks if these are large."""
        kept = [f.kept for _, f, _ in self._groups]
        bytes_each = sum(8 * s.n_variables * s.dim * (lanes(s.dim) + 1) for slots in kept for s in slots)
        max_tasks = min(64, max(1, n_observations // 2048), MAX_SUM_BYTES // max(bytes_each, 1))
        bounds = even_bounds(len(self._chunks) - 1, min_size=1, max_tasks=max(1, max_tasks))
        shapes = [[(len(bounds) - 1, s.n_variables, s.dim) for s in slots] for slots in kept]
        return bounds, [[DiagonalBlocks(aligned(*a, lanes(a[2])), np.empty(a)) for a in slots] for slots in shapes]

    def __call__(
        self, linear: Sequence[Derivatives], model: list[Weights], damping: float, stiffness: np.ndarray | None = None
    ) -> Elimination | None:
        """Eliminate; return None if a block V is not positive definite.  `stiffness`, packed as L, is added to V."""
        L, z, structure = self._L, self._z, self.structure
        if structure.eliminated is None:
            return Elimination(structure, L, z, self._Y, ((),) * len(self._Y))
        failed = np.zeros(1, dtype=bool)
        named = self._fixed | {"damping": damping, "failed": failed}
        for m, (k, f, _) in enumerate(self._groups):
            lin, w = linear[k], model[k]
            named |= {f"a{m}": w.a, f"b{m}": w.b, f"c{m}": w.c} | fused_jacobians.shared(m, lin)
            if f.kept:
                named[f"Y{m}"] = self._Y[k]
        if stiffness is not None:
            named["stiffness"] = stiffness

        def private() -> dict[str, np.ndarray]:
            arrays: dict[str, np.ndarray] = {}
            for m, (k, f, _) in enumerate(self._groups):
                arrays |= fused_jacobians.private(m, linear[k], f, self._longest[m])
            return arrays

        run_loop_with(self._loop(linear, model, stiffness is not None), self._bounds, private, **named)
        return None if failed[0] else Elimination(structure, L, z, self._Y, self._diagonal_blocks())

    def _loop(self, linear: Sequence[Derivatives], model: list[Weights], stiff: bool) -> Printed:
        """Return the loop of the elimination for these derivatives and weights, compiled once."""
        variants = [(fused_jacobians.fusion(linear[k]), model[k].radial) for k, _, _ in self._groups]
        key = *variants, stiff
        if key not in self._loops:
            specs = []
            for (fused, radial), (_, f, e) in zip(variants, self._groups, strict=True):
                kept = tuple((s.offset, s.dim) for s in f.kept)
                specs.append(blocks.Group(fused, f.height, f.width, kept, e.offset, e.dim, radial))
            self._loops[key] = blocks.eliminate(tuple(specs), self.relative, stiff)
        return self._loops[key]

    def _diagonal_blocks(self) -> tuple[tuple[DiagonalBlocks, ...], ...]:
        """Return the diagonal blocks of each factor group; empty without an eliminated slot."""
        by_group: list[tuple[DiagonalBlocks, ...]] = [()] * len(self.structure.factors)
        for (k, _, _), sums in zip(self._groups, self._sums, strict=True):
            by_group[k] = tuple(sums)
        return tuple(by_group)

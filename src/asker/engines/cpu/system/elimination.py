"""The elimination of one group of variables, and what is left of it.

With V the blocks of the eliminated variables E, W = H_KE their coupling to the kept ones K and g_E their gradient:

    V + λI = L Lᵀ,   z = L⁻¹ g_E,   Yᵀ = L⁻¹ Wᵀ,   S = H_KK − Y Yᵀ,   δ_E = −L⁻ᵀ (z + Yᵀ δ_K)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asker.engines.cpu.system import blocks
from asker.engines.cpu.system.linearization import Linearization, Weights
from asker.engines.cpu.system.printing import lanes, run_loop, spacious
from asker.engines.cpu.threads import even_bounds
from asker.engines.structure import EliminatedSlot, FactorStructure, KeptSlot, Structure

LARGEST_SUMS = 1 << 26  # bytes


class OwnBlocks(NamedTuple):
    """What a factor group adds to the diagonal blocks and to the gradient of the variables of one kept slot."""

    U: np.ndarray  # (n, dim, lanes)
    G: np.ndarray  # (n, dim)


@dataclass(frozen=True, eq=False)
class Elimination:
    """What is left of the eliminated variables, for one point, model and damping.

    The next elimination writes to the same arrays.
    """

    structure: Structure
    L: np.ndarray
    """(n, d(d+1)/2): lower triangles, row by row."""
    z: np.ndarray
    """(n, d)"""
    Y: tuple[np.ndarray, ...]
    """(observations, d·K) for each factor group with both kinds of slots, else nothing."""
    own: tuple[tuple[OwnBlocks, ...], ...]
    """For each factor group with an eliminated slot: the own blocks of its kept slots, in passing."""

    @property
    def d(self) -> int:
        return self.z.shape[1]

    def coupled(self) -> Iterator[tuple[FactorStructure, EliminatedSlot, np.ndarray]]:
        """The factor groups with both kinds of slots, and their Y."""
        for f, Y in zip(self.structure.factors, self.Y, strict=True):
            if f.eliminated is not None and f.kept:
                yield f, f.eliminated, Y

    def couple_back(self, x: np.ndarray, t: np.ndarray) -> None:
        """t += Yᵀx."""
        for f, e, Y in self.coupled():
            loop = blocks.couple_back(self.d, tuple((s.offset_in_Y, s.dim) for s in f.kept))
            columns = {f"columns{m}": s.columns for m, s in enumerate(f.kept)}
            run_loop(loop, even_bounds(len(t), smallest=1024), ptr=e.ptr, Y=Y, x=x, t=t, **columns)

    def couple_forward(self, t: np.ndarray, y: np.ndarray) -> None:
        """y −= Y t."""
        for f, e, Y in self.coupled():
            for s in f.kept:
                loop = blocks.couple_forward(self.d, s.offset_in_Y, s.dim, f.kept_width)
                seen = {"ptr": s.ptr, "observations": s.observations, "index": e.index}
                run_loop(loop, even_bounds(s.n_variables, smallest=8), Y=Y, t=t, first_row=s.first, y=y, **seen)

    def subtract_diagonal(self, first: int, B: np.ndarray) -> None:
        """B −= the diagonal blocks of YYᵀ, for the kept group whose columns begin at `first`."""
        for f, _, Y in self.coupled():
            for s in f.kept:
                if s.first == first:
                    loop = blocks.schur_diagonal(self.d, s.offset_in_Y, s.dim, f.kept_width)
                    run_loop(loop, even_bounds(len(B), smallest=8), ptr=s.ptr, observations=s.observations, Y=Y, B=B)

    def substitute(self, x: np.ndarray) -> np.ndarray:
        """δ_E from δ_K = x."""
        t = self.z.copy()
        self.couple_back(x, t)
        delta = np.empty_like(t)
        run_loop(blocks.solve_transposed(self.d), even_bounds(len(t), smallest=1024), L=self.L, t=t, delta=delta)
        return delta


class Eliminator:
    """The arrays of an elimination, made once for a problem's structure and filled again and again."""

    def __init__(self, structure: Structure, relative: bool):
        """`relative`: V + λ diag(V) in place of V + λI."""
        self.structure, self.relative = structure, relative
        e = structure.eliminated
        d, n = 0 if e is None else e.manifold.tangent, structure.n_eliminated
        self._L, self._z = np.empty((n, d * (d + 1) // 2)), np.empty((n, d))
        self._Y = tuple(
            spacious(f.n, f.kept_width * d) if f.eliminated is not None else np.empty((0, 0)) for f in structure.factors
        )
        self._sums = [[_sums(f, s) for s in f.kept] if f.eliminated is not None else [] for f in structure.factors]

    def __call__(
        self, linear: list[Linearization], model: list[Weights], damping: float, stiffness: np.ndarray | None = None
    ) -> Elimination | None:
        """None if some V is not positive definite; `stiffness` is added to V, packed as L."""
        L, z, structure = self._L, self._z, self.structure
        if structure.eliminated is None:
            return Elimination(structure, L, z, self._Y, ((),) * len(self._Y))
        L[...] = 0.0
        z[...] = 0.0
        variables = even_bounds(len(L), smallest=1024)
        for f, lin, w in zip(structure.factors, linear, model, strict=True):
            if f.eliminated is not None:
                e = f.eliminated
                loop = blocks.eliminated_blocks(f.p, f.width, e.offset, e.dim, w.radial)
                run_loop(loop, variables, ptr=e.ptr, J=lin.J, r=lin.r, a=w.a, b=w.b, c=w.c, V=L, g=z)
        if stiffness is not None:
            L += stiffness
        failed = np.zeros(1, dtype=bool)
        loop = blocks.factor_blocks(z.shape[1], self.relative)
        run_loop(loop, variables, damping=damping, V=L, g=z, failed=failed)
        if failed[0]:
            return None
        own = tuple(self._couple(k, linear[k], model[k]) for k in range(len(structure.factors)))
        return Elimination(structure, L, z, self._Y, own)

    def _couple(self, k: int, lin: Linearization, w: Weights) -> tuple[OwnBlocks, ...]:
        """Fill Y of one factor group; its own blocks are summed in one place per task."""
        f, Y, sums = self.structure.factors[k], self._Y[k], self._sums[k]
        if f.eliminated is None or not f.kept:
            return ()
        e, L = f.eliminated, self._L
        loop = blocks.coupling(f.p, f.width, tuple((s.offset, s.dim) for s in f.kept), e.offset, e.dim, w.radial)
        for U, G in sums:
            U[...] = 0.0
            G[...] = 0.0
        bounds = np.linspace(0, f.n, len(sums[0].U) + 1).astype(np.uint64)
        variables = {f"variable{n}": s.index for n, s in enumerate(f.kept)}

        variables |= {f"U{n}": U for n, (U, _) in enumerate(sums)} | {f"G{n}": G for n, (_, G) in enumerate(sums)}
        run_loop(loop, bounds, index=e.index, J=lin.J, r=lin.r, a=w.a, b=w.b, c=w.c, L=L, Y=Y, **variables)
        return tuple(OwnBlocks(U.sum(axis=0), G.sum(axis=0)) for U, G in sums)


def _sums(f: FactorStructure, slot: KeptSlot) -> OwnBlocks:
    """U and G of a kept slot, one copy per task; few tasks where the copies would be large."""
    bytes_each = sum(8 * s.n_variables * s.dim * (lanes(s.dim) + 1) for s in f.kept)
    n_tasks = int(np.clip(LARGEST_SUMS // max(bytes_each, 1), 1, min(64, max(1, f.n // 2048))))
    shape = (n_tasks, slot.n_variables, slot.dim)
    return OwnBlocks(np.empty((*shape, lanes(slot.dim))), np.empty(shape))

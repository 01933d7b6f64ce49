"""Assembly of the linear system,

    (Σ Jᵢᵀ (aᵢ I + bᵢ rᵢ rᵢᵀ) Jᵢ + λI) δ = −Σ cᵢ Jᵢᵀ rᵢ,

on one of several devices.  A device eliminates its variables, V = LLᵀ and Yᵀ = L⁻¹Wᵀ, and computes its part of the
Schur complement,

    S = H_KK − Σ YYᵀ,    g = g_K − Σ Yz,    z = L⁻¹g_E.

`psum` adds these parts over the devices, so that every device has the same reduced system.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from asker.engines.sparsity import EliminatedSlot, FactorStructure, KeptSlot, Structure
from asker.engines.xla.blocks import AXIS, cholesky, coupling, summed_products, summed_rows
from asker.engines.xla.chunking import over_slabs
from asker.engines.xla.layout import Observations
from asker.engines.xla.schur_pattern import SchurPattern
from asker.engines.xla.small_matrices import Small, joined, number, product, rows, small

Linear = Callable[[Observations[jax.Array]], tuple[Small, Small]]
"""Function that returns r (p,) and J (p, D) of some observations of a factor group, at a point."""
Edges = Sequence[Sequence[jax.Array]]
"""J_AᵀMJ_B of each observation, for every two kept slots A, B of each factor group."""


class Weights(NamedTuple):
    """The weights a, b, c of one factor group; `b` is None for 0."""

    a: jax.Array
    b: jax.Array | None
    c: jax.Array


class Reduced(NamedTuple):
    """The reduced system, the same on every device; all but `blocks` and `ok` have one item per kept group."""

    diagonal: tuple[jax.Array, ...]
    """(n, d, d): the diagonal blocks of S, without damping."""
    g: tuple[jax.Array, ...]
    """(n, d): the reduced gradient."""
    unit: tuple[jax.Array | None, ...]
    """(n, d): the diagonal of H_KK, if damping is relative to it, else None."""
    YY: tuple[jax.Array | None, ...]
    """(n, d, d): the diagonal blocks of Σ YYᵀ, if S is not formed, else None."""
    blocks: tuple[jax.Array, ...]
    """The off-diagonal blocks of one triangle of S, in the order of `SchurPattern`; empty if S is not formed."""
    ok: jax.Array
    """True if every V is positive definite."""


class Assembled(NamedTuple):
    """The assembled linear system."""

    L: jax.Array  # (n, d(d+1)/2), row by row
    z: jax.Array  # (n, d)
    Yt: tuple[jax.Array, ...]
    """(observations, d, K) for each factor group with both eliminated and kept slots, else empty."""
    edges: tuple[tuple[jax.Array, ...], ...]
    """J_AᵀMJ_B of each observation, for every two kept slots A, B of each factor group."""
    reduced: Reduced


class Assembly:
    """The assembly of the linear system, as functions of arrays on one device."""

    def __init__(
        self, structure: Structure, pattern: SchurPattern | None, relative: bool, has_pair_kernel: bool = False
    ):
        """
        Parameters
        ----------
        pattern
            Sparsity pattern of S; None if S is not formed.
        relative
            Whether damping is relative to the diagonal of H.
        has_pair_kernel
            Whether `pair_sums_pallas` runs on the devices.
        """
        self.structure, self.pattern = structure, pattern
        self.relative, self.has_pair_kernel = relative, has_pair_kernel
        e = structure.eliminated
        self.d = 0 if e is None else e.manifold.tangent

    def assemble(
        self,
        observations: tuple[Observations[jax.Array], ...],
        pattern_arrays: Any,
        n_used: jax.Array,
        n_local: int,
        linear: list[Linear],
        model: list[Weights],
        damping: jax.Array,
    ) -> Assembled:
        """Return the linear system with the eliminated variables, the couplings and the reduced system."""
        L, z, ok = self._eliminate(observations, n_used, n_local, linear, model, damping)
        sums = tuple(jnp.zeros((len(v), self._n_sums(v.manifold.tangent))) for v in self.structure.kept)
        Yt, edges = [], []
        for f, o, linear_at, w in zip(self.structure.factors, observations, linear, model, strict=True):
            sums, (Y, group_edges) = over_slabs(partial(self._summed, f, linear_at, L, z), sums, o, w)
            Yt.append(Y)
            edges.append(group_edges)
        blocks = self._off_diagonal(observations, pattern_arrays, Yt, edges)
        sums, blocks, bad = lax.psum((sums, blocks, jnp.where(ok, 0, 1)), AXIS)
        diagonal, g, unit, YY = zip(*(self._parts(x) for x in sums), strict=True) if sums else ((), (), (), ())
        repeated = self._diagonal_edges(diagonal, observations, edges)
        diagonal = tuple(S + E for S, E in zip(diagonal, repeated, strict=True))
        if self.relative:
            unit = tuple(x + jnp.diagonal(E, axis1=1, axis2=2) for x, E in zip(unit, repeated, strict=True))
        return Assembled(L, z, tuple(Yt), tuple(edges), Reduced(diagonal, g, unit, YY, blocks, bad == 0))

    def _eliminate(
        self,
        observations: tuple[Observations[jax.Array], ...],
        n_used: jax.Array,
        n_local: int,
        linear: list[Linear],
        model: list[Weights],
        damping: jax.Array,
    ) -> tuple[jax.Array, ...]:
        """Return L and z of the eliminated variables, and whether all their blocks are positive definite."""
        d = self.d
        if not d:
            return jnp.zeros(1), jnp.zeros(1), jnp.array(True)
        n_lower = d * (d + 1) // 2

        def add(
            f: FactorStructure, linear_at: Linear, sums: jax.Array, o: Observations[jax.Array], w: Weights
        ) -> tuple[jax.Array, tuple[()]]:
            assert f.eliminated is not None
            r, J = linear_at(o)
            E = slot_columns(J, f.eliminated)
            V, g = product(E, weighted(r, E, w))[np.tril_indices(d)], gradient(r, E, w.c)
            return sums.at[o.indices[f.eliminated.number]].add(rows(joined([V, g]))), ()

        sums = jnp.zeros((n_local, n_lower + d))
        for f, o, linear_at, w in zip(self.structure.factors, observations, linear, model, strict=True):
            if f.eliminated is not None:
                sums, _ = over_slabs(partial(add, f, linear_at), sums, o, w)
        L, z, bad = cholesky(sums[:, :n_lower], sums[:, n_lower:], damping, self.relative)
        return L, z, ~jnp.any(bad & (jnp.arange(n_local) < n_used[0]))

    def _n_sums(self, d: int) -> int:
        """Return the number of values that are summed for a kept variable of d unknowns."""
        lower = d * (d + 1) // 2
        return lower + d + (d if self.relative else 0) + (lower if self.pattern is None else 0)

    def _summed(
        self,
        f: FactorStructure,
        linear_at: Linear,
        L: jax.Array,
        z: jax.Array,
        sums: tuple[jax.Array, ...],
        o: Observations[jax.Array],
        w: Weights,
    ) -> tuple[tuple[jax.Array, ...], tuple[Any, Any]]:
        """Add a slab of observations to the sums of each kept variable; return also its couplings and edges."""
        if not f.kept:
            return sums, ((), ())
        r, J = linear_at(o)
        MJ = weighted(r, J, w)
        Y: Small = None
        z_of_observation: Small = None
        if f.eliminated is not None:
            narrow, at = isinstance(J, np.ndarray), o.indices[f.eliminated.number]
            JK = joined([slot_columns(J, slot) for slot in f.kept], axis=1)
            Y = coupling(JK, slot_columns(MJ, f.eliminated), small(L[at], narrow))
            z_of_observation = small(z[at], narrow)
        for slot, chunks in zip(f.kept, o.by_kept, strict=True):
            JS = slot_columns(J, slot)
            H, g, lower = product(JS, slot_columns(MJ, slot)), gradient(r, JS, w.c), np.tril_indices(slot.dim)
            S, YY = H, 0 * H
            if Y is not None:
                YS = Y[:, coupling_columns(slot)]
                YY = product(YS, YS)
                S, g = H - YY, g - product(YS, z_of_observation[:, None])[:, 0]
            parts = [S[lower], g]
            parts += [H[np.diag_indices(slot.dim)]] if self.relative else []
            parts += [YY[lower]] if self.pattern is None else []
            added = summed_rows(joined(parts), chunks, slot.n_variables)
            sums = tuple(
                x + added if v is slot.variables else x for v, x in zip(self.structure.kept, sums, strict=True)
            )
        edges = [
            product(slot_columns(J, A), slot_columns(MJ, B)) for k, A in enumerate(f.kept) for B in f.kept[k + 1 :]
        ]
        return sums, (() if Y is None else as_rows(Y), tuple(map(as_rows, edges)))

    def _parts(self, sums: jax.Array) -> tuple[Any, ...]:
        """Return the diagonal blocks of S, the gradient, the unit of damping and YY of a kept group."""
        n_sums = sums.shape[1]
        d = next(d for d in range(n_sums + 1) if self._n_sums(d) == n_sums)
        lower = d * (d + 1) // 2
        i, j = np.maximum(*np.indices((d, d))), np.minimum(*np.indices((d, d)))
        packed = i * (i + 1) // 2 + j  # position in the packed lower triangle
        diagonal, g, rest = sums[:, packed], sums[:, lower : lower + d], sums[:, lower + d :]
        unit = rest[:, :d] if self.relative else None
        YY = rest[:, -lower:][:, packed] if self.pattern is None else None
        return diagonal, g, unit, YY

    def _diagonal_edges(
        self, diagonal: tuple[jax.Array, ...], observations: tuple[Observations[jax.Array], ...], edges: Edges
    ) -> list[jax.Array]:
        """Return, for each kept group, J_AᵀMJ_B + J_BᵀMJ_A of observations in which one variable fills both slots."""
        sums = {v: jnp.zeros((1, *S.shape[1:])) for v, S in zip(self.structure.kept, diagonal, strict=True)}
        for f, o, E in zip(self.structure.factors, observations, edges, strict=True):
            for (A, B), each in zip(pairs_of(f), E, strict=True):
                if has_repeated_variable(A, B):
                    v, at, repeated = A.variables, o.indices[A.number], o.indices[A.number] == o.indices[B.number]
                    each = jnp.where(repeated[:, None, None], each + jnp.swapaxes(each, 1, 2), 0.0)
                    sums[v] = sums[v] + lax.psum(jnp.zeros((len(v), *each.shape[1:])).at[at].add(each), AXIS)
        return list(sums.values())

    def _off_diagonal(
        self, observations: tuple[Observations[jax.Array], ...], pattern_arrays: Any, Yt: list[jax.Array], edges: Edges
    ) -> tuple[jax.Array, ...]:
        """Return this device's part of the off-diagonal blocks of S."""
        if self.pattern is None:
            return ()
        factors, (pairs, edges_at) = self.structure.factors, pattern_arrays
        sums = []
        for pair, chunks, blocks in zip(self.pattern.pairs, pairs, self.pattern.blocks, strict=False):
            A, B = factors[pair.f].kept[pair.s], factors[pair.g].kept[pair.t]
            columns = coupling_columns(A), coupling_columns(B)
            n = len(blocks.row)
            sums.append(-summed_products(Yt[pair.f], Yt[pair.g], columns, chunks, n, self.has_pair_kernel))
        for f, o, E, numbers in zip(factors, observations, edges, edges_at, strict=True):
            for (A, B), each, at in zip(pairs_of(f), E, numbers, strict=True):
                blocks = self.pattern.blocks[len(sums)]
                sums.append(jnp.zeros((len(blocks.row), *blocks.shape)).at[at].add(off_diagonal_part(A, B, o, each)))
        return tuple(sums)


# ------------------------------------------------------------------ pieces


def slot_columns(J: Small, slot: KeptSlot | EliminatedSlot) -> Small:
    """Return the columns of J that belong to a slot."""
    return J[:, slot.offset : slot.offset + slot.dim]


def coupling_columns(slot: KeptSlot) -> slice:
    """Return the range of columns of Yᵀ that belong to a slot."""
    return slice(slot.offset_in_Y, slot.offset_in_Y + slot.dim)


def weighted(r: Small, J: Small, w: Weights) -> Small:
    """Return (aI + b rrᵀ) J."""
    MJ = J * number(w.a, J)
    return MJ if w.b is None else MJ + (r * number(w.b, r))[:, None] * product(r[:, None], J)


def gradient(r: Small, J: Small, c: jax.Array) -> Small:
    """Return c Jᵀr."""
    g = product(J, r[:, None])[:, 0]
    return g * number(c, g)


def as_rows(A: Small) -> jax.Array:
    """Return an array (n, i, j) of small matrices."""
    shape = A.shape[:2]
    return rows(A.reshape(-1, *A.shape[2:])).reshape(-1, *shape)


def pairs_of(f: FactorStructure) -> list[tuple[KeptSlot, KeptSlot]]:
    """Return all pairs of kept slots of a factor group."""
    return [(A, B) for k, A in enumerate(f.kept) for B in f.kept[k + 1 :]]


def has_repeated_variable(A: KeptSlot, B: KeptSlot) -> bool:
    """Return whether an observation has the same variable in both slots."""
    return A.variables is B.variables and bool((A.index == B.index).any())


def off_diagonal_part(A: KeptSlot, B: KeptSlot, o: Observations[jax.Array], each: jax.Array) -> jax.Array:
    """Return J_AᵀMJ_B of each observation, or 0 if one variable fills both slots."""
    if not has_repeated_variable(A, B):
        return each
    return jnp.where((o.indices[A.number] == o.indices[B.number])[:, None, None], 0.0, each)

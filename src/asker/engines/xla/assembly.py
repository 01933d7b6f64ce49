"""What the one linear system on the devices is made of,

    (Σ Jᵢᵀ (aᵢ I + bᵢ rᵢ rᵢᵀ) Jᵢ + λI) δ = −Σ cᵢ Jᵢᵀ rᵢ,

written for one device of several: it eliminates its own variables, V = LLᵀ and Yᵀ = L⁻¹Wᵀ, and sums its part of

    S = H_KK − Σ YYᵀ,    g = g_K − Σ Yz,    z = L⁻¹g_E.

Sums over devices are `psum`; after them every device holds the same numbers.
"""

from collections.abc import Callable
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
from asker.engines.xla.schur_pattern import Meetings
from asker.engines.xla.small_matrices import Small, joined, number, product, rows, small

Linear = Callable[[Observations[jax.Array]], tuple[Small, Small]]
"""r (p,) and J (p, D) of some observations of a factor group, at a point."""


class Weights(NamedTuple):
    """One factor group's part of a model; `b` is None for 0."""

    a: jax.Array
    b: jax.Array | None
    c: jax.Array


class Reduced(NamedTuple):
    """The reduced system, the same on every device; all but `blocks` by kept group."""

    own: tuple[jax.Array, ...]
    """(n, d, d): the diagonal blocks of S, without damping."""
    g: tuple[jax.Array, ...]
    """(n, d): the reduced gradient."""
    unit: tuple[jax.Array | None, ...]
    """(n, d): the diagonal of H_KK where λ is multiplied with it, else None."""
    YY: tuple[jax.Array | None, ...]
    """(n, d, d): the diagonal blocks of Σ YYᵀ where S is not formed, else None."""
    blocks: tuple[jax.Array, ...]
    """What lies off them in S, in one triangle, as `Meetings` lists it; nothing where S is not formed."""
    ok: jax.Array
    """Whether every V is positive definite."""


class Assembled(NamedTuple):
    """All that a step is solved from."""

    L: jax.Array  # (n, d(d+1)/2), row by row
    z: jax.Array  # (n, d)
    Yt: tuple[jax.Array, ...]
    """(observations, d, K) for each factor group with both kinds of slots, else nothing."""
    edges: tuple[tuple[jax.Array, ...], ...]
    """For every two kept slots A, B of each factor group: J_AᵀMJ_B of each observation."""
    reduced: Reduced


class Assembly:
    """The sums of the linear system, as functions of arrays on one device."""

    def __init__(self, structure: Structure, meetings: Meetings | None, relative: bool, has_kernel: bool = False):
        """Without `meetings` S is not formed; `has_kernel`: there is a kernel for sums over pairs (pair_sums.py)."""
        self.structure, self.meetings, self.relative, self.has_kernel = structure, meetings, relative, has_kernel
        e = structure.eliminated
        self.d = 0 if e is None else e.manifold.tangent

    def assemble(
        self,
        observations: tuple[Observations[jax.Array], ...],
        met: Any,
        n_used: jax.Array,
        n_local: int,
        linear: list[Linear],
        model: list[Weights],
        damping: jax.Array,
    ) -> Assembled:
        L, z, ok = self._eliminate(observations, n_used, n_local, linear, model, damping)
        sums = tuple(jnp.zeros((len(v), self._n_sums(v.manifold.tangent))) for v in self.structure.kept)
        Yt, edges = [], []
        for f, o, of, w in zip(self.structure.factors, observations, linear, model, strict=True):
            sums, (Y, between) = over_slabs(partial(self._summed, f, of, L, z), sums, o, w)
            Yt.append(Y)
            edges.append(between)
        blocks = self._off_diagonal(observations, met, Yt, edges)
        sums, blocks, bad = lax.psum((sums, blocks, jnp.where(ok, 0, 1)), AXIS)
        own, g, unit, YY = zip(*(self._parts(x) for x in sums), strict=True) if sums else ((), (), (), ())
        twice = self._own_edges(own, observations, edges)
        own = tuple(S + E for S, E in zip(own, twice, strict=True))
        if self.relative:
            unit = tuple(x + jnp.diagonal(E, axis1=1, axis2=2) for x, E in zip(unit, twice, strict=True))
        return Assembled(L, z, tuple(Yt), tuple(edges), Reduced(own, g, unit, YY, blocks, bad == 0))

    def _eliminate(self, observations, n_used, n_local, linear, model, damping) -> tuple[jax.Array, ...]:
        """L and z of the eliminated variables, and whether all are positive definite."""
        d = self.d
        if not d:
            return jnp.zeros(1), jnp.zeros(1), jnp.array(True)
        n_lower = d * (d + 1) // 2

        def add(f: FactorStructure, of: Linear, sums, o, w):
            assert f.eliminated is not None
            r, J = of(o)
            E = columns_of(J, f.eliminated)
            V, g = product(E, weighted(r, E, w))[np.tril_indices(d)], gradient(r, E, w.c)
            return sums.at[o.indices[f.eliminated.number]].add(rows(joined([V, g]))), ()

        sums = jnp.zeros((n_local, n_lower + d))
        for f, o, of, w in zip(self.structure.factors, observations, linear, model, strict=True):
            if f.eliminated is not None:
                sums, _ = over_slabs(partial(add, f, of), sums, o, w)
        L, z, bad = cholesky(sums[:, :n_lower], sums[:, n_lower:], damping, self.relative)
        return L, z, ~jnp.any(bad & (jnp.arange(n_local) < n_used[0]))

    def _n_sums(self, d: int) -> int:
        lower = d * (d + 1) // 2
        return lower + d + (d if self.relative else 0) + (lower if self.meetings is None else 0)

    def _summed(self, f: FactorStructure, of: Linear, L, z, sums, o: Observations[jax.Array], w: Weights):
        """What a slab of observations adds to the sums of each kept variable, and its couplings and edges."""
        if not f.kept:
            return sums, ((), ())
        r, J = of(o)
        MJ = weighted(r, J, w)
        Y: Small = None
        z_own: Small = None
        if f.eliminated is not None:
            narrow, at = isinstance(J, np.ndarray), o.indices[f.eliminated.number]
            JK = joined([columns_of(J, slot) for slot in f.kept], axis=1)
            Y, z_own = coupling(JK, columns_of(MJ, f.eliminated), small(L[at], narrow)), small(z[at], narrow)
        for slot, chunks in zip(f.kept, o.by_kept, strict=True):
            JS = columns_of(J, slot)
            H, g, lower = product(JS, columns_of(MJ, slot)), gradient(r, JS, w.c), np.tril_indices(slot.dim)
            S, YY = H, 0 * H
            if Y is not None:
                YS = Y[:, part_of_Y(slot)]
                YY = product(YS, YS)
                S, g = H - YY, g - product(YS, z_own[:, None])[:, 0]
            parts = [S[lower], g]
            parts += [H[np.diag_indices(slot.dim)]] if self.relative else []
            parts += [YY[lower]] if self.meetings is None else []
            added = summed_rows(joined(parts), chunks, slot.n_variables)
            sums = tuple(
                x + added if v is slot.variables else x for v, x in zip(self.structure.kept, sums, strict=True)
            )
        edges = [product(columns_of(J, A), columns_of(MJ, B)) for k, A in enumerate(f.kept) for B in f.kept[k + 1 :]]
        return sums, (() if Y is None else as_rows(Y), tuple(map(as_rows, edges)))

    def _parts(self, sums: jax.Array) -> tuple[Any, ...]:
        """Diagonal blocks of S, gradient, unit and YY of a kept group."""
        n_sums = sums.shape[1]
        d = next(d for d in range(n_sums + 1) if self._n_sums(d) == n_sums)
        lower = d * (d + 1) // 2
        i, j = np.maximum(*np.indices((d, d))), np.minimum(*np.indices((d, d)))
        place = i * (i + 1) // 2 + j  # of both triangles in the lower one
        own, g, rest = sums[:, place], sums[:, lower : lower + d], sums[:, lower + d :]
        unit = rest[:, :d] if self.relative else None
        YY = rest[:, -lower:][:, place] if self.meetings is None else None
        return own, g, unit, YY

    def _own_edges(self, own, observations, edges) -> list[jax.Array]:
        """For each kept group J_AᵀMJ_B + J_BᵀMJ_A of observations that touch one variable twice."""
        found = {v: jnp.zeros((1, *S.shape[1:])) for v, S in zip(self.structure.kept, own, strict=True)}
        for f, o, E in zip(self.structure.factors, observations, edges, strict=True):
            for (A, B), each in zip(pairs_of(f), E, strict=True):
                if touches_twice(A, B):
                    v, at, twice = A.variables, o.indices[A.number], o.indices[A.number] == o.indices[B.number]
                    each = jnp.where(twice[:, None, None], each + jnp.swapaxes(each, 1, 2), 0.0)
                    found[v] = found[v] + lax.psum(jnp.zeros((len(v), *each.shape[1:])).at[at].add(each), AXIS)
        return list(found.values())

    def _off_diagonal(self, observations, met, Yt, edges) -> tuple[jax.Array, ...]:
        """The blocks off the diagonal: what this device adds to them."""
        if self.meetings is None:
            return ()
        factors, (pairs, edges_at) = self.structure.factors, met
        sums = []
        for which, chunks, there in zip(self.meetings.pairs, pairs, self.meetings.blocks, strict=False):
            A, B = factors[which.f].kept[which.s], factors[which.g].kept[which.t]
            columns = part_of_Y(A), part_of_Y(B)
            sums.append(-summed_products(Yt[which.f], Yt[which.g], columns, chunks, len(there.row), self.has_kernel))
        for f, o, E, numbers in zip(factors, observations, edges, edges_at, strict=True):
            for (A, B), each, at in zip(pairs_of(f), E, numbers, strict=True):
                there = self.meetings.blocks[len(sums)]
                sums.append(jnp.zeros((len(there.row), *there.shape)).at[at].add(apart(A, B, o, each)))
        return tuple(sums)


# ------------------------------------------------------------------ pieces


def columns_of(J: Small, slot: KeptSlot | EliminatedSlot) -> Small:
    """What belongs to a slot, of J."""
    return J[:, slot.offset : slot.offset + slot.dim]


def part_of_Y(slot: KeptSlot) -> slice:
    """Which columns of Yᵀ belong to a slot."""
    return slice(slot.offset_in_Y, slot.offset_in_Y + slot.dim)


def weighted(r: Small, J: Small, w: Weights) -> Small:
    """(aI + b rrᵀ) J"""
    MJ = J * number(w.a, J)
    return MJ if w.b is None else MJ + (r * number(w.b, r))[:, None] * product(r[:, None], J)


def gradient(r: Small, J: Small, c: jax.Array) -> Small:
    """c Jᵀr"""
    g = product(J, r[:, None])[:, 0]
    return g * number(c, g)


def as_rows(A: Small) -> jax.Array:
    """(n, i, j)"""
    shape = A.shape[:2]
    return rows(A.reshape(-1, *A.shape[2:])).reshape(-1, *shape)


def pairs_of(f: FactorStructure) -> list[tuple[KeptSlot, KeptSlot]]:
    """Every two kept slots of a factor group."""
    return [(A, B) for k, A in enumerate(f.kept) for B in f.kept[k + 1 :]]


def touches_twice(A: KeptSlot, B: KeptSlot) -> bool:
    """Whether some observation has one variable in both slots."""
    return A.variables is B.variables and bool((A.index == B.index).any())


def apart(A: KeptSlot, B: KeptSlot, o: Observations[jax.Array], each: jax.Array) -> jax.Array:
    """What lies off the diagonal blocks, of J_AᵀMJ_B of each observation."""
    if not touches_twice(A, B):
        return each
    return jnp.where((o.indices[A.number] == o.indices[B.number])[:, None, None], 0.0, each)

"""The one linear system on the devices,

    (Σ Jᵢᵀ (aᵢ I + bᵢ rᵢ rᵢᵀ) Jᵢ + λI) δ = −Σ cᵢ Jᵢᵀ rᵢ,

written for one device of several: it eliminates its own variables, V = LLᵀ and Yᵀ = L⁻¹Wᵀ, and sums its part of

    S = H_KK − Σ YYᵀ,    g = g_K − Σ Yz,    z = L⁻¹g_E.

Sums over devices are `psum`; after them every device holds the same numbers and solves the same reduced system.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from asker.engines.solvers import CG, SMALLEST_DIAGONAL
from asker.engines.structure import EliminatedSlot, FactorStructure, KeptSlot, Structure
from asker.engines.xla.blocks import (
    AXIS,
    add_blocks,
    cholesky,
    conjugate_gradients,
    coupling,
    safe_inverse,
    solve_transposed,
    summed_products,
)
from asker.engines.xla.fronts import Fronts
from asker.engines.xla.layout import Observations
from asker.engines.xla.meetings import Meetings
from asker.engines.xla.sparse import sparse_cholesky
from asker.variables import Variables


class Linearization(NamedTuple):
    """One factor group at a point."""

    r: jax.Array  # (n, p)
    J: jax.Array  # (n, p, D)


class Weights(NamedTuple):
    """One factor group's part of a model; `b` is None for 0."""

    a: jax.Array
    b: jax.Array | None
    c: jax.Array


class Elimination(NamedTuple):
    """What is left of the eliminated variables of a device."""

    L: jax.Array  # (n, d(d+1)/2), row by row
    z: jax.Array  # (n, d)
    Yt: tuple[jax.Array, ...]
    """(observations, d, K) for each factor group with both kinds of slots, else nothing."""


class Reduced(NamedTuple):
    """The reduced system, the same on every device; all but `blocks` by kept group."""

    H: tuple[jax.Array, ...]
    """(n, d, d): the diagonal blocks of H_KK."""
    YY: tuple[jax.Array, ...]
    """(n, d, d): those of Σ YYᵀ."""
    g: tuple[jax.Array, ...]
    """(n, d): the reduced gradient."""
    blocks: tuple[jax.Array, ...]
    """What lies off them in S, in one triangle, as `Meetings` lists it; nothing where S is not formed."""
    ok: jax.Array
    """Whether every V is positive definite."""


class System:
    """The one linear system, as functions of arrays on one device."""

    def __init__(self, structure: Structure, meetings: Meetings | None, fronts: Fronts | None, cg: CG, relative: bool):
        """Without `meetings` S is not formed, and CG solves; with `fronts` S is sparse."""
        self.structure, self.meetings, self.fronts, self.cg, self.relative = structure, meetings, fronts, cg, relative
        e = structure.eliminated
        self.d = 0 if e is None else e.manifold.tangent

    # ------------------------------------------------------------ assembling

    def assemble(
        self,
        observations: tuple[Observations[jax.Array], ...],
        met: Any,
        n_used: jax.Array,
        n_local: int,
        linear: list[Linearization],
        model: list[Weights],
        damping: jax.Array,
    ) -> tuple[Elimination, Reduced]:
        MJ = [_weighted(lin, w) for lin, w in zip(linear, model, strict=True)]
        e, ok = self._eliminate(observations, n_used, n_local, linear, model, MJ, damping)
        kept = self.structure.kept
        H = {v: jnp.zeros((len(v), v.manifold.tangent, v.manifold.tangent)) for v in kept}
        YY = dict(H)
        g = {v: jnp.zeros((len(v), v.manifold.tangent)) for v in kept}
        for k, (f, o, lin, w) in enumerate(zip(self.structure.factors, observations, linear, model, strict=True)):
            for slot, chunks in zip(f.kept, o.by_kept, strict=True):
                v = slot.variables
                J = columns_of(lin.J, slot)
                right = jnp.concatenate([columns_of(MJ[k], slot), (w.c[:, None] * lin.r)[:, :, None]], axis=2)
                sums = summed_products(J, right, chunks, len(v))
                H[v], g[v] = H[v] + sums[:, :, :-1], g[v] + sums[:, :, -1]
                if f.eliminated is not None:
                    Y = _columns_of_Y(e.Yt[k], slot)
                    z = e.z[o.indices[f.eliminated.number]]
                    sums = summed_products(Y, jnp.concatenate([Y, z[:, :, None]], axis=2), chunks, len(v))
                    YY[v], g[v] = YY[v] + sums[:, :, :-1], g[v] - sums[:, :, -1]
        for f, o, lin, N in zip(self.structure.factors, observations, linear, MJ, strict=True):
            for edge in _edges(f, o, lin, N):
                v, at = edge.ends[0]
                H[v] = H[v] if edge.own is None else H[v].at[at].add(edge.own)
        blocks = self._off_diagonal(observations, met, linear, MJ, e)
        parts = [tuple(x[v] for v in kept) for x in (H, YY, g)]
        H_all, YY_all, g_all, blocks, ok_all = lax.psum((*parts, blocks, jnp.where(ok, 0, 1)), AXIS)
        return e, Reduced(H_all, YY_all, g_all, blocks, ok_all == 0)

    def _eliminate(self, observations, n_used, n_local, linear, model, MJ, damping) -> tuple[Elimination, jax.Array]:
        d, factors = self.d, self.structure.factors
        nothing = jnp.zeros(1)
        if not d:
            return Elimination(nothing, nothing, (nothing,) * len(factors)), jnp.array(True)
        lower = [(q, s) for q in range(d) for s in range(q + 1)]
        sums = jnp.zeros((n_local, len(lower) + d))
        for k, f in enumerate(factors):
            if f.eliminated is None:
                continue
            J, N = columns_of(linear[k].J, f.eliminated), columns_of(MJ[k], f.eliminated)
            rows = [jnp.sum(J[:, :, q] * N[:, :, s], axis=1) for q, s in lower]
            rows += [model[k].c * jnp.sum(J[:, :, q] * linear[k].r, axis=1) for q in range(d)]
            index = observations[k].indices[f.eliminated.number]
            sums = sums.at[index].add(jnp.stack(rows, axis=1), indices_are_sorted=True)
        used = jnp.arange(n_local) < n_used[0]
        L, z, bad = cholesky(sums[:, : len(lower)], sums[:, len(lower) :], damping, self.relative)
        Yt = []
        for k, f in enumerate(factors):
            if f.eliminated is None or not f.kept:
                Yt.append(nothing)
                continue
            J = jnp.concatenate([columns_of(linear[k].J, slot) for slot in f.kept], axis=2)
            index = observations[k].indices[f.eliminated.number]
            Yt.append(coupling(J, columns_of(MJ[k], f.eliminated), L[index]))
        return Elimination(L, z, tuple(Yt)), ~jnp.any(bad & used)

    def _off_diagonal(self, observations, met, linear, MJ, e: Elimination) -> tuple[jax.Array, ...]:
        """The blocks off the diagonal: what this device adds to them."""
        if self.meetings is None:
            return ()
        factors, (pairs, edges_at) = self.structure.factors, met
        sums = []
        for which, chunks, there in zip(self.meetings.pairs, pairs, self.meetings.blocks, strict=False):
            A = _columns_of_Y(e.Yt[which.f], factors[which.f].kept[which.s])
            B = _columns_of_Y(e.Yt[which.g], factors[which.g].kept[which.t])
            sums.append(-summed_products(A, B, chunks, len(there.row)))
        for f, o, lin, N, numbers in zip(factors, observations, linear, MJ, edges_at, strict=True):
            for edge, at in zip(_edges(f, o, lin, N), numbers, strict=True):
                there = self.meetings.blocks[len(sums)]
                sums.append(jnp.zeros((len(there.row), *there.shape)).at[at].add(edge.apart))
        return tuple(sums)

    # ------------------------------------------------------------ solving

    def solve(
        self,
        observations: tuple[Observations[jax.Array], ...],
        linear: list[Linearization],
        model: list[Weights],
        e: Elimination,
        reduced: Reduced,
        damping: jax.Array,
        last_gradient: jax.Array,
        fronts: Any,
    ) -> tuple[tuple[jax.Array, ...], jax.Array | None, jax.Array, jax.Array, jax.Array]:
        """δ by kept group and of the eliminated variables, whether it is one, ‖g‖, and how many CG steps it took."""
        kept = self.structure.kept
        size, steps = last_gradient, jnp.array(0)
        x: Any = jnp.zeros(0)
        if kept:
            g = jnp.concatenate([x.ravel() for x in reduced.g])
            if self.fronts is not None:
                diagonal = [H - YY for H, YY in zip(self._damped(reduced, damping), reduced.YY, strict=True)]
                values = jnp.concatenate([x.ravel() for x in (*diagonal, *reduced.blocks)])
                x = sparse_cholesky(self.fronts.takes, fronts, values, -g)
            elif self.meetings is not None:
                x = self._factorise(reduced, g, damping)
            else:
                size = jnp.linalg.norm(g)
                x, steps = self._iterate(observations, linear, model, e, reduced, g, damping, size / last_gradient)
        parts = self.structure.parts(x)
        ok = reduced.ok & jnp.all(jnp.isfinite(x))
        if not self.d:
            return tuple(parts[v] for v in kept), None, ok, size, steps
        t = e.z + self._couple_back(observations, e, parts)
        own = solve_transposed(e.L, -t)
        bad = lax.psum(jnp.sum(~jnp.isfinite(own)), AXIS)
        return tuple(parts[v] for v in kept), own, ok & (bad == 0), size, steps

    def _damped(self, reduced: Reduced, damping: jax.Array) -> list[jax.Array]:
        """The diagonal blocks of H_KK with λ added."""

        def add(H: jax.Array) -> jax.Array:
            diagonal = jnp.diagonal(H, axis1=1, axis2=2)
            unit = jnp.maximum(diagonal, SMALLEST_DIAGONAL) if self.relative else jnp.ones_like(diagonal)
            return H + damping * unit[:, :, None] * jnp.eye(H.shape[-1])

        return [add(H) for H in reduced.H]

    def _factorise(self, reduced: Reduced, g: jax.Array, damping: jax.Array) -> jax.Array:
        """By Cholesky of S scaled to a unit diagonal; where that fails, by a pivoted LU of the same."""
        assert self.meetings is not None
        S = jnp.zeros((len(g), len(g)))
        for there, blocks in zip(self.meetings.blocks, reduced.blocks, strict=True):
            S = add_blocks(S, jnp.asarray(there.row), jnp.asarray(there.column), blocks)
        S = S + S.T
        for v, H, YY in zip(self.structure.kept, self._damped(reduced, damping), reduced.YY, strict=True):
            at = self.structure.first[v] + jnp.arange(len(v), dtype=jnp.int32) * H.shape[-1]
            S = add_blocks(S, at, at, H - YY)
        diagonal = jnp.diagonal(S)
        scale = 1.0 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0))
        S = S * scale[:, None] * scale
        b = -scale * g
        C = lax.linalg.cholesky(S, symmetrize_input=False)
        x = jax.scipy.linalg.cho_solve((C, True), b)
        return scale * lax.cond(jnp.all(jnp.isfinite(x)), lambda: x, lambda: jnp.linalg.solve(S, b))

    def _iterate(self, observations, linear, model, e, reduced, g, damping, fall) -> tuple[jax.Array, jax.Array]:
        """Conjugate gradients on S, which is never formed."""
        blocks = self._damped(reduced, damping)
        couple = self._coupled(observations, e)
        edges = self._edge_products(observations, linear, model)

        def product(x: jax.Array) -> jax.Array:
            parts = self.structure.parts(x)
            own = {v: jnp.zeros_like(part) for v, part in parts.items()}
            edges(parts, own)
            couple(parts, own)
            summed = lax.psum(tuple(own.values()), AXIS)
            diagonal = [jnp.einsum("nij,nj->ni", B, p) for B, p in zip(blocks, parts.values(), strict=True)]
            return jnp.concatenate([(a + b).ravel() for a, b in zip(diagonal, summed, strict=True)])

        YY = reduced.YY if self.cg.order == 0 else [jnp.zeros_like(B) for B in blocks]  # a power series needs H_KK's
        inverse = [safe_inverse(B, y) for B, y in zip(blocks, YY, strict=True)]

        def divide(r: jax.Array) -> jax.Array:
            parts = self.structure.parts(r).values()
            return jnp.concatenate(
                [jnp.einsum("nij,nj->ni", B, p).ravel() for B, p in zip(inverse, parts, strict=True)]
            )

        def precondition(r: jax.Array) -> jax.Array:
            z = divide(r)
            for _ in range(self.cg.order):  # Σ (B⁻¹(B − S))ⁱ B⁻¹ r
                z = z + divide(r - product(z))
            return z

        tol = jnp.clip(0.9 * fall**2, self.cg.tightest, self.cg.loosest)
        return conjugate_gradients(product, precondition, -g, tol, self.cg.max_iterations)

    def _couple_back(self, observations, e: Elimination, parts: dict[Variables, jax.Array]) -> jax.Array:
        """Yᵀx of the eliminated variables."""
        t = jnp.zeros_like(e.z)
        for k, f in enumerate(self.structure.factors):
            if f.eliminated is None:
                continue
            index = observations[k].indices
            for slot in f.kept:
                x = parts[slot.variables][index[slot.number]]
                Yx = jnp.sum(_columns_of_Y(e.Yt[k], slot) * x[:, None, :], axis=2)
                t = t.at[index[f.eliminated.number]].add(Yx, indices_are_sorted=True)
        return t

    def _coupled(self, observations, e: Elimination):
        """A function that takes YYᵀx from `own`; Y is laid out by kept variable once, for many products."""
        by_variable = []
        for k, f in enumerate(self.structure.factors):
            for slot, chunks in zip(f.kept, observations[k].by_kept, strict=True):
                if f.eliminated is not None:
                    (members,) = chunks.members
                    Y = _columns_of_Y(e.Yt[k], slot)[members]  # (slabs, chunks, width, d, dim)
                    at = observations[k].indices[f.eliminated.number][members]
                    by_variable.append((slot.variables, Y, at, chunks.segment))

        def subtract(parts: dict[Variables, jax.Array], own: dict[Variables, jax.Array]) -> None:
            if not by_variable:
                return
            t = self._couple_back(observations, e, parts)
            for v, Y, at, segment in by_variable:
                Yt = jnp.sum(Y * t[at][..., None], axis=(2, 3))
                dim = Yt.shape[-1]
                own[v] = own[v].at[segment.ravel()].add(-Yt.reshape(-1, dim))

        return subtract

    def _edge_products(self, observations, linear, model):
        """A function that adds to `own` what factors with several kept slots have off the diagonal blocks."""
        edges = []
        for f, o, lin, w in zip(self.structure.factors, observations, linear, model, strict=True):
            edges += _edges(f, o, lin, _weighted(lin, w))

        def add(parts: dict[Variables, jax.Array], own: dict[Variables, jax.Array]) -> None:
            for edge in edges:
                (v, at), (w, bt) = edge.ends
                own[v] = own[v].at[at].add(jnp.einsum("nij,nj->ni", edge.apart, parts[w][bt]))
                own[w] = own[w].at[bt].add(jnp.einsum("nij,ni->nj", edge.apart, parts[v][at]))

        return add


# ------------------------------------------------------------------ pieces


def columns_of(J: jax.Array, slot: KeptSlot | EliminatedSlot) -> jax.Array:
    """What belongs to a slot, of J."""
    return J[:, :, slot.offset : slot.offset + slot.dim]


def _columns_of_Y(Yt: jax.Array, slot: KeptSlot) -> jax.Array:
    """The same, of Yᵀ."""
    return Yt[:, :, slot.offset_in_Y : slot.offset_in_Y + slot.dim]


class Edges(NamedTuple):
    """What two kept slots A, B of a factor group add to H_KK beside their diagonal blocks."""

    ends: tuple[tuple[Variables, jax.Array], ...]
    """Of A and of B: the group, and the variable of each observation."""
    apart: jax.Array
    """J_AᵀMJ_B of each observation that touches two variables there, else 0,"""
    own: jax.Array | None
    """and J_AᵀMJ_B + J_BᵀMJ_A of those that touch one variable twice."""


def _edges(f: FactorStructure, o: Observations[jax.Array], lin: Linearization, MJ: jax.Array) -> list[Edges]:
    """One for every two kept slots of a factor group."""
    edges = []
    for k, A in enumerate(f.kept):
        for B in f.kept[k + 1 :]:
            E = jnp.einsum("npi,npj->nij", columns_of(lin.J, A), columns_of(MJ, B))
            ends = tuple((slot.variables, o.indices[slot.number]) for slot in (A, B))
            (v, at), (w, bt) = ends
            if v is not w:
                edges.append(Edges(ends, E, None))
                continue
            twice = (at == bt)[:, None, None]
            edges.append(Edges(ends, jnp.where(twice, 0.0, E), jnp.where(twice, E + jnp.swapaxes(E, 1, 2), 0.0)))
    return edges


def _weighted(lin: Linearization, w: Weights) -> jax.Array:
    """(aI + b rrᵀ) J"""
    MJ = w.a[:, None, None] * lin.J
    if w.b is None:
        return MJ
    rJ = jnp.sum(lin.r[:, :, None] * lin.J, axis=1)
    return MJ + (w.b[:, None] * lin.r)[:, :, None] * rJ[:, None, :]

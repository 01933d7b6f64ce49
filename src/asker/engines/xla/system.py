"""The reduced system, solved: the same on every device.

    S x = −g,    δ_E = −L⁻ᵀ(z + Yᵀx)

Where S is formed, it is factorised, as a dense matrix or by fronts; else conjugate gradients solve.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from asker.engines.solvers import CG
from asker.engines.xla.assembly import Assembled, Assembly, Reduced, apart, pairs_of, part_of_Y
from asker.engines.xla.blocks import (
    AXIS,
    add_below,
    add_blocks,
    conjugate_gradients,
    safe_inverse,
    solve_transposed,
    solved_by_cholesky,
    unit_of_damping,
)
from asker.engines.xla.chunking import in_all_slabs
from asker.engines.xla.fronts import Fronts
from asker.engines.xla.layout import Observations
from asker.engines.xla.sparse import sparse_cholesky
from asker.problem.variables import Variables


class System:
    """The reduced system, as functions of arrays on one device."""

    def __init__(self, assembly: Assembly, fronts: Fronts | None, cg: CG):
        """With `fronts` S is sparse."""
        self.structure, self.meetings, self.d = assembly.structure, assembly.meetings, assembly.d
        self.fronts, self.cg = fronts, cg

    def solve(
        self,
        observations: tuple[Observations[jax.Array], ...],
        assembled: Assembled,
        damping: jax.Array,
        last_gradient: jax.Array,
        fronts: Any,
    ) -> tuple[tuple[jax.Array, ...], jax.Array | None, jax.Array, jax.Array, jax.Array]:
        """δ by kept group and of the eliminated variables, whether it is one, ‖g‖, and how many CG steps it took."""
        kept, reduced = self.structure.kept, assembled.reduced
        size, steps = jnp.array(0.0), jnp.array(0)
        x: Any = jnp.zeros(0)
        if kept:
            g = jnp.concatenate([x.ravel() for x in reduced.g])
            if self.fronts is not None:
                values = jnp.concatenate([x.ravel() for x in (*self._damped(reduced, damping), *reduced.blocks)])
                x = sparse_cholesky(self.fronts.takes, fronts, values, -g)
            elif self.meetings is not None:
                x = self._factorise(reduced, g, damping)
            else:
                size = jnp.linalg.norm(g)
                x, steps = self._iterate(observations, assembled, g, damping, size / last_gradient)
        parts = self.structure.parts(x)
        ok = reduced.ok & jnp.all(jnp.isfinite(x))
        if not self.d:
            return tuple(parts[v] for v in kept), None, ok, size, steps
        t = assembled.z + self._couple_back(observations, assembled, parts)
        own = solve_transposed(assembled.L, -t)
        bad = lax.psum(jnp.sum(~jnp.isfinite(own)), AXIS)
        return tuple(parts[v] for v in kept), own, ok & (bad == 0), size, steps

    def _damped(self, reduced: Reduced, damping: jax.Array) -> list[jax.Array]:
        """The diagonal blocks of S with λ added."""
        found = []
        for S, unit in zip(reduced.own, reduced.unit, strict=True):
            unit = jnp.ones(1) if unit is None else unit_of_damping(unit)
            found.append(S + damping * unit[..., None] * jnp.eye(S.shape[-1]))
        return found

    def _factorise(self, reduced: Reduced, g: jax.Array, damping: jax.Array) -> jax.Array:
        """By Cholesky of S scaled to a unit diagonal; where that fails, by a pivoted LU of the same."""
        assert self.meetings is not None
        n = len(g)
        S = jnp.zeros((n + 1, n + 1))  # the lower triangle, and −g as a last row
        for there, blocks in zip(self.meetings.blocks, reduced.blocks, strict=True):
            S = add_below(S, jnp.asarray(there.row), jnp.asarray(there.column), blocks)
        for v, own in zip(self.structure.kept, self._damped(reduced, damping), strict=True):
            at = self.structure.first[v] + jnp.arange(len(v), dtype=jnp.int32) * own.shape[-1]
            S = add_blocks(S, at, at, own)
        diagonal = jnp.diagonal(S).at[n].set(1.0)
        scale = 1.0 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0))
        S = (S * scale[:, None] * scale).at[n].set(jnp.append(-g, 0.0) * scale)
        x = solved_by_cholesky(S)

        def by_lu() -> jax.Array:
            lower = jnp.tril(S[:n, :n])
            return jnp.linalg.solve(lower + jnp.tril(lower, -1).T, S[n, :n])

        return scale[:n] * lax.cond(jnp.all(jnp.isfinite(x)), lambda: x, by_lu)

    def _iterate(self, observations, assembled: Assembled, g, damping, fall) -> tuple[jax.Array, jax.Array]:
        """Conjugate gradients on S, which is never formed."""
        YY = [y for y in assembled.reduced.YY if y is not None]
        blocks = [S + y for S, y in zip(self._damped(assembled.reduced, damping), YY, strict=True)]  # of H_KK
        couple = self._coupled(observations, assembled)
        edges = self._edge_products(observations, assembled)

        def product(x: jax.Array) -> jax.Array:
            parts = self.structure.parts(x)
            own = {v: jnp.zeros_like(part) for v, part in parts.items()}
            edges(parts, own)
            couple(parts, own)
            summed = lax.psum(tuple(own.values()), AXIS)
            diagonal = [jnp.einsum("nij,nj->ni", B, p) for B, p in zip(blocks, parts.values(), strict=True)]
            return jnp.concatenate([(a + b).ravel() for a, b in zip(diagonal, summed, strict=True)])

        if self.cg.order:  # a power series needs H_KK's
            YY = [jnp.zeros_like(B) for B in blocks]
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

    def _couple_back(self, observations, assembled: Assembled, parts: dict[Variables, jax.Array]) -> jax.Array:
        """Yᵀx of the eliminated variables."""
        t = jnp.zeros_like(assembled.z)
        for f, o, Yt in zip(self.structure.factors, observations, assembled.Yt, strict=True):
            if f.eliminated is None:
                continue
            for slot in f.kept:
                x = parts[slot.variables][o.indices[slot.number]]
                Yx = jnp.sum(Yt[:, :, part_of_Y(slot)] * x[:, None, :], axis=2)
                t = t.at[o.indices[f.eliminated.number]].add(Yx)
        return t

    def _coupled(self, observations, assembled: Assembled):
        """A function that takes YYᵀx from `own`; Y is laid out by kept variable once, for many products."""
        by_variable = []
        for f, o, Yt in zip(self.structure.factors, observations, assembled.Yt, strict=True):
            for slot, chunks in zip(f.kept, o.by_kept, strict=True):
                if f.eliminated is not None:
                    members = in_all_slabs(chunks, len(Yt))
                    Y = Yt[:, :, part_of_Y(slot)][members]  # (slabs, chunks, width, d, dim)
                    at = o.indices[f.eliminated.number][members]
                    by_variable.append((slot.variables, Y, at, chunks.segment))

        def subtract(parts: dict[Variables, jax.Array], own: dict[Variables, jax.Array]) -> None:
            if not by_variable:
                return
            t = self._couple_back(observations, assembled, parts)
            for v, Y, at, segment in by_variable:
                Yt = jnp.sum(Y * t[at][..., None], axis=(2, 3))
                own[v] = own[v].at[segment.ravel()].add(-Yt.reshape(-1, Yt.shape[-1]))

        return subtract

    def _edge_products(self, observations, assembled: Assembled):
        """A function that adds to `own` what factors with several kept slots have off the diagonal blocks."""
        edges = [
            (A.variables, o.indices[A.number], B.variables, o.indices[B.number], apart(A, B, o, each))
            for f, o, E in zip(self.structure.factors, observations, assembled.edges, strict=True)
            for (A, B), each in zip(pairs_of(f), E, strict=True)
        ]

        def add(parts: dict[Variables, jax.Array], own: dict[Variables, jax.Array]) -> None:
            for v, at, w, bt, each in edges:
                own[v] = own[v].at[at].add(jnp.einsum("nij,nj->ni", each, parts[w][bt]))
                own[w] = own[w].at[bt].add(jnp.einsum("nij,ni->nj", each, parts[v][at]))

        return add

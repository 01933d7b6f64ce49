"""Solution of the reduced system, the same on every device.

    S x = −g,    δ_E = −L⁻ᵀ(z + Yᵀx)

If S is formed, it is factorised, as a dense matrix or by the multifrontal method; otherwise conjugate gradients solve
the system.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from asker.engines.solvers import CG
from asker.engines.xla.assembly import Assembled, Assembly, Reduced, coupling_columns, off_diagonal_part, pairs_of
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

PerGroup = dict[Variables, jax.Array]
"""One array for each kept group."""
AddProducts = Callable[[PerGroup, PerGroup], None]
"""Function `add(x, sums)` that adds the product of a matrix with x to `sums`."""


class System:
    """The solution of the reduced system, as functions of arrays on one device."""

    def __init__(self, assembly: Assembly, fronts: Fronts | None, cg: CG):
        """Use the sparse factorisation if `fronts` are given."""
        self.structure, self.pattern, self.d = assembly.structure, assembly.pattern, assembly.d
        self.fronts, self.cg = fronts, cg

    def solve(
        self,
        observations: tuple[Observations[jax.Array], ...],
        assembled: Assembled,
        damping: jax.Array,
        last_gradient: jax.Array,
        fronts: Any,
    ) -> tuple[tuple[jax.Array, ...], jax.Array | None, jax.Array, jax.Array, jax.Array]:
        """Solve for the step.

        Returns δ of each kept group, δ of the eliminated variables, whether the system had a solution, ‖g‖ and the
        number of CG steps; the last two are 0 for a direct solver.
        """
        kept, reduced = self.structure.kept, assembled.reduced
        gradient_norm, steps = jnp.array(0.0), jnp.array(0)
        x: Any = jnp.zeros(0)
        if kept:
            g = jnp.concatenate([x.ravel() for x in reduced.g])
            if self.fronts is not None:
                values = jnp.concatenate([x.ravel() for x in (*self._damped(reduced, damping), *reduced.blocks)])
                x = sparse_cholesky(self.fronts.takes, fronts, values, -g)
            elif self.pattern is not None:
                x = self._factorise(reduced, g, damping)
            else:
                gradient_norm = jnp.linalg.norm(g)
                x, steps = self._iterate(observations, assembled, g, damping, gradient_norm / last_gradient)
        parts = self.structure.parts(x)
        ok = reduced.ok & jnp.all(jnp.isfinite(x))
        if not self.d:
            return tuple(parts[v] for v in kept), None, ok, gradient_norm, steps
        t = assembled.z + self._transposed_couplings(observations, assembled, parts)
        eliminated = solve_transposed(assembled.L, -t)
        bad = lax.psum(jnp.sum(~jnp.isfinite(eliminated)), AXIS)
        return tuple(parts[v] for v in kept), eliminated, ok & (bad == 0), gradient_norm, steps

    def _damped(self, reduced: Reduced, damping: jax.Array) -> list[jax.Array]:
        """Return the diagonal blocks of S with damping."""
        out = []
        for S, unit in zip(reduced.diagonal, reduced.unit, strict=True):
            unit = jnp.ones(1) if unit is None else unit_of_damping(unit)
            out.append(S + damping * unit[..., None] * jnp.eye(S.shape[-1]))
        return out

    def _factorise(self, reduced: Reduced, g: jax.Array, damping: jax.Array) -> jax.Array:
        """Solve by a Cholesky factorisation of S, scaled to unit diagonal, or by a pivoted LU if that fails."""
        assert self.pattern is not None
        n = len(g)
        S = jnp.zeros((n + 1, n + 1))  # the lower triangle, with −g as the last row
        for positions, blocks in zip(self.pattern.blocks, reduced.blocks, strict=True):
            S = add_below(S, jnp.asarray(positions.row), jnp.asarray(positions.column), blocks)
        for v, blocks in zip(self.structure.kept, self._damped(reduced, damping), strict=True):
            at = self.structure.first[v] + jnp.arange(len(v), dtype=jnp.int32) * blocks.shape[-1]
            S = add_blocks(S, at, at, blocks)
        diagonal = jnp.diagonal(S).at[n].set(1.0)
        scale = 1.0 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0))
        S = (S * scale[:, None] * scale).at[n].set(jnp.append(-g, 0.0) * scale)
        x = solved_by_cholesky(S)

        def by_lu() -> jax.Array:
            lower = jnp.tril(S[:n, :n])
            return jnp.linalg.solve(lower + jnp.tril(lower, -1).T, S[n, :n])

        return scale[:n] * lax.cond(jnp.all(jnp.isfinite(x)), lambda: x, by_lu)

    def _iterate(
        self,
        observations: tuple[Observations[jax.Array], ...],
        assembled: Assembled,
        g: jax.Array,
        damping: jax.Array,
        decrease: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        """Solve by conjugate gradients without forming S; `decrease` is the ratio of ‖g‖ to that of the last step."""
        YY = [y for y in assembled.reduced.YY if y is not None]
        blocks = [S + y for S, y in zip(self._damped(assembled.reduced, damping), YY, strict=True)]  # of H_KK
        subtract_couplings = self._coupling_products(observations, assembled)
        add_edges = self._edge_products(observations, assembled)

        def product(x: jax.Array) -> jax.Array:
            parts = self.structure.parts(x)
            local = {v: jnp.zeros_like(part) for v, part in parts.items()}
            add_edges(parts, local)
            subtract_couplings(parts, local)
            summed = lax.psum(tuple(local.values()), AXIS)
            diagonal = [jnp.einsum("nij,nj->ni", B, p) for B, p in zip(blocks, parts.values(), strict=True)]
            return jnp.concatenate([(a + b).ravel() for a, b in zip(diagonal, summed, strict=True)])

        if self.cg.order:  # the power series needs the inverse of the blocks of H_KK
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

        tol = jnp.clip(0.9 * decrease**2, self.cg.tightest, self.cg.loosest)
        return conjugate_gradients(product, precondition, -g, tol, self.cg.max_iterations)

    def _transposed_couplings(
        self, observations: tuple[Observations[jax.Array], ...], assembled: Assembled, parts: PerGroup
    ) -> jax.Array:
        """Return Yᵀx of the eliminated variables."""
        t = jnp.zeros_like(assembled.z)
        for f, o, Yt in zip(self.structure.factors, observations, assembled.Yt, strict=True):
            if f.eliminated is None:
                continue
            for slot in f.kept:
                x = parts[slot.variables][o.indices[slot.number]]
                Yx = jnp.sum(Yt[:, :, coupling_columns(slot)] * x[:, None, :], axis=2)
                t = t.at[o.indices[f.eliminated.number]].add(Yx)
        return t

    def _coupling_products(
        self, observations: tuple[Observations[jax.Array], ...], assembled: Assembled
    ) -> AddProducts:
        """Return a function that subtracts YYᵀx from `sums`; Y is ordered by kept variable once, for many products."""
        by_variable = []
        for f, o, Yt in zip(self.structure.factors, observations, assembled.Yt, strict=True):
            for slot, chunks in zip(f.kept, o.by_kept, strict=True):
                if f.eliminated is not None:
                    members = in_all_slabs(chunks, len(Yt))
                    Y = Yt[:, :, coupling_columns(slot)][members]  # (slabs, chunks, width, d, dim)
                    at = o.indices[f.eliminated.number][members]
                    by_variable.append((slot.variables, Y, at, chunks.segment))

        def subtract(parts: PerGroup, sums: PerGroup) -> None:
            if not by_variable:
                return
            t = self._transposed_couplings(observations, assembled, parts)
            for v, Y, at, segment in by_variable:
                Yt = jnp.sum(Y * t[at][..., None], axis=(2, 3))
                sums[v] = sums[v].at[segment.ravel()].add(-Yt.reshape(-1, Yt.shape[-1]))

        return subtract

    def _edge_products(self, observations: tuple[Observations[jax.Array], ...], assembled: Assembled) -> AddProducts:
        """Return a function that adds the products with the off-diagonal blocks of H_KK to `sums`."""
        edges = [
            (A.variables, o.indices[A.number], B.variables, o.indices[B.number], off_diagonal_part(A, B, o, each))
            for f, o, E in zip(self.structure.factors, observations, assembled.edges, strict=True)
            for (A, B), each in zip(pairs_of(f), E, strict=True)
        ]

        def add(parts: PerGroup, sums: PerGroup) -> None:
            for v, at, w, bt, each in edges:
                sums[v] = sums[v].at[at].add(jnp.einsum("nij,nj->ni", each, parts[w][bt]))
                sums[w] = sums[w].at[bt].add(jnp.einsum("nij,ni->nj", each, parts[v][at]))

        return add

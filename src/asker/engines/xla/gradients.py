"""Gradients of weighted sums of squares."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from asker.engines.sparsity import FactorStructure, Structure
from asker.engines.xla.assembly import Linear, gradient, slot_columns
from asker.engines.xla.blocks import AXIS, summed_rows
from asker.engines.xla.chunking import over_slabs
from asker.engines.xla.layout import Observations
from asker.engines.xla.small_matrices import Small, joined, rows
from asker.problem.variables import Variables

Delta = dict[Variables, jax.Array]
"""(n, tangent) numbers for each variable group."""
Each = Sequence[jax.Array]
"""One array for each factor group."""


class Gradients:
    """Gradients of the observations of one device; those of kept variables are summed over all devices."""

    def __init__(self, structure: Structure, n_local: int):
        self.structure, self.n_local = structure, n_local

    def products(
        self, observations: Sequence[Observations[jax.Array]], linear: Sequence[Linear], c: Each, d: Each
    ) -> tuple[jax.Array, ...]:
        """Return g·g, g·h and h·h of the gradients g = Σ c Jᵀr and h = Σ d Jᵀr."""
        local, shared = jnp.zeros(3), jnp.zeros(3)
        for v, g in self.of(observations, linear, c, d).items():
            if v is self.structure.eliminated:
                local = local + _products(g)
            else:
                shared = shared + _products(g)
        return tuple(lax.psum(local, AXIS) + shared)

    def of(
        self, observations: Sequence[Observations[jax.Array]], linear: Sequence[Linear], *weights: Each
    ) -> dict[Variables, jax.Array]:
        """Return Σ w Jᵀr for each of the weights: (n, tangent, weights) for each group of free variables."""
        structure, e = self.structure, self.structure.eliminated
        kept = tuple(jnp.zeros((len(v), v.manifold.tangent * len(weights))) for v in structure.kept)
        eliminated = jnp.zeros((self.n_local, (e.manifold.tangent if e else 0) * len(weights)))
        groups = zip(structure.factors, observations, linear, zip(*weights, strict=True), strict=True)
        for f, o, linear_at, ws in groups:
            if f.width:
                (kept, eliminated), _ = over_slabs(partial(self._summed, f, linear_at), (kept, eliminated), o, ws)
        sums = dict(zip(structure.kept, lax.psum(kept, AXIS), strict=True)) | ({} if e is None else {e: eliminated})
        return {v: jnp.moveaxis(x.reshape(len(x), len(weights), -1), 1, 2) for v, x in sums.items()}

    def _summed(
        self,
        f: FactorStructure,
        linear_at: Linear,
        sums: tuple[tuple[jax.Array, ...], jax.Array],
        o: Observations[jax.Array],
        weights: Each,
    ) -> tuple[tuple[tuple[jax.Array, ...], jax.Array], tuple[()]]:
        """Add the gradients of a slab of observations to the sums."""
        kept, eliminated = sums
        r, J = linear_at(o)

        def each(slot: Any) -> Small:
            return joined([gradient(r, slot_columns(J, slot), w) for w in weights])

        for slot, chunks in zip(f.kept, o.by_kept, strict=True):
            added = summed_rows(each(slot), chunks, slot.n_variables)
            kept = tuple(
                x + added if v is slot.variables else x for v, x in zip(self.structure.kept, kept, strict=True)
            )
        if f.eliminated is not None:
            eliminated = eliminated.at[o.indices[f.eliminated.number]].add(rows(each(f.eliminated)))
        return (kept, eliminated), ()


def _products(G: jax.Array) -> jax.Array:
    """Return the inner products aᵀa, aᵀb and bᵀb of two gradients, whose last axis is (a, b)."""
    return jnp.stack([jnp.sum(G[..., i] * G[..., j]) for i, j in ((0, 0), (0, 1), (1, 1))])

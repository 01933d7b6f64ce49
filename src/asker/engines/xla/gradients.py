"""Gradients, and how residuals change along a step: what needs J, and no linear system."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from asker.engines.sparsity import FactorStructure, Structure
from asker.engines.xla.assembly import Linear, columns_of, gradient
from asker.engines.xla.blocks import AXIS, summed_rows
from asker.engines.xla.chunking import over_slabs
from asker.engines.xla.layout import Observations
from asker.engines.xla.small_matrices import Small, joined, rows
from asker.problem.variables import Variables

Delta = dict[Variables, jax.Array]
"""A number for every direction of every variable: (n, tangent) for each group."""
Each = Sequence[jax.Array]
"""One array for each factor group."""


class Gradients:
    """The gradients of one device's observations; those of kept variables are summed over all devices."""

    def __init__(self, structure: Structure, n_local: int):
        self.structure, self.n_local = structure, n_local

    def products(
        self, observations: Sequence[Observations[jax.Array]], linear: Sequence[Linear], c: Each, d: Each
    ) -> tuple[jax.Array, ...]:
        """g·g, g·h and h·h of the gradients g = Σ c Jᵀr and h = Σ d Jᵀr."""
        own, kept = jnp.zeros(3), jnp.zeros(3)
        for v, g in self.of(observations, linear, c, d).items():
            own, kept = (own + _products(g), kept) if v is self.structure.eliminated else (own, kept + _products(g))
        return tuple(lax.psum(own, AXIS) + kept)

    def of(
        self, observations: Sequence[Observations[jax.Array]], linear: Sequence[Linear], *weights: Each
    ) -> dict[Variables, jax.Array]:
        """Σ w Jᵀr for each of the weights: (n, tangent, weights) for each group of variables that can move."""
        structure, e = self.structure, self.structure.eliminated
        kept = tuple(jnp.zeros((len(v), v.manifold.tangent * len(weights))) for v in structure.kept)
        own = jnp.zeros((self.n_local, (e.manifold.tangent if e else 0) * len(weights)))
        for f, o, of, ws in zip(structure.factors, observations, linear, zip(*weights, strict=True), strict=True):
            if f.width:
                (kept, own), _ = over_slabs(partial(self._added, f, of), (kept, own), o, ws)
        found = dict(zip(structure.kept, lax.psum(kept, AXIS), strict=True)) | ({} if e is None else {e: own})
        return {v: jnp.moveaxis(x.reshape(len(x), len(weights), -1), 1, 2) for v, x in found.items()}

    def _added(self, f: FactorStructure, of: Linear, sums, o: Observations[jax.Array], weights):
        """With what a slab of observations adds."""
        kept, own = sums
        r, J = of(o)

        def each(slot: Any) -> Small:
            return joined([gradient(r, columns_of(J, slot), w) for w in weights])

        for slot, chunks in zip(f.kept, o.by_kept, strict=True):
            added = summed_rows(each(slot), chunks, slot.n_variables)
            kept = tuple(
                x + added if v is slot.variables else x for v, x in zip(self.structure.kept, kept, strict=True)
            )
        if f.eliminated is not None:
            own = own.at[o.indices[f.eliminated.number]].add(rows(each(f.eliminated)))
        return (kept, own), ()


def _products(G: jax.Array) -> jax.Array:
    return jnp.stack([jnp.sum(G[..., i] * G[..., j]) for i, j in ((0, 0), (0, 1), (1, 1))])

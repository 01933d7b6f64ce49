"""Gradients, and how residuals change along a step: what needs J, and no linear system."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from asker.engines.structure import Structure
from asker.engines.xla.blocks import AXIS, summed_products
from asker.engines.xla.layout import Observations
from asker.engines.xla.system import Linearization, columns_of
from asker.variables import Variables

Delta = dict[Variables, jax.Array]
"""A number for every direction of every variable: (n, tangent) for each group."""
Each = Sequence[jax.Array]
"""One array for each factor group."""


class Gradients:
    """The gradients of one device's observations; those of kept variables are summed over all devices."""

    def __init__(self, structure: Structure, n_local: int):
        self.structure, self.n_local = structure, n_local

    def products(
        self, observations: Sequence[Observations[jax.Array]], linear: Sequence[Linearization], c: Each, d: Each
    ) -> jax.Array:
        """g·g, g·h and h·h of the gradients g = Σ c Jᵀr and h = Σ d Jᵀr."""
        own, kept = jnp.zeros(3), jnp.zeros(3)
        for v, g in self._of(observations, linear, c, d).items():
            own, kept = (own + _products(g), kept) if v is self.structure.eliminated else (own, kept + _products(g))
        return lax.psum(own, AXIS) + kept

    def barred_out(
        self, observations: Sequence[Observations[jax.Array]], linear: Sequence[Linearization], c: Each, rows: Delta
    ) -> tuple[Linearization, ...]:
        """The same derivatives without the directions that the descent −Σ c Jᵀr is barred in by bounds."""
        G = self._of(observations, linear, c)
        barred = {v: v.bounds.barred(rows[v], g[..., 0]) for v, g in G.items() if v.bounds}
        found = []
        for f, o, lin in zip(self.structure.factors, observations, linear, strict=True):
            J = lin.J
            for k, start in zip(f.free, f.offsets, strict=True):
                v = f.factors.slots[k].variables
                if v in barred:
                    block = slice(start, start + v.manifold.tangent)
                    J = J.at[:, :, block].set(jnp.where(barred[v][o.indices[k]][:, None], 0.0, J[:, :, block]))
            found.append(Linearization(lin.r, J))
        return tuple(found)

    def _of(
        self, observations: Sequence[Observations[jax.Array]], linear: Sequence[Linearization], *weights: Each
    ) -> dict[Variables, jax.Array]:
        """Σ w Jᵀr for each of the weights: (n, tangent, weights) for each group of variables that can move."""
        structure, e = self.structure, self.structure.eliminated
        kept = {v: jnp.zeros((len(v), v.manifold.tangent, len(weights))) for v in structure.kept}
        own = jnp.zeros((self.n_local, e.manifold.tangent if e else 0, len(weights)))
        for f, o, lin, ws in zip(structure.factors, observations, linear, zip(*weights, strict=True), strict=True):
            right = jnp.stack([w[:, None] * lin.r for w in ws], axis=2)
            for slot, chunks in zip(f.kept, o.by_kept, strict=True):
                v = slot.variables
                kept[v] = kept[v] + summed_products(columns_of(lin.J, slot), right, chunks, len(v))
            if f.eliminated is not None:
                terms = jnp.einsum("npd,npk->ndk", columns_of(lin.J, f.eliminated), right)
                own = own.at[o.indices[f.eliminated.number]].add(terms, indices_are_sorted=True)
        summed = dict(zip(kept, lax.psum(tuple(kept.values()), AXIS), strict=True))
        return summed | ({} if e is None else {e: own})


def _products(G: jax.Array) -> jax.Array:
    return jnp.stack([jnp.sum(G[..., i] * G[..., j]) for i, j in ((0, 0), (0, 1), (1, 1))])


def radial(
    structure: Structure, observations: Sequence[Observations[jax.Array]], linear: Sequence[Linearization], step: Delta
) -> tuple[jax.Array, ...]:
    """rᵀJδ of every observation."""
    outs = []
    for f, o, lin in zip(structure.factors, observations, linear, strict=True):
        rJ = jnp.sum(lin.r[:, :, None] * lin.J, axis=1)
        gathered = [step[f.factors.slots[k].variables][o.indices[k]] for k in f.free]
        outs.append(jnp.sum(rJ * jnp.concatenate(gathered, axis=1), axis=1) if gathered else jnp.zeros(len(rJ)))
    return tuple(outs)

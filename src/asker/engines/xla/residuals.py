"""Residuals and derivatives of one factor group, for the observations of one device."""

import jax
import jax.numpy as jnp
import numpy as np

from asker.engines.structure import FactorStructure
from asker.engines.xla.layout import Observations
from asker.engines.xla.system import Linearization
from asker.variables import Variables

Rows = dict[Variables, jax.Array]


def used(o: Observations[jax.Array], per_observation: jax.Array) -> jax.Array:
    """The same with 0 for the dummies."""
    mask = jnp.arange(len(per_observation)) < o.n_used[0]
    return jnp.where(mask.reshape(-1, *[1] * (per_observation.ndim - 1)), per_observation, 0.0)


class FactorFunctions:
    """The residuals and derivatives of one factor group, observation by observation.

    A weight w enters as √w·r and √w·τ, which is the same as w·ψ since every kernel is homogeneous in τ.
    """

    def __init__(self, structure: FactorStructure):
        self.structure, self.factors = structure, structure.factors

    def residuals(self, o: Observations[jax.Array], rows: Rows, weighted: bool = True) -> jax.Array:
        """(n, p)"""
        r = jax.vmap(self.factors.residual_at)(self._gathered(o, rows), o.data)
        if weighted and o.root_weight is not None:
            r = r * o.root_weight[:, None]
        return used(o, r)

    def linearise(self, o: Observations[jax.Array], rows: Rows, fixed: Rows) -> Linearization:
        """(n, p) and (n, p, D)"""
        r = self.residuals(o, rows)
        f = self.structure
        if not f.width:  # every variable it touches is fixed
            return Linearization(r, jnp.zeros((*r.shape, 0)))
        J = jax.vmap(self._derivative)(self._gathered(o, rows), o.data)
        if o.root_weight is not None:
            J = J * o.root_weight[:, None, None]
        columns = []
        for k, start in zip(f.free, f.offsets, strict=True):
            v = self.factors.slots[k].variables
            block = J[:, :, start : start + v.manifold.tangent]
            if v.fixed.any():
                block = jnp.where(fixed[v][o.indices[k]][:, None, None], 0.0, block)
            columns.append(block)
        return Linearization(r, used(o, jnp.concatenate(columns, axis=2)))

    def _gathered(self, o: Observations[jax.Array], rows: Rows) -> list[jax.Array]:
        return [rows[slot.variables][index] for slot, index in zip(self.factors.slots, o.indices, strict=True)]

    def _derivative(self, rows: list[jax.Array], data: tuple[jax.Array, ...]) -> jax.Array:
        """(p, D): with respect to the steps of all free slots."""
        width = self.structure.width

        def moved(*steps: jax.Array) -> jax.Array:
            return self.factors.residual_after(rows, jnp.stack(steps), data)

        nowhere = (np.zeros(()),) * width
        columns = []
        for k in range(width):  # one direction at a time: XLA fuses that better than all at once
            direction = tuple(np.float64(m == k) for m in range(width))
            columns.append(jax.jvp(moved, nowhere, direction)[1])
        return jnp.stack(columns, axis=1)

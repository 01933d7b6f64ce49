"""Residuals and derivatives of one factor group, for the observations of one device."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asker.engines.structure import FactorLayout
from asker.engines.xla.layout import Observations
from asker.engines.xla.system import Linearization
from asker.problem import Variables

Array = Any
Rows = dict[Variables, Array]


def used(o: Observations, per_observation: Array) -> Array:
    """The same with 0 for the dummies."""
    mask = jnp.arange(len(per_observation)) < o.count[0]
    return jnp.where(mask.reshape(-1, *[1] * (per_observation.ndim - 1)), per_observation, 0.0)


class FactorFunctions:
    """A weight w enters as √w·r and √w·τ, which is the same as w·ψ since every kernel is homogeneous in τ."""

    def __init__(self, layout: FactorLayout):
        self.layout = layout
        self.slots = layout.factors.slots

    def residuals(self, o: Observations, rows: Rows, weighted: bool = True) -> Array:
        """(n, p)"""
        r = jax.vmap(self._one)(self._gathered(o, rows), o.data)
        if weighted and o.root_weight is not None:
            r = r * o.root_weight[:, None]
        return used(o, r)

    def linearise(self, o: Observations, rows: Rows, fixed: Rows) -> Linearization:
        r = self.residuals(o, rows)
        layout = self.layout
        if not layout.width:  # every variable it touches is fixed
            return Linearization(r, jnp.zeros((*r.shape, 0)))
        J = jax.vmap(self._derivative)(self._gathered(o, rows), o.data)
        if o.root_weight is not None:
            J = J * o.root_weight[:, None, None]
        columns = []
        for k, start in zip(layout.free, layout.offsets, strict=True):
            v = self.slots[k].variables
            block = J[:, :, start : start + v.manifold.tangent]
            if v.fixed.any():
                block = jnp.where(fixed[v][o.indices[k]][:, None, None], 0.0, block)
            columns.append(block)
        return Linearization(r, used(o, jnp.concatenate(columns, axis=2)))

    def _gathered(self, o: Observations, rows: Rows) -> list[Array]:
        return [rows[slot.variables][index] for slot, index in zip(self.slots, o.indices, strict=True)]

    def _one(self, rows: list[Array], data: tuple[Array, ...]) -> Array:
        """The residual vector (p,) of one observation."""
        views = [slot.variables.manifold.view(x) for slot, x in zip(self.slots, rows, strict=True)]
        return jnp.asarray(self.layout.factors.residual(*views, *data)).reshape(self.layout.p)

    def _derivative(self, rows: list[Array], data: tuple[Array, ...]) -> Array:
        """(p, D): with respect to the steps of all free slots."""
        layout = self.layout

        def moved(*steps: Array) -> Array:
            delta = jnp.stack(steps)
            at = list(rows)
            for k, start in zip(layout.free, layout.offsets, strict=True):
                manifold = self.slots[k].variables.manifold
                at[k] = manifold.retract(rows[k], delta[start : start + manifold.tangent])
            return self._one(at, data)

        nowhere = (np.zeros(()),) * layout.width
        columns = []
        for k in range(layout.width):  # one direction at a time: XLA fuses that better than all at once
            direction = tuple(np.float64(m == k) for m in range(layout.width))
            columns.append(jax.jvp(moved, nowhere, direction)[1])
        return jnp.stack(columns, axis=1)

"""Residuals and derivatives of one factor group, for the observations of one device."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asker.engines.cpu.compiler import ReadsOutside, UnsupportedPrimitive
from asker.engines.sparsity import FactorStructure
from asker.engines.xla.layout import Observations
from asker.engines.xla.scalar_program import VectorisedProgram
from asker.engines.xla.small_matrices import Small, is_narrow, joined, number, small, where
from asker.problem.variables import ProblemError, Variables
from asker.tracing.array_namespace import as_argument

Rows = dict[Variables, jax.Array]
ConstantDirections = dict[Variables, jax.Array]
"""Mask (n, tangent) of the constant directions of variables; groups without constant directions are absent."""
Batched = Callable[..., list[jax.Array]]


def is_used(o: Observations[jax.Array]) -> jax.Array:
    """Return a mask (n,) of the observations that are not dummies."""
    return jnp.arange(len(o.indices[0])) < o.n_used[0]


def used(o: Observations[jax.Array], per_observation: jax.Array) -> jax.Array:
    """Return the numbers of all observations, with 0 for dummies."""
    return jnp.where(is_used(o), per_observation, 0.0)


class FactorFunctions:
    """The residuals and derivatives of one factor group, per observation.

    A weight w enters as √w·r and √w·τ, which is equivalent to w·ψ since every kernel is homogeneous in τ.
    """

    def __init__(self, structure: FactorStructure):
        self.structure, self.factors = structure, structure.factors
        self.narrow = is_narrow(structure.p * max(1, structure.width))
        self._residuals = self._batched("residuals", lambda rows, data: (self.factors.residual_at(rows, data),))
        if structure.width:
            modes = [partial(self._linearised, derivative) for derivative in (jax.jacfwd, jax.jacrev)]
            self.derivatives = self._batched("derivatives", *modes)
            """Function that returns r and J of all observations, without weights, from rows of each slot and data."""
            self._radial = self._batched("radial", self._radial_forwards, self._radial_backwards, step=structure.width)

    def residuals(self, o: Observations[jax.Array], rows: Rows, weighted: bool = True) -> Small:
        """Return the residuals (p,) of all observations."""
        (r,) = self._small(self._residuals, o, rows)
        if weighted and o.root_weight is not None:
            r = r * number(o.root_weight, r)
        return where(is_used(o), r)

    def linearised(self, o: Observations[jax.Array], rows: Rows, constant: ConstantDirections) -> tuple[Small, Small]:
        """Return r (p,) and J (p, D), with 0 in the columns of constant directions."""
        f = self.structure
        if not f.width:  # all variables are constant
            r = self.residuals(o, rows)
            return r, r[:, None][:, :0]
        r, J = self._small(self.derivatives, o, rows)
        if o.root_weight is not None:
            r, J = r * number(o.root_weight, r), J * number(o.root_weight, J)
        blocks = []
        for k, start in zip(f.free, f.offsets, strict=True):
            v = self.factors.slots[k].variables
            block = J[:, start : start + v.manifold.tangent]
            if v in constant:
                block = where(small(~constant[v][o.indices[k]], self.narrow), block)
            blocks.append(block)
        return where(is_used(o), r), where(is_used(o), joined(blocks, axis=1))

    def radial(self, o: Observations[jax.Array], rows: Rows, step: Rows) -> jax.Array:
        """Return rᵀJδ, (n,), along a step that is 0 in constant directions, by a directional derivative without J."""
        if not self.structure.width:
            return jnp.zeros(len(o.indices[0]))
        delta = jnp.concatenate([step[self.factors.slots[k].variables][o.indices[k]] for k in self.structure.free], 1)
        ((rJd,),) = self._small(self._radial, o, rows, delta)
        return used(o, rJd if o.root_weight is None else rJd * o.root_weight**2)

    def _small(self, function: Batched, o: Observations[jax.Array], rows: Rows, *step: jax.Array) -> list[Small]:
        gathered = [rows[slot.variables][index] for slot, index in zip(self.factors.slots, o.indices, strict=True)]
        if isinstance(function, VectorisedProgram) and self.narrow:
            return function.small(*gathered, *o.data, *step)
        return [small(x, self.narrow) for x in function(*gathered, *o.data, *step)]

    # ------------------------------------------------------------ from functions of one observation

    def _linearised(self, derivative: Callable[..., Any], rows: Any, data: Any) -> tuple[jax.Array, jax.Array]:
        J = derivative(lambda step: self.factors.residual_after(rows, step, data))(np.zeros(self.structure.width))
        return self.factors.residual_at(rows, data), J

    def _radial_forwards(self, rows: Any, data: Any) -> tuple[jax.Array]:
        *data, step = data
        start = np.zeros(self.structure.width)
        r, Jd = jax.jvp(lambda x: self.factors.residual_after(rows, x, data), (start,), (step,))
        return ((r @ Jd)[None],)

    def _radial_backwards(self, rows: Any, data: Any) -> tuple[jax.Array]:
        *data, step = data
        start = np.zeros(self.structure.width)
        r, pull = jax.vjp(lambda x: self.factors.residual_after(rows, x, data), start)
        return ((pull(r)[0] @ step)[None],)

    def _batched(self, name: str, *functions: Callable[..., Any], step: int = 0) -> Batched:
        """Return a function of all observations; its program is cached with the factors under this name.

        Parameters
        ----------
        functions
            Equivalent functions of one observation.
        step
            Size of a step that is their last argument, after the data; 0 if there is none.
        """
        f = self.factors
        n_slots = len(f.slots)
        shapes: list[tuple[tuple[int, ...], Any]] = [
            ((slot.variables.manifold.ambient,), np.float64) for slot in f.slots
        ]
        shapes += [(d.shape[1:], as_argument(d[:0]).dtype) for d in f.data]
        shapes += [((step,), np.float64)] if step else []

        def flat(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *arguments: function(arguments[:n_slots], arguments[n_slots:])

        programs = f.compiled.setdefault(("columns", f.signature), {})
        if name not in programs and self.structure.is_long:
            programs[name] = None
        if name not in programs:
            try:
                programs[name] = VectorisedProgram(shapes, *map(flat, functions))
            except UnsupportedPrimitive:
                programs[name] = None
            except ReadsOutside as error:
                raise ProblemError(f"{f.name}: {error}; it is given {f.argument_shapes}") from None
        return programs[name] or jax.vmap(flat(functions[0]))

"""The verbs on one device, inside a compiled program.

What they return is not there yet: it is what the program will compute.  So several verbs can be one program, and a
whole iteration of a strategy is one (`Verbs.together`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from asker.engines.bounds import shortened
from asker.engines.interface import Formula, Model, PerFactor, Point, Step
from asker.engines.sparsity import Structure
from asker.engines.xla import formulas
from asker.engines.xla.assembly import Assembled, Assembly, Linear, Weights
from asker.engines.xla.blocks import AXIS
from asker.engines.xla.chunking import over_slabs
from asker.engines.xla.gradients import Gradients
from asker.engines.xla.layout import Observations
from asker.engines.xla.residuals import FactorFunctions, HeldDirections
from asker.engines.xla.small_matrices import rows as as_rows
from asker.engines.xla.system import System
from asker.kernels.kernel import Kernel
from asker.problem.problem import Problem
from asker.problem.variables import Variables


@dataclass(frozen=True, eq=False)
class Machine:
    """What a program is made of, and does not change: the same for every point."""

    structure: Structure
    assembly: Assembly
    system: System
    factors: tuple[FactorFunctions, ...]
    gradients: Gradients
    free: dict[Variables, Callable[[Any, Any], Any]]
    """Which variables move, and how: rows from rows and steps."""
    n_local: int
    """Eliminated variables of a device."""


@dataclass(frozen=True, eq=False)
class Given:
    """What a program is given beside points: arrays on the devices, and numbers."""

    observations: tuple[Observations[jax.Array], ...]
    met: Any
    """Of `Meetings`."""
    n_used: jax.Array
    fixed: tuple[jax.Array, ...]
    fronts: Any
    taus: formulas.Widths
    last_gradient: Any


@dataclass(frozen=True, eq=False)
class Found:
    """What a program tells the host about the linear systems that it has solved."""

    ok: jax.Array
    size: jax.Array
    """‖g‖ of the last one that conjugate gradients solved,"""
    steps: jax.Array
    """and how many steps they took."""


@dataclass(eq=False)
class DeviceVerbs:
    """`asker.engines.interface.Verbs` of the arrays of one device."""

    machine: Machine
    problem: Problem
    kernels: tuple[Kernel, ...]
    """With a width of 1."""
    given: Given
    found: list[Found] = field(default_factory=list)

    def each(self, formula: Formula, point: Point[jax.Array], *arrays: PerFactor[jax.Array], **numbers: Any) -> Any:
        outs = formulas.of_each(self.kernels, formula, self._of_factors(point, arrays, numbers))
        columns = tuple(zip(*outs, strict=True))
        return columns if len(columns) > 1 else columns[0]

    def total(self, formula: Formula, point: Point[jax.Array], *arrays: PerFactor[jax.Array], **numbers: Any) -> Any:
        outs = formulas.of_each(self.kernels, formula, self._of_factors(point, arrays, numbers))
        sums = lax.psum(tuple(sum(map(jnp.sum, column)) for column in zip(*outs, strict=True)), AXIS)
        values = tuple(jnp.where(point.finite, x, jnp.nan) for x in sums)
        return values if len(values) > 1 else values[0]

    def largest(self, formula: Formula, point: Point[jax.Array]) -> Any:
        outs = formulas.of_each(self.kernels, formula, self._of_factors(point, (), {}))
        return lax.pmax(jnp.max(jnp.stack([jnp.max(values) for (values,) in outs])), AXIS)

    def solve(self, point: Point[jax.Array], model: Model[jax.Array], damping: Any) -> Step[jax.Array]:
        return self.solved(point, self.assembled(point, model, damping), damping)

    def assembled(self, point: Point[jax.Array], model: Model[jax.Array], damping: Any) -> Assembled:
        """The first half of `solve`: the sums of the linear system."""
        machine, given = self.machine, self.given
        b = (None,) * len(model.a) if model.b is None else model.b
        weights = [Weights(*abc) for abc in zip(model.a, b, model.c, strict=True)]
        linear = self._linear(point, self._held() | self._barred(point, model.c))
        return machine.assembly.assemble(
            given.observations, given.met, given.n_used, machine.n_local, linear, weights, damping
        )

    def solved(self, point: Point[jax.Array], assembled: Assembled, damping: Any) -> Step[jax.Array]:
        """The second half."""
        machine, given = self.machine, self.given
        kept, own, ok, size, steps = machine.system.solve(
            given.observations, assembled, damping, given.last_gradient, given.fronts
        )
        self.found.append(Found(ok, size, steps))
        delta = dict(zip(machine.structure.kept, kept, strict=True))
        if own is not None and machine.structure.eliminated is not None:
            delta[machine.structure.eliminated] = own
        return Step(point, shortened(self.problem.variables, point.theta, delta))

    def radial(self, step: Step[jax.Array]) -> PerFactor[jax.Array]:
        rows = self._by_variable(step.start.theta)

        def of_slab(function: FactorFunctions, _: tuple[()], o: Observations[jax.Array]) -> tuple[Any, Any]:
            return (), function.radial(o, rows, step.delta)

        pairs = zip(self.machine.factors, self.given.observations, strict=True)
        return tuple(over_slabs(partial(of_slab, function), (), o)[1] for function, o in pairs)

    def gradient_products(
        self, point: Point[jax.Array], c: PerFactor[jax.Array], d: PerFactor[jax.Array]
    ) -> tuple[Any, Any, Any]:
        linear = self._linear(point, self._held())
        gg, gh, hh = self.machine.gradients.products(self.given.observations, linear, c, d)
        return gg, gh, hh

    def move(self, step: Step[jax.Array]) -> Point[jax.Array]:
        moved = []
        for v, rows, fixed in zip(self.problem.variables, step.start.theta, self.given.fixed, strict=True):
            if v.is_free:
                to = self.machine.free[v](rows, step.delta[v])
                moved.append(jnp.where(fixed[:, None], rows, to) if v.fixed.any() else to)
            else:
                moved.append(rows)
        return self.evaluate(tuple(moved))

    def evaluate(self, theta: tuple[jax.Array, ...]) -> Point[jax.Array]:
        """The point with these rows of all variables."""
        rows = self._by_variable(theta)

        def squared(function: FactorFunctions, bad: jax.Array, o: Observations[jax.Array]) -> tuple[Any, Any]:
            r = function.residuals(o, rows)
            u = (r * r).sum(axis=0)
            return bad + jnp.sum(~jnp.isfinite(u)), u

        bad: Any = jnp.array(0)
        squares = []
        for function, o in zip(self.machine.factors, self.given.observations, strict=True):
            bad, u = over_slabs(partial(squared, function), bad, o)
            squares.append(u)
        return Point(theta, tuple(squares), lax.psum(bad, AXIS) == 0)

    def residuals(self, point: Point[jax.Array]) -> PerFactor[jax.Array]:
        """(n, p) of each factor group, without weights."""
        rows = self._by_variable(point.theta)
        pairs = zip(self.machine.factors, self.given.observations, strict=True)
        return tuple(as_rows(f.residuals(o, rows, weighted=False)) for f, o in pairs)

    def record(self, *totals: jax.Array) -> jax.Array:
        """What the host reads of a program, in one array: whether systems were solved, ‖g‖, CG steps, and totals."""
        last = self.found[-1]
        ok = jnp.all(jnp.stack([x.ok for x in self.found]))
        return jnp.stack([jnp.asarray(x, dtype=float) for x in (ok, last.size, last.steps, *totals)])

    # ------------------------------------------------------------ support

    def _of_factors(self, point: Point[jax.Array], arrays: Any, numbers: Any) -> list[formulas.Arguments]:
        observations, taus = self.given.observations, self.given.taus
        return [
            formulas.Arguments(taus[k], o, point.u[k], [a[k] for a in arrays], numbers)
            for k, o in enumerate(observations)
        ]

    def _linear(self, point: Point[jax.Array], held: HeldDirections) -> list[Linear]:
        """Derivatives at the point, of those observations that are asked for."""
        rows = self._by_variable(point.theta)
        return [partial(f.linearised, rows=rows, held=held) for f in self.machine.factors]

    def _held(self) -> HeldDirections:
        fixed = self._by_variable(self.given.fixed)
        return {
            v: jnp.broadcast_to(fixed[v][:, None], (len(fixed[v]), v.manifold.tangent))
            for v in self.machine.free
            if v.fixed.any()
        }

    def _barred(self, point: Point[jax.Array], c: PerFactor[jax.Array]) -> HeldDirections:
        """Directions that the descent −Σ c Jᵀr is barred in by bounds, or that are fixed."""
        if not any(v.bounds for v in self.machine.free):
            return {}
        held, rows = self._held(), self._by_variable(point.theta)
        G = self.machine.gradients.of(self.given.observations, self._linear(point, held), c)
        barred = {v: v.bounds.is_active(rows[v], g[..., 0]) for v, g in G.items() if v.bounds}
        return {v: held[v] | mask if v in held else mask for v, mask in barred.items()}

    def _by_variable(self, arrays: tuple[jax.Array, ...]) -> dict[Variables, jax.Array]:
        return dict(zip(self.problem.variables, arrays, strict=True))


def parts_of(point: Point[jax.Array]) -> tuple[Any, ...]:
    """A point, as programs take it."""
    return point.theta, point.u, point.finite


def residuals_of(point: Point[jax.Array]) -> tuple[Any, ...]:
    """A point without its rows, for programs that need no more."""
    return (None,) * len(point.theta), point.u, point.finite


def values_of(numbers: dict[str, float]) -> np.ndarray:
    """Numbers in one array, which goes to the devices at once."""
    return np.array(list(numbers.values()), dtype=float)

"""The verbs on one device, inside a compiled program.

They return traced arrays, so that a program can consist of several verbs, up to a whole iteration of a strategy
(`Verbs.together`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from asker.engines.bounds import truncate_at_bounds
from asker.engines.interface import Formula, Model, PerFactor, Point, Step
from asker.engines.sparsity import Structure
from asker.engines.xla import formulas
from asker.engines.xla.assembly import Assembled, Assembly, Linear, Weights
from asker.engines.xla.blocks import AXIS
from asker.engines.xla.chunking import over_slabs
from asker.engines.xla.gradients import Gradients
from asker.engines.xla.layout import Observations
from asker.engines.xla.residuals import ConstantDirections, FactorFunctions
from asker.engines.xla.scalar_program import retraction
from asker.engines.xla.small_matrices import rows as as_rows
from asker.engines.xla.solver_selection import SolverChoice
from asker.engines.xla.system import System
from asker.kernels.kernel import Kernel
from asker.problem.problem import Problem
from asker.problem.variables import Variables


@dataclass(frozen=True, eq=False)
class DeviceFunctions:
    """The functions that programs are composed of; they are the same for every point."""

    structure: Structure
    assembly: Assembly
    system: System
    factors: tuple[FactorFunctions, ...]
    gradients: Gradients
    retractions: dict[Variables, Callable[[Any, Any], Any]]
    """Function of rows and step that returns the rows after the step, for each group of free variables."""
    n_local: int
    """Number of eliminated variables on a device."""


def device_functions(
    structure: Structure, choice: SolverChoice, n_local: int, relative_damping: bool, has_pair_kernel: bool
) -> DeviceFunctions:
    """Return the functions of a problem for its linear solver."""
    assembly = Assembly(structure, choice.pattern, relative_damping, has_pair_kernel)
    return DeviceFunctions(
        structure,
        assembly,
        System(assembly, choice.fronts, choice.cg),
        tuple(map(FactorFunctions, structure.factors)),
        Gradients(structure, n_local),
        {v: retraction(v.manifold) for v in structure.problem.variables if v.is_free},
        n_local,
    )


@dataclass(frozen=True, eq=False)
class ProgramInputs:
    """The arguments of every program in addition to points: arrays on the devices, and numbers."""

    observations: tuple[Observations[jax.Array], ...]
    pattern: Any
    """Arrays of `SchurPattern`."""
    n_used: jax.Array
    fixed: tuple[jax.Array, ...]
    fronts: Any
    taus: formulas.Widths
    last_gradient: Any


@dataclass(frozen=True, eq=False)
class SolveStatus:
    """The status of one linear solve, for the host."""

    ok: jax.Array
    """True if the system had a solution."""
    gradient_norm: jax.Array
    """‖g‖, if conjugate gradients solved the system; else 0."""
    cg_steps: jax.Array
    """Number of conjugate gradient steps."""


@dataclass(eq=False)
class DeviceVerbs:
    """The verbs of `asker.engines.interface.Verbs`, for the arrays of one device."""

    functions: DeviceFunctions
    problem: Problem
    kernels: tuple[Kernel, ...]
    """Kernels with τ = 1."""
    inputs: ProgramInputs
    solves: list[SolveStatus] = field(default_factory=list)

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
        """Assemble the linear system: the first half of `solve`."""
        functions, inputs = self.functions, self.inputs
        b = (None,) * len(model.a) if model.b is None else model.b
        weights = [Weights(*abc) for abc in zip(model.a, b, model.c, strict=True)]
        linear = self._linear(point, self._constant() | self._at_active_bounds(point, model.c))
        return functions.assembly.assemble(
            inputs.observations, inputs.pattern, inputs.n_used, functions.n_local, linear, weights, damping
        )

    def solved(self, point: Point[jax.Array], assembled: Assembled, damping: Any) -> Step[jax.Array]:
        """Solve the assembled system: the second half of `solve`."""
        structure, inputs = self.functions.structure, self.inputs
        kept, eliminated, *status = self.functions.system.solve(
            inputs.observations, assembled, damping, inputs.last_gradient, inputs.fronts
        )
        self.solves.append(SolveStatus(*status))
        delta = dict(zip(structure.kept, kept, strict=True))
        if eliminated is not None and structure.eliminated is not None:
            delta[structure.eliminated] = eliminated
        return Step(point, truncate_at_bounds(self.problem.variables, point.theta, delta))

    def radial(self, step: Step[jax.Array]) -> PerFactor[jax.Array]:
        rows = self._by_variable(step.start.theta)

        def of_slab(function: FactorFunctions, _: tuple[()], o: Observations[jax.Array]) -> tuple[Any, Any]:
            return (), function.radial(o, rows, step.delta)

        pairs = zip(self.functions.factors, self.inputs.observations, strict=True)
        return tuple(over_slabs(partial(of_slab, function), (), o)[1] for function, o in pairs)

    def gradient_products(
        self, point: Point[jax.Array], c: PerFactor[jax.Array], d: PerFactor[jax.Array]
    ) -> tuple[Any, Any, Any]:
        linear = self._linear(point, self._constant())
        gg, gh, hh = self.functions.gradients.products(self.inputs.observations, linear, c, d)
        return gg, gh, hh

    def move(self, step: Step[jax.Array]) -> Point[jax.Array]:
        moved = []
        for v, rows, fixed in zip(self.problem.variables, step.start.theta, self.inputs.fixed, strict=True):
            if v.is_free:
                to = self.functions.retractions[v](rows, step.delta[v])
                moved.append(jnp.where(fixed[:, None], rows, to) if v.fixed.any() else to)
            else:
                moved.append(rows)
        return self.evaluate(tuple(moved))

    def evaluate(self, theta: tuple[jax.Array, ...]) -> Point[jax.Array]:
        """Return the point with these rows of all variables."""
        rows = self._by_variable(theta)

        def squared(function: FactorFunctions, bad: jax.Array, o: Observations[jax.Array]) -> tuple[Any, Any]:
            r = function.residuals(o, rows)
            u = (r * r).sum(axis=0)
            return bad + jnp.sum(~jnp.isfinite(u)), u

        bad: Any = jnp.array(0)
        squares = []
        for function, o in zip(self.functions.factors, self.inputs.observations, strict=True):
            bad, u = over_slabs(partial(squared, function), bad, o)
            squares.append(u)
        return Point(theta, tuple(squares), lax.psum(bad, AXIS) == 0)

    def residuals(self, point: Point[jax.Array]) -> PerFactor[jax.Array]:
        """Return the residuals (n, p) of each factor group, without weights."""
        rows = self._by_variable(point.theta)
        pairs = zip(self.functions.factors, self.inputs.observations, strict=True)
        return tuple(as_rows(f.residuals(o, rows, weighted=False)) for f, o in pairs)

    def record(self, *totals: jax.Array) -> jax.Array:
        """Return the numbers for the host in one array: whether all systems were solved, ‖g‖, CG steps, and totals."""
        last = self.solves[-1]
        ok = jnp.all(jnp.stack([x.ok for x in self.solves]))
        return jnp.stack([jnp.asarray(x, dtype=float) for x in (ok, last.gradient_norm, last.cg_steps, *totals)])

    # ------------------------------------------------------------ support

    def _of_factors(self, point: Point[jax.Array], arrays: Any, numbers: Any) -> list[formulas.Arguments]:
        """Return the arguments of a formula for each factor group."""
        observations, taus = self.inputs.observations, self.inputs.taus
        return [
            formulas.Arguments(taus[k], o, point.u[k], [a[k] for a in arrays], numbers)
            for k, o in enumerate(observations)
        ]

    def _linear(self, point: Point[jax.Array], constant: ConstantDirections) -> list[Linear]:
        """Return, for each factor group, a function from observations to residuals and derivatives at the point."""
        rows = self._by_variable(point.theta)
        return [partial(f.linearised, rows=rows, constant=constant) for f in self.functions.factors]

    def _constant(self) -> ConstantDirections:
        """Return the directions of variables that the user has fixed."""
        fixed = self._by_variable(self.inputs.fixed)
        return {
            v: jnp.broadcast_to(fixed[v][:, None], (len(fixed[v]), v.manifold.tangent))
            for v in self.functions.retractions
            if v.fixed.any()
        }

    def _at_active_bounds(self, point: Point[jax.Array], c: PerFactor[jax.Array]) -> ConstantDirections:
        """Return the directions in which −Σ c Jᵀr points out of an active bound, and those that are fixed."""
        if not any(v.bounds for v in self.functions.retractions):
            return {}
        constant, rows = self._constant(), self._by_variable(point.theta)
        G = self.functions.gradients.of(self.inputs.observations, self._linear(point, constant), c)
        active = {v: v.bounds.is_active(rows[v], g[..., 0]) for v, g in G.items() if v.bounds}
        return {v: constant[v] | mask if v in constant else mask for v, mask in active.items()}

    def _by_variable(self, arrays: tuple[jax.Array, ...]) -> dict[Variables, jax.Array]:
        """Return arrays in the order of the variables as a dictionary."""
        return dict(zip(self.problem.variables, arrays, strict=True))


def parts_of(point: Point[jax.Array]) -> tuple[Any, ...]:
    """Return a point as an argument of a program."""
    return point.theta, point.u, point.finite


def residuals_of(point: Point[jax.Array]) -> tuple[Any, ...]:
    """Return a point without its rows, as an argument of programs that only need residuals."""
    return (None,) * len(point.theta), point.u, point.finite


def values_of(numbers: dict[str, float]) -> np.ndarray:
    """Return the numbers as one array, for a single transfer to the devices."""
    return np.array(list(numbers.values()), dtype=float)

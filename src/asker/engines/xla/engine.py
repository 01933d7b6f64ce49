"""The XLA engine: the verbs of `asker.engines.interface.Engine` on one device, several, or several hosts.

Verbs are compiled once per problem, alone or several in one program (`device_program.py`).  Values that change between
iterations, such as λ, are arguments of the programs.  Only scalars return to the host before the end of a run.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any, cast

import jax
import numpy as np

from asker.engines.interface import Formula, Model, PerFactor, Point, Step, T, TrialFunction, Tried, Verbs, zero
from asker.engines.xla import distributed
from asker.engines.xla.assembly import Assembled
from asker.engines.xla.device_problem import DeviceProblem
from asker.engines.xla.device_program import (
    DeviceVerbs,
    parts_of,
    residuals_of,
    values_of,
)
from asker.engines.xla.placement import REPLICATED, SHARDED
from asker.engines.xla.programs import HOST_READS, Precompilation
from asker.kernels.kernel import Kernel
from asker.problem.problem import Problem
from asker.problem.variables import Variables
from asker.tracing.array_namespace import float64

ASSEMBLED: Any = Assembled(SHARDED, SHARDED, SHARDED, SHARDED, REPLICATED)  # type: ignore[arg-type]
DevicePoint = Point[jax.Array]


class XlaEngine(DeviceProblem):
    """The engine for accelerators: compiled programs over all devices."""

    name = "xla"

    def under(self, kernels: Sequence[Kernel]) -> "XlaEngine":
        other = copy(self)
        other.problem = self.problem.under(kernels)
        other._set_kernels(kernels)
        return other

    # ------------------------------------------------------------ verbs

    def start(self) -> Point[jax.Array]:
        """Return the point at the initial values."""
        return self.evaluate_here(tuple(v.rows for v in self.problem.variables))

    def evaluate(self, theta: tuple[np.ndarray, ...]) -> Point[jax.Array]:
        """Return the point with these rows of all variables, in the user's order."""
        if self.portion:
            partitioned, numbers = self.portion.variables, self.portion.numbers
            pairs = zip(self.problem.variables, theta, strict=True)
            theta = tuple(x[numbers] if v is partitioned else x for v, x in pairs)
        return self.evaluate_here(theta)

    def evaluate_here(self, theta: tuple[np.ndarray, ...]) -> Point[jax.Array]:
        def evaluated(verbs: DeviceVerbs, point: DevicePoint) -> tuple[Any, ...]:
            return self._free_parts(verbs.evaluate(point.theta))

        with self._clock("evaluate"):
            rows = self.placement.put_rows(theta)
            run = self._program("evaluate", evaluated, (), self._moved_specs)
            return self._completed(rows, run((rows, (), True)))

    def each(self, formula: Formula, point: Point[jax.Array], *arrays: PerFactor[jax.Array], **numbers: float) -> Any:
        def values(
            verbs: DeviceVerbs, point: DevicePoint, arrays: tuple[PerFactor[jax.Array], ...], numbers: dict[str, Any]
        ) -> Any:
            return verbs.each(formula, point, *arrays, **numbers)

        with self._clock("evaluate"):
            run = self._program(("each", formula), values, (SHARDED,), SHARDED, names=tuple(numbers))
            return run(residuals_of(point), arrays, values_of(numbers))

    def total(self, formula: Formula, point: Point[jax.Array], *arrays: PerFactor[jax.Array], **numbers: float) -> Any:
        def values(
            verbs: DeviceVerbs, point: DevicePoint, arrays: tuple[PerFactor[jax.Array], ...], numbers: dict[str, Any]
        ) -> Any:
            return verbs.total(formula, point, *arrays, **numbers)

        with self._clock("evaluate"):
            run = self._program(("total", formula), values, (SHARDED,), HOST_READS, names=tuple(numbers))
            return self._read(run(residuals_of(point), arrays, values_of(numbers)))

    def largest(self, formula: Formula, point: Point[jax.Array]) -> float:
        def largest(verbs: DeviceVerbs, point: DevicePoint) -> Any:
            return verbs.largest(formula, point)

        with self._clock("evaluate"):
            run = self._program(("largest", formula), largest, (), HOST_READS)
            return self._read(run(residuals_of(point)))

    def solve(self, point: Point[jax.Array], model: Model[jax.Array], damping: float) -> Step[jax.Array] | None:
        def assembled(verbs: DeviceVerbs, point: DevicePoint, model: Model[jax.Array], damping: jax.Array) -> Assembled:
            return verbs.assembled(point, model, damping)

        def solution(
            verbs: DeviceVerbs, point: DevicePoint, assembled: Assembled, damping: jax.Array
        ) -> tuple[tuple[jax.Array, ...], jax.Array]:
            step = verbs.solved(point, assembled, damping)
            return tuple(step.delta[v] for v in self.free), verbs.record()

        if model.b is None and self.linear_solver == "sparse-cholesky":  # the same program for all models
            model = model._replace(b=self.each(zero, point))
        with self._clock("solve"):
            assemble = self._program("assemble", assembled, (SHARDED, REPLICATED), ASSEMBLED, with_system=True)
            out_specs = self._step_specs, HOST_READS
            run = self._program("solve", solution, (ASSEMBLED, REPLICATED), out_specs, with_system=True)
            parts, damping = parts_of(point), float(damping)
            delta, record = run(parts, assemble(parts, model, damping), damping)
            step = Step(point, dict(zip(self.free, delta, strict=True)))
            if self._pending_records is None:
                return step if self._read_record(record)[0] else None
            self._pending_records.append(record)
            return step

    def radial(self, step: Step[jax.Array]) -> PerFactor[jax.Array]:
        def values(verbs: DeviceVerbs, point: DevicePoint, delta: tuple[jax.Array, ...]) -> PerFactor[jax.Array]:
            return verbs.radial(Step(point, dict(zip(self.free, delta, strict=True))))

        with self._clock("solve"):
            run = self._program("radial", values, (self._step_specs,), SHARDED)
            return run(parts_of(step.start), tuple(step.delta[v] for v in self.free))

    def gradient_products(
        self, point: Point[jax.Array], c: PerFactor[jax.Array], d: PerFactor[jax.Array]
    ) -> tuple[float, float, float]:
        def products(
            verbs: DeviceVerbs, point: DevicePoint, c: PerFactor[jax.Array], d: PerFactor[jax.Array]
        ) -> tuple[Any, Any, Any]:
            return verbs.gradient_products(point, c, d)

        with self._clock("solve"):
            run = self._program("gradients", products, (SHARDED, SHARDED), HOST_READS)
            return self._read(run(parts_of(point), c, d))

    def move(self, step: Step[jax.Array]) -> Point[jax.Array]:
        def moved(verbs: DeviceVerbs, point: DevicePoint, delta: tuple[jax.Array, ...]) -> tuple[Any, ...]:
            return self._free_parts(verbs.move(Step(point, dict(zip(self.free, delta, strict=True)))))

        with self._clock("evaluate"):
            run = self._program("move", moved, (self._step_specs,), self._moved_specs)
            parts = run(parts_of(step.start), tuple(step.delta[v] for v in self.free))
            return self._completed(step.start.theta, parts)

    def together(
        self,
        function: TrialFunction[jax.Array, T],
        point: Point[jax.Array],
        *arrays: PerFactor[jax.Array],
        **numbers: float,
    ) -> Tried[jax.Array, T] | None:
        """Run a trial function as one program; the host reads one record.

        A sparse factorisation takes seconds to compile, so it gets one program for all trial functions, and each verb
        runs as its own program.  The device executes them in sequence, and the host reads at the end whether the
        systems had solutions.  Before the first run a pass over the function compiles its programs in parallel.
        """
        if self.linear_solver == "sparse-cholesky":
            if (function, self._kernels) not in self._precompiled:
                self._precompile(function, point, *arrays, **numbers)
            deferred = copy(self)
            deferred._pending_records = []
            trial = function(deferred, point, *arrays, **numbers)
            return trial if all(self._read_record(record)[0] for record in deferred._pending_records) else None

        def tried(
            verbs: DeviceVerbs, point: DevicePoint, arrays: tuple[PerFactor[jax.Array], ...], numbers: dict[str, Any]
        ) -> tuple[tuple[Any, ...], jax.Array]:
            trial = function(cast("Verbs[jax.Array]", verbs), point, *arrays, **numbers)  # without `together`
            assert trial is not None  # inside a program `solve` always returns a step; the record has its status
            structures[:] = [jax.tree.structure(trial.totals)]
            return (self._free_parts(trial.point), trial.arrays), verbs.record(*jax.tree.leaves(trial.totals))

        with self._clock("together"):
            structures = self._total_structures.setdefault(function, [])
            specs, names = ((self._moved_specs, SHARDED), HOST_READS), tuple(numbers)
            run = self._program(("together", function), tried, (SHARDED,), specs, names, with_system=True)
            (parts, updated), record = run(parts_of(point), arrays, values_of(numbers))
            ok, totals = self._read_record(record)
        return Tried(self._completed(point.theta, parts), updated, structures[0].unflatten(totals)) if ok else None

    def _precompile(
        self, function: TrialFunction, point: Point[jax.Array], *arrays: PerFactor[jax.Array], **numbers: float
    ) -> None:
        """Compile all programs of a trial function in parallel."""
        compiling = copy(self)
        with Precompilation(self.mesh) as compiling._precompilation, self._clock("together"):
            compiling._pending_records = []
            function(compiling, point, *arrays, **numbers)
        self._precompiled.add((function, self._kernels))

    def _free_parts(self, point: Point[jax.Array]) -> tuple[Any, ...]:
        """Return the parts of a point without constant variables, which a program would copy."""
        free = tuple(x for v, x in zip(self.problem.variables, point.theta, strict=True) if v.is_free)
        return free, point.u, point.finite

    def _completed(self, theta: tuple[jax.Array, ...], parts: tuple[Any, ...]) -> Point[jax.Array]:
        """Return the point with these parts; the rows of constant variables are those of `theta`."""
        free, u, finite = parts
        moved = dict(zip(self.free, free, strict=True))
        return Point(tuple(moved.get(v, x) for v, x in zip(self.problem.variables, theta, strict=True)), u, finite)

    # ------------------------------------------------------------ results

    def residuals(self, point: Point[jax.Array]) -> PerFactor[np.ndarray]:
        """Return the residuals (n, p) of each factor group, in the user's order, without weights."""

        def residuals(verbs: DeviceVerbs, point: DevicePoint) -> PerFactor[jax.Array]:
            return verbs.residuals(point)

        with float64():
            run = self._program("residuals", residuals, (), SHARDED)
            return self.in_user_order(run(parts_of(point)))

    def in_user_order(self, arrays: PerFactor[jax.Array]) -> PerFactor[np.ndarray]:
        return self.whole(self.here(arrays))

    def here(self, arrays: PerFactor[jax.Array]) -> PerFactor[np.ndarray]:
        return self.placement.fetch_per_factor(arrays)

    def in_own_order(self, arrays: PerFactor[np.ndarray]) -> PerFactor[jax.Array]:
        return self.placement.put_per_factor(arrays)

    def whole(self, arrays: PerFactor[np.ndarray]) -> PerFactor[np.ndarray]:
        """Return numbers of all observations from those of the observations of each process."""
        if self.portion is None or self.returns_portion:
            return arrays
        each = zip(arrays, self.portion.observations, self.portion.n_observations, strict=True)
        return tuple(distributed.gather_rows(np.asarray(x), numbers, n) for x, numbers, n in each)

    def any(self, here: bool) -> bool:
        """Return whether the condition is true in any process; all processes must call this."""
        return bool(distributed.all_max(here))

    def release_workspaces(self) -> None:
        """Do nothing: device memory is released with the engine."""

    def rows(self, point: Point[jax.Array]) -> tuple[np.ndarray, ...]:
        """Return the rows of all variables, in the user's order."""
        return tuple(map(self._whole_rows, self.problem.variables, self.rows_here(point)))

    def rows_here(self, point: Point[jax.Array]) -> tuple[np.ndarray, ...]:
        return tuple(map(self.placement.fetch_rows, self.problem.variables, point.theta))

    def _whole_rows(self, v: Variables, rows: np.ndarray) -> np.ndarray:
        """Return the rows of all variables of a group from those of each process."""
        if self.portion is None or v is not self.portion.variables or self.returns_portion:
            return rows
        return distributed.gather_rows(rows, self.portion.numbers, self.portion.n_variables)

    def for_other(self, problem: Problem, eliminate: Variables | bool = True) -> "XlaEngine":
        return XlaEngine(problem, "auto", eliminate, True, alone=self.is_alone or self.portion is not None)

    def for_results(self) -> "XlaEngine":
        other = copy(self)
        other.returns_portion = self.portion is not None and self.portion.in_parts
        return other

    @property
    def is_first(self) -> bool:
        """True if this is the process that writes files and messages."""
        return distributed.is_first()

    def check_same(self, what: bytes, complaint: str) -> None:
        distributed.check_same(what, complaint)

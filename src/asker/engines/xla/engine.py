"""The XLA engine: the verbs of `asker.engines.interface.Engine` on one device, several, or several hosts.

Verbs are compiled once for a problem, alone or several together (`verbs.py`); λ, levels and whatever else changes
between iterations are arguments.  Nothing but scalars comes back to the host until the end.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from asker.engines.interface import Formula, Model, PerFactor, Point, Step, Together, Tried, nothing
from asker.engines.solvers import LinearSolver
from asker.engines.sparsity import Structure
from asker.engines.xla import devices, distributed
from asker.engines.xla.assembly import Assembled, Assembly
from asker.engines.xla.background_compile import TOLD, Ahead, shardings, specifications
from asker.engines.xla.blocks import AXIS
from asker.engines.xla.device_program import DeviceVerbs, Given, Machine, parts_of, residuals_of, values_of
from asker.engines.xla.gradients import Gradients
from asker.engines.xla.layout import Layout
from asker.engines.xla.pair_sums_pallas import there_is_one
from asker.engines.xla.residuals import FactorFunctions
from asker.engines.xla.scalar_program import retraction
from asker.engines.xla.solver_selection import chosen
from asker.engines.xla.system import System
from asker.io.interrupts import interruptible
from asker.io.log import devices as devices_log
from asker.kernels.kernel import Kernel
from asker.problem.factors import Factors
from asker.problem.problem import Problem
from asker.problem.reductions import ALONE, Sums
from asker.problem.variables import ProblemError, Variables
from asker.tracing.array_namespace import float64
from asker.tracing.jax_compat import check_xla, shard_map

EACH, WHOLE = P(AXIS), P()
ASSEMBLED: Any = Assembled(EACH, EACH, EACH, EACH, WHOLE)  # type: ignore[arg-type]


class XlaEngine:
    """The engine of accelerators: compiled programs over all devices."""

    name = "xla"

    def __init__(
        self,
        problem: Problem,
        linear_solver: LinearSolver = "auto",
        eliminate: Variables | bool = True,
        relative_damping: bool = False,
        n_devices: int | None = None,
        alone: bool = False,
    ):
        """`n_devices`: how many of JAX's devices to use; all when not given.  `alone`: those of this process."""
        check_xla()
        for f in problem.factors:
            if f.jacobian is not None:
                raise ProblemError(
                    f"{f.name}: a residual with `jacobian=` is a NumPy function, which only engine='cpu' runs"
                )
        self.problem = problem
        self.relative_damping = relative_damping
        found = devices.available(n_devices, alone)
        self.mesh, self._options = Mesh(np.array(found), (AXIS,)), devices.compiler_options(found[0])
        self.portion, self.is_alone = problem.portion, alone
        self.tells_own = False  # of what is dealt, and not of all
        self.sums = Sums(self.portion.variables, distributed.added_up) if self.portion else ALONE
        if self.portion:
            if isinstance(eliminate, Variables) and eliminate is not self.portion.variables:
                raise ProblemError(f"{self.portion.variables.name} are dealt to the processes, so these are eliminated")
            distributed.check_portions(self.portion)
            eliminate = self.portion.variables
        self.structure = Structure(problem, eliminate)
        where: Any = (len(self.mesh.local_devices), distributed.largest) if self.portion else (self.mesh.size,)
        self.layout = Layout(self.structure, *where)
        union = distributed.union if self.portion else np.unique
        cg, self.linear_solver, meetings, fronts = chosen(linear_solver, self.layout, union)
        need = devices.estimate(self.layout, self.linear_solver, fronts)
        self.plan = devices.plan(need, self.linear_solver, found)
        """Devices, solver and memory, for a person."""
        devices.check_memory(need, found)
        if not alone:
            devices_log.info(self.plan)
        if jax.process_count() > 1 and not alone:
            distributed.check_same(self.fingerprint(), "were given different data")
        self.free = tuple(v for v in problem.variables if v.is_free)
        n_local = self.layout.n_local
        assembly = Assembly(self.structure, meetings, relative_damping, there_is_one(found[0]))
        factors = tuple(map(FactorFunctions, self.structure.factors))
        gradients = Gradients(self.structure, n_local)
        system = System(assembly, fronts, cg)
        free = {v: retraction(v.manifold) for v in self.free}
        self.machine = Machine(self.structure, assembly, system, factors, gradients, free, n_local)
        self.last_gradient: Any = np.inf
        self.cg_steps = 0
        self._specs = tuple(EACH if v is self.structure.eliminated else WHOLE for v in problem.variables)
        self._delta_specs = tuple(EACH if v is self.structure.eliminated else WHOLE for v in self.free)
        self._point, self._moved = (self._specs, EACH, WHOLE), (self._delta_specs, EACH, WHOLE)
        with float64():
            n_used = np.bincount(self.layout.device, minlength=self.layout.n_devices).astype(np.int32)
            arrays = (self.layout.observations, () if meetings is None else meetings.arrays, n_used)
            self._arrays = jax.tree.map(self._put, arrays)
            self._fronts = jax.tree.map(lambda x: self._put(x, WHOLE), () if fronts is None else fronts.arrays)
            self._fixed = self._put_rows([v.fixed for v in problem.variables])
        self.layout.release()
        self._kernels = _of_unit_width([f.kernel for f in problem.factors])
        self._programs: dict[Any, Callable] = {}
        self._ready: set[Any] = set()
        """Which of them are compiled."""
        self._shapes: dict[Any, list[Any]] = {}
        """Of the sums of each program that does several verbs."""
        self._taus = self._put_widths(problem.factors)
        self._untold: list[jax.Array] | None = None
        """Records that nobody has read yet; None where each is read at once."""
        self._ahead: Ahead | None = None
        """Where programs are compiled and not run."""
        self._compiled: set[Any] = set()
        """Functions of verbs whose programs are."""
        self.others: dict[str, Any] = {}
        self.seconds = {"evaluate": 0.0, "solve": 0.0, "together": 0.0}

    def under(self, kernels: Sequence[Kernel]) -> "XlaEngine":
        other = copy(self)
        other.problem, other._kernels = self.problem.under(kernels), _of_unit_width(kernels)
        other._taus = self._put_widths(other.problem.factors)
        return other

    # ------------------------------------------------------------ verbs

    def start(self) -> Point[jax.Array]:
        """The point where the problem starts."""
        return self.evaluate_here(tuple(v.rows for v in self.problem.variables))

    def evaluate(self, theta: tuple[np.ndarray, ...]) -> Point[jax.Array]:
        """`theta` in the user's order."""
        if self.portion:
            dealt, own = self.portion.variables, self.portion.numbers
            theta = tuple(x[own] if v is dealt else x for v, x in zip(self.problem.variables, theta, strict=True))
        return self.evaluate_here(theta)

    def evaluate_here(self, theta: tuple[np.ndarray, ...]) -> Point[jax.Array]:
        with self._clock("evaluate"):
            rows = self._put_rows(theta)
            run = self._program(
                "evaluate", lambda verbs, point: self._moved_parts(verbs.evaluate(point.theta)), (), self._moved
            )
            return self._with_rest(rows, run((rows, (), True)))

    def each(self, formula: Formula, point: Point[jax.Array], *arrays: PerFactor[jax.Array], **numbers: float) -> Any:
        def values(verbs, point, arrays, numbers):
            return verbs.each(formula, point, *arrays, **numbers)

        with self._clock("evaluate"):
            run = self._program(("each", formula), values, (EACH,), EACH, names=tuple(numbers))
            return run(residuals_of(point), arrays, values_of(numbers))

    def total(self, formula: Formula, point: Point[jax.Array], *arrays: PerFactor[jax.Array], **numbers: float) -> Any:
        def values(verbs, point, arrays, numbers):
            return verbs.total(formula, point, *arrays, **numbers)

        with self._clock("evaluate"):
            run = self._program(("total", formula), values, (EACH,), TOLD, names=tuple(numbers))
            return self._read(run(residuals_of(point), arrays, values_of(numbers)))

    def largest(self, formula: Formula, point: Point[jax.Array]) -> float:
        with self._clock("evaluate"):
            run = self._program(("largest", formula), lambda verbs, point: verbs.largest(formula, point), (), TOLD)
            return self._read(run(residuals_of(point)))

    def solve(self, point: Point[jax.Array], model: Model[jax.Array], damping: float) -> Step[jax.Array] | None:
        def assembled(verbs, point, model, damping):
            return verbs.assembled(point, model, damping)

        def solution(verbs, point, assembled, damping):
            step = verbs.solved(point, assembled, damping)
            return tuple(step.delta[v] for v in self.free), verbs.record()

        if model.b is None and self.linear_solver == "sparse-cholesky":  # the same program for all models
            model = model._replace(b=self.each(nothing, point))
        with self._clock("solve"):
            assemble = self._program("assemble", assembled, (EACH, WHOLE), ASSEMBLED, with_system=True)
            run = self._program("solve", solution, (ASSEMBLED, WHOLE), (self._delta_specs, TOLD), with_system=True)
            parts, damping = parts_of(point), float(damping)
            delta, record = run(parts, assemble(parts, model, damping), damping)
            step = Step(point, dict(zip(self.free, delta, strict=True)))
            if self._untold is None:
                return step if self._told(record)[0] else None
            self._untold.append(record)
            return step

    def radial(self, step: Step[jax.Array]) -> PerFactor[jax.Array]:
        def values(verbs, point, delta):
            return verbs.radial(Step(point, dict(zip(self.free, delta, strict=True))))

        with self._clock("solve"):
            run = self._program("radial", values, (self._delta_specs,), EACH)
            return run(parts_of(step.start), tuple(step.delta[v] for v in self.free))

    def gradient_products(
        self, point: Point[jax.Array], c: PerFactor[jax.Array], d: PerFactor[jax.Array]
    ) -> tuple[float, float, float]:
        with self._clock("solve"):
            run = self._program(
                "gradients", lambda verbs, point, c, d: verbs.gradient_products(point, c, d), (EACH, EACH), TOLD
            )
            return self._read(run(parts_of(point), c, d))

    def move(self, step: Step[jax.Array]) -> Point[jax.Array]:
        def moved(verbs, point, delta):
            return self._moved_parts(verbs.move(Step(point, dict(zip(self.free, delta, strict=True)))))

        with self._clock("evaluate"):
            run = self._program("move", moved, (self._delta_specs,), self._moved)
            return self._with_rest(step.start.theta, run(parts_of(step.start), tuple(step.delta[v] for v in self.free)))

    def together(
        self, function: Together, point: Point[jax.Array], *arrays: PerFactor[jax.Array], **numbers: float
    ) -> Tried[jax.Array] | None:
        """One program; the host reads one record.

        A sparse factorisation takes seconds to compile, so that one program serves all functions: verbs by themselves.
        They follow each other on the device, and whether the systems have solutions is asked at the end.  In a first
        pass their programs are compiled, beside each other.
        """
        if self.linear_solver == "sparse-cholesky":
            if (function, self._kernels) not in self._compiled:
                self._compile(function, point, *arrays, **numbers)
            waiting = copy(self)
            waiting._untold = []
            found = function(waiting, point, *arrays, **numbers)
            return found if all(self._told(record)[0] for record in waiting._untold) else None

        def tried(verbs, point, arrays, numbers):
            found = function(verbs, point, *arrays, **numbers)
            assert found is not None  # on a device a step is always one, until the record says otherwise
            shapes[:] = [jax.tree.structure(found.totals)]
            return (self._moved_parts(found.point), found.arrays), verbs.record(*jax.tree.leaves(found.totals))

        with self._clock("together"):
            shapes = self._shapes.setdefault(function, [])
            specs, names = ((self._moved, EACH), TOLD), tuple(numbers)
            run = self._program(("together", function), tried, (EACH,), specs, names, with_system=True)
            (parts, updated), record = run(parts_of(point), arrays, values_of(numbers))
            ok, totals = self._told(record)
        return Tried(self._with_rest(point.theta, parts), updated, shapes[0].unflatten(totals)) if ok else None

    def _compile(self, function: Together, point: Point[jax.Array], *arrays: Any, **numbers: float) -> None:
        """All programs that a function of verbs needs."""
        first = copy(self)
        with Ahead(self.mesh) as first._ahead, self._clock("together"):
            first._untold = []
            function(first, point, *arrays, **numbers)
        self._compiled.add((function, self._kernels))

    def _moved_parts(self, point: Point[jax.Array]) -> tuple[Any, ...]:
        """Those of a point that a program has computed; a program copies what it only hands on."""
        free = tuple(x for v, x in zip(self.problem.variables, point.theta, strict=True) if v.is_free)
        return free, point.u, point.finite

    def _with_rest(self, theta: tuple[jax.Array, ...], parts: tuple[Any, ...]) -> Point[jax.Array]:
        """The point, with rows that cannot move from another one."""
        free, u, finite = parts
        moved = dict(zip(self.free, free, strict=True))
        return Point(tuple(moved.get(v, x) for v, x in zip(self.problem.variables, theta, strict=True)), u, finite)

    def _read(self, values: Any) -> Any:
        """Numbers of a program, on the host."""
        return values if self._ahead else jax.tree.map(float, jax.device_get(values))

    def _told(self, record: jax.Array) -> tuple[bool, list[float]]:
        """Whether the linear systems of a program have solutions, and its sums."""
        record.copy_to_host_async()
        ok, size, steps, *totals = np.asarray(record).tolist()
        if self.linear_solver == "cg":
            self.last_gradient, self.cg_steps = size, self.cg_steps + int(steps)
        return bool(ok), totals

    # ------------------------------------------------------------ back to the user

    def residuals(self, point: Point[jax.Array]) -> PerFactor[np.ndarray]:
        """The residuals (n, p) of each factor group, in the user's order, without weights."""
        with float64():
            run = self._program("residuals", lambda verbs, point: verbs.residuals(point), (), EACH)
            return self.in_user_order(run(parts_of(point)))

    def in_user_order(self, arrays: PerFactor[jax.Array]) -> PerFactor[np.ndarray]:
        return self.whole(self.here(arrays))

    def here(self, arrays: PerFactor[jax.Array]) -> PerFactor[np.ndarray]:
        return tuple(self.layout.unsorted(f, self._fetch(x)) for f, x in enumerate(arrays))

    def in_own_order(self, arrays: PerFactor[np.ndarray]) -> PerFactor[jax.Array]:
        if self.portion:
            arrays = tuple(x[own] for x, own in zip(arrays, self.portion.observations, strict=True))
        with float64():
            return tuple(self._put(self.layout.sorted(f, x)) for f, x in enumerate(arrays))

    def whole(self, arrays: PerFactor[np.ndarray]) -> PerFactor[np.ndarray]:
        """Of all observations, from arrays of those that this process has."""
        if self.portion is None or self.tells_own:
            return arrays
        each = zip(arrays, self.portion.observations, self.portion.n_observations, strict=True)
        return tuple(distributed.whole(np.asarray(x), own, n) for x, own, n in each)

    def any(self, here: bool) -> bool:
        """Whether it is so in any process; all must ask."""
        return bool(distributed.largest(here))

    def done(self) -> None:
        """A device gives back what it has when the engine goes."""

    def fingerprint(self) -> bytes:
        return self.problem.fingerprint(distributed.added_up)

    def rows(self, point: Point[jax.Array]) -> tuple[np.ndarray, ...]:
        """Rows of all variables, in the user's order."""
        return tuple(map(self._whole_rows, self.problem.variables, self.rows_here(point)))

    def rows_here(self, point: Point[jax.Array]) -> tuple[np.ndarray, ...]:
        return tuple(map(self._unspread, self.problem.variables, point.theta))

    def for_other(self, problem: Problem, eliminate: Variables | bool = True) -> "XlaEngine":
        return XlaEngine(problem, "auto", eliminate, True, alone=self.is_alone or self.portion is not None)

    def for_results(self) -> "XlaEngine":
        other = copy(self)
        other.tells_own = self.portion is not None and self.portion.in_parts
        return other

    def _unspread(self, v: Variables, x: jax.Array) -> np.ndarray:
        rows = self._fetch(x)
        return rows[self.layout.at] if v is self.structure.eliminated else np.array(rows)

    def _whole_rows(self, v: Variables, own: np.ndarray) -> np.ndarray:
        if self.portion is None or v is not self.portion.variables or self.tells_own:
            return own
        return distributed.whole(own, self.portion.numbers, self.portion.n_variables)

    def _fetch(self, x: jax.Array) -> np.ndarray:
        """What this host is responsible for."""
        return devices.own_part(x) if self.portion else devices.fetch(x)

    @property
    def is_first(self) -> bool:
        """Whether this process speaks for the run."""
        return distributed.is_first()

    def check_same(self, what: bytes, complaint: str) -> None:
        distributed.check_same(what, complaint)

    # ------------------------------------------------------------ support

    def _program(
        self,
        key: Any,
        function: Callable,
        in_specs: tuple,
        out_specs: Any,
        names: tuple[str, ...] | None = None,
        with_system: bool = False,
    ) -> Callable:
        """`function(verbs, point, ...)`, compiled once; it is called with the parts of a point, and what follows.

        Numbers with these names are the last argument, in one array.  Only `with_system` may the program solve: arrays
        that are not needed are not handed over.
        """
        key = key, names, self._kernels
        if key not in self._programs:
            specs = (
                (EACH, self._specs, WHOLE, WHOLE, WHOLE),
                self._point,
                *in_specs,
                *(() if names is None else (WHOLE,)),
            )
            machine, problem, kernels = self.machine, self.problem, self._kernels

            def run(given, point, *rest):
                verbs = DeviceVerbs(machine, problem, kernels, Given(*given[0], *given[1:]))
                if names is None:
                    return function(verbs, Point(*point), *rest)
                return function(verbs, Point(*point), *rest[:-1], dict(zip(names, rest[-1], strict=True)))

            sharded = shard_map(run, self.mesh, specs, specifications(out_specs))
            out = shardings(self.mesh, out_specs)  # else of one device XLA finds some of its own, and compiles again
            self._programs[key] = jax.jit(sharded, out_shardings=out, compiler_options=self._options)
        compiled = self._programs[key]
        arrays = self._arrays if with_system else (self._arrays[0], (), self._arrays[2])
        fronts = self._fronts if with_system else ()
        last = np.float64(self.last_gradient) if self.linear_solver == "cg" else None
        given = arrays, self._fixed, fronts, self._taus, last
        if self._ahead is None:
            return lambda *arguments: self._run(key, compiled, (given, *arguments))
        ahead = self._ahead
        return lambda *arguments: ahead.called(compiled, (given, *arguments), out_specs)

    def _run(self, key: Any, program: Any, arguments: tuple[Any, ...]) -> Any:
        """What the program returns; Ctrl-C ends the waiting for its compilation, which is found when it is run."""
        if key not in self._ready:
            interruptible(program.lower(*arguments).compile)
            self._ready.add(key)
        return program(*arguments)

    def _put_rows(self, theta: Any) -> tuple[jax.Array, ...]:
        rows = []
        for v, x in zip(self.problem.variables, theta, strict=True):
            if v is self.structure.eliminated:
                rows.append(self._put(self.layout.spread(x)))
            else:
                rows.append(self._put(x, WHOLE))
        return tuple(rows)

    def _put_widths(self, factors: Sequence[Factors]) -> tuple[jax.Array | None, ...]:
        """On the devices, once: a number that goes there in every iteration takes its time."""
        with float64():
            return tuple(None if width is None else self._put(width, WHOLE) for width in map(_width, factors))

    def _put(self, x: np.ndarray, spec: P = EACH) -> jax.Array:
        """On the devices; each host gives its own part."""
        sharding = NamedSharding(self.mesh, spec)
        if self.portion and spec == EACH:
            return jax.make_array_from_process_local_data(sharding, x, (distributed.place()[1] * len(x), *x.shape[1:]))
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

    @contextmanager
    def _clock(self, what: str) -> Iterator[None]:
        begin = time.perf_counter()
        with float64(), devices.errors_explained():
            yield
        self.seconds[what] += time.perf_counter() - begin


def _width(f: Factors) -> np.ndarray | None:
    """τ, as `formulas.Widths` has it."""
    if np.ndim(f.tau) and not f.weight_is_precision:
        return None
    tau = float(f.kernel.tau) if f.weight_is_precision else float(f.tau)
    return np.array(tau if f.weight is None else [tau, not f.weight_is_precision], dtype=float)


def _of_unit_width(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """Programs of these are compiled once, whatever τ is."""
    return tuple(replace(kernel, tau=1.0) for kernel in kernels)

"""The XLA engine: the verbs of `asker.engines.point.Engine` on one device, several, or several hosts.

Each verb is compiled once for a problem; λ, levels and whatever else changes between iterations are arguments.  Nothing
but scalars comes back to the host until the end.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from asker.arrays import float64
from asker.engines.bounds import shortened
from asker.engines.point import Formula, Model, PerFactor, Point, Step
from asker.engines.solvers import LinearSolver
from asker.engines.structure import Structure
from asker.engines.xla import devices, formulas, hosts
from asker.engines.xla.blocks import AXIS
from asker.engines.xla.choice import chosen
from asker.engines.xla.gradients import Gradients, radial
from asker.engines.xla.layout import Layout
from asker.engines.xla.residuals import FactorFunctions
from asker.engines.xla.system import Linearization, System, Weights
from asker.jax_versions import check_xla, shard_map
from asker.kernels import Kernel
from asker.logs import devices as devices_log
from asker.problem import Problem
from asker.sums import ALONE, Sums
from asker.variables import ProblemError, Variables

EACH, WHOLE = P(AXIS), P()


@dataclass
class _Held:
    """The derivatives of the last point that asked for them; an engine under other kernels shares them."""

    linear: tuple[Linearization, ...] = ()
    at: Point[jax.Array] | None = None


class XlaEngine:
    """The engine of accelerators: each verb is one compiled function over all devices."""

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
        self.mesh = Mesh(np.array(found), (AXIS,))
        self.portion, self.is_alone = problem.portion, alone
        self.tells_own = False  # of what is dealt, and not of all
        self.sums = Sums(self.portion.variables, hosts.added_up) if self.portion else ALONE
        if self.portion:
            if isinstance(eliminate, Variables) and eliminate is not self.portion.variables:
                raise ProblemError(f"{self.portion.variables.name} are dealt to the processes, so these are eliminated")
            hosts.check_portions(self.portion)
            eliminate = self.portion.variables
        self.structure = Structure(problem, eliminate)
        where: Any = (len(self.mesh.local_devices), hosts.largest) if self.portion else (self.mesh.size,)
        self.layout = Layout(self.structure, *where)
        union = hosts.union if self.portion else np.unique
        cg, self.linear_solver, meetings, fronts = chosen(linear_solver, self.layout, union)
        need = devices.estimate(self.layout, self.linear_solver, fronts)
        self.plan = devices.plan(need, self.linear_solver, found)
        """Devices, solver and memory, for a person."""
        devices.check_memory(need, found)
        if not alone:
            devices_log.info(self.plan)
        if jax.process_count() > 1 and not alone:
            hosts.check_same(self.fingerprint(), "were given different data")
        self.system = System(self.structure, meetings, fronts, cg, relative_damping)
        self.factors = [FactorFunctions(f) for f in self.structure.factors]
        self.gradients = Gradients(self.structure, self.layout.n_local)
        self.free = tuple(v for v in problem.variables if v.is_free)
        self.last_gradient: Any = np.inf
        self.cg_steps = 0
        self._specs = tuple(EACH if v is self.structure.eliminated else WHOLE for v in problem.variables)
        self._delta_specs = tuple(EACH if v is self.structure.eliminated else WHOLE for v in self.free)
        with float64():
            n_used = np.bincount(self.layout.device, minlength=self.layout.n_devices).astype(np.int32)
            arrays = (self.layout.observations, () if meetings is None else meetings.arrays, n_used)
            self._arrays = jax.tree.map(self._put, arrays)
            self._fronts = jax.tree.map(lambda x: self._put(x, WHOLE), () if fronts is None else fronts.arrays)
            self._fixed = self._put_rows([v.fixed for v in problem.variables])
        self.layout.release()
        self._functions: dict[Any, Callable] = {}
        self._taus = tuple(f.tau if f.weight is None and not np.ndim(f.tau) else None for f in problem.factors)
        self._held = _Held()
        self.others: dict[str, Any] = {}
        self._ahead: tuple[Step[jax.Array], Point[jax.Array]] | None = None
        """The last step, and where it leads."""
        self.seconds = {"evaluate": 0.0, "linearise": 0.0, "solve": 0.0, "assemble": 0.0, "factorise": 0.0}

    def under(self, kernels: Sequence[Kernel]) -> "XlaEngine":
        other = copy(self)
        other.problem = self.problem.under(kernels)
        other._taus = tuple(float(kernel.tau) for kernel in kernels)
        return other

    @property
    def _kernels(self) -> tuple[Kernel, ...]:
        """With a width of 1: functions of these are compiled once, whatever τ is."""
        return tuple(replace(f.kernel, tau=1.0) for f in self.problem.factors)

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
            u, finite = self._function("evaluate", self._evaluate, (self._specs,), (EACH, WHOLE))(self._arrays, rows)
        return Point(rows, u, finite)

    def each(self, formula: Formula, point: Point[jax.Array], *arrays: PerFactor[jax.Array], **numbers: float) -> Any:
        with self._clock("evaluate"):
            outs = self._formula(formula, False, len(arrays), tuple(numbers))(
                self._arrays, point.u, arrays, _floats(numbers), self._taus
            )
        columns = tuple(zip(*outs, strict=True))
        return columns if len(columns) > 1 else columns[0]

    def total(self, formula: Formula, point: Point[jax.Array], *arrays: PerFactor[jax.Array], **numbers: float) -> Any:
        with self._clock("evaluate"):
            sums = self._formula(formula, True, len(arrays), tuple(numbers))(
                self._arrays, point.u, arrays, _floats(numbers), self._taus
            )
            sums, finite = jax.device_get((sums, point.finite))
            values = [float(x) if finite else float("nan") for x in sums]
        return values[0] if len(values) == 1 else tuple(values)

    def largest(self, formula: Formula, point: Point[jax.Array]) -> float:
        with self._clock("evaluate"):
            key = ("largest", formula, self._kernels)
            function = self._function(key, formulas.largest(self._kernels, formula), (EACH, WHOLE), WHOLE)
            return float(function(self._arrays, point.u, self._taus))

    def solve(self, point: Point[jax.Array], model: Model[jax.Array], damping: float) -> Step[jax.Array] | None:
        linear = self._linearised(point)
        b = (None,) * len(model.a) if model.b is None else model.b
        weights = tuple(Weights(*abc) for abc in zip(model.a, b, model.c, strict=True))
        damping = float(damping)
        with self._clock("solve"):
            if any(v.bounds for v in self.free):
                barred_out = self._function("barred", self._barred_out, (EACH, EACH, self._specs), EACH)
                linear = barred_out(self._arrays, linear, model.c, point.theta)
            with self._clock("assemble"):
                assemble = self._function("assemble", self._assemble, (EACH, EACH, WHOLE), (EACH, WHOLE))
                e, reduced = assemble(self._arrays, linear, weights, damping)
            with self._clock("factorise"):
                specs = (EACH, EACH, EACH, WHOLE, WHOLE, WHOLE, WHOLE)
                finish = self._function("finish", self._finish, specs, (self._delta_specs, WHOLE, WHOLE, WHOLE))
                last = np.float64(self.last_gradient)
                # Cholesky needs no factors any more: with them it would be compiled again for each kind of model.
                factors = (linear, weights) if self.linear_solver == "cg" else ((), ())
                delta, ok, size, steps = finish(self._arrays, *factors, e, reduced, damping, last, self._fronts)
        with float64():
            found = shortened(self.problem.variables, point.theta, dict(zip(self.free, delta, strict=True)))
        step = Step(point, found)
        self._ahead = step, self._moved(step)  # the device goes on while the host waits for `ok`
        with self._clock("solve"), self._clock("factorise"):
            ok = bool(ok)
        if self.linear_solver == "cg":
            self.last_gradient, self.cg_steps = float(size), self.cg_steps + int(steps)
        return step if ok else None

    def radial(self, step: Step[jax.Array]) -> PerFactor[jax.Array]:
        linear = self._linearised(step.start)
        with self._clock("solve"):
            function = self._function("radial", self._radial, (EACH, self._delta_specs), EACH)
            return function(self._arrays, linear, tuple(step.delta[v] for v in self.free))

    def gradient_products(
        self, point: Point[jax.Array], c: PerFactor[jax.Array], d: PerFactor[jax.Array]
    ) -> tuple[float, float, float]:
        linear = self._linearised(point)
        with self._clock("solve"):
            function = self._function("gradients", self._gradients, (EACH, EACH, EACH), WHOLE)
            gg, gh, hh = jax.device_get(function(self._arrays, linear, c, d)).tolist()
        return gg, gh, hh

    def move(self, step: Step[jax.Array]) -> Point[jax.Array]:
        return self._ahead[1] if self._ahead is not None and self._ahead[0] is step else self._moved(step)

    def _moved(self, step: Step[jax.Array]) -> Point[jax.Array]:
        with self._clock("evaluate"):
            specs = (self._specs, self._specs, self._delta_specs)
            function = self._function("move", self._move, specs, (self._specs, EACH, WHOLE))
            delta = tuple(step.delta[v] for v in self.free)
            return Point(*function(self._arrays, self._fixed, step.start.theta, delta))

    # ------------------------------------------------------------ back to the user

    def residuals(self, point: Point[jax.Array]) -> PerFactor[np.ndarray]:
        """The residuals (n, p) of each factor group, in the user's order, without weights."""
        with float64():
            return self.in_user_order(
                self._function("residuals", self._residuals, (self._specs,), EACH)(self._arrays, point.theta)
            )

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
        return tuple(hosts.whole(np.asarray(x), own, n) for x, own, n in each)

    def any(self, here: bool) -> bool:
        """Whether it is so in any process; all must ask."""
        return bool(hosts.largest(here))

    def done(self) -> None:
        """A device gives back what it has when the engine goes."""

    def fingerprint(self) -> bytes:
        return self.problem.fingerprint(hosts.added_up)

    def rows(self, point: Point[jax.Array]) -> tuple[np.ndarray, ...]:
        """Rows of all variables, in the user's order."""
        return tuple(map(self._whole_rows, self.problem.variables, self.rows_here(point)))

    def rows_here(self, point: Point[jax.Array]) -> tuple[np.ndarray, ...]:
        return tuple(map(self._unspread, self.problem.variables, point.theta))

    def step_of(self, step: Step[jax.Array], v: Variables) -> np.ndarray:
        return self._whole_rows(v, self._unspread(v, step.delta[v]))

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
        return hosts.whole(own, self.portion.numbers, self.portion.n_variables)

    def _fetch(self, x: jax.Array) -> np.ndarray:
        """What this host is responsible for."""
        return devices.own_part(x) if self.portion else devices.fetch(x)

    @property
    def is_first(self) -> bool:
        """Whether this process speaks for the run."""
        return hosts.is_first()

    def check_same(self, what: bytes, complaint: str) -> None:
        hosts.check_same(what, complaint)

    # ------------------------------------------------------------ on one device

    def _evaluate(self, arrays, theta):
        rows = self._by_variable(theta)
        squares = []
        for function, o in zip(self.factors, arrays[0], strict=True):
            r = function.residuals(o, rows)
            squares.append(jnp.sum(r * r, axis=1))
        bad = lax.psum(sum(jnp.sum(~jnp.isfinite(u)) for u in squares), AXIS)
        return tuple(squares), bad == 0

    def _move(self, arrays, fixed, theta, delta):
        steps = dict(zip(self.free, delta, strict=True))
        moved = []
        for v, rows, held in zip(self.problem.variables, theta, fixed, strict=True):
            if v.is_free:
                to = jax.vmap(v.manifold.retract)(rows, steps[v])
                rows = jnp.where(held[:, None], rows, to) if v.fixed.any() else to
            moved.append(rows)
        return (tuple(moved), *self._evaluate(arrays, tuple(moved)))

    def _residuals(self, arrays, theta):
        rows = self._by_variable(theta)
        return tuple(f.residuals(o, rows, weighted=False) for f, o in zip(self.factors, arrays[0], strict=True))

    def _linearise(self, arrays, fixed, theta):
        rows, held = self._by_variable(theta), self._by_variable(fixed)
        return tuple(f.linearise(o, rows, held) for f, o in zip(self.factors, arrays[0], strict=True))

    def _assemble(self, arrays, linear, weights, damping):
        observations, met, n_used = arrays
        return self.system.assemble(observations, met, n_used, self.layout.n_local, linear, weights, damping)

    def _finish(self, arrays, linear, weights, e, reduced, damping, last, fronts):
        kept, own, ok, size, steps = self.system.solve(arrays[0], linear, weights, e, reduced, damping, last, fronts)
        delta = dict(zip(self.structure.kept, kept, strict=True))
        return tuple(own if v is self.structure.eliminated else delta[v] for v in self.free), ok, size, steps

    def _radial(self, arrays, linear, delta):
        return radial(self.structure, arrays[0], linear, dict(zip(self.free, delta, strict=True)))

    def _gradients(self, arrays, linear, c, d):
        return self.gradients.products(arrays[0], linear, c, d)

    def _barred_out(self, arrays, linear, c, theta):
        return self.gradients.barred_out(arrays[0], linear, c, self._by_variable(theta))

    # ------------------------------------------------------------ support

    def _formula(self, formula: Formula, summed: bool, n_arrays: int, names: tuple[str, ...]) -> Callable:
        run = formulas.of_each(self._kernels, formula, summed)
        key = (formula, summed, n_arrays, names, self._kernels)
        return self._function(key, run, (EACH, EACH, WHOLE, WHOLE), WHOLE if summed else EACH)

    def _linearised(self, point: Point[jax.Array]) -> tuple[Linearization, ...]:
        """Derivatives at the point; they are held until another point asks."""
        held = self._held
        if held.at is not point:
            with self._clock("linearise"):
                held.linear = ()
                function = self._function("linearise", self._linearise, (self._specs, self._specs), EACH)
                held.linear, held.at = function(self._arrays, self._fixed, point.theta), point
        return held.linear

    def _function(self, key: Any, function: Callable, in_specs: tuple, out_specs: Any) -> Callable:
        """Compiled once; the first argument is always the arrays of the layout."""
        if key not in self._functions:
            self._functions[key] = jax.jit(shard_map(function, self.mesh, (EACH, *in_specs), out_specs))
        return self._functions[key]

    def _by_variable(self, arrays: tuple[jax.Array, ...]) -> dict[Variables, jax.Array]:
        return dict(zip(self.problem.variables, arrays, strict=True))

    def _put_rows(self, theta: Any) -> tuple[jax.Array, ...]:
        rows = []
        for v, x in zip(self.problem.variables, theta, strict=True):
            if v is self.structure.eliminated:
                rows.append(self._put(self.layout.spread(x)))
            else:
                rows.append(self._put(x, WHOLE))
        return tuple(rows)

    def _put(self, x: np.ndarray, spec: P = EACH) -> jax.Array:
        """On the devices; each host gives its own part."""
        sharding = NamedSharding(self.mesh, spec)
        if self.portion and spec == EACH:
            return jax.make_array_from_process_local_data(sharding, x, (hosts.place()[1] * len(x), *x.shape[1:]))
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

    @contextmanager
    def _clock(self, what: str) -> Iterator[None]:
        begin = time.perf_counter()
        with float64(), devices.errors_explained():
            yield
        self.seconds[what] += time.perf_counter() - begin


def _floats(numbers: dict[str, float]) -> dict[str, float]:
    return {name: float(x) for name, x in numbers.items()}

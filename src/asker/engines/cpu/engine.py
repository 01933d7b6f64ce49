"""The CPU engine: residuals, Jacobians, formulas per residual, the linear system, and updates of the variables.

Strategies use only the interface `asker.engines.interface.Verbs`.  Jacobians are evaluated when a step needs them, not
with the residuals.  If variables are eliminated, Jacobians are evaluated inside the loops that use them; otherwise they
are stored until they are needed at another point.
"""

import time
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy import ndarray

from asker.engines.bounds import truncate_at_bounds
from asker.engines.cpu.array_pool import Pool
from asker.engines.cpu.background_compile import precompiling
from asker.engines.cpu.code_cache import on_compile
from asker.engines.cpu.compiler import Argument
from asker.engines.cpu.factor_loops import AnyLoop, FactorCode, compiled_loop
from asker.engines.cpu.system import Derivatives, System, Weights, radial_change, two_gradients, without_active_bounds
from asker.engines.cpu.threads import n_threads, team_of
from asker.engines.interface import Formula, Model, PerFactor, Point, Step, T, TrialFunction, Tried
from asker.engines.solvers import LinearSolver
from asker.engines.sparsity import Structure, is_long
from asker.io.log import log
from asker.kernels.kernel import Kernel
from asker.problem.problem import Problem
from asker.problem.reductions import ALONE
from asker.problem.variables import Variables
from asker.tracing.source_digest import digest_of

LOOP_CACHE_SIZE = 256
"""Compiled loops of formulas, and of retractions, that are cached for other problems."""

on_compile.append(lambda name: log.info("compiling %s (once on this machine)", name))


@dataclass
class _StoredDerivatives:
    """The derivatives at the last point where they were needed, shared with engines for other kernels."""

    linear: list[Derivatives] = field(default_factory=list)
    at: Point[ndarray] | None = None


class _Clock:
    """A context manager that adds the duration of a block to a total, unless the block fails."""

    def __init__(self, seconds: dict[str, float], what: str):
        self.seconds, self.what = seconds, what

    def __enter__(self) -> None:
        self.begin = time.perf_counter()

    def __exit__(self, error: object, *_: object) -> None:
        if error is None:
            self.seconds[self.what] += time.perf_counter() - self.begin


class CpuEngine:
    """The engine for the CPU cores of one machine: compiled loops on threads."""

    name = "cpu"
    is_first = True
    """True for the process that writes the output of a run."""
    sums = ALONE

    def __init__(
        self,
        problem: Problem,
        linear_solver: LinearSolver = "auto",
        eliminate: Variables | bool = True,
        relative_damping: bool = False,
        pool: Pool | None = None,
    ):
        self.problem = problem
        self.structure = Structure(problem, eliminate)
        self.system = System(self.structure, linear_solver, relative_damping)
        self.pool = pool or Pool()
        whole = self.system.solver == "reference" or any(v.is_free and v.bounds for v in problem.variables)
        self.factors = [FactorCode(f, self.pool, fuse_jacobians=not whole) for f in self.structure.factors]
        self._retractions = {v: _retraction(v) for v in problem.variables if v.is_free}
        self._partly_fixed = {v for v in self._retractions if v.fixed.any()}
        self._formula_loops: dict[tuple, list[AnyLoop]] = {}
        self._stored = _StoredDerivatives()
        self._seconds = {"evaluate": 0.0, "linearise": 0.0, "solve": 0.0}

    @property
    def auxiliary_engines(self) -> dict[str, Any]:
        """Engines of subproblems; none are cached, since they are created quickly and take memory."""
        return {}

    def under(self, kernels: Sequence[Kernel]) -> "CpuEngine":
        other = copy(self)
        other.problem = self.problem.under(kernels)
        other.factors = [code.under(f) for code, f in zip(self.factors, other.problem.factors, strict=True)]
        other._formula_loops = {}
        return other

    @property
    def linear_solver(self) -> str:
        return self.system.solver

    @property
    def relative_damping(self) -> bool:
        return self.system.relative

    @property
    def last_gradient(self) -> float:
        """Gradient norm ‖g‖ of the last system that conjugate gradients solved."""
        return self.system.last_gradient

    @last_gradient.setter
    def last_gradient(self, size: float) -> None:
        self.system.last_gradient = size

    @property
    def seconds(self) -> dict[str, float]:
        """Elapsed time by operation; `assemble` and `factorise` are parts of `solve`."""
        return self._seconds | self.system.seconds

    def _clock(self, what: str) -> "_Clock":
        """Return a context that adds its time to the seconds of an activity."""
        return _Clock(self._seconds, what)

    def start(self) -> Point[ndarray]:
        """Evaluate the initial point of the problem."""
        return self.evaluate(tuple(v.rows for v in self.problem.variables))

    def evaluate(self, theta: tuple[ndarray, ...]) -> Point[ndarray]:
        with self._clock("evaluate"):
            rows = dict(zip(self.problem.variables, theta, strict=True))
            results = [code.evaluate(rows) for code in self.factors]
        return Point(theta, tuple(u for u, _ in results), all(finite for _, finite in results))

    def each(self, formula: Formula, point: Point[ndarray], *arrays: PerFactor[ndarray], **numbers: float) -> Any:
        with self._clock("evaluate"):
            outs = []
            for f, loop in enumerate(self._loops(formula, len(arrays), tuple(numbers), False)):
                n = len(point.u[f])
                stores = [self.pool.empty(n, *shape) for shape in loop.store_shapes]
                loop(n, self._inputs(f, point, arrays, numbers), stores)
                outs.append(stores)
        columns = tuple(zip(*outs, strict=True))
        return columns if len(columns) > 1 else columns[0]

    def total(self, formula: Formula, point: Point[ndarray], *arrays: PerFactor[ndarray], **numbers: float) -> Any:
        with self._clock("evaluate"):
            loops = self._loops(formula, len(arrays), tuple(numbers), True)
            parts = [loop(len(point.u[f]), self._inputs(f, point, arrays, numbers)) for f, loop in enumerate(loops)]
            sums = np.sum(parts, axis=0) if point.finite else np.full(loops[0].n_sums, np.nan)
        return float(sums[0]) if len(sums) == 1 else tuple(map(float, sums))

    def largest(self, formula: Formula, point: Point[ndarray]) -> float:
        return max((float(v.max()) for v in self.each(formula, point) if len(v)), default=0.0)

    def solve(self, point: Point[ndarray], model: Model[ndarray], damping: float) -> Step[ndarray] | None:
        b = model.a if model.b is None else model.b
        weights = [Weights(*abc, model.b is not None) for abc in zip(model.a, b, model.c, strict=True)]
        if self.system.solver != "reference" and all(code.will_be_compiled for code in self.factors):
            self._precompile_step(point, weights)
        linear = self._linearised(point)
        with self._clock("solve"):
            free = without_active_bounds(self.structure, linear, model.c, point.theta)
            delta = self.system.solve(free, weights, damping)
        return None if delta is None else Step(point, truncate_at_bounds(self.problem.variables, point.theta, delta))

    def _precompile_step(self, point: Point[ndarray], weights: list[Weights]) -> None:
        """Compile the loops of a step in the background, while further ones are traced, before the first step."""
        if n_threads() == 1:
            return
        try:
            with precompiling(), team_of(1):
                for v, rows in zip(self.problem.variables, point.theta, strict=True):
                    if v.is_free:
                        self._retract(v, rows, np.zeros((len(v), v.manifold.tangent)))
                delta = self.system.precompile(lambda: self._linearised(point), weights)
                if any(w.radial for w in weights):
                    self.radial(Step(point, delta))
                self.residuals(point)  # part of every result
        finally:
            self._stored.at = None  # the derivatives were not computed

    def radial(self, step: Step[ndarray]) -> PerFactor[ndarray]:
        linear = self._linearised(step.start)
        with self._clock("solve"):
            outs = [self.pool.empty(f.n) for f in self.structure.factors]
            for f, lin, out in zip(self.structure.factors, linear, outs, strict=True):
                radial_change(f, lin, step.delta, out)
            return tuple(outs)

    def gradient_products(
        self, point: Point[ndarray], c: PerFactor[ndarray], d: PerFactor[ndarray]
    ) -> tuple[float, float, float]:
        linear = self._linearised(point)
        with self._clock("solve"), np.errstate(over="ignore", invalid="ignore"):
            G = two_gradients(self.structure, linear, c, d)
            products = [[(g[i] * g[j]).sum() for i, j in ((0, 0), (0, 1), (1, 1))] for g in G.values()]
        gg, gh, hh = np.sum(products, axis=0).tolist()
        return gg, gh, hh

    def together(
        self, function: TrialFunction[ndarray, T], point: Point[ndarray], *arrays: PerFactor[ndarray], **numbers: float
    ) -> Tried[ndarray, T] | None:
        return function(self, point, *arrays, **numbers)

    def move(self, step: Step[ndarray]) -> Point[ndarray]:
        with self._clock("evaluate"):
            theta = []
            for v, rows in zip(self.problem.variables, step.start.theta, strict=True):
                if v.is_free:
                    moved = self._retract(v, rows, np.ascontiguousarray(step.delta[v]))
                    if v in self._partly_fixed:
                        moved[v.fixed] = rows[v.fixed]
                    rows = moved
                theta.append(rows)
        return self.evaluate(tuple(theta))

    def _retract(self, v: Variables, rows: ndarray, delta: ndarray) -> ndarray:
        moved = self.pool.empty(*rows.shape)
        self._retractions[v](len(v), [rows, delta], [moved])
        return moved

    def release_workspaces(self) -> None:
        """Free the couplings of eliminated variables and the stored derivatives."""
        self.system.release()
        self._stored.linear, self._stored.at = [], None
        for code in self.factors:
            code.arrays.clear()

    def residuals(self, point: Point[ndarray]) -> PerFactor[ndarray]:
        """Return the unweighted residuals (n, p) of each factor group, in the user's order."""
        rows = dict(zip(self.problem.variables, point.theta, strict=True))
        return tuple(code.residuals(rows) for code in self.factors)

    def in_user_order(self, arrays: PerFactor[ndarray]) -> PerFactor[ndarray]:
        return tuple(f.unsorted(x) for f, x in zip(self.structure.factors, arrays, strict=True))

    def in_own_order(self, arrays: PerFactor[ndarray]) -> PerFactor[ndarray]:
        sorted_ = [f.sorted(x) for f, x in zip(self.structure.factors, arrays, strict=True)]
        return tuple(np.ascontiguousarray(x) for x in sorted_)

    def rows(self, point: Point[ndarray]) -> tuple[ndarray, ...]:
        """Return a copy of the rows of all variables."""
        return tuple(np.array(x) for x in point.theta)

    def here(self, arrays: PerFactor[ndarray]) -> PerFactor[ndarray]:
        return self.in_user_order(arrays)

    def rows_here(self, point: Point[ndarray]) -> tuple[ndarray, ...]:
        return self.rows(point)

    def evaluate_here(self, theta: tuple[ndarray, ...]) -> Point[ndarray]:
        return self.evaluate(theta)

    def for_other(self, problem: Problem, eliminate: Variables | bool = True) -> "CpuEngine":
        return CpuEngine(problem, "auto", eliminate, True, self.pool)

    def for_results(self) -> "CpuEngine":
        return self

    def whole(self, arrays: PerFactor[ndarray]) -> PerFactor[ndarray]:
        """Return the arrays unchanged: a single process has all observations."""
        return arrays

    def any(self, here: bool) -> bool:
        """Return the argument unchanged: there is a single process."""
        return here

    def fingerprint(self) -> bytes:
        return self.problem.fingerprint()

    def check_same(self, what: bytes, complaint: str) -> None:
        """Do nothing: there is a single process."""

    def _linearised(self, point: Point[ndarray]) -> list[Derivatives]:
        """Return the derivatives at the point; they are stored until they are needed at another point."""
        stored = self._stored
        if stored.at is not point:
            with self._clock("linearise"):
                rows = dict(zip(self.problem.variables, point.theta, strict=True))
                stored.linear, stored.at = [code.derivatives(rows) for code in self.factors], point
        return stored.linear

    def _inputs(
        self, f: int, point: Point[ndarray], arrays: tuple[PerFactor[ndarray], ...], numbers: dict[str, float]
    ) -> list[Any]:
        """Return the arguments of the loop of a formula over factor group `f`."""
        return [self.factors[f].tau, point.u[f], *[a[f] for a in arrays], *numbers.values()]

    def _loops(self, formula: Formula, n_arrays: int, names: tuple[str, ...], summed: bool) -> list[AnyLoop]:
        """Return the loops of a formula, one for each factor group, compiled once."""
        key = (formula, n_arrays, names, summed)
        if key not in self._formula_loops:
            self._formula_loops[key] = self._make_loops(*key)
        return self._formula_loops[key]

    def _make_loops(self, formula: Formula, n_arrays: int, names: tuple[str, ...], summed: bool) -> list[AnyLoop]:
        """Compile a formula for the kernel of each factor group; `summed` loops return sums over the observations."""

        def loop(code: FactorCode) -> AnyLoop:
            unit = replace(code.factors.kernel, tau=1.0)  # τ is an argument of the loop instead
            tau = Argument("each" if np.ndim(code.tau) else "scalar")
            return _formula_loop(unit, tau, formula, n_arrays, names, summed)

        return [loop(code) for code in self.factors]


@lru_cache(LOOP_CACHE_SIZE)
def _formula_loop(
    kernel: Any, tau: Argument, formula: Formula, n_arrays: int, names: tuple[str, ...], summed: bool
) -> AnyLoop:
    """Compile a formula of (kernel, u, arrays, numbers) for one kernel."""

    def one(tau: Any, u: Any, *rest: Any) -> Any:
        numbers = dict(zip(names, rest[n_arrays:], strict=True))
        values = formula(replace(kernel, tau=tau), u, *rest[:n_arrays], **numbers)
        values = values if isinstance(values, tuple) else (values,)
        return ((), values) if summed else (values, ())

    arguments = [tau, *[Argument("each")] * (1 + n_arrays), *[Argument("scalar")] * len(names)]
    name = formula.__name__.strip("_")
    what = f"{name} of the kernel {type(kernel).__name__}"
    return compiled_loop(name, arguments, one, what=what, digest=digest_of(one))


def _retraction(v: Variables) -> AnyLoop:
    """Return the compiled loop that adds steps to the values of these variables."""
    manifold: Any = v.manifold
    try:
        return _retraction_on(manifold, v.name)
    except TypeError:  # a user-defined manifold may not be hashable
        return _retraction_on.__wrapped__(manifold, v.name)


@lru_cache(LOOP_CACHE_SIZE)
def _retraction_on(m: Any, name: str) -> AnyLoop:
    """Compile the retraction of a manifold; the name occurs in messages."""

    def retract(x: Any, delta: Any) -> Any:
        return (m.retract(x, delta),), ()

    arguments = [Argument("each", (m.ambient,)), Argument("each", (m.tangent,))]
    long = is_long(1, m.tangent)
    what = f"the steps of {name}"
    return compiled_loop("retract", arguments, retract, what=what, digest=digest_of(retract), batched=long)

"""The CPU engine: residuals, derivatives, per-residual formulas, the linear system, moves.

Strategies use the verbs of `asker.engines.point.Engine` only.  Derivatives are computed when a step asks for them and
kept until another point does: a refused step costs a solve, and a residual alone costs no derivative.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from asker.engines.cpu import blocks
from asker.engines.cpu.compile import tell_of_compiling
from asker.engines.cpu.loops import Argument, BatchedLoop, Loop, make_loop
from asker.engines.cpu.pool import Pool
from asker.engines.cpu.system import Linearization, System, Weights
from asker.engines.cpu.threads import even_bounds, run_loop, run_tasks
from asker.engines.point import Formula, Model, PerFactor, Point, Step
from asker.engines.solvers import CG, LinearSolver
from asker.engines.structure import FactorLayout, Structure
from asker.problem import Problem, Variables

AnyLoop = Loop | BatchedLoop


class CpuEngine:
    name = "cpu"
    is_first = True
    """Whether this process speaks for the run."""

    def __init__(
        self,
        problem: Problem,
        linear_solver: LinearSolver | CG = "auto",
        eliminate: Variables | bool = True,
        relative_damping: bool = False,
    ):
        tell_of_compiling()
        self.problem = problem
        self.structure = Structure(problem, eliminate)
        self.system = System(self.structure, linear_solver, relative_damping)
        self.pool = Pool()
        self.factors = [FactorCode(layout, self.pool) for layout in self.structure.layouts]
        self._retractions = {v: _retraction(v) for v in problem.variables if v.is_free}
        self._formula_loops: dict[tuple, list[AnyLoop]] = {}
        self._linear: list[Linearization] = []
        self._linear_at: Point | None = None
        self._seconds = {"evaluate": 0.0, "linearise": 0.0, "solve": 0.0}

    @property
    def linear_solver(self) -> str:
        return self.system.solver

    @property
    def relative_damping(self) -> bool:
        return self.system.relative

    @property
    def last_gradient(self) -> float:
        """‖g‖ of the last system that conjugate gradients solved."""
        return self.system.last_gradient

    @last_gradient.setter
    def last_gradient(self, size: float) -> None:
        self.system.last_gradient = size

    @property
    def seconds(self) -> dict[str, float]:
        """Time spent so far; `assemble` and `factorise` are parts of `solve`."""
        return self._seconds | self.system.seconds

    @contextmanager
    def _clock(self, what: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self._seconds[what] += time.perf_counter() - begin

    def start(self) -> Point:
        """The point where the problem starts."""
        return self.evaluate(tuple(v.rows for v in self.problem.variables))

    def evaluate(self, theta: tuple[np.ndarray, ...]) -> Point:
        with self._clock("evaluate"):
            rows = dict(zip(self.problem.variables, theta, strict=True))
            results = [code.evaluate(rows) for code in self.factors]
        return Point(theta, tuple(u for u, _ in results), all(finite for _, finite in results))

    def each(self, formula: Formula, point: Point, *arrays: PerFactor, **numbers: float) -> Any:
        with self._clock("evaluate"):
            outs = []
            for f, loop in enumerate(self._loops(formula, len(arrays), tuple(numbers), False)):
                n = len(point.u[f])
                stores = [self.pool.empty(n, *shape) for shape in loop.store_shapes]
                loop(n, self._inputs(f, point, arrays, numbers), stores)
                outs.append(stores)
        columns = tuple(zip(*outs, strict=True))
        return columns if len(columns) > 1 else columns[0]

    def total(self, formula: Formula, point: Point, *arrays: PerFactor, **numbers: float) -> Any:
        with self._clock("evaluate"):
            loops = self._loops(formula, len(arrays), tuple(numbers), True)
            parts = [loop(len(point.u[f]), self._inputs(f, point, arrays, numbers)) for f, loop in enumerate(loops)]
            sums = np.sum(parts, axis=0) if point.finite else np.full(loops[0].n_sums, np.nan)
        return float(sums[0]) if len(sums) == 1 else tuple(map(float, sums))

    def largest(self, formula: Formula, point: Point) -> float:
        return max((float(v.max()) for v in self.each(formula, point) if len(v)), default=0.0)

    def solve(self, point: Point, model: Model, damping: float) -> Step | None:
        linear = self._linearised(point)
        with self._clock("solve"):
            b = model.a if model.b is None else model.b
            weights = [Weights(*abc, model.b is not None) for abc in zip(model.a, b, model.c, strict=True)]
            delta = self.system.solve(linear, weights, damping)
        return None if delta is None else Step(point, delta)

    def radial(self, step: Step) -> PerFactor:
        linear = self._linearised(step.start)
        with self._clock("solve"):
            outs = [self.pool.empty(f.n) for f in self.structure.layouts]
            for f, lin, out in zip(self.structure.layouts, linear, outs, strict=True):
                _radial(f, lin, step, out)
            return tuple(outs)

    def gradient_products(self, point: Point, c: PerFactor, d: PerFactor) -> tuple[float, float, float]:
        linear = self._linearised(point)
        with self._clock("solve"):
            G = {v: np.zeros((2, len(v), v.manifold.tangent)) for v in self.problem.variables if v.is_free}
            for f, layout in enumerate(self.structure.layouts):
                _add_gradients(layout, linear[f], c[f], d[f], G)
            products = [[(g[i] * g[j]).sum() for i, j in ((0, 0), (0, 1), (1, 1))] for g in G.values()]
        gg, gh, hh = np.sum(products, axis=0).tolist()
        return gg, gh, hh

    def move(self, step: Step) -> Point:
        with self._clock("evaluate"):
            theta = []
            for v, rows in zip(self.problem.variables, step.start.theta, strict=True):
                if v.is_free:
                    moved = self.pool.empty(*rows.shape)
                    self._retractions[v](len(v), [rows, np.ascontiguousarray(step.delta[v])], [moved])
                    moved[v.fixed] = rows[v.fixed]
                    rows = moved
                theta.append(rows)
        return self.evaluate(tuple(theta))

    def residuals(self, point: Point) -> PerFactor:
        """The residuals (n, p) of each factor group, in the user's order, without weights."""
        rows = dict(zip(self.problem.variables, point.theta, strict=True))
        return tuple(code.residuals(rows) for code in self.factors)

    def in_user_order(self, arrays: PerFactor) -> PerFactor:
        return tuple(f.unsorted(x) for f, x in zip(self.structure.layouts, arrays, strict=True))

    def in_own_order(self, arrays: PerFactor) -> PerFactor:
        sorted_ = [f.sorted(x) for f, x in zip(self.structure.layouts, arrays, strict=True)]
        return tuple(np.ascontiguousarray(x) for x in sorted_)

    def rows(self, theta: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """A copy of the rows of all variables."""
        return tuple(x.copy() for x in theta)

    def whole(self, arrays: PerFactor) -> PerFactor:
        """Of all observations: there is one process only."""
        return arrays

    def any(self, here: bool) -> bool:
        """Whether it is so in any process: there is one only."""
        return here

    def fingerprint(self) -> bytes:
        return self.problem.fingerprint()

    def check_same(self, what: bytes, complaint: str) -> None:
        """There is one process only."""

    def _linearised(self, point: Point) -> list[Linearization]:
        """Derivatives at the point; they are kept until another point asks."""
        if self._linear_at is not point:
            with self._clock("linearise"):
                rows = dict(zip(self.problem.variables, point.theta, strict=True))
                self._linear = [code.linearise(rows) for code in self.factors]
                self._linear_at = point
        return self._linear

    def _inputs(self, f: int, point: Point, arrays: tuple[PerFactor, ...], numbers: dict[str, float]) -> list[Any]:
        return [self.factors[f].tau, point.u[f], *[a[f] for a in arrays], *numbers.values()]

    def _loops(self, formula: Formula, n_arrays: int, names: tuple[str, ...], summed: bool) -> list[AnyLoop]:
        key = (formula, n_arrays, names, summed)
        if key not in self._formula_loops:
            self._formula_loops[key] = self._make_loops(*key)
        return self._formula_loops[key]

    def _make_loops(self, formula: Formula, n_arrays: int, names: tuple[str, ...], summed: bool) -> list[AnyLoop]:
        def loop(code: FactorCode) -> AnyLoop:
            unit = replace(code.layout.factors.kernel, tau=1.0)  # τ is an argument of the loop
            tau = Argument("each" if np.ndim(code.tau) else "scalar")
            return _formula_loop(unit, tau, formula, n_arrays, names, summed)

        return [loop(code) for code in self.factors]


@cache
def _formula_loop(
    kernel: Any, tau: Argument, formula: Formula, n_arrays: int, names: tuple[str, ...], summed: bool
) -> AnyLoop:
    def one(tau, u, *rest):
        numbers = dict(zip(names, rest[n_arrays:], strict=True))
        values = formula(replace(kernel, tau=tau), u, *rest[:n_arrays], **numbers)
        values = values if isinstance(values, tuple) else (values,)
        return ((), values) if summed else (values, ())

    arguments = [tau, *[Argument("each")] * (1 + n_arrays), *[Argument("scalar")] * len(names)]
    name = formula.__name__.strip("_")
    return make_loop(name, arguments, one, what=f"{name} of the kernel {type(kernel).__name__}")


class FactorCode:
    """The compiled residual and derivatives of one factor group, and its arrays in the engine's order.

    A weight w enters as √w·r and √w·τ, which is the same as w·ψ since every kernel is homogeneous in τ.
    """

    def __init__(self, layout: FactorLayout, pool: Pool):
        self.layout, self.pool = layout, pool
        f = layout.factors
        self.root_weight = None if f.weight is None else np.sqrt(layout.sorted(f.weight))
        tau = layout.sorted(f.tau) if isinstance(f.tau, np.ndarray) else f.tau
        if self.root_weight is None:
            self.tau = tau
        else:
            self.tau = np.ascontiguousarray(tau * np.where(self.root_weight > 0, self.root_weight, 1.0))
        self.data = [_as_argument(layout.sorted(d)) for d in f.data]
        self.free_masks = [(~f.slots[k].variables.fixed).astype(float) for k in layout.free]
        self.loops: dict[str, AnyLoop] = {}
        self.J = np.empty((0, 0))

    def evaluate(self, rows: dict[Variables, np.ndarray]) -> tuple[np.ndarray, bool]:
        if self.layout.factors.jacobian is not None:
            r = self._batched_residual(rows)
            u = np.einsum("np,np->n", r, r)
            return u, bool(np.isfinite(u).all())
        u = self.pool.empty(self.layout.n)
        (not_finite,) = self._loop("squared")(self.layout.n, self._inputs(rows), [u])
        return u, not not_finite

    def linearise(self, rows: dict[Variables, np.ndarray]) -> Linearization:
        n, p, D = self.layout.n, self.layout.p, self.layout.width
        if not D:  # every variable it touches is fixed
            return Linearization(np.zeros((n, p)), np.zeros((n, 0)))
        if self.layout.factors.jacobian is not None:
            return Linearization(self._batched_residual(rows), self._batched_jacobian(rows))
        if not self.J.size:
            self.J, self.r = blocks.spacious(n, p * D), np.empty((n, p))
        masks = [(mask, self.layout.indices[k]) for mask, k in zip(self.free_masks, self.layout.free, strict=True)]
        self._loop("linearise")(n, [*self._inputs(rows), *masks], [self.r, self.J])
        return Linearization(self.r, self.J)

    def residuals(self, rows: dict[Variables, np.ndarray]) -> np.ndarray:
        """Without weights, in the user's order."""
        if self.layout.factors.jacobian is not None:
            return self.layout.unsorted(self._batched_residual(rows, weighted=False))
        r = np.empty((self.layout.n, self.layout.p))
        self._loop("residual")(self.layout.n, self._inputs(rows), [r])
        return self.layout.unsorted(r)

    def _inputs(self, rows: dict[Variables, np.ndarray]) -> list[Any]:
        slots = self.layout.factors.slots
        gathered = [(rows[s.variables], index) for s, index in zip(slots, self.layout.indices, strict=True)]
        return [*gathered, *self.data, *([] if self.root_weight is None else [self.root_weight])]

    def _arguments(self) -> list[Argument]:
        gathered = [Argument("gathered", (s.variables.manifold.ambient,)) for s in self.layout.factors.slots]
        each = [Argument("each", d.shape[1:], str(d.dtype)) for d in self.data]
        return [*gathered, *each, *([] if self.root_weight is None else [Argument("each")])]

    def _loop(self, what: str) -> AnyLoop:
        if what not in self.loops:
            if what == "linearise":
                import jax

                arguments = self._arguments() + [Argument("gathered")] * len(self.free_masks)
                ways = [partial(self._one_linearise, jax.jacfwd), partial(self._one_linearise, jax.jacrev)]
                self.loops[what] = make_loop(
                    what, arguments, *ways, what=f"the derivatives of {self.layout.factors.name}"
                )
            else:
                one, subject = getattr(self, f"_one_{what}"), f"the residual of {self.layout.factors.name}"
                self.loops[what] = make_loop(what, self._arguments(), one, what=subject)
        return self.loops[what]

    def _residual_of(self, rows, others, weighted=True):
        """The residual vector (p,) of one observation from its rows and its data."""
        import jax.numpy as jnp

        slots = self.layout.factors.slots
        data, root_weight = others[: len(self.data)], others[len(self.data) :]
        views = [s.variables.manifold.view(x) for s, x in zip(slots, rows, strict=True)]
        r = jnp.asarray(self.layout.factors.residual(*views, *data)).reshape(self.layout.p)
        return r * root_weight[0] if root_weight and weighted else r

    def _one_residual(self, *args):
        n_slots = len(self.layout.factors.slots)
        return (self._residual_of(args[:n_slots], args[n_slots:], weighted=False),), ()

    def _one_squared(self, *args):
        import jax.numpy as jnp

        n_slots = len(self.layout.factors.slots)
        r = self._residual_of(args[:n_slots], args[n_slots:])
        u = r @ r
        return (u,), (jnp.where(jnp.isfinite(u), 0.0, 1.0),)

    def _one_linearise(self, derivative, *args):
        import jax.numpy as jnp

        layout = self.layout
        n_slots, n_masks = len(layout.factors.slots), len(self.free_masks)
        rows, others, masks = args[:n_slots], args[n_slots:-n_masks], args[-n_masks:]

        def moved(delta):
            at = list(rows)
            for k, start in zip(layout.free, layout.offsets, strict=True):
                manifold = layout.factors.slots[k].variables.manifold
                at[k] = manifold.retract(rows[k], delta[start : start + manifold.tangent])
            return self._residual_of(at, others)

        J = derivative(moved)(np.zeros(layout.width))
        columns = []
        for k, start, mask in zip(layout.free, layout.offsets, masks, strict=True):
            v = layout.factors.slots[k].variables
            block = J[:, start : start + v.manifold.tangent]
            columns.append(jnp.where(mask > 0, block, 0.0) if v.fixed.any() else block)
        return (self._residual_of(rows, others), jnp.concatenate(columns, axis=1)), ()

    def _batched_residual(self, rows: dict[Variables, np.ndarray], weighted: bool = True) -> np.ndarray:
        f = self.layout.factors
        r = np.asarray(f.residual(*f.gather([rows[s.variables] for s in f.slots]), *f.data), dtype=float)
        r = self.layout.sorted(r.reshape(f.n, self.layout.p))
        return np.ascontiguousarray(r * self.root_weight[:, None] if weighted and self.root_weight is not None else r)

    def _batched_jacobian(self, rows: dict[Variables, np.ndarray]) -> np.ndarray:
        f, layout = self.layout.factors, self.layout
        assert f.jacobian is not None
        given = f.jacobian(*f.gather([rows[s.variables] for s in f.slots]), *f.data)
        given = given if isinstance(given, tuple) else (given,)
        if len(given) != len(f.slots):
            raise ValueError(f"{f.name}: jacobian returned {len(given)} arrays, expected one per slot: {len(f.slots)}")
        columns = []
        for k, mask in zip(layout.free, self.free_masks, strict=True):
            shape = (f.n, layout.p, f.slots[k].variables.manifold.tangent)
            J = np.asarray(given[k], dtype=float)
            if J.size != np.prod(shape):
                raise ValueError(f"{f.name}: jacobian[{k}] has shape {J.shape}, expected {shape}")
            columns.append(layout.sorted(J.reshape(shape)) * mask[layout.indices[k]][:, None, None])
        flat = blocks.spacious(f.n, layout.p * layout.width)
        J = flat.reshape(f.n, layout.p, layout.width)
        np.concatenate(columns, axis=2, out=J)
        if self.root_weight is not None:
            J *= self.root_weight[:, None, None]
        return flat


def _add_gradients(layout: FactorLayout, lin: Linearization, c: np.ndarray, d: np.ndarray, G: dict) -> None:
    """Each task sums the kept variables in a copy of its own; the eliminated ones are nobody else's anyway."""
    if not layout.free:
        return
    e, slots = layout.eliminated, layout.factors.slots
    kept = [(s, layout.index_of(s)) for s in layout.kept]
    groups = [G[slots[k].variables] for k in layout.free if slots[k].variables is not layout.eliminated_variables]
    kernel = blocks.gradients(
        layout.p,
        layout.width,
        tuple((s.offset, s.dim) for s, _ in kept),
        e.offset if e else 0,
        e.dim if e else 0,
    )
    ptr = e.ptr if e else np.zeros(1, dtype=np.int64)
    E = G[layout.eliminated_variables] if e else np.zeros((2, 0, 0))
    bounds = even_bounds(E.shape[1] if e else layout.n, smallest=2048, most=16)
    sums = [np.zeros((len(bounds) - 1, *g.shape)) for g in groups]

    def task(t: int) -> None:
        own = [x for (_, index), total in zip(kept, sums, strict=True) for x in (index, total[t])]
        kernel(bounds[t], bounds[t + 1], ptr, lin.J, lin.r, c, d, E, *own)

    run_tasks(task, len(bounds) - 1)
    for g, total in zip(groups, sums, strict=True):
        g += total.sum(axis=0)


def _radial(layout: FactorLayout, lin: Linearization, step: Step, out: np.ndarray) -> None:
    if not layout.free:
        out[:] = 0.0
        return
    slots = [layout.factors.slots[k].variables for k in layout.free]
    kernel = blocks.radial_change(
        layout.p, layout.width, tuple((o, v.manifold.tangent) for o, v in zip(layout.offsets, slots, strict=True))
    )
    pairs = [x for k, v in zip(layout.free, slots, strict=True) for x in (layout.indices[k], step.delta[v])]
    run_loop(kernel, even_bounds(layout.n), lin.J, lin.r, *pairs, out)


def _retraction(v: Variables) -> AnyLoop:
    def retract(x, delta):
        return (v.manifold.retract(x, delta),), ()

    m = v.manifold
    arguments = [Argument("each", (m.ambient,)), Argument("each", (m.tangent,))]
    return make_loop("retract", arguments, retract, what=f"the steps of {v.name}")


def _as_argument(data: np.ndarray) -> np.ndarray:
    dtype = {"f": np.float64, "i": np.int64, "u": np.int64, "b": np.bool_}[data.dtype.kind]
    return np.ascontiguousarray(data, dtype=dtype)

"""The interface between strategies and engines.

Strategies only use `Verbs`; the solve loop (`asker.solver.loop`) and its checkpoints use the whole `Engine`.

A formula is a function `formula(kernel, u, *arrays, **numbers)` of one residual, with u = ‖r‖².  It consists of
arithmetic and of array functions of `asker.tracing.array_namespace.namespace`; it is compiled like a residual function.

`A` is the array type of an engine, of NumPy or of JAX.  Strategies treat arrays as opaque.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Concatenate, Generic, NamedTuple, Protocol, Self, TypeVar, overload

from numpy.typing import NDArray

from asker.kernels.kernel import Array, Kernel
from asker.problem.problem import Problem
from asker.problem.reductions import Sums
from asker.problem.variables import Variables

A = TypeVar("A")
T = TypeVar("T", bound="float | tuple[float, ...]")
PerFactor = tuple[A, ...]
"""One array of per-residual numbers for each factor group, in the order of the engine."""
Formula = Callable[Concatenate[Kernel, A, ...], A]
"""A function of one residual that returns a number."""
TupleFormula = Callable[Concatenate[Kernel, A, ...], tuple[A, ...]]
"""A function of one residual that returns several numbers."""


def psi(kernel: Kernel, u: Array) -> Array:
    """Return the cost ψ of a residual."""
    return kernel.psi(u)


def omega(kernel: Kernel, u: Array) -> Array:
    """Return the weight ω of a residual."""
    return kernel.omega(u)


def zero(kernel: Kernel, u: Array) -> Array:
    """Return 0."""
    return 0.0 * u


@dataclass(frozen=True, eq=False)
class Point(Generic[A]):
    """Values of all variables, with the squared residuals there."""

    theta: tuple[A, ...]
    """The rows of each variable group."""
    u: PerFactor[A]
    """‖r‖² of every residual."""
    finite: bool | A
    """True if all residuals are finite; a device may evaluate this asynchronously."""


class Model(NamedTuple, Generic[A]):
    """The quadratic model of a step, with Hᵢ = Jᵢᵀ(aᵢI + bᵢ rᵢrᵢᵀ)Jᵢ and gᵢ = cᵢJᵢᵀrᵢ."""

    a: PerFactor[A]
    b: PerFactor[A] | None
    """None for 0."""
    c: PerFactor[A]


@dataclass(frozen=True, eq=False)
class Step(Generic[A]):
    """The solution δ of the linear system at a point."""

    start: Point[A]
    delta: dict[Variables, A]


class Tried(NamedTuple, Generic[A, T]):
    """The result of a trial step."""

    point: Point[A]
    arrays: tuple[PerFactor[A], ...]
    """Per-residual numbers that belong to the point."""
    totals: T
    """Sums over all residuals, as `Verbs.total` returns them."""


TrialFunction = Callable[Concatenate["Verbs[A]", Point[A], ...], Tried[A, T] | None]
"""A function `function(verbs, point, *arrays, **numbers)` such as a trial step of a strategy; None if `solve` fails."""


class Verbs(Protocol[A]):
    """The operations of an engine that strategies use."""

    problem: Problem

    @overload
    def each(
        self, formula: TupleFormula[A], point: Point[A], *arrays: PerFactor[A], **numbers: float
    ) -> tuple[PerFactor[A], ...]: ...

    @overload
    def each(self, formula: Formula[A], point: Point[A], *arrays: PerFactor[A], **numbers: float) -> PerFactor[A]: ...

    def each(
        self, formula: TupleFormula[A] | Formula[A], point: Point[A], *arrays: PerFactor[A], **numbers: float
    ) -> tuple[PerFactor[A], ...] | PerFactor[A]:
        """Evaluate a formula for every residual; return one `PerFactor`, or a tuple of them for a `TupleFormula`."""

    @overload
    def total(  # type: ignore[overload-overlap]  # every tuple formula is also a formula with A = Any
        self, formula: TupleFormula[A], point: Point[A], *arrays: PerFactor[A], **numbers: float
    ) -> tuple[float, ...]: ...

    @overload
    def total(self, formula: Formula[A], point: Point[A], *arrays: PerFactor[A], **numbers: float) -> float: ...

    def total(
        self, formula: TupleFormula[A] | Formula[A], point: Point[A], *arrays: PerFactor[A], **numbers: float
    ) -> tuple[float, ...] | float:
        """Return the sum of a formula over all residuals; NaN if a residual of the point is not finite."""

    def largest(self, formula: Formula[A], point: Point[A]) -> float:
        """Return the maximum of a non-negative formula over all residuals."""

    def solve(self, point: Point[A], model: Model[A], damping: float) -> Step[A] | None:
        """Return the solution of the damped linear system, or None if it has none."""

    def radial(self, step: Step[A]) -> PerFactor[A]:
        """Return rᵀJδ of every residual."""

    def gradient_products(self, point: Point[A], c: PerFactor[A], d: PerFactor[A]) -> tuple[float, float, float]:
        """Return g·g, g·h and h·h of the gradients g = Σ c Jᵀr and h = Σ d Jᵀr."""

    def move(self, step: Step[A]) -> Point[A]:
        """Return the point after a step, with its residuals but without derivatives."""

    def together(
        self, function: TrialFunction[A, T], point: Point[A], *arrays: PerFactor[A], **numbers: float
    ) -> Tried[A, T] | None:
        """Return the result of a trial function; a device runs all of its verbs as one program."""

    def under(self, kernels: Sequence[Kernel]) -> "Self":
        """Return the same engine under other kernels, one per factor group; points and derivatives are shared."""


class Engine(Verbs[A], Protocol[A]):
    """The evaluation of residuals and the solution of linear systems on one kind of hardware.

    Arrays of an engine are in its own order, and may be on devices.  Results for the user and for files are NumPy
    arrays in the user's order.  They cover the whole problem, even if each of several processes has only a portion of
    it; then all processes must call the same members.
    """

    sums: Sums
    """Sums over the observations of the whole problem."""
    last_gradient: float
    """‖g‖ of the last system that conjugate gradients solved; a continued run needs it to reproduce its iterates."""

    @property
    def name(self) -> str:
        """The name of the engine in `solve(engine=...)`."""

    @property
    def auxiliary_engines(self) -> "dict[str, Engine[A]]":
        """Engines for other functions of the same observations, by name; engines under other kernels share them."""

    @property
    def linear_solver(self) -> str:
        """The name of the linear solver in use."""

    @property
    def relative_damping(self) -> bool:
        """True if damping adds λ diag(H) instead of λI."""

    @property
    def seconds(self) -> dict[str, float]:
        """The time spent so far, by activity."""

    @property
    def is_first(self) -> bool:
        """True if this is the process that writes files and messages."""

    def start(self) -> Point[A]:
        """Return the point at the initial values."""

    def evaluate(self, theta: tuple[NDArray, ...]) -> Point[A]:
        """Return the point with these rows of all variables."""

    def release_workspaces(self) -> None:
        """Release memory that only further steps need; a hint that no further step is expected."""

    def rows(self, point: Point[A]) -> tuple[NDArray, ...]:
        """Return the rows of all variables at a point."""

    def residuals(self, point: Point[A]) -> tuple[NDArray, ...]:
        """Return the residuals (n, p) of each factor group in the user's order, without weights."""

    def in_user_order(self, arrays: PerFactor[A]) -> tuple[NDArray, ...]:
        """Return per-residual numbers in the user's order, from the order of the engine."""

    def in_own_order(self, arrays: tuple[NDArray, ...]) -> PerFactor[A]:
        """Return per-residual numbers in the order of the engine, from the user's order."""

    def here(self, arrays: PerFactor[A]) -> tuple[NDArray, ...]:
        """Return per-residual numbers of the observations of this process, in the user's order."""

    def rows_here(self, point: Point[A]) -> tuple[NDArray, ...]:
        """Return the rows of the variables of this process at a point."""

    def evaluate_here(self, theta: tuple[NDArray, ...]) -> Point[A]:
        """Return the point with these rows of the variables of this process."""

    def for_other(self, problem: Problem, eliminate: Variables | bool = True) -> "Self":
        """Return an engine of the same kind for another problem of this process alone, with relative damping."""

    def for_results(self) -> "Self":
        """Return the same engine; for a portion written `in_parts`, its results cover only this portion."""

    def whole(self, arrays: tuple[NDArray, ...]) -> tuple[NDArray, ...]:
        """Return numbers of all observations, from those of the observations of each process."""

    def any(self, here: bool) -> bool:
        """Return whether the condition is true in any process."""

    def fingerprint(self) -> bytes:
        """Return the fingerprint of the whole problem."""

    def check_same(self, what: bytes, complaint: str) -> None:
        """Raise a `ProblemError` with the complaint unless all processes have the same content."""

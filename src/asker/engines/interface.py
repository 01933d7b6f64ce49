"""What strategies and engines hand each other, and the contract of an engine.

Strategies speak in the verbs alone; the loop (`asker.solve`) and its checkpoints use the rest of the contract too.

A formula is a function `formula(kernel, u, *arrays, **numbers)` of ONE residual, written with arithmetic and the
array functions of `asker.tracing.array_namespace.namespace`; it is compiled in the same way as a residual function.

`A` is the kind of arrays that an engine has, NumPy's or JAX's.  Only the engine looks into them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from numpy.typing import NDArray

from asker.kernels.kernel import Kernel
from asker.problem.problem import Problem
from asker.problem.reductions import Sums
from asker.problem.variables import Variables

A = TypeVar("A")
PerFactor = tuple[A, ...]
"""One array of per-residual numbers for each factor group, in the engine's own order."""
Formula = Callable[..., Any]


def psi(kernel: Any, u: Any) -> Any:
    """The formula of the cost."""
    return kernel.psi(u)


def omega(kernel: Any, u: Any) -> Any:
    """The formula of the weight."""
    return kernel.omega(u)


def nothing(kernel: Any, u: Any) -> Any:
    """The formula of 0."""
    return 0.0 * u


@dataclass(frozen=True, eq=False)
class Point(Generic[A]):
    """Values of all variables, and the squared residuals there."""

    theta: tuple[A, ...]
    """The rows of each variable group."""
    u: PerFactor[A]
    """‖r‖² of every residual."""
    finite: bool | A
    """Whether every residual is a number; a device may still be working it out."""


class Model(NamedTuple, Generic[A]):
    """Hᵢ = Jᵢᵀ(aᵢI + bᵢ rᵢrᵢᵀ)Jᵢ,  gᵢ = cᵢJᵢᵀrᵢ: all that a strategy says about a step."""

    a: PerFactor[A]
    b: PerFactor[A] | None
    """None for 0."""
    c: PerFactor[A]


@dataclass(frozen=True, eq=False)
class Step(Generic[A]):
    """The solution δ of the linear system, from one point."""

    start: Point[A]
    delta: dict[Variables, A]


class Tried(NamedTuple, Generic[A]):
    """What a function of verbs found."""

    point: Point[A]
    arrays: tuple[PerFactor[A], ...]
    """Per-residual numbers that belong to the point."""
    totals: Any
    """As `total` gives them."""


class Together(Protocol):
    """A function of verbs, such as one trial step of a strategy; None where `solve` gives None."""

    def __call__(self, verbs: Any, point: Any, *arrays: Any, **numbers: Any) -> Tried | None: ...


class Verbs(Protocol[A]):
    """All that a strategy sees of an engine."""

    problem: Problem

    def each(self, formula: Formula, point: Point[A], *arrays: PerFactor[A], **numbers: float) -> Any:
        """A formula of every residual: one PerFactor, or a tuple of them where the formula returns a tuple."""

    def total(self, formula: Formula, point: Point[A], *arrays: PerFactor[A], **numbers: float) -> Any:
        """The same, summed over all residuals; NaN where a residual of the point is not finite."""

    def largest(self, formula: Formula, point: Point[A]) -> float:
        """The largest value of a formula that is never negative."""

    def solve(self, point: Point[A], model: Model[A], damping: float) -> Step[A] | None:
        """The step of the one linear system; None when it has none."""

    def radial(self, step: Step[A]) -> PerFactor[A]:
        """rᵀJδ of every residual."""

    def gradient_products(self, point: Point[A], c: PerFactor[A], d: PerFactor[A]) -> tuple[float, float, float]:
        """g·g, g·h and h·h of the gradients g = Σ c Jᵀr and h = Σ d Jᵀr."""

    def move(self, step: Step[A]) -> Point[A]:
        """The point that the step leads to, with its residuals and no derivatives."""

    def together(self, function: Together, point: Point[A], *arrays: PerFactor[A], **numbers: float) -> Tried[A] | None:
        """What the function finds; a device does all of its verbs as one program."""

    def under(self, kernels: Sequence[Kernel]) -> "Self":
        """The same engine under other kernels, one for each factor group; points and derivatives are shared."""


class Engine(Verbs[A], Protocol[A]):
    """A machine that a problem is solved on: the verbs, and what the loop and its checkpoints need beside them.

    Arrays of an engine are in its own order, and perhaps on devices.  What goes to the user or to a file is in the
    user's order, as NumPy arrays, and of the whole problem, also where several processes have a portion of it each.
    Then all of them must call the same members.
    """

    sums: Sums
    """Over the observations of the whole problem."""
    last_gradient: float
    """‖g‖ of the last system that conjugate gradients solved: with it a run continues as it would have."""

    @property
    def name(self) -> str:
        """As in `solve(engine=...)`."""

    @property
    def others(self) -> dict[str, Any]:
        """Engines for the same observations, by what they are for: an engine under other kernels shares them."""

    @property
    def linear_solver(self) -> str:
        """The one that was chosen."""

    @property
    def relative_damping(self) -> bool:
        """Whether λ diag(H) is added, and not λI."""

    @property
    def seconds(self) -> dict[str, float]:
        """The time spent so far, by what it was spent on."""

    @property
    def is_first(self) -> bool:
        """Whether this process speaks for the run."""

    def start(self) -> Point[A]:
        """The point where the problem starts."""

    def evaluate(self, theta: tuple[NDArray, ...]) -> Point[A]:
        """The point with these rows of all variables."""

    def done(self) -> None:
        """No step is asked for any more, for all one knows: what only steps need may be given back."""

    def rows(self, point: Point[A]) -> tuple[NDArray, ...]:
        """The rows of all variables at a point, for the user."""

    def residuals(self, point: Point[A]) -> tuple[NDArray, ...]:
        """The residuals (n, p) of each factor group, without weights, for the user."""

    def in_user_order(self, arrays: PerFactor[A]) -> tuple[NDArray, ...]:
        """Per-residual numbers of the engine, for the user."""

    def in_own_order(self, arrays: tuple[NDArray, ...]) -> PerFactor[A]:
        """Per-residual numbers of the user, for the engine."""

    def here(self, arrays: PerFactor[A]) -> tuple[NDArray, ...]:
        """Per-residual numbers of the engine, for the user, of the observations that this process has."""

    def rows_here(self, point: Point[A]) -> tuple[NDArray, ...]:
        """The rows of all variables at a point, as this process has them."""

    def evaluate_here(self, theta: tuple[NDArray, ...]) -> Point[A]:
        """The point with these rows of all variables, as this process has them."""

    def for_other(self, problem: Problem, eliminate: Variables | bool = True) -> "Self":
        """An engine of the same kind for another problem, with relative damping; this process alone has its portion."""

    def for_results(self) -> "Self":
        """The same engine; where a portion is `in_parts`, what it gives the user is of that portion alone."""

    def whole(self, arrays: tuple[NDArray, ...]) -> tuple[NDArray, ...]:
        """Of all observations, from those that this process has."""

    def any(self, here: bool) -> bool:
        """Whether it is so in any process."""

    def fingerprint(self) -> bytes:
        """That of the whole problem."""

    def check_same(self, what: bytes, complaint: str) -> None:
        """A `ProblemError` with the complaint, unless all processes have the same."""

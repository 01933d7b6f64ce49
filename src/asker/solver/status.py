"""Status of a solve, records of its iterations, and the functions that analyse its result."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from asker.problem.by_group import Groups
from asker.solver.doubts import Doubt


class Status(Enum):
    """Reason for termination; the value is the sentence printed for the user."""

    CONVERGED = "the relative decrease of the cost fell below `tol`, or the decrease is insignificant given the noise"
    MAX_ITERATIONS = "reached `max_iterations`; the result may not be a minimum"
    TIME_LIMIT = "reached `time_limit`; the result may not be a minimum"
    STALLED = "no step was accepted up to the largest damping"
    AT_BORDER = "longer steps, which might lower the cost further, give residuals that are not finite"
    STOPPED = "`on_iteration` asked to stop"
    INTERRUPTED = "interrupted; this is the best point evaluated so far"


@dataclass(frozen=True, eq=False)
class Iteration:
    """Record of one iteration in `Result.history`; number 0 is the initial guess."""

    iteration: int
    cost: float
    """Ψ at the current point."""
    best_cost: float
    """Lowest Ψ so far.  If the noise scale is estimated, each stage has a different kernel and thus a different Ψ; the
    first and last record have the Ψ of the result's kernel."""
    seconds: float
    """Wall-clock time since the call of `solve`, including compilation."""
    damping: float
    accepted: bool
    details: dict[str, Any] = field(default_factory=dict)
    """Additional quantities of the strategy, such as its objectives and its graduation level."""

    def as_dict(self) -> dict[str, Any]:
        """Return all fields in one dictionary; the entries of `details` are merged into it."""
        plain = {f.name: getattr(self, f.name) for f in fields(Iteration)}
        return plain | plain.pop("details")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Iteration) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Analysis:
    """Functions that compute uncertainties and diagnostics of a result.

    They live in packages that import this module, so the solver passes them to each result.
    """

    uncertainty: Callable[..., Any]
    leverage: Callable[..., Groups[Any]]
    doubts: Callable[..., tuple[Doubt, ...]]
    undetermined: Callable[..., Doubt | None]
    """Returns a doubt that names the unknowns not determined by a linearised model and weights, or None."""
    derivatives: Callable[..., Any]
    """Returns the derivatives of a result with respect to the parameters of its problem."""


_registered: list[Analysis] = []


def register_analysis(analysis: Analysis) -> None:
    """Set the functions that analyse results whose problem is attached."""
    _registered[:] = [analysis]


def registered_analysis() -> Analysis:
    """Return the functions that analyse results; the package registers them when `asker.solve` is imported."""
    return _registered[0]

"""What a solve returns."""

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from asker.problem import Problem, Variables


class Status(Enum):
    """Why the solver stopped; the value is the sentence for the user."""

    CONVERGED = "the relative decrease of the cost fell below `tol`"
    MAX_ITERATIONS = "reached `max_iterations`; the result may not be a minimum"
    TIME_LIMIT = "reached `time_limit`; the result may not be a minimum"
    STALLED = "no step was accepted up to the largest damping"
    STOPPED = "`on_iteration` asked to stop"
    INTERRUPTED = "interrupted; this is the best point seen so far"


@dataclass(frozen=True)
class Iteration:
    """One line of the history; number 0 is the start."""

    iteration: int
    cost: float
    """Ψ at the current point."""
    best_cost: float
    """The lowest Ψ so far."""
    seconds: float
    """Since the start, compilation included."""
    damping: float
    accepted: bool
    details: dict[str, Any] = field(default_factory=dict)
    """What the strategy adds: its own objectives, its level."""

    def as_dict(self) -> dict[str, Any]:
        plain = asdict(self)
        return plain | plain.pop("details")


@dataclass(frozen=True, eq=False)
class Result:
    """The best point seen, and how it was reached."""

    problem: Problem
    values: dict[Variables, Any]
    """The variables at the best point, shaped as they were given; also `result[variables]`."""
    cost: float
    """Ψ at the best point."""
    initial_cost: float
    status: Status
    history: list[Iteration]
    residuals: tuple[np.ndarray, ...]
    """(n, p) for each factor group."""
    weights: tuple[np.ndarray, ...]
    """ω of each residual, for each factor group."""
    inliers: tuple[np.ndarray, ...]
    """Masks: ‖r‖ is at most the kernel's `inlier_radius` (τ/√3 for the smooth truncated kernel)."""
    seconds: dict[str, float]
    """Time spent in `evaluate`, `linearise` and `solve` (with its parts `assemble` and `factorise`), and in `total`."""
    strategy: Any
    engine: str
    linear_solver: str
    """What was used, where `auto` was asked for."""
    relative_damping: bool
    """Whether λ diag(H) was added in place of λI."""

    def __getitem__(self, variables: Variables) -> Any:
        return self.values[variables]

    @property
    def x(self) -> Any:
        """The answer of a problem with a single variable, as in SciPy."""
        if len(self.values) != 1 or len(self.problem.variables[0]) != 1:
            raise AttributeError("`x` is for problems with one variable; use `result[variables]`")
        return self.values[self.problem.variables[0]][0]

    @property
    def iterations(self) -> int:
        return self.history[-1].iteration

    @property
    def inlier_ratio(self) -> float:
        """Over all factor groups."""
        return sum(map(np.count_nonzero, self.inliers)) / sum(map(len, self.inliers))

    def __repr__(self) -> str:
        return (
            f"Result(cost {self.initial_cost:.6g} -> {self.cost:.6g}, inliers {self.inlier_ratio:.1%}, "
            f"{self.iterations} iterations in {self.seconds['total']:.3g} s: {self.status.value})"
        )

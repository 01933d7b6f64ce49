"""Descent on an objective of the residuals by reweighted least squares with a trust region.

An objective of the residuals r, such as an M-scale, has weights w with gradient proportional to Σ wᵢrᵢJᵢ.  A step
minimises Σ wᵢ(rᵢ + Jᵢp)² within the trust region (`asker.engines.dense_step`); it is accepted if the objective
decreases.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from asker.engines.dense_step import bounded_step, column_norms

Floats = NDArray[np.float64]
MAX_STEPS = 200
"""Default maximum number of steps."""
RTOL = 1e-10
"""Relative decrease of the objective at which a descent has converged."""
MIN_RELATIVE_RADIUS = 1e-10
"""Radius of the trust region, relative to ‖Dx‖, at which a descent has converged."""


class Residuals(Protocol):
    """Residual function of x with derivatives (`asker.problem.vector_problem.Functions`)."""

    @property
    def start(self) -> Floats:
        """Initial guess."""
        ...

    @property
    def lower(self) -> Floats | float:
        """Lower bounds."""
        ...

    @property
    def upper(self) -> Floats | float:
        """Upper bounds."""
        ...

    def __call__(self, x: Floats) -> Floats:
        """Return the residuals (n,)."""
        ...

    def derivatives(self, x: Floats) -> Floats:
        """Return the derivatives (n, d)."""
        ...


class Evaluated(NamedTuple):
    """Value of an objective and its weights."""

    value: float
    weights: Floats


Objective = Callable[[Floats], Evaluated]
"""Function of the residuals."""


@dataclass(frozen=True)
class Descended:
    """Last point of a descent."""

    x: Floats
    residuals: Floats
    value: float
    weights: Floats
    converged: bool
    n_steps: int


@np.errstate(over="ignore", invalid="ignore")
def descend(functions: Residuals, x: Floats, objective: Objective, max_steps: int = MAX_STEPS) -> Descended:
    """Return the point after a descent from x.

    Parameters
    ----------
    functions
        Residuals and their derivatives.
    x
        Initial guess; its residuals must be finite.
    objective
        Objective of the residuals and its weights.
    max_steps
        Maximum number of steps, of which rejected ones count.
    """
    r = functions(x)
    value, w = objective(r)
    D, radius = np.zeros(len(x)), np.inf
    for step in range(1, max_steps + 1):
        if value == 0:
            return Descended(x, r, value, w, True, step)
        J, root = functions.derivatives(x), np.sqrt(w)
        f, J = root * r, root[:, None] * J
        D = np.maximum(D, column_norms(J))
        scales = np.where(D > 0, D, 1.0)
        if not np.isfinite(radius):
            radius = float(np.linalg.norm(scales * x)) or float(np.linalg.norm(f)) or 1.0
        while True:
            to, lam = bounded_step(f, J, scales, x, functions.lower, functions.upper, radius)
            length = float(np.linalg.norm(scales * (to - x)))
            other = functions(to)
            trial = objective(other) if np.isfinite(other).all() else Evaluated(np.inf, w)
            if trial.value < value:
                break
            radius = 0.25 * min(radius, length) if length > 0 else 0.0
            if radius <= MIN_RELATIVE_RADIUS * float(np.linalg.norm(scales * x)) or trial.value - value <= RTOL * value:
                return Descended(x, r, value, w, True, step)
        has_converged = value - trial.value <= RTOL * value
        radius = max(radius, 2 * length) if lam == 0 or length >= radius / 2 else radius
        x, r, (value, w) = to, other, trial
        if has_converged:
            return Descended(x, r, value, w, True, step)
    return Descended(x, r, value, w, False, max_steps)


def weighted_squares(weights: Floats) -> Objective:
    """Return the objective ½ Σ wr² with constant weights."""
    return lambda r: Evaluated(float(0.5 * weights @ (r * r)), weights)

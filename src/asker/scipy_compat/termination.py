"""Termination criteria of `least_squares`: SciPy's three tolerances, and its callback."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.problem.vector_problem import Functions
from asker.scipy_compat.losses import Loss, descent_model
from asker.solver.iteration import CurrentIteration

Floats = NDArray[np.float64]
EPS = float(np.finfo(float).eps)
MAX_GAIN_RATIO = 2.0
"""Maximum ratio of the actual to the predicted decrease of a step that may indicate convergence."""


def optimality(g: Floats, x: Floats, lower: Floats, upper: Floats) -> float:
    """Return the largest entry of the gradient, without those that point out of an active bound."""
    is_bounded = ((x <= lower) & (g > 0)) | ((x >= upper) & (g < 0))
    return float(np.max(np.abs(np.where(is_bounded, 0.0, g)), initial=0.0))


def cosine(f: Floats, J: Floats, x: Floats, lower: Floats, upper: Floats) -> float:
    """Return the largest cosine of the angle between f and a column of J, without those of active bounds."""
    g = J.T @ f
    is_bounded = ((x <= lower) & (g > 0)) | ((x >= upper) & (g < 0))
    lengths = np.linalg.norm(J, axis=0) * np.linalg.norm(f)
    cosines = np.abs(np.divide(g, lengths, out=np.zeros_like(g), where=lengths > 0))
    return float(np.max(np.where(is_bounded, 0.0, cosines), initial=0.0))


class Stopping:
    """Callback of the solve loop that applies the criteria of MINPACK; `status` is SciPy's number of the reason.

    gtol   the cosine of the angle between f and each column of J is below gtol, as in SciPy's method lm
    ftol   the actual and the predicted relative decrease of the cost in a step are below ftol
    xtol   the radius of the trust region, relative to ‖Dx‖, is below xtol

    No criterion depends on the units of the residuals and unknowns.
    """

    def __init__(
        self,
        functions: Functions,
        loss: Loss | None,
        lower: Floats,
        upper: Floats,
        tolerances: tuple[float, float, float],
        callback: Callable[..., Any] | None,
    ):
        """Apply the tolerances to this loss; without a loss only the callback stops the loop."""
        self.functions, self.loss, self.between = functions, loss, (lower, upper)
        self.ftol, self.xtol, self.gtol = tolerances
        self.callback = callback
        self.status: int | None = None
        self.cost = np.inf

    def __call__(self, line: CurrentIteration) -> bool:
        if self.loss is not None:
            if line.iteration:
                self.status = self._of_step(line)
            if line.accepted and self.status is None and self._is_stationary(line):
                self.status = 1
            self.cost = line.cost
        if self.callback and line.iteration and self._asks_to_stop(line):
            self.status = -2
        return self.status is not None

    def _is_stationary(self, line: CurrentIteration) -> bool:
        assert self.loss is not None
        x = line.values[0][0]
        f, J = descent_model(self.loss, self.functions(x), self.functions.derivatives(x))
        return cosine(f, J, x, *self.between) < self.gtol

    def _of_step(self, line: CurrentIteration) -> int | None:
        decrease, predicted = line.details["decrease"], line.details["predicted_decrease"]
        negligible = max(self.ftol, EPS) * self.cost
        is_little = abs(decrease) <= negligible and predicted <= negligible and decrease <= MAX_GAIN_RATIO * predicted
        is_short = line.details["relative_radius"] <= max(self.xtol, EPS)
        return {(True, True): 4, (True, False): 2, (False, True): 3}.get((is_little, is_short))

    def _asks_to_stop(self, line: CurrentIteration) -> bool:
        """Return True if the user's callback returns True or raises StopIteration.

        As in SciPy, its argument is x, or the intermediate result if this is the name of its only argument.
        """
        from scipy.optimize import OptimizeResult

        assert self.callback is not None
        x = line.values[0][0]
        intermediate = OptimizeResult(
            x=x, fun=self.functions(x), nit=line.iteration, nfev=self.functions.n_calls, cost=line.cost
        )
        try:
            if [*inspect.signature(self.callback).parameters] == ["intermediate_result"]:
                returned = self.callback(intermediate_result=intermediate)
            else:
                returned = self.callback(x.copy())
        except StopIteration:
            return True
        return isinstance(returned, bool | np.bool_) and bool(returned)

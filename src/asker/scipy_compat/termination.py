"""Termination criteria of `least_squares`: SciPy's three tolerances, and its callback."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.scipy_compat.losses import Loss, in_model
from asker.scipy_compat.vector_problem import Functions
from asker.solver.iteration import CurrentIteration
from asker.strategies.strategy import SMALLEST_DAMPING

Floats = NDArray[np.float64]
MIN_GAIN_RATIO = 0.25
"""Minimum ratio of the actual to the predicted decrease of a step that may indicate convergence."""


def optimality(g: Floats, x: Floats, lower: Floats, upper: Floats) -> float:
    """Return the largest entry of the gradient, without those that point out of an active bound."""
    is_bounded = ((x <= lower) & (g > 0)) | ((x >= upper) & (g < 0))
    return float(np.max(np.abs(np.where(is_bounded, 0.0, g)), initial=0.0))


class Stopping:
    """Callback of the solve loop that applies SciPy's criteria; `status` is SciPy's number of the reason.

    gtol   the gradient is below gtol
    ftol   two consecutive accepted steps have a relative decrease below ftol, which agrees with the model
    xtol   the relative length of a step, accepted or not, is below xtol

    The last two are ignored while the damping decreases from step to step, since longer steps may follow.
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
        self.n_calls = 0
        self.was_little = self.was_accepted = False
        self.damping = 0.0

    def __call__(self, line: CurrentIteration) -> bool:
        if self.loss is not None:
            if line.iteration:
                self.status = self._of_step(line)
            if line.iteration == 0 or (line.accepted and self.status is None):
                self._take(line)
        if self.callback and line.iteration and self._asks_to_stop(line):
            self.status = -2
        return self.status is not None

    def _take(self, line: CurrentIteration) -> None:
        """Store the point of an iteration, from which the next step starts."""
        assert self.loss is not None
        self.x, self.cost, self.n_calls = self.functions.last.copy(), line.cost, self.functions.n_calls
        f, self.J = in_model(self.loss, self.functions(self.x), self.functions.derivatives(self.x))
        self.g = self.J.T @ f
        if optimality(self.g, self.x, *self.between) < self.gtol:
            self.status = 1

    def _of_step(self, line: CurrentIteration) -> int | None:
        if self.functions.n_calls == self.n_calls:  # there was no trial
            return None
        self.n_calls = self.functions.n_calls
        step = self.functions.last - self.x
        short = bool(np.linalg.norm(step) < self.xtol * (self.xtol + np.linalg.norm(self.x)))
        has_settled = False
        if line.accepted:
            Js = self.J @ step
            predicted = -(self.g @ step + 0.5 * Js @ Js)
            gained = self.cost - line.cost
            little = bool(gained < self.ftol * self.cost and gained > MIN_GAIN_RATIO * predicted)
            has_settled, self.was_little = little and self.was_little, little
            if self.was_accepted and self.damping > SMALLEST_DAMPING:
                short = has_settled = False
        self.was_accepted, self.damping = line.accepted, line.damping
        return {(True, True): 4, (True, False): 2, (False, True): 3}.get((has_settled, short))

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

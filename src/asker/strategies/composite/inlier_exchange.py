"""Exchanges: observations are added to or removed from the inlier set, and Ψ is minimised again.

Exchanges are for problems in which few observations have much influence, such as the loops of a pose graph.  Each wrong
classification is a poor minimum, from which a descent does not escape, since a rejected observation has no weight.

Algorithm   at a minimum of Ψ, where observations with less than half of the full weight are rejected:
            (1) trials: add each rejected observation, the smallest residual first; then remove the 2, 4, 8, … inliers
                with the largest residuals; then remove each inlier alone, the largest residual first
            (2) in a trial, solve least squares with the changed inlier set, then descend on Ψ with all observations.
                The trial starts at the minimum, or at the point of `restart` if the changed inliers fit better there
            (3) if the trial ends at a lower Ψ, continue there with (1); end after the last trial, or after too many
                consecutive trials without a decrease
"""

from dataclasses import dataclass, field, replace

from asker.engines.interface import Engine, Model, PerFactor, Point
from asker.kernels.kernel import Array, Kernel
from asker.strategies.composite.inlier_flips import Flipped, Restart, exchanges_at, restarted, weights_of
from asker.strategies.composite.phases import is_at_rest
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Descent, Detail, State, attempt, cost, lowered, refused

MIN_DECREASE = 1e-6
"""Relative decrease of Ψ for which a trial counts as a success."""


def weighted_square(kernel: Kernel, u: Array, w: Array) -> Array:
    """Return wu/2, the cost of a residual in weighted least squares."""
    return w * u / 2


@dataclass(frozen=True, eq=False)
class ExchangeState(State):
    """State with the remaining trials."""

    inlier_weights: PerFactor | None = None
    """Weight of each observation in the least-squares part of a trial; None during a descent on Ψ."""
    fit: float = 0.0
    """Objective of the least-squares part of a trial."""
    lowest: tuple[float, Point] | None = None
    """Lowest minimum of Ψ and its point, where trials start; None before the first trial."""
    trials: tuple[Flipped, ...] = ()
    """Remaining trials."""

    @property
    def objective(self) -> float:
        return self.cost if self.inlier_weights is None else self.fit

    @property
    def details(self) -> dict[str, Detail]:
        return {"trials": len(self.trials)}


@dataclass(frozen=True)
class Exchanges:
    """Minimisation of Ψ, followed by changes of the inlier set until none decreases Ψ."""

    descent: Descent = IRLS()
    """Descent on Ψ."""
    steps: int = 15
    """Maximum number of steps in each of the two parts of a trial."""
    patience: int = 40
    """Maximum number of consecutive trials without a decrease."""
    rest: float = 1e-3
    """Relative decrease of the objective in a step below which a part of a trial ends."""
    restart: Restart | None = field(default=None, repr=False)
    """Function that proposes a start for given weights; for problems with poor minima even without outliers."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> ExchangeState:
        return ExchangeState(start, cost(engine, start), self.descent.damping, on_target=False)

    def step(self, engine: Engine, state: ExchangeState) -> ExchangeState:
        if state.on_target:  # all trials are over
            return self.descent.step(engine, state)
        after = self.descent.step(engine, state) if state.inlier_weights is None else self._fitted(engine, state)
        after = replace(after, n_steps=state.n_steps + 1)
        if not (is_at_rest(state, after, self.rest) or after.n_steps >= self.steps):
            return after
        if after.inlier_weights is not None:
            return replace(after, inlier_weights=None, n_steps=0, damping=self.descent.damping)
        return self._next(engine, after)

    def _fitted(self, engine: Engine, state: ExchangeState) -> ExchangeState:
        """Return the state after one step of least squares with the changed inlier set (2)."""
        w = state.inlier_weights
        assert w is not None
        trial = attempt(engine, state.point, Model(w, None, w), state.damping)
        fit = float("nan") if trial is None else engine.total(weighted_square, trial, w)
        if trial is None or not fit < state.fit:
            return refused(state, fit, trial)
        return replace(
            state, point=trial, cost=cost(engine, trial), fit=fit, damping=lowered(state.damping), accepted=True
        )

    def _next(self, engine: Engine, state: ExchangeState) -> ExchangeState:
        """Return the state at the start of the next trial, or the final state at the lowest minimum (3)."""
        lowest, trials = state.lowest, state.trials
        if lowest is None or state.cost < (1 - MIN_DECREASE) * lowest[0]:
            lowest = state.cost, state.point
            trials = exchanges_at(engine, state.point, self.patience)
        lowest_cost, point = lowest
        begun = replace(state, point=point, cost=lowest_cost, lowest=lowest, n_steps=0, damping=self.descent.damping)
        if not trials:
            return replace(begun, on_target=True)
        w = weights_of(engine, point, trials[0])
        fit, point = self._begin(engine, point, w)
        return replace(begun, point=point, cost=cost(engine, point), inlier_weights=w, fit=fit, trials=trials[1:])

    def _begin(self, engine: Engine, point: Point, w: PerFactor) -> tuple[float, Point]:
        """Return the objective of the least-squares part at the starting point of a trial, and this point."""
        fit = engine.total(weighted_square, point, w)
        other = self.restart and restarted(engine, self.restart, w)
        closer = engine.total(weighted_square, other, w) if other else float("nan")
        return (closer, other) if other and closer < fit else (fit, point)

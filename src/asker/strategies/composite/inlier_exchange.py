"""Exchanges: single observations are put in and out of those that are believed.

For problems in which a few observations decide much, as the loops of a pose graph do: each wrong decision is a poor
minimum of its own, and a descent does not revise it, since a refused observation has no pull.

Algorithm   at a minimum of Ψ, where an observation with less than half of the full weight is refused:
            (1) trials: each refused one is believed, the nearest first; then the farthest 2, 4, 8, … of those that are
                kept are refused; then each of these alone, the farthest first
            (2) a trial is least squares with what is believed, then a descent on Ψ with all observations.  It begins at
                that minimum, or where `restart` says if what is believed fits better there
            (3) where that ends lower, it is taken, and (1) begins anew; after the last trial, or too many in a row that
                do not pay, the run ends
"""

from dataclasses import dataclass, field, replace
from typing import Any

from asker.engines.interface import Engine, Model, PerFactor, Point
from asker.strategies.composite.inlier_flips import Flipped, Restart, exchanges_at, restarted, weights_of
from asker.strategies.composite.phases import is_at_rest
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Descent, State, attempt, cost, lowered, refused

LESS = 1e-6
"""The part by which Ψ must fall."""


def masked(kernel: Any, u: Any, believed: Any) -> Any:
    return believed * u / 2


@dataclass(frozen=True, eq=False)
class ExchangeState(State):
    believed: PerFactor | None = None
    """The weight of each observation while a trial fits those it believes; None on Ψ itself."""
    fit: float = 0.0
    """What the fit minimises."""
    lowest: tuple[float, Point] | None = None
    """Ψ and the point that trials begin at; None before the first one."""
    trials: tuple[Flipped, ...] = ()
    """Those to come."""

    @property
    def objective(self) -> float:
        return self.cost if self.believed is None else self.fit

    @property
    def details(self) -> dict[str, Any]:
        return {"trials": len(self.trials)}


@dataclass(frozen=True)
class Exchanges:
    """Minimises Ψ, then revises which observations are refused until no single change pays."""

    descent: Descent = IRLS()
    steps: int = 15
    """Of each of the two parts of a trial, at most."""
    patience: int = 40
    """Trials in a row that may fail."""
    rest: float = 1e-3
    """A part is over once a step lowers its objective by less than this part of it."""
    restart: Restart | None = field(default=None, repr=False)
    """For problems with poor minima of their own."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> ExchangeState:
        return ExchangeState(start, cost(engine, start), self.descent.damping, on_target=False)

    def step(self, engine: Engine, state: ExchangeState) -> ExchangeState:
        if state.on_target:  # all trials are over
            return self.descent.step(engine, state)
        after = self.descent.step(engine, state) if state.believed is None else self._fitted(engine, state)
        after = replace(after, n_steps=state.n_steps + 1)
        if not (is_at_rest(state, after, self.rest) or after.n_steps >= self.steps):
            return after
        if after.believed is not None:
            return replace(after, believed=None, n_steps=0, damping=self.descent.damping)
        return self._next(engine, after)

    def _fitted(self, engine: Engine, state: ExchangeState) -> ExchangeState:
        """(2): one step of least squares with what is believed."""
        w = state.believed
        assert w is not None
        trial = attempt(engine, state.point, Model(w, None, w), state.damping)
        fit = float("nan") if trial is None else engine.total(masked, trial, w)
        if trial is None or not fit < state.fit:
            return refused(state, fit, trial)
        return replace(
            state, point=trial, cost=cost(engine, trial), fit=fit, damping=lowered(state.damping), accepted=True
        )

    def _next(self, engine: Engine, state: ExchangeState) -> ExchangeState:
        """(3): the next trial from the lowest minimum so far, or the end there."""
        lowest, trials = state.lowest, state.trials
        if lowest is None or state.cost < (1 - LESS) * lowest[0]:
            lowest = state.cost, state.point
            trials = exchanges_at(engine, state.point, self.patience)
        found, point = lowest
        begun = replace(state, point=point, cost=found, lowest=lowest, n_steps=0, damping=self.descent.damping)
        if not trials:
            return replace(begun, on_target=True)
        believed = weights_of(engine, point, trials[0])
        fit, point = self._begin(engine, point, believed)
        return replace(begun, point=point, cost=cost(engine, point), believed=believed, fit=fit, trials=trials[1:])

    def _begin(self, engine: Engine, point: Point, believed: PerFactor) -> tuple[float, Point]:
        """Where a trial begins, and how well what is believed fits there."""
        fit = engine.total(masked, point, believed)
        other = self.restart and restarted(engine, self.restart, believed)
        closer = engine.total(masked, other, believed) if other else float("nan")
        return (closer, other) if other and closer < fit else (fit, point)

"""Exchanges: single observations are put in and out of those that are believed.

For problems in which a few observations decide much, as the loops of a pose graph do: each wrong decision is a poor
minimum of its own, and a descent does not revise it, since a refused observation has no pull.

Algorithm   at a minimum of Ψ, where an observation with less than half of the full weight is refused:
            (1) trials: each refused one is believed, the nearest first; then the farthest 2, 4, 8, … of those that are
                kept are refused; then each of these alone, the farthest first
            (2) a trial is least squares with what is believed, then a descent on Ψ with all observations
            (3) where that ends lower, it is taken, and (1) begins anew; after the last trial, or too many in a row that
                do not pay, the run ends
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.engines.point import Engine, Model, PerFactor, Point
from asker.strategies.irls import IRLS
from asker.strategies.phases import is_at_rest
from asker.strategies.strategy import Descent, State, attempt, cost, lowered, omega

REFUSED = 0.5
"""Of the full weight."""
FIRMLY = 100.0
"""The weight of an observation that a trial believes, beside those that were kept: some of these may contradict it."""
LESS = 1e-6
"""The part by which Ψ must fall."""
Flipped = tuple[NDArray[np.intp], ...]
"""The observations of each factor group, in the user's order, that a trial decides the other way."""


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
            return replace(state, damping=10 * state.damping, accepted=False)
        return replace(
            state, point=trial, cost=cost(engine, trial), fit=fit, damping=lowered(state.damping), accepted=True
        )

    def _next(self, engine: Engine, state: ExchangeState) -> ExchangeState:
        """(3): the next trial from the lowest minimum so far, or the end there."""
        lowest, trials = state.lowest, state.trials
        if lowest is None or state.cost < (1 - LESS) * lowest[0]:
            lowest = state.cost, state.point
            trials = self._trials(engine, state.point)
        found, point = lowest
        begun = replace(state, point=point, cost=found, lowest=lowest, n_steps=0, damping=self.descent.damping)
        if not trials:
            return replace(begun, on_target=True)
        kept = [(~refused).astype(float) for refused in self._refused(engine, point)]
        for mask, flipped in zip(kept, trials[0], strict=True):
            mask[flipped] = np.where(mask[flipped] > 0, 0.0, FIRMLY)
        believed = engine.in_own_order(tuple(kept))
        return replace(begun, believed=believed, fit=engine.total(masked, point, believed), trials=trials[1:])

    def _refused(self, engine: Engine, point: Point) -> list[NDArray[np.bool_]]:
        """Of each factor group, in the user's order; none where a kernel is convex."""
        weights = engine.in_user_order(engine.each(omega, point))
        return [
            (w <= REFUSED * float(f.kernel.omega(0.0))) & (not f.kernel.convex)
            for f, w in zip(engine.problem.factors, weights, strict=True)
        ]

    def _trials(self, engine: Engine, point: Point) -> tuple[Flipped, ...]:
        """(1)"""
        refused, factors = self._refused(engine, point), engine.problem.factors
        distance = [u / f.tau**2 for f, u in zip(factors, engine.in_user_order(point.u), strict=True)]
        group = np.concatenate([np.full(f.n, g) for g, f in enumerate(factors)])
        number = np.concatenate([np.arange(f.n) for f in factors])
        in_doubt = np.concatenate([np.full(f.n, not f.kernel.convex) for f in factors])
        order = np.argsort(np.concatenate(distance), kind="stable")
        out = np.concatenate(refused)[order]
        nearest, farthest = order[out], order[~out & in_doubt[order]][::-1]
        several = [farthest[: 2**k] for k in range(1, max(len(farthest) - 1, 0).bit_length())]
        chosen = [*nearest[:, None], *several, *farthest[:, None]][: self.patience]
        return tuple(tuple(number[c[group[c] == g]] for g in range(len(factors))) for c in chosen)

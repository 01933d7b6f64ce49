"""Iteratively reweighted least squares in which some observations count less than others.

Problem     min over θ of Σ qᵢ ψ(‖rᵢ(θ)‖)
Algorithm   that of irls.py, with w = q·ω

The weights q are of the strategy and not of the problem: a search finds them on its way (`asker.search.search`).
"""

from dataclasses import dataclass
from typing import Any

from asker.engines.interface import Engine, Model, PerFactor, Point
from asker.strategies.strategy import S, State, attempt, judged


def weighted_psi(kernel: Any, u: Any, q: Any) -> Any:
    return q * kernel.psi(u)


def weighted_omega(kernel: Any, u: Any, q: Any) -> Any:
    return q * kernel.omega(u)


@dataclass(frozen=True, eq=False)
class Weighted:
    """A descent on the weighted cost, which is the cost of its states."""

    weights: PerFactor
    """q of every observation, in the engine's order."""
    damping: float = 1e-3
    """λ at the start."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> State:
        return State(start, engine.total(weighted_psi, start, self.weights), self.damping)

    def step(self, engine: Engine, state: S) -> S:
        w = engine.each(weighted_omega, state.point, self.weights)
        trial = attempt(engine, state.point, Model(w, None, w), state.damping)
        cost = float("nan") if trial is None else engine.total(weighted_psi, trial, self.weights)
        return judged(state, trial, cost)

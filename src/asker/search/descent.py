"""Levenberg-Marquardt descent on the likelihood of the scale mixtures.

Problem     max over θ of Σ log(π f(uᵢ; mᵢ, s)/bᵢᵐ + 1 − π) for fixed mixtures and leverage
Algorithm   (1) w = posterior · tail / s², the weight of each residual (`asker.statistics.scale_mixture.weights`)
            (2) solve (Σ w JᵀJ + λ diag) δ = −Σ w Jᵀr
            (3) accept if the likelihood rises, then λ ← max(λ/10, 1e-8); else λ ← 10λ
"""

from dataclasses import dataclass, replace

from asker.engines.interface import Engine, Model, Point
from asker.search.context import Leverage, Models, SearchContext
from asker.strategies.strategy import ROUNDING, S, State, attempt, lowered, refused


@dataclass(frozen=True, eq=False)
class MixtureDescent:
    """Descent on the negative log likelihood, which is the cost of its states."""

    context: SearchContext
    models: Models
    leverage: Leverage
    damping: float = 1e-3
    """λ at the start."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> State:
        return State(start, self.context.cost(start, self.models, self.leverage), self.damping)

    def step(self, engine: Engine, state: S) -> S:
        w = self.context.for_solve(self.context.weights(state.point, self.models, self.leverage))  # (1)
        trial = attempt(engine, state.point, Model(w, None, w), state.damping)  # (2)
        cost = float("nan") if trial is None else self.context.cost(trial, self.models, self.leverage)
        if trial is None or not cost < state.cost:  # (3)
            at_rest = cost - state.cost <= ROUNDING * abs(state.cost)
            return replace(refused(state, cost, trial), at_rest=at_rest)
        return replace(state, point=trial, cost=cost, damping=lowered(state.damping), accepted=True, at_rest=False)

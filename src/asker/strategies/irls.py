"""Iteratively reweighted least squares, with Levenberg-Marquardt damping.

Green: Iteratively Reweighted Least Squares for Maximum Likelihood Estimation, J. R. Stat. Soc. B 1984.

Problem     min over θ of Ψ(θ) = Σ ψ(‖rᵢ(θ)‖)
Symbols     ω -> w    λ -> state.damping
Algorithm   (1) w = ω(‖r‖²)
            (2) solve (Σ w JᵀJ + λI) δ = −Σ w Jᵀr
            (3) accept if Ψ falls, then λ ← max(λ/10, 1e-8); else λ ← 10λ
Deviations  none
"""

from dataclasses import dataclass

from asker.engines.interface import Point
from asker.strategies.strategy import Engine, S, State, cost, omega, reweighted


@dataclass(frozen=True)
class IRLS:
    """Iteratively reweighted least squares, the standard method: fast, but it converges to the nearest minimum."""

    damping: float = 1e-3
    """λ at the start."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> State:
        return State(start, cost(engine, start), self.damping)

    def step(self, engine: Engine, state: S) -> S:
        return reweighted(engine, state, omega)  # (1), (2), (3)

"""LM-MOO: joint minimisation of the target and a smoothed cost.

Zach, Bourmaud: Pareto Meets Huber: Efficiently Avoiding Poor Minima in Robust Estimation, ICCV 2019.

Problem     min over θ of Ψ⁰ = Ψ, with Ψᵏ = Σ η²ψ(‖rᵢ‖/η), η = 2ᵏ, as a second objective
Symbols     κ -> balance    g₀, g_k the two gradients
Algorithm   (1) weights ½ω₀ + ½κω_k, with κ = ‖g₀‖/‖g_k‖
            (2) accept if Ψ⁰ falls, and damp as IRLS
            (3) levels and their shares of the iterations as GNC; a level also ends when cos(g₀, g_k) < −0.95
            (4) level 0 is IRLS
Deviations  κ = 1 if a gradient vanishes: if every residual exceeds τ, g₀ is 0 and only Ψᵏ has a descent direction
"""

from dataclasses import dataclass
from math import inf, sqrt

from asker.engines.interface import Point
from asker.kernels.kernel import Array, Kernel, Scaled
from asker.strategies.gnc import LevelState
from asker.strategies.strategy import Engine, cost, omega, reweighted


def relative_omega(kernel: Kernel, u: Array, scale: float, cost: float) -> Array:
    """Return the weight of Jᵀr in g/Ψ⁰, whose square neither overflows nor underflows."""
    return Scaled(kernel, scale).omega(u) / cost


def blended_omega(kernel: Kernel, u: Array, scale: float, balance: float) -> Array:
    """Return the weight ½ω₀ + ½κω_k of (1)."""
    return kernel.omega(u) / 2 + balance * Scaled(kernel, scale).omega(u) / 2


@dataclass(frozen=True)
class LMMOO:
    """Joint minimisation of Ψ and a smoothed cost; it never increases Ψ, yet it escapes from many poor minima."""

    levels: int = 5
    """K, as in GNC."""
    opposed: float = -0.95
    """Cosine between the two gradients below which a level ends."""
    damping: float = 1e-3
    """λ at the start."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> LevelState:
        state = LevelState(start, cost(engine, start), self.damping, left=max_iterations)
        return state.at_level(self.levels - 1, self.damping)

    def step(self, engine: Engine, state: LevelState) -> LevelState:
        while state.level > 0:
            balance, cosine = self._gradients(engine, state)
            if cosine >= self.opposed:
                break
            state = state.at_level(state.level - 1, self.damping)  # (3)
        if state.level > 0:
            after = reweighted(engine, state, blended_omega, scale=2.0**state.level, balance=balance)  # (1), (2)
        else:
            after = reweighted(engine, state, omega)  # (4)
        after = after.after_one()
        return after.at_level(after.level - 1, self.damping) if after.is_over else after

    def _gradients(self, engine: Engine, state: LevelState) -> tuple[float, float]:
        """Return κ, and the cosine between the gradients of Ψ⁰ and Ψᵏ."""
        w0 = engine.each(relative_omega, state.point, scale=1.0, cost=state.cost)
        wk = engine.each(relative_omega, state.point, scale=2.0**state.level, cost=state.cost)
        g00, g0k, gkk = engine.gradient_products(state.point, w0, wk)
        if not (0 < g00 < inf and 0 < gkk < inf):
            return 1.0, 1.0
        return sqrt(g00 / gkk), g0k / (sqrt(g00) * sqrt(gkk))  # the product of the squares may underflow

"""Iteratively reweighted least squares with an additional weight for each observation.

Problem     min over θ of Σ qᵢ ψ(‖rᵢ(θ)‖)
Algorithm   as in irls.py, with w = q·ω

The weights q belong to the strategy and not to the problem: `asker.search.search` estimates them.
"""

from dataclasses import dataclass

from asker.engines.interface import Engine, Model, PerFactor, Point
from asker.kernels.kernel import Array, Kernel
from asker.strategies.strategy import S, State, attempt, judged


def weighted_psi(kernel: Kernel, u: Array, q: Array) -> Array:
    """Return the weighted cost qψ of a residual."""
    return q * kernel.psi(u)


def weighted_omega(kernel: Kernel, u: Array, q: Array) -> Array:
    """Return the weight qω of a residual."""
    return q * kernel.omega(u)


@dataclass(frozen=True, eq=False)
class Weighted:
    """Descent on the weighted cost, which is also the cost of its states."""

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

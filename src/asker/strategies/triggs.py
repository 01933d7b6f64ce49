"""Triggs' correction: second-order weights in the direction of the residual.

Triggs, McLauchlan, Hartley, Fitzgibbon: Bundle Adjustment — A Modern Synthesis, 1999.

Problem     min over θ of Ψ(θ) = Σ ψ(‖rᵢ(θ)‖)
Symbols     ω -> w    ε -> epsilon
Algorithm   (1) the Hessian of ψ(‖r‖) in r is ωI + 2(dω/du) rrᵀ: tangential curvature ω, radial ω + 2u dω/du
            (2) the radial curvature is bounded below by ε·ω, so that the model stays convex
            (3) solve, accept and damp as IRLS
Deviations  the bound (2); the original bounds 1 − α away from 0 instead
"""

from dataclasses import dataclass

from asker.engines.interface import Point
from asker.kernels.kernel import Array, Kernel
from asker.strategies.strategy import Engine, S, State, cost, reweighted
from asker.tracing.array_namespace import namespace


def triggs_weights(kernel: Kernel, u: Array, epsilon: float) -> tuple[Array, Array]:
    """Return the weights a and b of the model (1) and (2)."""
    w = kernel.omega(u)
    xp = namespace(u)
    floor = -(1 - epsilon) * w / xp.maximum(u, 1e-300)  # (2)
    return w, xp.maximum(2 * kernel.domega(u), floor)  # (1)


@dataclass(frozen=True)
class Triggs:
    """Second-order reweighting: closer to Newton's method than IRLS, and as likely to end in a poor minimum."""

    damping: float = 1e-3
    """λ at the start."""
    epsilon: float = 0.3
    """Smallest radial curvature relative to the tangential curvature; 1 gives IRLS."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> State:
        return State(start, cost(engine, start), self.damping)

    def step(self, engine: Engine, state: S) -> S:
        return reweighted(engine, state, triggs_weights, epsilon=self.epsilon)  # (3)

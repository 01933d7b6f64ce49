"""Square root of the kernel: ordinary Gauss-Newton on residuals of squared length 2ψ.

Engels, Stewénius, Nistér: Bundle Adjustment Rules, 2006.

Problem     min over θ of Ψ(θ) = Σ ½‖ρᵢ‖²  with  ρ = √(2ψ(‖r‖)) r/‖r‖
Symbols     u = ‖r‖²
Algorithm   (1) dρ/dr = t (I − r̂r̂ᵀ) + n r̂r̂ᵀ  with  t² = 2ψ/u,  n² = (ψ')²/(2ψ) = ω²u/(2ψ)
            (2) the Hessian is JᵀMJ with a = t², b = (n² − t²)/u, and the gradient is that of Ψ: c = ω
            (3) solve, accept and damp as IRLS
Deviations  none
"""

from dataclasses import dataclass

from asker.engines.interface import Point
from asker.kernels.kernel import Array, Kernel
from asker.strategies.strategy import Engine, S, State, cost, reweighted
from asker.tracing.array_namespace import namespace


def sqrt_psi_weights(kernel: Kernel, u: Array) -> tuple[Array, Array, Array]:
    """Return the weights a, b and c of the model (1) and (2)."""
    xp = namespace(u)
    tiny = u < 1e-12 * kernel.tau**2  # ψ = u/2, so a = 1 and b = 0
    v = xp.where(tiny, kernel.tau**2, u)
    w, t2 = kernel.omega(v), 2 * kernel.psi(v) / v  # (1)
    a = xp.where(tiny, 1.0, t2)
    b = xp.where(tiny, 0.0, (w * w / t2 - t2) / v)  # (2)
    return a, b, kernel.omega(u)


@dataclass(frozen=True)
class SqrtPsi:
    """Gauss-Newton on residuals of length √(2ψ), as in a plain least-squares program; seldom better than IRLS."""

    damping: float = 1e-3
    """λ at the start."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> State:
        return State(start, cost(engine, start), self.damping)

    def step(self, engine: Engine, state: S) -> S:
        return reweighted(engine, state, sqrt_psi_weights)  # (3)

"""ReGeMM: relaxed, generalised majorisation-minimisation.

Parizi, He, Aghajani, Sclaroff, Felzenszwalb: Generalized Majorization-Minimization, ICML 2019, in the relaxed form
of Zach, Le: Truncated Inference for Latent Variable Optimization Problems, ECCV 2020.

Problem     min over θ of Ψ(θ) = min over w of J(θ, w) = Σ ½wᵢuᵢ + γ(wᵢ),  γ the kernel's lifted penalty
Symbols     σ -> sigma: one scale for all residuals    J_prev -> state.bound
Algorithm   (1) v = ½Ψ + ½J_prev; J_prev starts as the lifted cost with w = 1
            (2) bisect σ² in [1, 1e8] so that J(θ, ω(u/σ²)) lies in [½Ψ + ½v, v]: a surrogate above the target,
                below the old one
            (3) one step of weighted least squares with these weights; accept if Ψ falls, damp as IRLS
            (4) J_prev = J(θ, w) at the new θ with the weights of (2)
            (5) J(θ, ω(v)) = Σ ψ(v) + ω(v)(u − v)/2, the tangent of ψ at v, since γ(ω(v)) = ψ(v) − ω(v)v/2
Deviations  the bisection is of log σ² and starts from the last σ; a quadratic kernel is not lifted
"""

from dataclasses import dataclass, replace

from asker.engines.interface import Point
from asker.kernels.kernel import Array, Kernel
from asker.problem.problem import ProblemError
from asker.strategies.gnc import scaled_omega
from asker.strategies.strategy import ROUNDING, Detail, Engine, State, cost, reweighted


def surrogate(kernel: Kernel, u: Array, scale: float) -> Array:
    """Return J(θ, ω(u/σ²))."""
    return surrogate_at(kernel, u, u / scale**2)


def surrogate_at(kernel: Kernel, u: Array, v: Array) -> Array:
    """Return J(θ, ω(v)) by (5), which does not lose digits if τ² is much larger than u."""
    return kernel.psi(v) + kernel.omega(v) * (u - v) / 2


def scaled_square(kernel: Kernel, u: Array, scale: float) -> Array:
    """Return u/σ²."""
    return u / scale**2


def half_square(kernel: Kernel, u: Array) -> Array:
    """Return u/2, the lifted cost with w = 1."""
    return u / 2


@dataclass(frozen=True, eq=False)
class BoundState(State):
    """State with the value of the last surrogate, which bounds Ψ from above."""

    bound: float = 0.0
    """J_prev: the value of the last surrogate at the current point."""
    sigma: float = 1.0
    """σ of the last surrogate."""

    @property
    def details(self) -> dict[str, Detail]:
        return {"scale": self.sigma, "surrogate": self.bound, **super().details}


@dataclass(frozen=True)
class ReGeMM:
    """Majorisation-minimisation with one global scale, which halves the gap to the target in each step."""

    damping: float = 1e-3
    """λ at the start."""
    largest_scale: float = 1e4
    """Maximum of σ."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> BoundState:
        for factors in engine.problem.factors:
            if not (factors.kernel.quadratic or factors.kernel.has_penalty):
                raise ProblemError(f"{factors.name}: ReGeMM needs a kernel with a lifted penalty")
        bound = engine.total(half_square, start)
        return BoundState(
            start, cost(engine, start), self.damping, on_target=False, bound=bound, sigma=self.largest_scale
        )

    def step(self, engine: Engine, state: BoundState) -> BoundState:
        v = (state.cost + state.bound) / 2  # (1)
        sigma = self._scale(engine, state.point, (state.cost + v) / 2, v, state.sigma)  # (2)
        after = reweighted(engine, state, scaled_omega, scale=sigma)  # (3)
        at = engine.each(scaled_square, state.point, scale=sigma)
        bound = engine.total(surrogate_at, after.point, at)  # (4)
        touches = bound - after.cost <= ROUNDING * after.cost  # the surrogate is the target, whatever σ
        return replace(after, bound=bound, sigma=sigma, on_target=sigma < 1 + 1e-3 or touches)

    def _scale(self, engine: Engine, point: Point, low: float, high: float, sigma: float) -> float:
        """Return a σ whose surrogate lies between `low` and `high`; the bisection starts from the last σ."""
        a, b = 1.0, self.largest_scale
        step = 2.0
        for _ in range(60):
            value = engine.total(surrogate, point, scale=sigma)
            if low <= value <= high or b / a < 1 + 1e-9:
                break
            a, b = (a, sigma) if value > high else (sigma, b)
            away = sigma / step if value > high else sigma * step
            sigma, step = (away, step**2) if a < away < b else ((a * b) ** 0.5, step)
        return sigma

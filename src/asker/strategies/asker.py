"""ASKER, the default strategy: the paper's method (graduated_filter.py) with four additions.

The conditions of the paper, h → 0 and a stationary Ψ, are not reached by its method alone.
docs/explanation/mathematics.md evaluates each of the additions.

Scales      `FromResiduals` computes the initial scales from the residuals at the start.  Individual scales σ depend on
            the initial guess, since larger residuals get less weight.  If all residuals are linear in θ, one large σ
            for all makes the relaxed problem convex, and the result does not depend on the initial guess.
Schedule    `Paced` distributes the decrease of the scales over the available iterations.  Without data, a step
            multiplies a scale by φ = 1 − μ_h/(μ_h + λ_h).  The mean scale should reach `end` at the beginning of the
            last phase, hence

                φ = (end / s)^(1 / iterations until then),    λ_h = μ_h φ / (1 − φ)

            The step of θ is judged by the decrease of the *old* relaxed problem, which needs no new residuals:

                ρ = (f(θ, s) − f(θ + δ, s)) / f(θ, s)
                ρ < 0          the step was too long: λ increases
                ρ < −refuse    the step is rejected even if the filter accepts it, so that Ψ cannot diverge
Last phase  `LastPhase` sets s = 0 (so h = 0 and f = Ψ) and minimises Ψ itself.  If this converges above the best
            earlier point, `BestKept` continues from that point.
Descent     `FirstDescent` minimises Ψ before the relaxation if some factors have convex kernels, such as odometry.
            An initial guess that fits these factors is informative about the others, and an immediate relaxation would
            lose this information: in a pose graph, false loops would deform the trajectory before the correct ones
            constrain it.  The relaxation starts at the minimum of this descent, which is returned if no better one
            follows.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any

from asker.engines.interface import PerFactor, Point
from asker.kernels.kernel import Array, Kernel
from asker.problem.problem import Problem
from asker.strategies.composite.phases import BestKept, FirstDescent, LastPhase
from asker.strategies.graduated_filter import Anneal, AskerState, FixedRate, GraduatedFilter, Rates
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Engine, Strategy
from asker.strategies.triggs import Triggs
from asker.tracing.array_namespace import namespace


def start_scales(kernel: Kernel, u: Array, lowest: float, reach: float) -> Array:
    """Return s with σ = max(lowest, reach·‖r‖/τ), or 0 for a convex kernel, which adds no poor minima."""
    xp = namespace(u)
    if kernel.convex:
        return xp.zeros_like(u)
    sigma = xp.maximum(lowest, reach * xp.sqrt(u) / kernel.tau)
    return xp.sqrt(sigma - 1)


def sizes(kernel: Kernel, u: Array) -> tuple[Array, Array, Array]:
    """Return ‖r‖²/τ², √(‖r‖/τ) and 1 of a residual with a scale; 0 for a convex kernel, whose residuals have none."""
    if kernel.convex:
        return 0.0 * u, 0.0 * u, 0.0 * u
    xp, t = namespace(u), kernel.tau**2
    return u / t, xp.sqrt(xp.sqrt(u / t)), 1.0 + 0.0 * u


@dataclass(frozen=True)
class FromResiduals:
    """Initial scales from the residuals at the start."""

    s0: float = 2.0
    """Lower bound σ ≥ 1 + s₀² of the initial scales."""
    reach: float = 4.0
    """Lower bound σ ≥ reach·max(‖r‖, the typical ‖r‖)/τ of the initial scales."""
    spread: float = 8.0
    """Common initial σ ≥ spread·(root mean square of ‖r‖/τ), used if all residuals are linear in θ; 0 for never."""

    def is_convex(self, problem: Problem) -> bool:
        """Return True if the relaxed problem is convex: all residuals are linear in θ and have one large σ."""
        return bool(self.spread and problem.is_linear)

    def start(self, engine: Engine, point: Point) -> PerFactor:
        """Return s of every residual; the typical ‖r‖ is a power mean of order ½, which is robust to gross errors."""
        lowest, reach = 1 + self.s0**2, self.reach
        squares, roots, n = engine.total(sizes, point)
        if self.is_convex(engine.problem):
            lowest, reach = max(lowest, self.spread * sqrt(squares / max(n, 1.0))), 0.0
        lowest = max(lowest, reach * (roots / max(n, 1.0)) ** 2)
        return engine.each(start_scales, point, lowest=lowest, reach=reach)


@dataclass(frozen=True)
class Paced:
    """Schedule that distributes the decrease of the scales over the available iterations, before a last phase."""

    end: float = 0.2
    """Root mean square of the scales s at the beginning of the last phase."""
    last_share: float = 0.3
    """Share of the iterations for the last phase."""
    longest: int = 200
    """Maximum number of iterations before the last phase."""
    refuse: float = 0.1
    """Relative increase of the old relaxed problem above which a step is rejected."""
    stiffer: float = 100.0
    """Factor of λ after a step that was too long; it does not increase λ above 1."""

    def scale_damping(self, state: AskerState, mu_h: float) -> float:
        until = max(state.left - self._last(state), 1.0)
        phi = min(self.end / max(state.mean_scale, 1e-300), 1.0) ** (1 / until)
        return mu_h * phi / (1 - phi) if phi < 1 else state.scale_damping

    def rates(self, gain: float, state: AskerState) -> Rates:
        damping, scale_damping = state.damping, state.scale_damping
        if not gain >= -self.refuse:  # NaN is rejected too
            return Rates(10 * damping, scale_damping, refused=True)
        if gain < 0:
            return Rates(max(damping, min(self.stiffer * damping, 1.0)), scale_damping)
        return Rates(damping / 10, scale_damping)

    def _last(self, state: AskerState) -> float:
        """Return the number of iterations of the last phase."""
        return max(self.last_share * state.budget, state.budget - self.longest)

    def is_over(self, state: AskerState) -> bool:
        return state.left <= self._last(state)


@dataclass(frozen=True)
class ASKER:
    """Adaptive scaling of kernels, with four additions to the paper; `published` and `paper` return its own methods."""

    s0: float = 2.0
    """Lower bound σ ≥ 1 + s₀² of the initial scales."""
    reach: float = 4.0
    """Lower bound σ ≥ reach·max(‖r‖, the typical ‖r‖)/τ of the initial scales: every residual has some weight at the
    start, and none that happens to be small has much more weight than the others."""
    spread: float = 8.0
    """Common initial σ ≥ spread·(root mean square of ‖r‖/τ), used if all residuals are linear in θ; 0 for never."""
    mu_f: float = 0.7
    """Weight μ_f of f in the cooperative step."""
    mu_h: float = 0.3
    """Weight μ_h of h in the cooperative step."""
    alpha: float = 1e-4
    """Margin α of the filter."""
    damping: float = 0.1
    """λ at the start and after a restoration."""
    smallest_damping: float = 1e-5
    """Lower bound of λ."""
    scale_damping: float = 2.0
    """λ_h at the start and after a restoration."""
    anneal: Anneal = Paced()
    """Schedule of λ and λ_h, and of the beginning of the last phase."""
    first: IRLS = IRLS()
    """Descent on Ψ before the relaxation, used if some kernels are convex."""
    first_share: float = 0.2
    """Maximum share of the iterations for the first descent."""
    last: Triggs = Triggs(damping=1e-2, epsilon=0.6)
    """Descent on Ψ in the last phase."""
    as_printed: bool = False
    """Use g_h and H_h of the paper's text."""
    grid: int = 21
    """Number of values of γ in [−½, ½] that a restoration evaluates."""

    @classmethod
    def published(cls, **settings: Any) -> "ASKER":
        """Return the method of the authors' program, that of the published numbers: `GraduatedFilter.published()`."""
        values: dict[str, Any] = {"s0": 5.0, "reach": 0.0, "spread": 0.0, "anneal": FixedRate(), "first_share": 0.0}
        return cls(**(values | settings))

    @classmethod
    def paper(cls, **settings: Any) -> "ASKER":
        """Return the method printed in the paper: `GraduatedFilter.paper()`."""
        return cls.published(**({"damping": 0.5, "as_printed": True} | settings))

    def init(self, engine: Engine, start: Point, max_iterations: int) -> AskerState:
        return self.composed(engine.problem).init(engine, start, max_iterations)

    def step(self, engine: Engine, state: AskerState) -> AskerState:
        return self.composed(engine.problem).step(engine, state)

    def composed(self, problem: Problem) -> Strategy:
        """Return the paper's method composed with a first descent and a last phase."""
        scales = FromResiduals(self.s0, self.reach, self.spread)
        method = GraduatedFilter(
            scales, self.mu_f, self.mu_h, self.alpha, self.damping, self.smallest_damping, self.scale_damping,
            self.anneal, self.as_printed, self.grid,
        )  # fmt: skip
        trusted = any(factors.kernel.convex for factors in problem.factors)
        share = self.first_share if trusted and not scales.is_convex(problem) else 0.0
        descended = FirstDescent(LastPhase(method, self.last), self.first, share)
        return BestKept(descended, damping=self.last.damping)

"""ASKER, the default: the paper's method (asker.py) with what we add to it.

The paper asks for h → 0 and a stationary Ψ, and does not reach them.  Four things are ours;
docs/explanation/mathematics.md says what each is worth.

Scales      `FromResiduals`: they begin where the data says.  A σ of its own for each residual trusts the start, for
            what is far from it has less weight.  Where all residuals are linear in θ, one large σ makes the relaxed
            problem convex, and the start no longer matters.
Pace        `Paced`: the scales fall over the iterations that there are.  Left alone, a step multiplies a scale with
            φ = 1 − μ_h/(μ_h + λ_h); the mean scale is to be at `end` when the last phase begins, so

                φ = (end / s)^(1 / iterations until then),    λ_h = μ_h φ / (1 − φ)

            After a step it asks how much the *old* relaxed problem gained from moving θ, which needs no new residuals:

                ρ = (f(θ, s) − f(θ + δ, s)) / f(θ, s)
                ρ < 0          the step was too long: λ rises
                ρ < −refuse    it was worse than that: the step is refused, whatever the filter says, so that Ψ
                               cannot run away
Last phase  `LastPhase`, `BestKept`: then s = 0 (so h = 0 and f = Ψ), and Ψ itself is minimised; where that comes to
            rest above a point that was seen before, it goes on from there.
Descent     `FirstDescent`: a factor under a convex kernel is trusted, as odometry is; a start that fits such factors
            says something about the others, which relaxing at once would forget: in a pose graph the false loops
            would bend the trajectory before the right ones hold it.  The minimum that a plain descent finds is
            relaxed instead, and where that leads to nothing better, it is what is returned.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any

from asker.engines.interface import PerFactor, Point
from asker.problem.problem import Problem
from asker.strategies.composite.phases import BestKept, FirstDescent, LastPhase
from asker.strategies.graduated_filter import Anneal, AskerState, FixedRate, GraduatedFilter, Rates
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Engine, Strategy
from asker.strategies.triggs import Triggs
from asker.tracing.array_namespace import namespace


def start_scales(kernel, u, lowest, reach):
    """s with σ = max(lowest, reach·‖r‖/τ); 0, for good, under a convex kernel, which has no poor minima to leave."""
    xp = namespace(u)
    if kernel.convex:
        return xp.zeros_like(u)
    sigma = xp.maximum(lowest, reach * xp.sqrt(u) / kernel.tau)
    return xp.sqrt(sigma - 1)


def sizes(kernel, u):
    """‖r‖²/τ², √(‖r‖/τ) and 1 of a residual whose kernel is not convex: the others have no scale."""
    if kernel.convex:
        return 0.0 * u, 0.0 * u, 0.0 * u
    xp, t = namespace(u), kernel.tau**2
    return u / t, xp.sqrt(xp.sqrt(u / t)), 1.0 + 0.0 * u


@dataclass(frozen=True)
class FromResiduals:
    """Ours: the scales begin where the residuals at the start say."""

    s0: float = 2.0
    """No residual starts with less than σ = 1 + s₀²,"""
    reach: float = 4.0
    """nor with less than σ = reach·max(‖r‖, the typical ‖r‖)/τ."""
    spread: float = 8.0
    """Where all residuals are linear in θ, all start instead with one σ ≥ spread·(root mean square of ‖r‖/τ)."""

    def forget_the_start(self, problem: Problem) -> bool:
        """With linear residuals and one large σ the relaxed problem is convex: the start no longer matters."""
        return bool(self.spread and problem.is_linear)

    def start(self, engine: Engine, point: Point) -> PerFactor:
        """The typical ‖r‖ is a mean of order ½, which gross errors do not make much larger."""
        lowest, reach = 1 + self.s0**2, self.reach
        squares, roots, n = engine.total(sizes, point)
        if self.forget_the_start(engine.problem):
            lowest, reach = max(lowest, self.spread * sqrt(squares / max(n, 1.0))), 0.0
        lowest = max(lowest, reach * (roots / max(n, 1.0)) ** 2)
        return engine.each(start_scales, point, lowest=lowest, reach=reach)


@dataclass(frozen=True)
class Paced:
    """Ours: the scales fall over the iterations that there are, and leave the others to a last phase."""

    end: float = 0.2
    """The root mean square of the scales s when the last phase begins."""
    last_share: float = 0.3
    """The last phase gets this share of the iterations,"""
    longest: int = 200
    """and what comes before it takes no more than these."""
    refuse: float = 0.1
    stiffer: float = 100.0
    """What λ is multiplied with after a step that was too long; it is not taken above 1 that way."""

    def scale_damping(self, state, mu_h):
        until = max(state.left - self._last(state), 1.0)
        phi = min(self.end / max(state.mean_scale, 1e-300), 1.0) ** (1 / until)
        return mu_h * phi / (1 - phi) if phi < 1 else state.scale_damping

    def rates(self, gain, state):
        damping, scale_damping = state.damping, state.scale_damping
        if not gain >= -self.refuse:  # a NaN is refused too
            return Rates(10 * damping, scale_damping, refused=True)
        if gain < 0:
            return Rates(max(damping, min(self.stiffer * damping, 1.0)), scale_damping)
        return Rates(damping / 10, scale_damping)

    def _last(self, state):
        """Iterations that the last phase gets."""
        return max(self.last_share * state.budget, state.budget - self.longest)

    def is_over(self, state):
        return state.left <= self._last(state)


@dataclass(frozen=True)
class ASKER:
    """Adaptive scaling of kernels.  The default is our own best mode; `published` and `paper` are the paper's."""

    s0: float = 2.0
    """The scales start at s₀ (σ = 1 + s₀²), or higher where `reach` says so."""
    reach: float = 4.0
    """Every residual starts with σ ≥ reach·max(‖r‖, the typical ‖r‖)/τ: none starts without a pull, and none that
    happens to be small has much more say than the others."""
    spread: float = 8.0
    """Where all residuals are linear in θ, all start instead with one σ ≥ spread·(root mean square of ‖r‖/τ)."""
    mu_f: float = 0.7
    mu_h: float = 0.3
    alpha: float = 1e-4
    """The filter's margin α."""
    damping: float = 0.1
    """λ at the start and after a refusal."""
    smallest_damping: float = 1e-5
    scale_damping: float = 2.0
    """λ_h at the start and after a refusal."""
    anneal: Anneal = Paced()
    """How λ and λ_h change after a step that the filter accepts, and when the last phase begins."""
    first: IRLS = IRLS()
    """How Ψ is minimised before anything is relaxed, where some factors are trusted,"""
    first_share: float = 0.2
    """and the share of the iterations that this may take."""
    last: Triggs = Triggs(damping=1e-2, epsilon=0.6)
    """How Ψ itself is minimised in the last phase."""
    as_printed: bool = False
    """g_h and H_h as in the paper's text."""
    grid: int = 21
    """Number of γ in [−½, ½] that a restoration tries."""

    @classmethod
    def published(cls, **settings: Any) -> "ASKER":
        """The values of the authors' program, which made the published numbers: `GraduatedFilter.published()`."""
        values: dict[str, Any] = {"s0": 5.0, "reach": 0.0, "spread": 0.0, "anneal": FixedRate(), "first_share": 0.0}
        return cls(**(values | settings))

    @classmethod
    def paper(cls, **settings: Any) -> "ASKER":
        """The values printed in the paper: `GraduatedFilter.paper()`."""
        return cls.published(**({"damping": 0.5, "as_printed": True} | settings))

    def init(self, engine: Engine, start: Point, max_iterations: int) -> AskerState:
        return self.composed(engine.problem).init(engine, start, max_iterations)

    def step(self, engine: Engine, state: AskerState) -> AskerState:
        return self.composed(engine.problem).step(engine, state)

    def composed(self, problem: Problem) -> Strategy:
        """The paper's method in its phases."""
        scales = FromResiduals(self.s0, self.reach, self.spread)
        method = GraduatedFilter(
            scales, self.mu_f, self.mu_h, self.alpha, self.damping, self.smallest_damping, self.scale_damping,
            self.anneal, self.as_printed, self.grid,
        )  # fmt: skip
        trusted = any(factors.kernel.convex for factors in problem.factors)
        share = self.first_share if trusted and not scales.forget_the_start(problem) else 0.0
        descended = FirstDescent(LastPhase(method, self.last), self.first, share)
        return BestKept(descended, damping=self.last.damping)

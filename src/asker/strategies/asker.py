"""ASKER: a scale for every residual, driven to 1 by a filter method.

Le, Zach: A Graduated Filter Method for Large Scale Robust Estimation, CVPR 2020.  Equation numbers are the paper's.

Problem     min over θ, s of f = Σ ψ(‖rᵢ(θ)‖/σᵢ),  σᵢ = 1 + sᵢ²,  subject to h = Σ τ²sᵢ² = 0          (eq. 8, 9)
Symbols     μ_f, μ_h -> mu_f, mu_h    α -> alpha    λ -> state.damping    λ_h -> state.scale_damping
            ω̂ = ω(u/σ²)    q = ∂²(μ_f f)/∂s∂r without r    g_s, D: gradient and curvature in s
Algorithm   (0) descend on Ψ for a while, where some factors are trusted (below)
            (1) the corner (f − αh, (1 − α)h) enters the filter                                 (Alg. 1, lines 6-9)
            (2) cooperative step: Gauss-Newton on μ_f f + μ_h h in (θ, s), damped by λ                     (eq. 13)
                g_s = −2μ_f ω̂ s u/σ³ + μ_h τ²s,  D = 4μ_f ω̂ s² u/σ⁴ + (μ_h + λ_h)τ² + λ,  q = −2μ_f ω̂ s/σ³
                s is eliminated per residual: a = μ_f ω̂/σ², b = −q²/D, c = a − q g_s/D
                δs = −(g_s + q rᵀJδ)/D
            (3) accept if the filter accepts (f', h'); then λ and λ_h fall                                 (Alg. 2)
            (4) else restoration: s ← (1 − γ)s, γ in [−½, ½] with the smallest angle between
                the gradients of f and h among the acceptable ones; λ and λ_h start anew             (eq. 14, 15)
            (5) where f fell, the corner of (1) leaves the filter again                        (Alg. 1, lines 11-12)
Deviations  The paper has τ = 1 and h = Σ sᵢ².  With τ² in it, f and h have the same unit, and neither τ nor a weight
            shifts the balance between them.
            The authors' program, which made the published numbers, has λ₀ = 0.1, g_h = s and H_h = 1 + λ_h/μ_h; the
            text prints λ₀ = 0.5, g_h = 2s and H_h = 2(1 + λ_h).  `ASKER.published()` and `ASKER.paper()` are these two.
            λ is not taken below 1e-5.  The program divides the inner product of the gradients by the sum of their
            norms; here it is the true angle.  When no γ is acceptable, γ = ½: h falls, which some later corner accepts.
            The default adds what the paper asks for and does not do (h → 0 and a stationary Ψ): see `anneal.py`.
            (0) is ours too.  A factor under a convex kernel is trusted, as odometry is; a start that fits such factors
            says something about the others, which relaxing at once would forget: in a pose graph the false loops
            would bend the trajectory before the right ones hold it.  The minimum that a plain descent finds is
            relaxed instead, and where that leads to nothing better, it is what is returned.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from asker.arrays import namespace
from asker.engines.point import Model, PerFactor, Point
from asker.strategies.anneal import Anneal, FixedRate, Paced
from asker.strategies.filter import Filter
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Engine, State
from asker.strategies.triggs import Triggs

AT_REST = 1e-6  # a step of the last phase that gains less, relatively
NEARLY_AT_REST = 1e-4  # the same of the first descent, which need not be exact


def scale_terms(kernel, u, s, mu_f, g_h, H_h, lam):
    """ω̂, σ, q, g_s and D of (2); `g_h` and `H_h` are the gradient factor and the curvature of μ_h h, λ_h included."""
    sigma, t = 1 + s**2, kernel.tau**2
    w = kernel.omega(u / sigma**2)
    q = -2 * mu_f * w * s / sigma**3
    return w, sigma, q, q * u + g_h * t * s, 4 * mu_f * w * s**2 * u / sigma**4 + H_h * t + lam


def cooperative_weights(kernel, u, s, mu_f, g_h, H_h, lam):
    w, sigma, q, g_s, D = scale_terms(kernel, u, s, mu_f, g_h, H_h, lam)
    a = mu_f * w / sigma**2
    return a, -(q**2) / D, a - q * g_s / D


def cooperative_update(kernel, u, s, rJd, mu_f, g_h, H_h, lam):
    _, _, q, g_s, D = scale_terms(kernel, u, s, mu_f, g_h, H_h, lam)
    return s - (g_s + q * rJd) / D


def objectives(kernel, u, s):
    """f, h and Ψ."""
    return scaled_cost(kernel, u, s), kernel.tau**2 * s**2, kernel.psi(u)


def trial_objectives(kernel, u, s, s_before):
    """f, h and Ψ, and f with the scales as they were before the step."""
    return *objectives(kernel, u, s), scaled_cost(kernel, u, s_before)


def scaled_cost(kernel, u, s):
    return kernel.psi(u / (1 + s**2) ** 2)


def shrunk(kernel, u, s, gamma):
    return (1 - gamma) * s


def theta_gradient(kernel, u, s):
    sigma = 1 + s**2
    return kernel.omega(u / sigma**2) / sigma**2


def scale_gradients(kernel, u, s):
    """Squares and product of ∂f/∂s and ∂h/∂s."""
    sigma = 1 + s**2
    f_s, h_s = -2 * kernel.omega(u / sigma**2) * s * u / sigma**3, kernel.tau**2 * s
    return f_s**2, f_s * h_s, h_s**2


def start_scales(kernel, u, lowest, reach):
    """s with σ = max(lowest, reach·‖r‖/τ); 0, for good, under a convex kernel, which has no poor minima to leave."""
    xp = namespace(u)
    if kernel.convex:
        return xp.zeros_like(u)
    sigma = xp.maximum(lowest, reach * xp.sqrt(u) / kernel.tau)
    return xp.sqrt(sigma - 1)


def no_scales(kernel, u):
    return 0.0 * u


def sizes(kernel, u):
    """‖r‖²/τ², √(‖r‖/τ), τ² and 1 of a residual whose kernel is not convex: the others have no scale."""
    if kernel.convex:
        return 0.0 * u, 0.0 * u, 0.0 * u, 0.0 * u
    xp, t = namespace(u), kernel.tau**2
    return u / t, xp.sqrt(xp.sqrt(u / t)), t + 0.0 * u, 1.0 + 0.0 * u


@dataclass(frozen=True, eq=False)
class AskerState(State):
    s: PerFactor = ()
    f: float = 0.0
    h: float = 0.0
    scale_damping: float = 2.0
    filter: Filter = Filter()
    budget: int = 0
    """Iterations in all."""
    left: int = 0
    """Iterations left."""
    units: float = 1.0
    """Σ τ² of the residuals that have a scale."""
    descending: bool = False
    """Whether the first descent goes on."""
    last_phase: bool = False
    best: tuple[float, Point] | None = None
    """The lowest Ψ before the last phase, and where."""
    corner: tuple[float, float] | None = None
    """What the last step left in the filter."""
    restoration: dict[str, float] | None = None
    """Of the last step, where it was refused: γ, and the pair (f, h) that was not acceptable."""

    @property
    def mean_scale(self) -> float:
        """The root mean square of s, weighted by τ²."""
        return sqrt(self.h / self.units) if self.units else 0.0

    @property
    def details(self) -> dict[str, Any]:
        return {
            "f": self.f,
            "h": self.h,
            "scale_damping": self.scale_damping,
            "phase": "first" if self.descending else "last" if self.last_phase else "cooperative",
            **({} if self.corner is None else {"corner": self.corner}),
            **(self.restoration or {}),
        }


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
        """The values of the authors' program, which made the published numbers."""
        values: dict[str, Any] = {"s0": 5.0, "reach": 0.0, "spread": 0.0, "anneal": FixedRate(), "first_share": 0.0}
        return cls(**(values | settings))

    @classmethod
    def paper(cls, **settings: Any) -> "ASKER":
        """The values printed in the paper."""
        return cls.published(**({"damping": 0.5, "as_printed": True} | settings))

    def init(self, engine: Engine, start: Point, max_iterations: int) -> AskerState:
        s = engine.each(no_scales, start)
        f, h, target = engine.total(objectives, start, s)
        state = AskerState(
            start, target, self.first.damping, on_target=False, s=s, f=f, h=h, best=(target, start),
            budget=max_iterations, left=max_iterations, units=engine.total(sizes, start)[2],
        )  # fmt: skip
        trusted = any(factors.kernel.convex for factors in engine.problem.factors)
        if trusted and self.first_share * max_iterations >= 1 and not self._start_is_of_no_use(engine):
            return replace(state, descending=True)
        return self._relax(engine, state)

    def _start_is_of_no_use(self, engine: Engine) -> bool:
        """With linear residuals and one large σ the relaxed problem is convex: the start no longer matters."""
        return bool(self.spread and engine.problem.is_linear)

    def _relax(self, engine: Engine, state: AskerState) -> AskerState:
        """The scales where (1) begins; the iterations that are left are its budget."""
        s = self._start_scales(engine, state.point)
        f, h, _ = engine.total(objectives, state.point, s)
        return replace(
            state, descending=False, s=s, f=f, h=h, damping=self.damping, scale_damping=self.scale_damping,
            budget=state.left,
        )  # fmt: skip

    def _start_scales(self, engine: Engine, start: Point) -> PerFactor:
        """A σ of its own for each residual trusts the start, for what is far from it has less weight.

        The typical ‖r‖ is a mean of order ½, which gross errors do not make much larger.
        """
        lowest, reach = 1 + self.s0**2, self.reach
        squares, roots, _, n = engine.total(sizes, start)
        if self._start_is_of_no_use(engine):
            lowest, reach = max(lowest, self.spread * sqrt(squares / max(n, 1.0))), 0.0
        lowest = max(lowest, reach * (roots / max(n, 1.0)) ** 2)
        return engine.each(start_scales, start, lowest=lowest, reach=reach)

    def step(self, engine: Engine, state: AskerState) -> AskerState:
        if state.descending:
            return self._descend(engine, state)
        if not state.last_phase and self.anneal.is_over(state):
            state = self._begin_last_phase(engine, state)
        if state.last_phase:
            after = self.last.step(engine, state)
            return self._no_worse_than_before(state, replace(after, f=after.cost))
        return self._cooperate(engine, replace(state, left=state.left - 1, corner=None, restoration=None))

    def _descend(self, engine: Engine, state: AskerState) -> AskerState:
        """(0)"""
        after = self.first.step(engine, state)
        at_rest = after.accepted and state.cost - after.cost < NEARLY_AT_REST * state.cost
        after = replace(after, f=after.cost, best=(after.cost, after.point), left=state.left - 1)
        is_over = at_rest or after.left <= (1 - self.first_share) * state.budget
        return self._relax(engine, after) if is_over else after

    def _begin_last_phase(self, engine: Engine, state: AskerState) -> AskerState:
        """s = 0; from here on Ψ itself is minimised."""
        s = engine.each(shrunk, state.point, state.s, gamma=1.0)
        return replace(
            state,
            s=s,
            f=state.cost,
            h=0.0,
            damping=self.last.damping,
            last_phase=True,
            on_target=True,
            corner=None,
            restoration=None,
        )

    def _no_worse_than_before(self, before: AskerState, after: AskerState) -> AskerState:
        """Where the last phase comes to rest above a point that was seen before, it goes on from that point."""
        at_rest = after.accepted and before.cost - after.cost < AT_REST * before.cost
        if after.best is None or not at_rest or after.cost <= after.best[0]:
            return after
        cost, point = after.best
        return replace(after, point=point, cost=cost, f=cost, damping=self.last.damping, best=None)

    def _cooperate(self, engine: Engine, state: AskerState) -> AskerState:
        filter_ = state.filter.with_corner(state.f - self.alpha * state.h, (1 - self.alpha) * state.h)  # (1)
        state = replace(state, scale_damping=self.anneal.scale_damping(state, self.mu_h))
        numbers = self._constants(state.scale_damping) | {"lam": state.damping}
        model = Model(*engine.each(cooperative_weights, state.point, state.s, **numbers))  # (2)
        step = engine.solve(state.point, model, state.damping)
        if step is None:  # no factorisation worked
            return replace(state, damping=10 * state.damping, accepted=False)
        s = engine.each(cooperative_update, state.point, state.s, engine.radial(step), **numbers)
        trial = engine.move(step)
        f, h, target, f_before = engine.total(trial_objectives, trial, s, state.s)
        if not filter_.accepts(f, h):
            return self._restore(engine, state, filter_, {"f_refused": f, "h_refused": h})
        gain = (state.f - f_before) / max(state.f, 1e-300)
        rates = self.anneal.rates(gain, state)  # (3)
        if rates.refused:
            return replace(state, damping=rates.damping, scale_damping=rates.scale_damping, accepted=False)
        best = min(state.best or (target, trial), (target, trial), key=lambda seen: seen[0])
        return replace(
            self._filtered(state, filter_, f), point=trial, cost=target, s=s, f=f, h=h, accepted=True, best=best,
            damping=max(rates.damping, self.smallest_damping), scale_damping=rates.scale_damping,
        )  # fmt: skip

    def _filtered(self, state: AskerState, filter_: Filter, f: float) -> AskerState:
        """(5)"""
        return state if f < state.f else replace(state, filter=filter_, corner=filter_.corners[-1])

    def _constants(self, scale_damping: float) -> dict[str, float]:
        """μ_f, the factor of s in the gradient of μ_h h, and the damped curvature of μ_h h."""
        if self.as_printed:
            return {"mu_f": self.mu_f, "g_h": 2 * self.mu_h, "H_h": 2 * self.mu_h * (1 + scale_damping)}
        return {"mu_f": self.mu_f, "g_h": self.mu_h, "H_h": self.mu_h + scale_damping}

    def _restore(self, engine: Engine, state: AskerState, filter_: Filter, refused: dict[str, float]) -> AskerState:
        """(4)"""
        candidates = []
        for gamma in np.linspace(-0.5, 0.5, self.grid):
            s = engine.each(shrunk, state.point, state.s, gamma=gamma)
            f, h, _ = engine.total(objectives, state.point, s)
            if gamma != 0 and filter_.accepts(f, h):
                candidates.append((self._cosine(engine, state.point, s), gamma, s, f, h))
        best = max(candidates, key=lambda c: c[0], default=(0.0, gamma, s, f, h))  # else the last one, γ = ½
        _, gamma, s, f, h = best
        return replace(
            self._filtered(state, filter_, f), s=s, f=f, h=h, damping=self.damping, scale_damping=self.scale_damping,
            accepted=False, restoration={"gamma": float(gamma), **refused},
        )  # fmt: skip

    def _cosine(self, engine: Engine, point: Point, s: PerFactor) -> float:
        """Between the gradients of f and h in (θ, s)."""
        w = engine.each(theta_gradient, point, s)
        theta_square, _, _ = engine.gradient_products(point, w, w)
        ff, fh, hh = engine.total(scale_gradients, point, s)
        norms = sqrt(theta_square + ff) * sqrt(hh)
        return fh / norms if norms > 0 else 0.0

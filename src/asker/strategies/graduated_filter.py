"""ASKER as in the paper: a scale for every residual, driven to 1 by a filter method.

Le, Zach: A Graduated Filter Method for Large Scale Robust Estimation, CVPR 2020.  Equation numbers are the paper's.

Problem     min over θ, s of f = Σ ψ(‖rᵢ(θ)‖/σᵢ),  σᵢ = 1 + sᵢ²,  subject to h = Σ τ²sᵢ² = 0          (eq. 8, 9)
Symbols     μ_f, μ_h -> mu_f, mu_h    α -> alpha    λ -> state.damping    λ_h -> state.scale_damping
            ω̂ = ω(u/σ²)    q = ∂²(μ_f f)/∂s∂r without r    g_s, D: gradient and curvature in s
Algorithm   (1) the corner (f − αh, (1 − α)h) enters the filter                                 (Alg. 1, lines 6-9)
            (2) cooperative step: Gauss-Newton on μ_f f + μ_h h in (θ, s), damped by λ                     (eq. 13)
                g_s = −2μ_f ω̂ s u/σ³ + μ_h τ²s,  D = 4μ_f ω̂ s² u/σ⁴ + (μ_h + λ_h + λ)τ²,  q = −2μ_f ω̂ s/σ³
                s is eliminated per residual: a = μ_f ω̂/σ², b = −q²/D, c = a − q g_s/D
                δs = −(g_s + q rᵀJδ)/D
            (3) accept if the filter accepts (f', h'); then λ and λ_h fall                                 (Alg. 2)
            (4) else restoration: s ← (1 − γ)s, γ in [−½, ½] with the smallest angle between
                the gradients of f and h among the acceptable ones; λ and λ_h start anew             (eq. 14, 15)
            (5) where f fell, the corner of (1) leaves the filter again                        (Alg. 1, lines 11-12)
Deviations  The paper has τ = 1 and h = Σ sᵢ².  With τ² in it, f and h have the same unit, and neither τ nor a weight
            shifts the balance between them.  For the same reason λτ² damps s, where λ does for τ = 1.
            A residual under a convex kernel has no scale: s stays 0.
            The authors' program, which made the published numbers, has λ₀ = 0.1, g_h = s and H_h = 1 + λ_h/μ_h; the
            text prints λ₀ = 0.5, g_h = 2s and H_h = 2(1 + λ_h).  `published()` and `paper()` are these two.
            λ is not taken below 1e-5.  The program divides the inner product of the gradients by the sum of their
            norms; here it is the true angle.  When no γ is acceptable, γ = ½: h falls, which some later corner accepts.

Where the scales begin (`Scales`) and how fast they fall (`Anneal`) are fields, with the paper's as defaults.  What we
add to the paper, the default mode `asker.ASKER()`, is default.py.
"""

from dataclasses import dataclass, replace
from math import inf, isfinite, sqrt
from typing import Any, NamedTuple, Protocol

import numpy as np

from asker.engines.interface import Model, PerFactor, Point, Tried
from asker.strategies.filter import Filter
from asker.strategies.strategy import Engine, State, refused
from asker.tracing.array_namespace import namespace


def scale_terms(kernel, u, s, mu_f, g_h, H_h, lam):
    """ω̂, σ, q, g_s and D of (2); `g_h` and `H_h` are the gradient factor and the curvature of μ_h h, λ_h included."""
    sigma, t = 1 + s**2, kernel.tau**2
    w = kernel.omega(u / sigma**2)
    q = -2 * mu_f * w * s / sigma**3
    return w, sigma, q, q * u + g_h * t * s, 4 * mu_f * w * s**2 * u / sigma**4 + (H_h + lam) * t


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


def cooperative_trial(verbs, point, s, *, lam, **numbers):
    """(2), and what (3) asks of it."""
    numbers["lam"] = lam
    step = verbs.solve(point, Model(*verbs.each(cooperative_weights, point, s, **numbers)), lam)
    if step is None:
        return None
    after = verbs.each(cooperative_update, point, s, verbs.radial(step), **numbers)
    trial = verbs.move(step)
    return Tried(trial, (after,), verbs.total(trial_objectives, trial, after, s))


def shrunk(kernel, u, s, gamma):
    return (1 - gamma) * s


def theta_gradient(kernel, u, s, f):
    """The weight of Jᵀr in ∂ log f/∂θ."""
    sigma = 1 + s**2
    return kernel.omega(u / sigma**2) / sigma**2 / f


def scale_gradients(kernel, u, s, f, h):
    """Squares and product of ∂ log f/∂s and ∂ log h/∂s."""
    sigma = 1 + s**2
    f_s, h_s = -2 * kernel.omega(u / sigma**2) * s * u / sigma**3 / f, kernel.tau**2 * s / h
    return f_s**2, f_s * h_s, h_s**2


def one_scale(kernel, u, s0):
    """s₀; 0, for good, under a convex kernel, which has no poor minima to leave."""
    ones = namespace(u).ones_like(u)
    return 0.0 * ones if kernel.convex else s0 * ones


def unit(kernel, u):
    """τ² of a residual that has a scale."""
    return kernel.tau**2 * one_scale(kernel, u, 1.0)


@dataclass(frozen=True, eq=False)
class AskerState(State):
    s: PerFactor = ()
    f: float = 0.0
    h: float = 0.0
    scale_damping: float = 2.0
    filter: Filter = Filter()
    units: float = 1.0
    """Σ τ² of the residuals that have a scale."""
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
            "f": self.cost if self.phase else self.f,  # a descent knows Ψ alone, and f = Ψ where s = 0
            "h": self.h,
            "scale_damping": self.scale_damping,
            "phase": self.phase or "cooperative",
            **({} if self.corner is None else {"corner": self.corner}),
            **(self.restoration or {}),
        }

    def unrelaxed(self, engine: Engine) -> "AskerState":
        """s = 0, so that h = 0 and f = Ψ."""
        s = engine.each(shrunk, self.point, self.s, gamma=1.0)
        return replace(self, s=s, f=self.cost, h=0.0, on_target=True, corner=None, restoration=None)


class Scales(Protocol):
    """Where the scales begin."""

    def start(self, engine: Engine, point: Point) -> PerFactor:
        """s of every residual."""


@dataclass(frozen=True)
class OneScale:
    """The paper's: the same s for every residual."""

    s0: float = 5.0

    def start(self, engine, point):
        return engine.each(one_scale, point, s0=self.s0)


class Rates(NamedTuple):
    """What a step leaves for the next one."""

    damping: float
    scale_damping: float
    refused: bool = False
    """Whether the step just made is taken back."""


class Anneal(Protocol):
    """How fast the scales fall, and when that is over."""

    def scale_damping(self, state: Any, mu_h: float) -> float:
        """λ_h of the next step."""

    def rates(self, gain: float, state: Any) -> Rates:
        """λ and λ_h after a step that the filter accepts.

        `gain` is (f(θ, s) − f(θ + δ, s))/f(θ, s): what the old relaxed problem gained from moving θ.
        """

    def is_over(self, state: Any) -> bool:
        """Whether the scales are down, so that a last phase may begin."""


@dataclass(frozen=True)
class FixedRate:
    """The paper's: λ ← λ/10 and λ_h ← 0.9 λ_h after every accepted step, to the end of the run."""

    rate: float = 0.9
    """λ_h is multiplied by this."""

    def scale_damping(self, state, mu_h):
        return state.scale_damping

    def rates(self, gain, state):
        return Rates(state.damping / 10, self.rate * state.scale_damping)

    def is_over(self, state):
        return False


@dataclass(frozen=True)
class GraduatedFilter:
    """The paper's method: adaptive scaling of kernels by a filter.  The defaults are those of the authors' program."""

    scales: Scales = OneScale()
    """Where the scales begin."""
    mu_f: float = 0.7
    mu_h: float = 0.3
    alpha: float = 1e-4
    """The filter's margin α."""
    damping: float = 0.1
    """λ at the start and after a refusal."""
    smallest_damping: float = 1e-5
    scale_damping: float = 2.0
    """λ_h at the start and after a refusal."""
    anneal: Anneal = FixedRate()
    """How λ and λ_h change after a step that the filter accepts."""
    as_printed: bool = False
    """g_h and H_h as in the paper's text."""
    grid: int = 21
    """Number of γ in [−½, ½] that a restoration tries."""

    @classmethod
    def published(cls, **settings: Any) -> "GraduatedFilter":
        """The values of the authors' program, which made the published numbers."""
        return cls(**settings)

    @classmethod
    def paper(cls, **settings: Any) -> "GraduatedFilter":
        """The values printed in the paper."""
        return cls(**({"damping": 0.5, "as_printed": True} | settings))

    def init(self, engine: Engine, start: Point, max_iterations: int) -> AskerState:
        s = self.scales.start(engine, start)
        f, h, target = engine.total(objectives, start, s)
        return AskerState(
            start, target, self.damping, on_target=False, budget=max_iterations, left=max_iterations,
            s=s, f=f, h=h, scale_damping=self.scale_damping, units=engine.total(unit, start),
        )  # fmt: skip

    def is_over(self, state: AskerState) -> bool:
        """Whether the scales are down."""
        return self.anneal.is_over(state)

    def step(self, engine: Engine, state: AskerState) -> AskerState:
        filter_ = state.filter.with_corner(state.f - self.alpha * state.h, (1 - self.alpha) * state.h)  # (1)
        state = replace(state, left=state.left - 1, corner=None, restoration=None)
        state = replace(state, scale_damping=self.anneal.scale_damping(state, self.mu_h))
        numbers = self._constants(state.scale_damping) | {"lam": state.damping}
        tried = engine.together(cooperative_trial, state.point, state.s, **numbers)  # (2)
        if tried is None:  # no factorisation worked
            return refused(state, inf, None)
        trial, (s,), (f, h, target, f_before) = tried
        if not filter_.accepts(f, h):
            state = replace(state, off_limits=not isfinite(f))
            return self._restore(engine, state, filter_, {"f_refused": f, "h_refused": h})
        gain = (state.f - f_before) / max(state.f, 1e-300)
        rates = self.anneal.rates(gain, state)  # (3)
        if rates.refused:
            return replace(state, damping=rates.damping, scale_damping=rates.scale_damping, accepted=False)
        return replace(
            self._filtered(state, filter_, f), point=trial, cost=target, s=s, f=f, h=h, accepted=True,
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
                candidates.append((self._cosine(engine, state.point, s, f, h), gamma, s, f, h))
        best = max(candidates, key=lambda c: c[0], default=(0.0, gamma, s, f, h))  # else the last one, γ = ½
        _, gamma, s, f, h = best
        return replace(
            self._filtered(state, filter_, f), s=s, f=f, h=h, damping=self.damping, scale_damping=self.scale_damping,
            accepted=False, restoration={"gamma": float(gamma), **refused},
        )  # fmt: skip

    def _cosine(self, engine: Engine, point: Point, s: PerFactor, f: float, h: float) -> float:
        """Return the cosine between the gradients of log f and log h in (θ, s), whose squares neither overflow nor
        vanish."""
        if not (f > 0 and h > 0):
            return 0.0
        w = engine.each(theta_gradient, point, s, f=f)
        theta_square, _, _ = engine.gradient_products(point, w, w)
        ff, fh, hh = engine.total(scale_gradients, point, s, f=f, h=h)
        norms = sqrt(theta_square + ff) * sqrt(hh)
        return fh / norms if norms > 0 else 0.0

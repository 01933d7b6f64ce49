"""ASKER as in the paper: a filter method that reduces the scale of every residual to 1.

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
            (4) else restoration: s ← (1 − γ)s, with the acceptable γ in [−½, ½] that has the smallest
                angle between the gradients of f and h; λ and λ_h are reset                          (eq. 14, 15)
            (5) if f decreased, the corner of (1) is removed from the filter                   (Alg. 1, lines 11-12)
Deviations  The paper has τ = 1 and h = Σ sᵢ².  With the factor τ², f and h have the same unit, and their balance does
            not depend on τ or on weights.  For the same reason s is damped by λτ² instead of λ.
            A residual under a convex kernel has no scale: s stays 0.
            The authors' program, which computed the published numbers, has λ₀ = 0.1, g_h = s and H_h = 1 + λ_h/μ_h;
            the text prints λ₀ = 0.5, g_h = 2s and H_h = 2(1 + λ_h).  `published()` and `paper()` are these two.
            λ is bounded below by 1e-5.  The program divides the inner product of the gradients by the sum of their
            norms; here the angle is computed exactly.  If no γ is acceptable, γ = ½: h decreases until
            the filter accepts a pair.

The initial scales (`Scales`) and the rate of their decrease (`Anneal`) are fields, with those of the paper as defaults.
asker.py extends the paper's method to the default mode `asker.ASKER()`.
"""

from dataclasses import dataclass, replace
from math import inf, isfinite, sqrt
from typing import Any, NamedTuple, Protocol

import numpy as np

from asker.engines.interface import Model, PerFactor, Point, Tried, Verbs
from asker.kernels.kernel import Array, Kernel
from asker.strategies.filter import Filter
from asker.strategies.strategy import Detail, Engine, State, refused
from asker.tracing.array_namespace import namespace


def scale_terms(
    kernel: Kernel, u: Array, s: Array, mu_f: float, g_h: float, H_h: float, lam: float
) -> tuple[Array, Array, Array, Array, Array]:
    """Return ω̂, σ, q, g_s and D of (2); `g_h` and `H_h` are the gradient factor and damped curvature of μ_h h."""
    sigma, t = 1 + s**2, kernel.tau**2
    w = kernel.omega(u / sigma**2)
    q = -2 * mu_f * w * s / sigma**3
    return w, sigma, q, q * u + g_h * t * s, 4 * mu_f * w * s**2 * u / sigma**4 + (H_h + lam) * t


def cooperative_weights(
    kernel: Kernel, u: Array, s: Array, mu_f: float, g_h: float, H_h: float, lam: float
) -> tuple[Array, Array, Array]:
    """Return the weights a, b and c of the model after the elimination of s (2)."""
    w, sigma, q, g_s, D = scale_terms(kernel, u, s, mu_f, g_h, H_h, lam)
    a = mu_f * w / sigma**2
    return a, -(q**2) / D, a - q * g_s / D


def cooperative_update(
    kernel: Kernel, u: Array, s: Array, rJd: Array, mu_f: float, g_h: float, H_h: float, lam: float
) -> Array:
    """Return s after the step, by back-substitution (2)."""
    _, _, q, g_s, D = scale_terms(kernel, u, s, mu_f, g_h, H_h, lam)
    return s - (g_s + q * rJd) / D


def objectives(kernel: Kernel, u: Array, s: Array) -> tuple[Array, Array, Array]:
    """Return f, h and Ψ of a residual."""
    return scaled_cost(kernel, u, s), kernel.tau**2 * s**2, kernel.psi(u)


def trial_objectives(kernel: Kernel, u: Array, s: Array, s_before: Array) -> tuple[Array, Array, Array, Array]:
    """Return f, h and Ψ of a residual, and f with the scale before the step."""
    f, h, target = objectives(kernel, u, s)
    return f, h, target, scaled_cost(kernel, u, s_before)


def scaled_cost(kernel: Kernel, u: Array, s: Array) -> Array:
    """Return f of a residual."""
    return kernel.psi(u / (1 + s**2) ** 2)


def cooperative_trial(verbs: Verbs, point: Point, s: PerFactor, *, lam: float, **numbers: float) -> Tried | None:
    """Return the cooperative step (2) with the objectives that (3) needs, or None if the system has no solution."""
    numbers["lam"] = lam
    step = verbs.solve(point, Model(*verbs.each(cooperative_weights, point, s, **numbers)), lam)
    if step is None:
        return None
    after = verbs.each(cooperative_update, point, s, verbs.radial(step), **numbers)
    trial = verbs.move(step)
    return Tried(trial, (after,), verbs.total(trial_objectives, trial, after, s))


def shrunk(kernel: Kernel, u: Array, s: Array, gamma: float) -> Array:
    """Return the scale after a restoration, (1 − γ)s."""
    return (1 - gamma) * s


def theta_gradient(kernel: Kernel, u: Array, s: Array, f: float) -> Array:
    """Return the weight of Jᵀr in ∂ log f/∂θ."""
    sigma = 1 + s**2
    return kernel.omega(u / sigma**2) / sigma**2 / f


def scale_gradients(kernel: Kernel, u: Array, s: Array, f: float, h: float) -> tuple[Array, Array, Array]:
    """Return the squares and the product of ∂ log f/∂s and ∂ log h/∂s."""
    sigma = 1 + s**2
    f_s, h_s = -2 * kernel.omega(u / sigma**2) * s * u / sigma**3 / f, kernel.tau**2 * s / h
    return f_s**2, f_s * h_s, h_s**2


def one_scale(kernel: Kernel, u: Array, s0: float) -> Array:
    """Return s₀, or 0 for a convex kernel, which adds no poor minima; its s stays 0."""
    ones = namespace(u).ones_like(u)
    return 0.0 * ones if kernel.convex else s0 * ones


def unit(kernel: Kernel, u: Array) -> Array:
    """Return τ² of a residual that has a scale, else 0."""
    return kernel.tau**2 * one_scale(kernel, u, 1.0)


@dataclass(frozen=True, eq=False)
class AskerState(State):
    """State with the scales and the filter."""

    s: PerFactor = ()
    """s of every residual."""
    f: float = 0.0
    """Relaxed objective f(θ, s)."""
    h: float = 0.0
    """Constraint violation h(s)."""
    scale_damping: float = 2.0
    """λ_h"""
    filter: Filter = Filter()
    """Corners of earlier steps."""
    units: float = 1.0
    """Σ τ² of the residuals that have a scale."""
    corner: tuple[float, float] | None = None
    """Corner that the last step added to the filter."""
    restoration: dict[str, float] | None = None
    """γ of the last step if it was a restoration, and the pair (f, h) that the filter rejected."""

    @property
    def mean_scale(self) -> float:
        """Root mean square of s, weighted by τ²."""
        return sqrt(self.h / self.units) if self.units else 0.0

    @property
    def details(self) -> dict[str, Detail]:
        return {
            "f": self.cost if self.phase else self.f,  # a descent only updates Ψ; f = Ψ for s = 0
            "h": self.h,
            "scale_damping": self.scale_damping,
            "phase": self.phase or "cooperative",
            **({} if self.corner is None else {"corner": self.corner}),
            **(self.restoration or {}),
        }

    def unrelaxed(self, engine: Engine) -> "AskerState":
        """Return the state with s = 0, so that h = 0 and f = Ψ."""
        s = engine.each(shrunk, self.point, self.s, gamma=1.0)
        return replace(self, s=s, f=self.cost, h=0.0, on_target=True, corner=None, restoration=None)


class Scales(Protocol):
    """Choice of the initial scales."""

    def start(self, engine: Engine, point: Point) -> PerFactor:
        """Return s of every residual at the start."""


@dataclass(frozen=True)
class OneScale:
    """The same initial s for every residual, as in the paper."""

    s0: float = 5.0
    """Initial s of every residual."""

    def start(self, engine: Engine, point: Point) -> PerFactor:
        return engine.each(one_scale, point, s0=self.s0)


class Rates(NamedTuple):
    """Damping of the next step."""

    damping: float
    """λ"""
    scale_damping: float
    """λ_h"""
    refused: bool = False
    """True if the last step is rejected."""


class Anneal(Protocol):
    """Schedule for the decrease of the scales."""

    def scale_damping(self, state: AskerState, mu_h: float) -> float:
        """Return λ_h of the next step."""

    def rates(self, gain: float, state: AskerState) -> Rates:
        """Return λ and λ_h after a step that the filter accepts.

        `gain` is (f(θ, s) − f(θ + δ, s))/f(θ, s), the relative decrease of the old relaxed problem by the step of θ.
        """

    def is_over(self, state: AskerState) -> bool:
        """Return True if the decrease of the scales is complete, so that a last phase may begin."""


@dataclass(frozen=True)
class FixedRate:
    """The schedule of the paper: λ ← λ/10 and λ_h ← 0.9 λ_h after every accepted step, to the end of the run."""

    rate: float = 0.9
    """Factor of λ_h."""

    def scale_damping(self, state: AskerState, mu_h: float) -> float:
        return state.scale_damping

    def rates(self, gain: float, state: AskerState) -> Rates:
        return Rates(state.damping / 10, self.rate * state.scale_damping)

    def is_over(self, state: AskerState) -> bool:
        return False


@dataclass(frozen=True)
class GraduatedFilter:
    """Adaptive scaling of kernels by a filter method, as in the paper, with the settings of the authors' program."""

    scales: Scales = OneScale()
    """Choice of the initial scales."""
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
    anneal: Anneal = FixedRate()
    """Schedule of λ and λ_h after accepted steps."""
    as_printed: bool = False
    """Use g_h and H_h of the paper's text."""
    grid: int = 21
    """Number of values of γ in [−½, ½] that a restoration evaluates."""

    @classmethod
    def published(cls, **settings: Any) -> "GraduatedFilter":
        """Return the strategy with the settings of the authors' program, which computed the published numbers."""
        return cls(**settings)

    @classmethod
    def paper(cls, **settings: Any) -> "GraduatedFilter":
        """Return the strategy with the settings printed in the paper."""
        return cls(**({"damping": 0.5, "as_printed": True} | settings))

    def init(self, engine: Engine, start: Point, max_iterations: int) -> AskerState:
        s = self.scales.start(engine, start)
        f, h, target = engine.total(objectives, start, s)
        return AskerState(
            start, target, self.damping, on_target=False, budget=max_iterations, left=max_iterations,
            s=s, f=f, h=h, scale_damping=self.scale_damping, units=engine.total(unit, start),
        )  # fmt: skip

    def is_over(self, state: AskerState) -> bool:
        """Return True if the decrease of the scales is complete."""
        return self.anneal.is_over(state)

    def step(self, engine: Engine, state: AskerState) -> AskerState:
        filter_ = state.filter.with_corner(state.f - self.alpha * state.h, (1 - self.alpha) * state.h)  # (1)
        state = replace(state, left=state.left - 1, corner=None, restoration=None)
        state = replace(state, scale_damping=self.anneal.scale_damping(state, self.mu_h))
        numbers = self._constants(state.scale_damping) | {"lam": state.damping}
        tried = engine.together(cooperative_trial, state.point, state.s, **numbers)  # (2)
        if tried is None:  # the linear system has no solution
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
        """Return the state after an accepted pair; the corner stays in the filter unless f decreased (5)."""
        return state if f < state.f else replace(state, filter=filter_, corner=filter_.corners[-1])

    def _constants(self, scale_damping: float) -> dict[str, float]:
        """Return μ_f, the factor of s in the gradient of μ_h h, and the damped curvature of μ_h h."""
        if self.as_printed:
            return {"mu_f": self.mu_f, "g_h": 2 * self.mu_h, "H_h": 2 * self.mu_h * (1 + scale_damping)}
        return {"mu_f": self.mu_f, "g_h": self.mu_h, "H_h": self.mu_h + scale_damping}

    def _restore(self, engine: Engine, state: AskerState, filter_: Filter, refused: dict[str, float]) -> AskerState:
        """Return the state after a restoration (4)."""
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
        """Return the cosine between the gradients of log f and log h in (θ, s).

        The logarithms prevent overflow and underflow of the squares.
        """
        if not (f > 0 and h > 0):
            return 0.0
        w = engine.each(theta_gradient, point, s, f=f)
        theta_square, _, _ = engine.gradient_products(point, w, w)
        ff, fh, hh = engine.total(scale_gradients, point, s, f=f, h=h)
        norms = sqrt(theta_square + ff) * sqrt(hh)
        return fh / norms if norms > 0 else 0.0

"""Graduated non-convexity with the surrogates of Geman-McClure (GNC-GM) and of truncated least squares (GNC-TLS).

Yang, Antonante, Tzoumas, Carlone: Graduated Non-Convexity for Robust Spatial Perception, RA-L 2020; the superlinear
schedule is that of Peng, Kümmerle, Vidal: On the Convergence of IRLS and Its Variants in Outlier-Robust Estimation,
CVPR 2023.

Problem     min over θ of Σ ρ(‖rᵢ(θ)‖), ρ Geman-McClure's kernel or the truncated square, of scale c = τ
Symbols     μ -> state.mu    c̄² -> tau²
Algorithm   (1) μ₀ = 2u_max/c² (GM), μ₀ = 1/(2u_max/c² − 1) (TLS), u_max the largest squared residual
            (2) GM:   w = (μc²/(u + μc²))²
                TLS:  w = 1 if u ≤ μ/(μ+1) c²;  0 if u ≥ (μ+1)/μ c²;  else c/‖r‖ √(μ(μ+1)) − μ
            (3) one damped step of weighted least squares per μ; accepted if Σ wu falls
            (4) GM: μ ← μ/1.4 while μ ≥ 1;  TLS: μ ← 1.4μ, superlinear: μ ← 1.4√μ while μ < 1, then 1.4μ
            (5) after the schedule: IRLS on Ψ of the problem's own kernel
Deviations  (3) is one step per μ, whereas the paper solves each problem with a global solver; (5) is added, since the
            methods are compared by Ψ.  A residual under a convex kernel is never treated as an outlier: it keeps its
            weight ω throughout and is ignored in (1).
"""

from dataclasses import dataclass, replace

from asker.engines.interface import Model, Point
from asker.kernels.kernel import Array, Kernel
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Detail, Engine, State, attempt, cost, lowered, refused
from asker.tracing.array_namespace import namespace


def relative_square(kernel: Kernel, u: Array) -> Array:
    """Return u/c², or 0 for a convex kernel."""
    return namespace(u).zeros_like(u) if kernel.convex else u / kernel.tau**2


def gm_weights(kernel: Kernel, u: Array, mu: float) -> Array:
    """Return the Geman-McClure weight of a residual."""
    if kernel.convex:
        return kernel.omega(u)
    c2 = mu * kernel.tau**2
    return (c2 / (u + c2)) ** 2  # (2)


def tls_weights(kernel: Kernel, u: Array, mu: float) -> Array:
    """Return the weight of a residual for truncated least squares."""
    if kernel.convex:
        return kernel.omega(u)
    xp = namespace(u)
    v = u / kernel.tau**2
    between = xp.sqrt(mu * (mu + 1) / xp.maximum(v, 1e-100)) - mu
    return xp.where(v <= mu / (mu + 1), 1.0, xp.where(v >= (mu + 1) / mu, 0.0, between))


def weighted_square(kernel: Kernel, u: Array, w: Array) -> Array:
    """Return wu/2, the cost of a residual in weighted least squares."""
    return w * u / 2


@dataclass(frozen=True)
class GM:
    """Schedule for Geman-McClure: μ decreases to 1."""

    factor: float = 1.4
    """Ratio of successive μ."""
    weights = staticmethod(gm_weights)

    def start(self, largest: float) -> float:
        """Return μ₀ for the largest squared residual in units of c²."""
        return 2 * largest  # (1)

    def next(self, mu: float) -> float:
        """Return the next μ."""
        return mu / self.factor  # (4)

    def is_over(self, mu: float) -> bool:
        """Return True if the schedule has ended at this μ."""
        return mu < 1


@dataclass(frozen=True)
class TLS:
    """Schedule for truncated least squares: μ increases until the weights are 0 or 1."""

    factor: float = 1.4
    """Ratio of successive μ."""
    superlinear: bool = False
    """Use μ ← 1.4√μ while μ < 1."""
    last_mu: float = 1e4
    """Value of μ at which the schedule ends."""
    weights = staticmethod(tls_weights)

    def start(self, largest: float) -> float:
        """Return μ₀ for the largest squared residual in units of c²."""
        return 1 / max(2 * largest - 1, 1e-6)  # (1)

    def next(self, mu: float) -> float:
        """Return the next μ."""
        return self.factor * (mu**0.5 if self.superlinear and mu < 1 else mu)  # (4)

    def is_over(self, mu: float) -> bool:
        """Return True if the schedule has ended at this μ."""
        return mu >= self.last_mu


@dataclass(frozen=True, eq=False)
class SurrogateState(State):
    """State with the control parameter of the surrogate."""

    mu: float = 1.0
    """μ of the current surrogate."""

    @property
    def details(self) -> dict[str, Detail]:
        return {"mu": self.mu, **super().details}


@dataclass(frozen=True)
class SurrogateGNC:
    """GNC of spatial perception: a schedule determines the surrogate, and no kernel has to be chosen for it."""

    schedule: GM | TLS = TLS()
    """Surrogate and schedule of μ."""
    damping: float = 1e-3
    """λ at the start."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> SurrogateState:
        mu = self.schedule.start(engine.largest(relative_square, start))
        return SurrogateState(start, cost(engine, start), self.damping, on_target=self.schedule.is_over(mu), mu=mu)

    def step(self, engine: Engine, state: SurrogateState) -> SurrogateState:
        if state.on_target:
            return IRLS().step(engine, state)  # (5)
        w = engine.each(self.schedule.weights, state.point, mu=state.mu)  # (2)
        before = engine.total(weighted_square, state.point, w)
        trial = attempt(engine, state.point, Model(w, None, w), state.damping)
        value = float("nan") if trial is None else engine.total(weighted_square, trial, w)
        if trial is None or not value < before:  # (3)
            after = refused(state, value, trial)
        else:
            damping = lowered(state.damping)
            after = replace(state, point=trial, cost=cost(engine, trial), damping=damping, accepted=True)
        mu = self.schedule.next(state.mu)
        if self.schedule.is_over(mu):  # λ of the surrogate is not suited to Ψ
            return replace(after, mu=mu, on_target=True, damping=self.damping)
        return replace(after, mu=mu)

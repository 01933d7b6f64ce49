"""Lifting: multiplicative half-quadratic minimisation (M-HQ).

Zach: Robust Bundle Adjustment Revisited, ECCV 2014.

Problem     min over θ, w of Σ ½wᵢ²‖rᵢ‖² + γ(wᵢ²),   γ the kernel's lifted penalty;  γ = ½κ(w)²
Symbols     w -> state.w    λ -> state.damping    κ'² -> dkappa2
Algorithm   (1) Gauss-Newton in (θ, w): g_w = w u + κκ',  D = u + κ'² + λτ²
            (2) eliminate w: a = w², b = −w²/D, c = w² − w g_w/D
            (3) solve δ; back-substitute δw = −(g_w + w rᵀJδ)/D
            (4) accept if the lifted cost falls, and damp as IRLS
Deviations  w is damped by λτ² instead of λ, so that the weights do not depend on the unit of the residuals; the
            paper has τ = 1.  A quadratic kernel is not lifted: w stays 1
"""

from dataclasses import dataclass, replace
from math import inf

from asker.engines.interface import Model, PerFactor, Point, Tried, Verbs
from asker.kernels.kernel import Array, Kernel
from asker.problem.problem import ProblemError
from asker.strategies.strategy import Detail, Engine, State, cost, lowered, omega, refused
from asker.tracing.array_namespace import namespace

NO_WEIGHT = 1e-12
"""Largest ω of a flat cost, for which a small decrease does not indicate convergence."""


def penalty_terms(kernel: Kernel, w: Array) -> tuple[Array, Array]:
    """Return κκ' and κ'² of κ = √(2γ(w²)); where γ vanishes, at w = 1, κ'² is its limit."""
    import jax

    xp = namespace(w)
    v = xp.maximum(w * w, 1e-12)
    unit, slope = kernel.tau**2, jax.grad(kernel.unit_penalty)(v)
    near_one = xp.abs(v - 1) < 1e-6
    limit = -2 * unit / kernel.unit_domega(xp.zeros_like(w))
    gamma = xp.where(near_one, 1.0, kernel.unit_penalty(v))
    product = 2 * w * (unit * slope)
    return product, xp.where(near_one, limit, product * (2 * w * slope) / (2 * gamma))


def lifted_terms(kernel: Kernel, u: Array, w: Array, lam: float) -> tuple[Array, Array]:
    """Return g_w and D of (1)."""
    slope, dkappa2 = penalty_terms(kernel, w)
    return w * u + slope, u + dkappa2 + lam * kernel.tau**2  # (1)


def lifted_weights(kernel: Kernel, u: Array, w: Array, lam: float) -> tuple[Array, Array, Array]:
    """Return the weights a, b and c of the model (2)."""
    if kernel.quadratic:
        return w, 0.0 * w, w
    g_w, D = lifted_terms(kernel, u, w, lam)
    return w**2, -(w**2) / D, w**2 - w * g_w / D  # (2)


def lifted_update(kernel: Kernel, u: Array, w: Array, rJd: Array, lam: float) -> Array:
    """Return w after the step, by back-substitution (3)."""
    if kernel.quadratic:
        return w
    g_w, D = lifted_terms(kernel, u, w, lam)
    return w - (g_w + w * rJd) / D  # (3)


def lifted_cost(kernel: Kernel, u: Array, w: Array) -> Array:
    """Return the lifted cost ½w²u + γ(w²) of a residual."""
    if kernel.quadratic:
        return kernel.psi(u)
    v = namespace(w).maximum(w * w, 1e-12)
    return w**2 * u / 2 + kernel.penalty(v)


def lifted_trial(verbs: Verbs, point: Point, w: PerFactor, *, lam: float) -> Tried | None:
    """Return the step of (2) and (3) with the lifted cost after it, or None if the linear system has no solution."""
    step = verbs.solve(point, Model(*verbs.each(lifted_weights, point, w, lam=lam)), lam)
    if step is None:
        return None
    after = verbs.each(lifted_update, point, w, verbs.radial(step), lam=lam)
    trial = verbs.move(step)
    return Tried(trial, (after,), verbs.total(lifted_cost, trial, after))


def ones(kernel: Kernel, u: Array) -> Array:
    """Return 1, the initial w."""
    return namespace(u).ones_like(u)


@dataclass(frozen=True, eq=False)
class LiftedState(State):
    """State with the lifted unknowns w."""

    w: PerFactor = ()
    """w of every residual."""
    lifted_cost: float = 0.0
    """Lifted cost at (θ, w)."""

    @property
    def objective(self) -> float:
        return self.cost if self.phase else self.lifted_cost

    @property
    def details(self) -> dict[str, Detail]:
        return {"lifted_cost": self.lifted_cost, **super().details}


@dataclass(frozen=True)
class MHQ:
    """Joint minimisation over θ and lifted weights; often better than IRLS, but weak if groups of inliers compete."""

    damping: float = 1e-3
    """λ at the start."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> LiftedState:
        for factors in engine.problem.factors:
            kernel = factors.kernel
            if not (kernel.quadratic or (kernel.has_penalty and kernel.domega(0.0) < 0)):
                raise ProblemError(
                    f"{factors.name}: M-HQ needs a kernel with a smooth lifted penalty; "
                    f"{type(kernel).__name__} has none"
                )
        w = engine.each(ones, start)
        lifted = engine.total(lifted_cost, start, w)
        return LiftedState(start, cost(engine, start), self.damping, w=w, lifted_cost=lifted)

    def step(self, engine: Engine, state: LiftedState) -> LiftedState:
        lam = state.damping
        tried = engine.together(lifted_trial, state.point, state.w, lam=lam)
        if tried is None or not tried.totals < state.lifted_cost:  # (4); NaN is rejected too
            return refused(state, inf if tried is None else tried.totals, tried)
        trial, (w,), lifted = tried
        target = cost(engine, trial)
        flat = target == state.cost and engine.largest(omega, trial) < NO_WEIGHT  # all are outliers
        return replace(
            state, point=trial, cost=target, damping=lowered(lam), accepted=True, on_target=not flat,
            w=w, lifted_cost=lifted,
        )  # fmt: skip

"""Graduated non-convexity with scaled kernels (GNC, "HOM").

Zach, Bourmaud: Descending, Lifting or Smoothing: Secrets of Robust Cost Optimization, ECCV 2018.

Problem     min over θ of Ψ⁰ = Ψ, after Ψᵏ = Σ η²ψ(‖rᵢ‖/η), η = 2ᵏ, for k = K−1, …, 1
Symbols     η -> scale    k -> state.level
Algorithm   (1) IRLS on Ψᵏ: accept if Ψᵏ falls; λ carries over
            (2) each level gets an equal share of the iterations; unused iterations are shared by the next levels
            (3) a level k > 0 ends when its share is used or Ψᵏ has stopped falling;
                with `early_exit` also when (D⁺ − D⁻)/(D⁺ + D⁻) < 0.1, where D⁺ and D⁻ are the sums of the
                decreases and of the increases of ψᵏ over the residuals in the last step
Deviations  none
"""

from dataclasses import dataclass, replace
from typing import TypeVar

from asker.engines.interface import Model, Point
from asker.kernels.kernel import Array, Kernel, Scaled
from asker.strategies.strategy import LARGEST_DAMPING, Detail, Engine, State, attempt, cost, lowered, refused
from asker.tracing.array_namespace import namespace

L = TypeVar("L", bound="LevelState")


def scaled_omega(kernel: Kernel, u: Array, scale: float) -> Array:
    """Return the weight ω of a residual under the kernel scaled by η."""
    return Scaled(kernel, scale).omega(u)


def scaled_psi(kernel: Kernel, u: Array, scale: float) -> Array:
    """Return the cost ψᵏ of a residual: that of the kernel scaled by η."""
    return Scaled(kernel, scale).psi(u)


def changes(kernel: Kernel, u: Array, u_before: Array, scale: float) -> tuple[Array, Array]:
    """Return the decrease and the increase of ψᵏ of a residual; one of them is 0."""
    k = Scaled(kernel, scale)
    fall = k.psi(u_before) - k.psi(u)
    zero = namespace(u).zeros_like(u)
    return namespace(u).maximum(fall, zero), namespace(u).maximum(-fall, zero)


@dataclass(frozen=True, eq=False)
class LevelState(State):
    """State of a strategy with levels of scaled kernels."""

    level: int = 0
    left_here: int = 0
    """Number of remaining iterations of this level."""

    @property
    def details(self) -> dict[str, Detail]:
        return {"level": self.level, **super().details}

    def unrelaxed(self: L, engine: Engine) -> L:
        """Return the state on level 0, whose kernel is that of the target."""
        return replace(self, level=0, left_here=self.left, on_target=True)

    @property
    def is_over(self) -> bool:
        """True if a level above 0 has used its share of the iterations, or no step succeeds at the largest damping."""
        return self.level > 0 and (self.left_here <= 0 or self.damping > LARGEST_DAMPING)

    def after_one(self: L) -> L:
        """Return the state with one remaining iteration less."""
        return replace(self, left=self.left - 1, left_here=self.left_here - 1)

    def at_level(self: L, level: int, damping: float) -> L:
        """Return the state at the start of a level with its share of the remaining iterations (2).

        λ carries over unless it has exceeded `LARGEST_DAMPING`.
        """
        share = -(-self.left // (level + 1))
        damping = damping if self.damping > LARGEST_DAMPING else self.damping
        return replace(self, level=level, left_here=share, on_target=level == 0, damping=damping)


@dataclass(frozen=True)
class GNC:
    """Graduated non-convexity, from the widest kernel to the target; effective if `levels` suits the problem."""

    levels: int = 5
    """K, the paper's 5: the widest kernel is 2^(K−1) times the target."""
    early_exit: bool = False
    """Leave a level once too many costs ψᵏ increase (GNC+)."""
    agreement: float = 0.1
    """The agreement (D⁺ − D⁻)/(D⁺ + D⁻) below which a level is left early."""
    level_tol: float = 1e-6
    """Relative decrease of Ψᵏ in an accepted step below which a level ends."""
    damping: float = 1e-3
    """λ at the start."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> LevelState:
        state = LevelState(start, cost(engine, start), self.damping, left=max_iterations)
        return state.at_level(self.levels - 1, self.damping)

    def step(self, engine: Engine, state: LevelState) -> LevelState:
        scale = 2.0**state.level
        w = engine.each(scaled_omega, state.point, scale=scale)
        trial = attempt(engine, state.point, Model(w, None, w), state.damping)
        before = engine.total(scaled_psi, state.point, scale=scale)
        value = float("nan") if trial is None else engine.total(scaled_psi, trial, scale=scale)
        if trial is None or not value < before:  # (1)
            after, done = refused(state, value, trial), False
        else:
            damping = lowered(state.damping)
            after = replace(state, point=trial, cost=cost(engine, trial), damping=damping, accepted=True)
            done = before - value <= self.level_tol * before or self._disagree(engine, state.point, trial, scale)
        after = after.after_one()
        if after.is_over or (done and after.level > 0):  # (3)
            return after.at_level(after.level - 1, self.damping)
        return after

    def _disagree(self, engine: Engine, before: Point, after: Point, scale: float) -> bool:
        """Return True if residuals that fell and residuals that rose have nearly balanced each other."""
        if not self.early_exit:
            return False
        fell, rose = engine.total(changes, after, before.u, scale=scale)
        return fell - rose < self.agreement * (fell + rose)

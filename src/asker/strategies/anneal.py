"""How fast ASKER's scales fall, and when the last phase begins.

`FixedRate` is the paper's: λ ← λ/10 and λ_h ← 0.9 λ_h after every accepted step; there is no last phase.

`Feedback` is ours.  After a step it asks how much the *old* relaxed problem gained from moving θ,

    ρ = (f(θ, s) − f(θ + δ, s)) / f(θ, s),

which needs no new residuals.

    ρ > far             the relaxed problem is far from solved: the scales fall more slowly
    ρ < near            it is solved: they fall faster
    ρ < 0               the step was too long: λ rises, and the scales fall more slowly
    ρ < −refuse         it was worse than that: the step is refused, whatever the filter says, so that Ψ cannot run away
    (Ψ − f)/Ψ < gap     the scales have done their work, or the iterations are running out: last phase

In the last phase s = 0 (so h = 0 and f = Ψ), and Ψ itself is minimised from the best point seen.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol


class Anneal(Protocol):
    def after(self, engine: Any, strategy: Any, before: Any, after: Any) -> Any:
        """The state with λ and λ_h for the next step."""


@dataclass(frozen=True)
class FixedRate:
    rate: float = 0.9
    """λ_h is multiplied by this."""

    def after(self, engine, strategy, before, after):
        damping = max(before.damping / 10, strategy.smallest_damping)
        return replace(after, damping=damping, scale_damping=self.rate * before.scale_damping)


@dataclass(frozen=True)
class Feedback:
    far: float = 0.05
    near: float = 0.01
    refuse: float = 0.1
    slower: float = 1.25
    """What λ_h is multiplied with when far."""
    faster: float = 0.8
    """What λ_h is multiplied with when near."""
    largest: float = 20.0
    """λ_h at most."""
    gap: float = 0.025
    last_share: float = 0.3
    """The last phase gets at least this share of the iterations."""
    last_damping: float = 1e-2
    """λ at the start of the last phase."""

    def after(self, engine, strategy, before, after):
        rho = (before.f - strategy.relaxed_cost(engine, after.point, before.s)) / max(before.f, 1e-300)
        scale_damping = before.scale_damping
        if rho < 0 or rho > self.far:
            scale_damping = min(self.slower * scale_damping, self.largest)
        elif rho < self.near:
            scale_damping *= self.faster
        if not rho >= -self.refuse:  # a NaN is refused too
            return replace(before, damping=10 * before.damping, scale_damping=scale_damping, accepted=False)
        damping = max(before.damping / 10, strategy.smallest_damping)
        if rho < 0:
            damping = min(100 * before.damping, 1.0)
        after = replace(after, damping=damping, scale_damping=scale_damping)
        closed = after.cost - after.f < self.gap * after.cost
        if closed or after.left <= self.last_share * after.budget:
            return strategy.begin_last_phase(engine, after, self.last_damping)
        return after

"""How fast ASKER's scales fall, and when the last phase begins.

`FixedRate` is the paper's: λ ← λ/10 and λ_h ← 0.9 λ_h after every accepted step.

`Feedback` is ours.  After a step it asks how much the *old* relaxed problem still gained from moving θ,

    ρ = (f(θ, s) − f(θ + δ, s)) / f(θ, s),

which needs no new residuals.  A large ρ says that the relaxed problem is far from solved: the scales fall more
slowly.  A small one says that it is solved: they fall faster.  When f and Ψ nearly agree, the scales have done their
work: s = 0, and Ψ itself is minimised from the best point seen, by Triggs' second-order steps.
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
    """ρ above this: the relaxed problem is far from solved."""
    near: float = 0.01
    """ρ below this: it is solved."""
    slower: float = 1.25
    """What λ_h is multiplied with when far."""
    faster: float = 0.7
    """What λ_h is multiplied with when near."""
    largest: float = 20.0
    """λ_h at most."""
    gap: float = 0.03
    """The last phase begins when (Ψ − f)/Ψ is below this."""
    last_damping: float = 1e-3
    """λ at the start of the last phase."""

    def after(self, engine, strategy, before, after):
        from asker.strategies.asker import scaled_cost

        rho = (before.f - engine.total(scaled_cost, after.point, before.s)) / before.f
        damping, scale_damping = max(before.damping / 10, strategy.smallest_damping), before.scale_damping
        if rho < 0:
            damping = min(100 * before.damping, 1.0)
        if rho < 0 or rho > self.far:
            scale_damping = min(self.slower * scale_damping, self.largest)
        elif rho < self.near:
            scale_damping *= self.faster
        after = replace(after, damping=damping, scale_damping=scale_damping)
        if after.cost - after.f < self.gap * after.cost:
            return replace(after, damping=self.last_damping, last_phase=True, on_target=True)
        return after

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

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class Rates(NamedTuple):
    """What the next step is damped with."""

    damping: float
    scale_damping: float
    refused: bool = False
    """Whether the step just made is taken back."""


class Anneal(Protocol):
    def rates(self, gain: float, damping: float, scale_damping: float) -> Rates:
        """λ and λ_h after a step that the filter accepts; `gain` is ρ."""

    def is_over(self, state: Any) -> bool:
        """Whether the last phase is to begin."""


@dataclass(frozen=True)
class FixedRate:
    rate: float = 0.9
    """λ_h is multiplied by this."""

    def rates(self, gain, damping, scale_damping):
        return Rates(damping / 10, self.rate * scale_damping)

    def is_over(self, state):
        return False


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
    stiffer: float = 100.0
    """What λ is multiplied with after a step that was too long; it is not taken above 1 that way."""
    gap: float = 0.025
    last_share: float = 0.3
    """The last phase gets at least this share of the iterations."""

    def rates(self, gain, damping, scale_damping):
        if gain < 0 or gain > self.far:
            scale_damping = min(self.slower * scale_damping, self.largest)
        elif gain < self.near:
            scale_damping *= self.faster
        if not gain >= -self.refuse:  # a NaN is refused too
            return Rates(10 * damping, scale_damping, refused=True)
        if gain < 0:
            return Rates(max(damping, min(self.stiffer * damping, 1.0)), scale_damping)
        return Rates(damping / 10, scale_damping)

    def is_over(self, state):
        return state.cost - state.f < self.gap * state.cost or state.left <= self.last_share * state.budget

"""How fast ASKER's scales fall, and when the last phase begins.

`FixedRate` is the paper's: λ ← λ/10 and λ_h ← 0.9 λ_h after every accepted step; there is no last phase.

`Paced` is ours.  It spreads the fall of the scales over the iterations that there are.  Left alone, a step multiplies a
scale with φ = 1 − μ_h/(μ_h + λ_h); the mean scale is to be at `end` when the last phase begins, so

    φ = (end / s)^(1 / iterations until then),    λ_h = μ_h φ / (1 − φ)

After a step it asks how much the *old* relaxed problem gained from moving θ,

    ρ = (f(θ, s) − f(θ + δ, s)) / f(θ, s),

which needs no new residuals.

    ρ < 0          the step was too long: λ rises
    ρ < −refuse    it was worse than that: the step is refused, whatever the filter says, so that Ψ cannot run away

In the last phase s = 0 (so h = 0 and f = Ψ), and Ψ itself is minimised.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class Rates(NamedTuple):
    """What a step leaves for the next one."""

    damping: float
    scale_damping: float
    refused: bool = False
    """Whether the step just made is taken back."""


class Anneal(Protocol):
    def scale_damping(self, state: Any, mu_h: float) -> float:
        """λ_h of the next step."""

    def rates(self, gain: float, state: Any) -> Rates:
        """λ and λ_h after a step that the filter accepts; `gain` is ρ."""

    def is_over(self, state: Any) -> bool:
        """Whether the last phase is to begin."""


@dataclass(frozen=True)
class FixedRate:
    """The paper's: the scales fall by a fixed rate, and there is no last phase."""

    rate: float = 0.9
    """λ_h is multiplied by this."""

    def scale_damping(self, state, mu_h):
        return state.scale_damping

    def rates(self, gain, state):
        return Rates(state.damping / 10, self.rate * state.scale_damping)

    def is_over(self, state):
        return False


@dataclass(frozen=True)
class Paced:
    """Ours: the scales fall over the iterations that there are, and a last phase minimises Ψ itself."""

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

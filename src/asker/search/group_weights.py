"""How much each factor group counts, where the noise is sought in one or several beside others.

Law         Observations with noise σ count as 1/σ² (Aitken: On Least Squares and Linear Combination of Observations,
            Proceedings of the Royal Society of Edinburgh 1936).  Only ratios matter, so the largest group whose noise
            is known counts as it did, and another one (σ₁/σ)² times as much, in its own unit.
Given       A group under a kernel of the user's counts as given.  Under a convex one, as a prior, its residuals are in
            standard deviations: there σ₁ = 1.  Under another one σ₁ is the noise that it shows.
At first    The noise is not known.  Residuals are in units of their own median, as they are at the start, wherever the
            medians are not alike; beside a convex kernel in units of a small part of it: what the observations
            determine by themselves a prior must not bend, or the noise looks larger than it is.
Exact       A group that fits exactly may do so because the start was made from it, as a path from its odometry.  Its
            noise is not believed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt

from asker.engines.interface import Engine, Point
from asker.problem.problem import Problem
from asker.search.context import MOST_UNLIKE
from asker.statistics.gaussian_mixture import DISTINCT
from asker.statistics.scale import Noise

NEAR_ENOUGH = 1.1
"""The ratio of two balances that is taken as it is: that costs less than 1 % of the precision."""
PART = 0.05
"""Of the median residual at the start, beside a prior."""


@dataclass(frozen=True)
class Balance:
    """What the residuals of each group are multiplied with."""

    multipliers: tuple[float, ...]

    def of(self, problem: Problem) -> Problem:
        """The same problem, in which each group counts so."""
        if all(m == 1 for m in self.multipliers):
            return problem
        pairs = zip(problem.factors, self.multipliers, strict=True)
        return problem.with_factors([f if m == 1 else f.balanced(m) for f, m in pairs])

    def undone(self, noises: Sequence[Noise]) -> tuple[Noise, ...]:
        """Noises that were found so, in the units of the user."""
        return tuple(
            noise if m == 1 else replace(noise, sigma=noise.sigma / m, rounding=noise.rounding / m)
            for noise, m in zip(noises, self.multipliers, strict=True)
        )

    def converted(self, squares: Sequence[float], other: "Balance") -> list[float]:
        """Squares of residuals of each group, as they were in another balance."""
        return [x * (m / b) ** 2 for x, m, b in zip(squares, self.multipliers, other.multipliers, strict=True)]

    def off(self, other: "Balance") -> float:
        """The largest ratio of the multipliers of two balances, 1 or more."""
        ratios = [a / b for a, b in zip(self.multipliers, other.multipliers, strict=True)]
        return max(max(r, 1 / r) for r in ratios)


def even(problem: Problem) -> Balance:
    """All groups count alike."""
    return Balance((1.0,) * len(problem.factors))


def can_be_balanced(problem: Problem) -> bool:
    """Whether the noise of a group is sought, by one process."""
    return not all(f.noise_is_known for f in problem.factors if f.n) and problem.portion is None


def at_the_start(engine: Engine, start: Point) -> Balance:
    """From the medians of the residuals at the start."""
    problem, sums = engine.problem, engine.sums
    each = zip(problem.factors, engine.here(start.u), strict=True)
    typical = [sqrt(sums.median(u) / f.residual_size) if f.n else 0.0 for f, u in each]
    if _has_prior(problem):
        return _in_units(problem, [PART * s for s in typical], even(problem), 1.0)
    found = _in_units(problem, typical, even(problem))
    return found if found.off(even(problem)) > DISTINCT else even(problem)


def by_noise(problem: Problem, noises: Sequence[Noise], before: Balance) -> Balance:
    """From the noises that were found, in the units of the user; as `before` where they cannot be told."""
    sizes = [n.sigma if n.is_known else 0.0 for n in noises]
    given = [(f.n, s) for f, s in zip(problem.factors, sizes, strict=True) if f.noise_is_known and s > 0]
    unit = 1.0 if _has_prior(problem) else max(given)[1] if given else None
    return _in_units(problem, sizes, before, unit)


def _has_prior(problem: Problem) -> bool:
    return any(f.noise_is_known and f.kernel.convex and f.n for f in problem.factors)


def _in_units(problem: Problem, sizes: Sequence[float], before: Balance, unit: float | None = None) -> Balance:
    """Of residuals with these sizes: 0 or NaN where it is not known; `unit`: the size of those that count 1, where it
    is not that of the largest group."""
    sought = [s if not f.noise_is_known and isfinite(s) else 0.0 for f, s in zip(problem.factors, sizes, strict=True)]
    sought = [s if s > max(sought) / MOST_UNLIKE else 0.0 for s in sought]
    if unit is None:
        told = [k for k, s in enumerate(sought) if s > 0]
        first = max(told, key=lambda k: problem.factors[k].n * problem.factors[k].residual_size, default=None)
        unit = 1.0 if first is None else sought[first] * before.multipliers[first]
    return Balance(tuple(unit / s if s > 0 else b for s, b in zip(sought, before.multipliers, strict=True)))

"""How much each factor group counts, where the noise is sought in several.

Law         Observations with noise σ count as 1/σ² (Aitken: On Least Squares and Linear Combination of Observations,
            Proceedings of the Royal Society of Edinburgh 1936).  Only ratios matter, so the largest group whose noise
            is known counts 1, and another one (σ₁/σ)².  Groups under kernels of the user count as they did.
At first    The noise is not known: residuals in units of their own median, as they are at the start, wherever the
            medians are not alike.  So the unit of a group decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt

from asker.engines.point import Engine, Point
from asker.mixture import DISTINCT
from asker.noise import Noise
from asker.problem import Problem

ALIKE = 1.1
"""Noises whose ratio is nearer to that of the counts: to take them as they are costs less than 1 % of the precision."""
FARTHEST = 1e6
"""The ratio of two noises, at most: of an exact group and any other."""


@dataclass(frozen=True)
class Balance:
    """The factors that the residuals of each group are multiplied with."""

    factors: tuple[float, ...]

    def of(self, problem: Problem) -> Problem:
        """The same problem, in which each group counts so."""
        if all(m == 1 for m in self.factors):
            return problem
        return Problem(*(f if m == 1 else f.balanced(m) for f, m in zip(problem.factors, self.factors, strict=True)))

    def undone(self, noises: Sequence[Noise]) -> tuple[Noise, ...]:
        """Noises that were found so, in the units of the user."""
        return tuple(
            noise if m == 1 else replace(noise, sigma=noise.sigma / m, rounding=noise.rounding / m)
            for noise, m in zip(noises, self.factors, strict=True)
        )

    def converted(self, squares: Sequence[float], other: "Balance") -> list[float]:
        """Squares of residuals of each group, as they were in another balance."""
        return [x * (m / b) ** 2 for x, m, b in zip(squares, self.factors, other.factors, strict=True)]

    def off(self, other: "Balance") -> float:
        """The largest ratio of the factors of two balances, 1 or more."""
        ratios = [a / b for a, b in zip(self.factors, other.factors, strict=True)]
        return max(max(r, 1 / r) for r in ratios)


def even(problem: Problem) -> Balance:
    """All groups count alike."""
    return Balance((1.0,) * len(problem.factors))


def can_be_balanced(problem: Problem) -> bool:
    """Whether the noise of several groups is sought, by one process."""
    return sum(not f.noise_is_known and f.n > 0 for f in problem.factors) > 1 and problem.portion is None


def at_the_start(engine: Engine, start: Point) -> Balance:
    """From the medians of the residuals at the start."""
    each = zip(engine.problem.factors, engine.here(start.u), strict=True)
    typical = [sqrt(engine.sums.median(u) / f.residual_size) if f.n else 0.0 for f, u in each]
    found = _in_units(engine.problem, typical)
    return found if found.off(even(engine.problem)) > DISTINCT else even(engine.problem)


def by_noise(problem: Problem, noises: Sequence[Noise], before: Balance) -> Balance:
    """From the noises that were found, in the units of the user; as `before` where they cannot be told."""
    sizes = [n.sigma if n.is_known else 0.0 for n in noises]
    largest = max(sizes)
    sizes = [max(s, largest / FARTHEST) if n.is_known else 0.0 for s, n in zip(sizes, noises, strict=True)]
    found = _in_units(problem, sizes)
    return Balance(tuple(m if s > 0 else b for m, s, b in zip(found.factors, sizes, before.factors, strict=True)))


def _in_units(problem: Problem, sizes: Sequence[float]) -> Balance:
    """Of residuals with these sizes: 0 or NaN where it is not known."""
    is_told = [not f.noise_is_known and s > 0 and isfinite(s) for f, s in zip(problem.factors, sizes, strict=True)]
    told = [(f.n * f.residual_size, s) for f, s, ok in zip(problem.factors, sizes, is_told, strict=True) if ok]
    unit = max(told)[1] if told else 1.0
    return Balance(tuple(unit / s if ok else 1.0 for s, ok in zip(sizes, is_told, strict=True)))

"""Relative weight of factor groups in the final solve, where the noise of some was estimated.

Observations with noise σ count as 1/σ² (Aitken: On Least Squares and Linear Combination of Observations, Proceedings of
the Royal Society of Edinburgh 1936).  A group under a kernel of the user counts as it is stated: beside one, every
other group is in units of its σ.  Without one only ratios matter, and the largest group counts as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

from asker.problem.problem import Problem
from asker.statistics.noise import Noise


@dataclass(frozen=True)
class Balance:
    """Factors by which the residuals of each group are multiplied."""

    multipliers: tuple[float, ...]

    @staticmethod
    def by_noise(problem: Problem, sigmas: Sequence[float]) -> "Balance":
        """Return the balance for these noise scales; groups of unknown scale or noise 0 count as the largest."""
        estimated = [k for k, f in enumerate(problem.factors) if not f.noise_is_known]
        usable = [k for k in estimated if isfinite(sigmas[k]) and sigmas[k] > 0]
        has_fixed = any(f.noise_is_known and f.n for f in problem.factors)
        if not usable or (len(estimated) == 1 and not has_fixed):
            return Balance((1.0,) * len(problem.factors))
        sizes = problem.n_observations
        largest = max(usable, key=lambda k: sizes[k] * problem.factors[k].residual_size)
        unit = 1.0 if has_fixed else sigmas[largest]
        scales = [sigmas[k] if k in usable else unit for k in range(len(sigmas))]
        return Balance(tuple(unit / s if k in estimated else 1.0 for k, s in enumerate(scales)))

    def of(self, problem: Problem) -> Problem:
        """Return the same problem with balanced groups."""
        if all(m == 1 for m in self.multipliers):
            return problem
        pairs = zip(problem.factors, self.multipliers, strict=True)
        return problem.with_factors([f if m == 1 else f.balanced(m) for f, m in pairs])

    def balanced(self, noises: Sequence[Noise]) -> list[Noise]:
        """Return the noises of the balanced problem."""
        return [
            noise if m == 1 else replace(noise, sigma=noise.sigma * m, rounding=noise.rounding * m)
            for noise, m in zip(noises, self.multipliers, strict=True)
        ]

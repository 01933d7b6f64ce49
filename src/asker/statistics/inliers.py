"""The rule by which an observation is an inlier: the same for masks, shares, tables, pages and doubts.

Model       The p numbers of an inlier's residual r are independent and Gaussian with the noise σ of their factor group
            (`asker.statistics.noise`), so that u/σ² with u = w‖r‖² has the χ² distribution with p degrees of freedom; w
            is the weight of the observation.
Rule        An observation is an inlier if u/σ² is at most the quantile of that distribution that an inlier exceeds with
            probability `REJECTED`: at ‖r‖ = 3.29 σ for one number, 3.72 σ for two, 4.03 σ for three, 11.2 σ for 80.
            The kernel does not enter, so that solutions under different kernels can be compared.
Exact       Where the inliers fit exactly (σ = 0), they are those whose residual is 0 but for rounding errors.
Unknown σ   Where σ cannot be estimated, a robust kernel that was specified separates inliers from outliers, at its
            inflection point.  A convex kernel rejects nothing, and neither does the search for the noise: then all
            observations are inliers.
Excluded    An observation that `valid=` excludes is no inlier.  One of weight 0 carries no information: it is left
            out before (`Problem.informative`), is no inlier and does not count in the inlier ratio.

The inflection point of a specified kernel, by which Le and Zach count inliers, is another quantity:
`Result.within_inflection`.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.problem.factors import Factors
from asker.problem.reductions import ALONE, Sums
from asker.statistics.noise import Noise

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
REJECTED = 1e-3
"""The probability that an inlier is taken for an outlier."""
NO_NOISE = 1e-20
"""‖r‖² over the mean of all, below which a residual is 0 but for rounding errors."""
SMALLEST = 1e-150
"""The same where all residuals are 0."""


class Classified(NamedTuple):
    """The inliers of each factor group."""

    noises: tuple[Noise, ...]
    """The noise by which they are classified, with their ratio."""
    inliers: tuple[Mask, ...]
    """Masks."""
    n_inliers: tuple[int, ...]
    """How many inliers there are, in all processes together."""
    n_informative: tuple[int, ...]
    """How many observations have a weight that is not 0, in all processes together."""


def squares(factors: Sequence[Factors], residuals: Sequence[Floats]) -> list[Floats]:
    """Return u = w‖r‖² of every observation, with the weights of the user."""
    norms = [np.einsum("np,np->n", r, r) for r in residuals]
    return [u if f.weight is None else f.weight / f.balance**2 * u for f, u in zip(factors, norms, strict=True)]


def inlier_radius(p: int, sigma: float) -> float:
    """Return the largest ‖r‖ of an inlier with p numbers of noise σ."""
    from scipy.special import chdtri

    return sigma * sqrt(float(chdtri(p, REJECTED)))


def largest_square(p: int, sigma: float, mean: float) -> float:
    """Return the largest u of an inlier; `mean` is that of u over the factor group."""
    return max(inlier_radius(p, sigma) ** 2, NO_NOISE * mean if isfinite(mean) else 0.0, SMALLEST)


def radius_of(f: Factors, noise: Noise) -> Any:
    """Return the largest √w‖r‖ of an inlier of a factor group; infinite where nothing is rejected.

    It is an array, a number for each observation, where the kernel decides and has several widths.
    """
    if noise.is_known:
        return inlier_radius(f.residual_size, noise.sigma)
    was_found = f.weight_is_precision
    return np.inf if f.kernel.convex or was_found else _root_weight(f) * inflection(f)


def classify(
    factors: Sequence[Factors],
    u: Sequence[Floats],
    noises: Sequence[Noise],
    possible: Sequence[Mask] | None = None,
    sums: Sums = ALONE,
) -> Classified:
    """Apply the rule to the observations of all factor groups.

    Parameters
    ----------
    factors : the factor groups, under the kernels with which the problem was solved
    u : w‖r‖² of every observation, as `squares` returns it
    noises : the noise of each group, in the units of the user
    possible : masks of the observations that `valid=` does not exclude; None where there is no such condition
    sums : adds up over all processes, where each has a portion of the observations
    """
    masks, told, counts = [], [], []
    for k, (f, x, noise) in enumerate(zip(factors, u, noises, strict=True)):
        largest = np.square(radius_of(f, noise))
        if noise.is_known:
            largest = largest_square(f.residual_size, noise.sigma, sums.mean(x))
        mask = x <= largest
        masks.append(mask if possible is None else mask & possible[k])
        inliers, n = sums.of(np.count_nonzero(masks[-1]), f.n)
        told.append(replace(noise, inlier_ratio=inliers / n if n else noise.inlier_ratio))
        counts.append((int(inliers), int(n)))
    return Classified(tuple(told), tuple(masks), *zip(*counts, strict=True))


def inflection(f: Factors) -> Any:
    """Return ‖r‖ at the inflection point of the kernel, a number or one for each observation."""
    return f.kernel.inlier_radius / f.kernel.tau * f.tau


def _root_weight(f: Factors) -> Any:
    return 1.0 if f.weight is None else np.sqrt(f.weight) / f.balance

"""Few observations: whether some of them agree better than chance makes the best choice of so many agree.

Where few numbers are to spare, two Gaussians (`asker.statistics.scale`) cannot tell σ.  But that k of n observations
agree can be beyond chance all the same: six points of ten within a hundredth of what the others are off.

Question    Are all observations Gaussian noise of one scale, whatever that is, around a fit with d unknowns?
Law         Then S, the least Σ‖r‖² of all n, is σ²·χ² with np − d degrees of freedom, and that of k of them, fitted
            alone, with kp − d; what the others add to it is independent of it.  So Sₖ/S has a beta distribution

                P(Sₖ/S < x) = I(x; (kp − d)/2, (n − k)p/2)

            in which there is no scale.  It is exact where residuals are affine in the unknowns.
Choice      There are C(n, k) ways to choose k of n, and n numbers k.  So chance gives a choice that agrees as well as
            one that was found, or better, with a probability of at most

                n · C(n, k) · I(x; (kp − d)/2, (n − k)p/2)

Decision    Where a quarter of the observations would be too few for two Gaussians:
            below 1 % the k are inliers, with σ² = Sₖ/(kp − d).  So are they below 10 % where they are most of the
            observations: to refuse less than half costs little where all are noise, which is in one case of ten at
            most, and to keep outliers costs much.  From 1 % on a doubt says so; another one, where nothing is refused,
            that some agree.
Ties        Observations that are repeated, or rounded, agree exactly for reasons of their own.  So those that are off
            by the same count once, and that a minority fits exactly proves nothing; nor does a majority where others
            are off by the same.

Moisan, Stival: A Probabilistic Criterion to Detect Rigid Point Matches, IJCV 2004 (a contrario).
Hawkins: Identification of Outliers, 1980 (how much smaller the sum of squares is without some observations).
"""

from collections.abc import Sequence
from math import exp, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.statistics.gaussian_mixture import TINY
from asker.statistics.scale import EXACT, FEW, RARE, UNLIKELY, Noise, rounding_variance

Floats = NDArray[np.float64]
SMALLEST_PART = 4
"""One of so many parts of the observations may be inliers that are told so.  Among many observations that are no noise,
as those of a model that does not quite fit, a few agree better than noise would."""
TIED = 1e-9
"""The difference of two ‖r‖, over the root of the mean square, below which they are the same."""


class Agreement(NamedTuple):
    """The observations that agree best."""

    chance: float
    """The probability that chance makes so many of so many agree so well, at most."""
    n: int
    """How many, of those that are not off by the same."""
    variance: float
    """σ² of them."""
    n_spare: float
    """How many numbers of them the fit has not used up."""
    largest: float
    """Their largest ‖r‖²."""


def is_few(n: int, p: int, d: int, part: int = 2) -> bool:
    """Whether one of so many parts of n observations, half of them, would be too few to tell σ by two Gaussians."""
    return n * p < part * (FEW + d)


def log_chances(u: Floats, p: int, d: int, total: float, least: float = 0.0) -> Floats:
    """The logarithm of the probability that chance makes k of n observations agree so well, at most, for every k < n.

    u      ‖r‖² of all observations where d unknowns were fitted to some of them, ascending
    total  S
    least  σ² is no less
    """
    from scipy.special import betainc, betaln, gammaln

    n = len(u)
    k = np.arange(1, n)
    spare = np.maximum(k * p - d, 1)
    a, b = spare / 2, (n - k) * p / 2
    with np.errstate(over="ignore"):
        x = np.clip(np.maximum(np.cumsum(u)[:-1], spare * least) / max(total, TINY), TINY, 1.0)
    within = betainc(a, b, x)
    first = a * np.log(x) - np.log(a) - betaln(a, b)  # of a power series in x
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + np.log(n)
    chances = ways + np.where(within > 1e-280, np.log(np.maximum(within, TINY)), first)
    return np.where(k * p > d, np.minimum(chances, 0.0), 0.0)


def agreement(u: Floats, p: int, d: int, broad: float, least: float = 0.0, only_most: bool = False) -> Agreement | None:
    """Those that agree best, where chance does not; `only_most`: of those that are most of all.

    broad  the mean square of a number in a plain fit
    """
    v = distinct(u, broad)
    n = len(v)
    first = n // 2 if only_most else 0
    if first >= n - 1 or not n * p > d:
        return None
    chances = log_chances(v, p, d, n * p * broad, least)
    k = first + int(np.argmin(chances[first:])) + 1
    if not chances[k - 1] < 0:
        return None
    spare = k * p - d
    return Agreement(exp(chances[k - 1]), k, max(float(v[:k].sum()) / spare, least), float(spare), float(v[k - 1]))


def distinct(u: Floats, broad: float) -> Floats:
    """‖r‖² of all observations, ascending; of those that are off by the same one."""
    v = np.sort(u)
    return v[np.diff(np.sqrt(v), prepend=-np.inf) > TIED * sqrt(broad)]


def told(noise: Noise, u: Floats, p: int, d: int, broad: float) -> Noise:
    """The noise of a factor group, told from few inliers where two Gaussians do not tell it.

    noise  as `asker.statistics.scale` has found it
    """
    if (noise.is_known and noise.inlier_ratio < 1) or not is_few(len(u), p, d, SMALLEST_PART):
        return noise
    is_exact = u <= EXACT**2 * p * broad
    n, n_exact = len(u), int(np.count_nonzero(is_exact))
    if 2 * n_exact > n and n_exact * p > d and not noise.rounding and not noise.is_known:
        others = u[~is_exact]
        tied = len(distinct(others, broad)) < len(others)
        return noise if tied else Noise(0.0, n_exact / n, float(n_exact * p - d), 0.0, TINY)
    least = rounding_variance(noise.rounding)
    found = agreement(u, p, d, broad, least)
    if found is None or found.chance >= UNLIKELY:
        found = agreement(u, p, d, broad, least, only_most=True)
    if found is None or found.chance >= RARE or (noise.is_known and found.n_spare >= FEW):
        return noise
    ratio = float(np.count_nonzero(u <= found.largest)) / n
    return Noise(sqrt(found.variance), ratio, found.n_spare, noise.rounding, found.chance)


def doubts(
    name: str, p: int, d: int, noise: Noise, broad: float, u: Floats, seen: Sequence[Any], inliers: NDArray[np.bool_]
) -> tuple[str, ...]:
    """Return the reasons not to rely on the inliers of a factor group with few observations.

    u        ‖r‖² of all observations at the solution
    seen     ‖r‖² of all observations at each solution that the search compared
    inliers  mask by the rule of `asker.statistics.inliers`
    """
    n, least = len(u), rounding_variance(noise.rounding)
    if not is_few(n, p, d) or not noise.is_known or noise.sigma == 0:
        return ()
    kept = int(np.count_nonzero(inliers))
    if kept < n:
        found = agreement(u, p, d, broad, least)
        chance = found.chance if found else 1.0
        said = f"{kept} of {n} {name} agree, possibly by chance (probability up to {chance:.0%})"
        return () if chance < UNLIKELY else (f"{said}: the others may not be outliers; add observations",)
    each = [found for x in seen if (found := agreement(x, p, d, broad, least))]
    if not each:
        return ()
    best = min(each)
    said = f"{best.n} of {n} {name} agree better than all of them, possibly by chance"
    of_chance = f"(probability up to {best.chance:.0%})"
    return (f"{said} {of_chance}: the others may be outliers, but none is rejected; add observations",)

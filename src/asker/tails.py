"""Whether noise has heavier tails than Gaussian noise has, by likelihood.

Model       That of `asker.noise`: a share π are inliers, all others are Gaussian with a larger variance S².  The
            noise of inliers is Gaussian, or Student's with scale s and ν degrees of freedom: the smaller ν, the
            heavier its tails.  Of an inlier the fit has left k = p·a numbers; with x = u/s²

                log f = log Γ((ν+k)/2) − log Γ(ν/2) − k/2 log νs² − (ν+k)/2 log(1 + x/ν)
                        − k/2 log 2s² − x/2                                                   for ν = ∞

            and what depends on u and k alone, which is the same for all ν and for the others.
Algorithm   (1) for each ν: s, S and π by expectation and maximisation; in Student's noise an observation has the
                weight (ν+k)/(ν+x)
            (2) ν is one number more than ν = ∞ has: that costs ½ log n
"""

from collections.abc import Sequence
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from asker.arrays import dot
from asker.factors import Factors
from asker.noise import SMALLEST, TINY, Noise, capped, shares
from asker.sums import ALONE, Sums

Floats = NDArray[np.float64]
DEGREES = tuple(2.0**k for k in range(6))
"""ν; from the last one on it is next to Gaussian."""
STEPS, AT_REST = 200, 1e-3
"""At most; the rise of the logarithm of a likelihood at which they end."""


def excess(
    factors: Sequence[Factors],
    u: Sequence[Floats],
    noises: Sequence[Noise],
    broad: Sequence[float],
    sums: Sums = ALONE,
) -> list[float]:
    """By how much Student's noise explains the squared norms u of a factor group better than Gaussian noise does, as a
    logarithm; minus infinity where the noise is not known, or exact.  The arguments are those of `asker.noise`."""
    u = capped(factors, u, broad)
    variances = [noise.sigma**2 if noise.is_known else Q for noise, Q in zip(noises, broad, strict=True)]
    groups = zip(factors, u, *shares(factors, u, variances, sums), variances, noises, strict=True)
    return [
        _excess(x, f.residual_size, a, vote, s, sums) if noise.is_known and noise.sigma > 0 else -inf
        for f, x, a, vote, s, noise in groups
    ]


def _excess(u: Floats, p: int, a: Floats, vote: Floats, variance: float, sums: Sums) -> float:
    gaussian, *students = (_likelihood(u, p, p * a, vote, variance, nu, sums) for nu in (inf, *DEGREES))  # (1)
    n = sums.of(float(vote.sum()))[0]
    return max(students) - gaussian - log(n) / 2  # (2)


def _likelihood(u: Floats, p: int, k: Floats, vote: Floats, variance: float, nu: float, sums: Sums) -> float:
    """The highest logarithm of the likelihood for one ν, from a first s²."""
    n, of_u = sums.of(float(vote.sum()), dot(vote, u))
    everything, constant = of_u / (p * n), _constant(k, nu)
    ratio, others, before = 0.5, max(everything, 4 * variance), -inf
    for _ in range(STEPS):
        inlier = log(ratio) + _log_density(u, k, variance, nu, constant)
        outlier = log(1 - ratio) + _log_density(u, k, others, inf, 0.0)
        each = np.logaddexp(inlier, outlier)
        inside = vote * np.exp(inlier - each)
        outside = vote - inside
        w = inside if nu == inf else inside * (nu + k) / (nu + u / variance)
        L, n_in, k_in, u_in, n_out, u_out = sums.of(
            dot(vote, each), float(inside.sum()), dot(inside, k), dot(w, u), float(outside.sum()), dot(outside, u)
        )
        if not L - before > AT_REST:
            return max(L, before)
        before, variance = L, max(u_in / k_in, SMALLEST * everything, TINY)
        others, ratio = max(u_out / max(p * n_out, 1e-3), variance), min(max(n_in / n, 1e-9), 1 - 1e-9)
    return before


def _constant(k: Floats, nu: float) -> Floats | float:
    """What neither u nor s changes."""
    from scipy.special import gammaln

    return 0.0 if nu == inf else gammaln((nu + k) / 2) - gammaln(nu / 2) - k / 2 * log(nu / 2)


def _log_density(u: Floats, k: Floats, variance: float, nu: float, constant: Floats | float) -> Floats:
    """log f; k/2 log 2 is added to all."""
    x = u / variance
    tail = x / 2 if nu == inf else (nu + k) / 2 * np.log1p(x / nu)
    return constant - k / 2 * log(variance) - tail

"""Whether noise has heavier tails than Gaussian noise has, by likelihood.

Model       That of `asker.statistics.scale`: a share π are inliers, all others are Gaussian with a larger variance S².
            The noise of inliers is Gaussian, or Student's with scale s and ν degrees of freedom: the smaller ν, the
            heavier its tails.  Of an inlier the fit has left k = p·a numbers; with x = u/s²

                log f = log Γ((ν+k)/2) − log Γ(ν/2) − k/2 log νs² − (ν+k)/2 log(1 + x/ν)
                        − k/2 log 2s² − x/2                                                   for ν = ∞

            and what depends on u and k alone, which is the same for all ν and for the others.
Algorithm   (1) for ν = ∞, then for less and less while that explains more: s, S and π by expectation and maximisation,
                from those of the noise that was found; in Student's noise an observation has the weight (ν+k)/(ν+x)
            (2) ν is one number more than ν = ∞ has: that costs ½ log n
"""

from collections.abc import Sequence
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from asker.problem.factors import Factors
from asker.problem.reductions import ALONE, Sums
from asker.statistics.gaussian_mixture import SMALLEST, TINY
from asker.statistics.scale import Noise, capped, shares
from asker.tracing.array_namespace import dot

Floats = NDArray[np.float64]
DEGREES = (32.0, 16.0, 8.0, 4.0, 2.0, 1.0)
"""ν; above the first one it is next to Gaussian."""
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
    logarithm; minus infinity where the noise is not known, or exact, or no observation votes.  The arguments are those
    of `asker.statistics.scale`."""
    u = capped(factors, u, broad)
    variances = [noise.sigma**2 if noise.is_known else Q for noise, Q in zip(noises, broad, strict=True)]
    groups = zip(factors, u, *shares(factors, u, variances, sums), noises, strict=True)
    return [
        _excess(x, f.residual_size, a, vote, noise, sums) if noise.is_known and noise.sigma > 0 else -inf
        for f, x, a, vote, noise in groups
    ]


def _excess(u: Floats, p: int, a: Floats, vote: Floats, noise: Noise, sums: Sums) -> float:
    best, n = -inf, sums.of(float(vote.sum()))[0]
    if not n > 0:
        return -inf
    gaussian = _likelihood(u, p, p * a, vote, noise, inf, sums)
    for nu in DEGREES:  # (1)
        L = _likelihood(u, p, p * a, vote, noise, nu, sums)
        if best > L:
            break
        best = L
    return best - gaussian - log(n) / 2  # (2)


def _likelihood(u: Floats, p: int, k: Floats, vote: Floats, noise: Noise, nu: float, sums: Sums) -> float:
    """The highest logarithm of the likelihood for one ν, from σ² as the first s²."""
    n, of_u = sums.of(float(vote.sum()), dot(vote, u))
    everything, constant = of_u / (p * n), _constant(k, nu)
    variance, ratio, before = noise.sigma**2, min(max(noise.inlier_ratio, 1e-9), 1 - 1e-9), -inf
    others = max((everything - ratio * variance) / (1 - ratio), 4 * variance)
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

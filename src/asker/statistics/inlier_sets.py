"""The scale mixture with every set of inliers of an independent variable, such as a point of a scene.

A variable with few observations hardly constrains who its inliers are: two of four observations that meet may do so by
chance.  If no two variables share a factor, each can be marginalised exactly for every set A of its observations.

Model     A residual of p numbers is Gaussian with variance s² for an inlier, with probability π, and with S² for an
          outlier, centred on the model as well: so near outliers are described better than by a constant density.  With
          w = 1/s² for the observations in A and 1/S² for the others, B = Σ w JᵀJ and g = Σ w Jᵀr:

              log P(A) = Σ log(π or 1 − π) + Σ p/2 log(w/2π) − ½ log|B| − ½ (Σ w u − gᵀB⁻¹g)

          The other variables are constant.
Evidence  Σ log Σ_A P(A), over all variables.
Fit       EM (Dempster, Laird, Rubin 1977): s² = Σ P(A) e / Σ P(A) p over inliers, e = ‖r + Jδ‖² + tr(J B⁻¹ Jᵀ), and S²
          over the others.
Varied    Of more than `max_varied` observations the most doubtful are varied.  The others count in all sets with their
          last probability: many observations determine the variable, and each of them matters little.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.statistics.scale_mixture import LOGIT_RANGE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
RIDGE = 1e-9
"""Part of the trace of a block that is added to its diagonal, so that it has an inverse."""


@dataclass(frozen=True, eq=False)
class Observations:
    """Observations of n variables with m observations each."""

    JJ: Floats
    """JᵀJ, (n, m, d, d)"""
    Jr: Floats
    """Jᵀr, (n, m, d)"""
    u: Floats
    """‖r‖², (n, m); infinite for impossible observations."""
    p: Floats
    """Numbers of each residual, (n, m)."""


class Marginal(NamedTuple):
    """The marginal distribution of the inliers of n variables."""

    inlier: Floats
    """Probability of each observation to be an inlier, (n, m)."""
    evidence: Floats
    """Log Σ_A P(A) of each variable, (n,)."""
    squares: Floats
    """Expected e over the sets in which the observation is an inlier, (n, m)."""
    outlier_squares: Floats
    """Expected e over the sets in which it is an outlier, (n, m)."""
    P: Floats
    """Probability of each set, (n, s)."""
    sets: Floats
    """Inliers of each set, (n, s, m)."""
    delta: Floats
    """Step of the variable to its estimate from each set, (n, s, d)."""


def marginal(
    of: Observations, variance: Floats, outlier_variance: Floats, ratio: Floats, last: Floats, max_varied: int
) -> Marginal:
    """Return the distribution of the inliers for s², S² and π of every observation, (n, m).

    `last` is the probability of each observation to be an inlier, as far as it is known; 1 everywhere and no varied
    observation means that all are inliers.
    """
    n, m, d = of.Jr.shape
    is_possible = np.isfinite(of.u)
    sets = _sets(last, min(m, max_varied)) * is_possible[:, None]  # (n, s, m)
    u, JJ = np.where(is_possible, of.u, 0.0), of.JJ.reshape(n, m, d * d)
    w = (sets / variance[:, None] + (1 - sets) / outlier_variance[:, None]) * is_possible[:, None]
    B = (w @ JJ).reshape(n, -1, d, d)
    size = np.trace(B, axis1=2, axis2=3)
    B = B + np.where(size > 0, RIDGE * size, 1.0)[..., None, None] * np.eye(d)
    g, inverse = w @ of.Jr, np.linalg.inv(B)
    delta = -np.einsum("nsab,nsb->nsa", inverse, g)
    inside = np.log(ratio) - of.p / 2 * np.log(2 * np.pi * variance)
    outside = np.log1p(-np.minimum(ratio, 1 - 1e-16)) - of.p / 2 * np.log(2 * np.pi * outlier_variance)
    each = sets * inside[:, None] + (1 - sets) * outside[:, None] - w * u[:, None] / 2
    log_P = each.sum(axis=2) - np.linalg.slogdet(B)[1] / 2 - np.einsum("nsa,nsa->ns", delta, g) / 2
    largest = log_P.max(axis=1, keepdims=True)
    P = np.exp(np.maximum(log_P - largest, -LOGIT_RANGE))
    total = P.sum(axis=1, keepdims=True)
    P = P / total
    across = np.swapaxes(JJ, 1, 2)
    outer = (delta[..., :, None] * delta[..., None, :]).reshape(n, -1, d * d)
    with np.errstate(over="ignore", invalid="ignore"):  # of variables that the observations hardly determine
        e = np.nan_to_num(
            u[:, None] + 2 * delta @ np.swapaxes(of.Jr, 1, 2) + (outer + inverse.reshape(n, -1, d * d)) @ across
        )
    inlier = P[..., None] * sets
    evidence, outlier = (largest + np.log(total))[:, 0], P[..., None] - inlier
    return Marginal(inlier.sum(axis=1), evidence, (inlier * e).sum(axis=1), (outlier * e).sum(axis=1), P, sets, delta)


def _sets(last: Floats, k: int) -> Floats:
    """Return the inliers of every set, (n, 2^k, m): 1 or 0 for the k most doubtful ones, the others as they were."""
    varied = np.argsort(np.abs(last - 0.5), axis=1, kind="stable")[:, :k]
    sets = np.repeat(last[:, None], 2**k, axis=1)
    every = (np.arange(2**k)[:, None] >> np.arange(k) & 1).astype(float)
    shape = (len(last), 2**k, k)
    np.put_along_axis(sets, np.broadcast_to(varied[:, None], shape), np.broadcast_to(every, shape), axis=2)
    return sets

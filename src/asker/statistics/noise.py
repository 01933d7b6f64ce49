"""Noise of a factor group, as a result reports it, and its estimate at a solution.

At a solution under kernels that the user has specified, the noise of each factor group is estimated from its residuals
alone, by the model of `asker.statistics.scale_mixture`; the background is a Gaussian with the mean square of all
residuals.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isnan, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from asker.problem.factors import Factors
from asker.problem.reductions import ALONE, Sums
from asker.statistics.leverage import remaining_fractions
from asker.statistics.scale_mixture import (
    MINORITY_NATS,
    TINY,
    Outliers,
    Residuals,
    ScaleMixture,
    best_fit,
    posterior,
)

Floats = NDArray[np.float64]
FEW = 10
"""Degrees of freedom below which the noise of one factor group alone is too uncertain to be used."""
TAU_PER_SIGMA = 5.0
"""τ over σ of a smooth truncated kernel that suits the noise: an inlier at 3σ has two thirds of the full weight."""
EXACT_RATIO = 1e-12
"""σ over the root of the mean square below which residuals fit exactly, but for rounding errors."""
MIN_DEGREES_OF_FREEDOM = 1.0
"""Degrees of freedom below which a scale cannot be estimated."""
FIRST_VARIANCES = 16.0 ** -np.arange(7)
"""Initial variances, relative to the mean square."""
MAX_OUTLIER = 3.0
"""Residual of an outlier in the mean square, in roots of the mean square of a number in a plain fit."""
FIT_RTOL, FIT_STEPS, FIT_ROUNDS = 1e-4, 200, 5
"""Tolerance and maximum number of steps of EM; maximum number of rounds of leverage and EM."""


@dataclass(frozen=True)
class Noise:
    """Noise scale of a factor group."""

    sigma: float
    """Standard deviation of each component of an inlier's residual, assumed independent; 0 if the inliers fit exactly,
    NaN if it cannot be estimated."""
    inlier_ratio: float
    """Estimated fraction of the observations that have this noise."""
    n_spare: float
    """Degrees of freedom of σ: number of residual components of the inliers minus those that the fit uses up."""
    rounding: float = 0.0
    """Quantization step of the data if many of them fit exactly (`asker.search.data_checks`), else 0; σ is at least
    the standard deviation of rounding."""
    tail_dof: float = inf
    """Degrees of freedom of Student's distribution if the inliers have heavy tails; infinite for Gaussian noise."""

    @property
    def is_known(self) -> bool:
        """True if σ could be estimated."""
        return not isnan(self.sigma)

    @property
    def tau(self) -> float:
        """Width τ of a smooth truncated kernel that suits the noise."""
        return TAU_PER_SIGMA * self.sigma

    @property
    def uncertainty(self) -> float:
        """Relative standard deviation of the estimate of σ, from its degrees of freedom, if the solution is correct."""
        return 1 / sqrt(2 * self.n_spare) if self.is_known else inf

    def __str__(self) -> str:
        if not self.is_known:
            return "unknown: too few observations agree"
        if self.sigma == 0:
            return f"0 (exact), inliers {self.inlier_ratio:.1%}"
        rounded = f", rounded to {self.rounding:.3g}" if self.rounding else ""
        percent = float(f"{100 * self.uncertainty:.1g}")  # 10, and not 1e+01
        return f"{self.sigma:.3g} ± {percent:g} %, inliers {self.inlier_ratio:.1%}{rounded}"


def rounding_variance(step: float) -> float:
    """Return the variance of errors from rounding to multiples of a step, which are uniform (Sheppard 1898)."""
    return step**2 / 12


def noise_of(model: ScaleMixture, of: Residuals, p: int, rounding: float, exact_below: float) -> Noise:
    """Return the noise of a group from its model; `exact_below` is the variance below which residuals fit exactly."""
    q = posterior(model, of)
    counted, n_in, n = of.sums.of(float(q @ of.m), float(q.sum()), len(of.u))
    ratio = n_in / n if n else float("nan")
    if counted < MIN_DEGREES_OF_FREEDOM:
        return Noise(float("nan"), ratio, counted, rounding)
    sigma = 0.0 if model.variance <= max(exact_below, 2 * TINY) else sqrt(model.variance)
    return Noise(sigma, ratio, counted, rounding, model.dof)


def estimate(factors: Sequence[Factors], u: Sequence[Floats], sums: Sums = ALONE) -> tuple[Noise, ...]:
    """Return the noise of each factor group from the squared norms u of its residuals, weights included."""
    means = [sums.mean(x) for x in u]
    squares = [1.0 if isnan(m) else max(m / f.residual_size, TINY) for f, m in zip(factors, means, strict=True)]
    models: list[ScaleMixture] = []
    known: list[ScaleMixture | None] = [None] * len(factors)
    h: list[Floats] = [np.zeros(f.n) for f in factors]
    for _ in range(FIT_ROUNDS):
        before = models
        groups = [_residuals(f, x, used, Q, sums) for f, x, used, Q in zip(factors, u, h, squares, strict=True)]
        models = [_fitted(group, Q, model) for group, Q, model in zip(groups, squares, known, strict=True)]
        known = list(models)
        precisions = [1 / model.variance for model in models]
        w = [posterior(model, group) for model, group in zip(models, groups, strict=True)]
        kept = remaining_fractions(factors, w, sums, precisions)
        h = [f.residual_size * (1 - x) for f, x in zip(factors, kept, strict=True)]
        if before and all(abs(log(a.variance / b.variance)) < 0.01 for a, b in zip(models, before, strict=True)):
            break
    each = zip(models, groups, factors, squares, strict=True)
    return tuple(noise_of(model, of, f.residual_size, 0.0, EXACT_RATIO**2 * Q) for model, of, f, Q in each)


def _residuals(f: Factors, u: Floats, h: Floats, mean_square: float, sums: Sums) -> Residuals:
    """Return the residuals of a group with a Gaussian background of this mean square."""
    p = f.residual_size
    largest = np.minimum(u, MAX_OUTLIER**2 * p * mean_square)
    log_background = -0.5 * log(2 * pi * mean_square) - 0.5 * largest / (p * mean_square)
    return Residuals(u, np.maximum(p - h, 1e-6 * p), log_background, EXACT_RATIO**2 * mean_square / 10, sums)


def _fitted(of: Residuals, mean_square: float, known: ScaleMixture | None) -> ScaleMixture:
    """Return the fit of highest evidence, from several initial scales unless one is known."""
    none = ScaleMixture(mean_square, 1.0, outliers=Outliers.NONE)
    firsts = [known] if known else [ScaleMixture(mean_square * x, 0.5) for x in FIRST_VARIANCES]
    return best_fit(of, [*firsts, none], (), FIT_RTOL, FIT_STEPS, MINORITY_NATS)

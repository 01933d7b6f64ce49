"""Noise of a factor group, as a result reports it.

`asker.statistics.scale` estimates it at a solution under kernels that the user has specified.
"""

from dataclasses import dataclass
from math import inf, isnan, sqrt

import numpy as np
from numpy.typing import NDArray

from asker.statistics.scale_mixture import (
    TINY,
    Residuals,
    ScaleMixture,
    posterior,
)

Floats = NDArray[np.float64]
FEW = 10
"""Degrees of freedom below which the noise of one factor group alone is too uncertain to be used."""
TAU_PER_SIGMA = 5.0
"""τ over σ of a smooth truncated kernel that suits the noise: an inlier at 3σ has two thirds of the full weight."""
EXACT_RATIO = 1e-12
"""σ over the root of the mean square below which residuals fit exactly, but for rounding errors."""
EXACT_VARIANCE = 2 * TINY
"""Variance below which residuals fit exactly in any unit: it is the lower bound of all variances."""
MIN_DEGREES_OF_FREEDOM = 1.0
"""Degrees of freedom below which a scale cannot be estimated."""


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
        return sqrt(0.5 / self.n_spare) if self.is_known else inf

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
    sigma = 0.0 if model.variance <= max(exact_below, EXACT_VARIANCE) else sqrt(model.variance)
    return Noise(sigma, ratio, counted, rounding, model.dof)

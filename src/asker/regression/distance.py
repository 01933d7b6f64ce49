"""Robust distances of the observations in the space of the derivatives, which detect leverage points.

Rousseeuw, van Zomeren: Unmasking Multivariate Outliers and Leverage Points, J. Am. Stat. Assoc. 1990.

Problem     an observation is a leverage point if its derivatives are far from those of the others
Symbols     d -> distance    w -> the robust weights
Algorithm   (1) location and covariance of the rows of J, weighted with w
            (2) dᵢ² = (Jᵢ − m)ᵀ C⁻ (Jᵢ − m); a leverage point has dᵢ² beyond the 97.5 % quantile of χ²
Deviations  The robust weights of the fit take the place of a separate estimate of covariance, so that a leverage point
            that the fit follows increases C.
"""

import numpy as np
from numpy.typing import NDArray

from asker.regression.fit import Regression

Floats = NDArray[np.float64]
QUANTILE = 0.975
RANK_RTOL = 1e-8
"""Smallest eigenvalue of the covariance, relative to the largest, that is not 0."""


def robust_distances(fit: Regression) -> tuple[Floats, float]:
    """Return the distance of each observation, and the cutoff of leverage points."""
    from scipy.special import chdtri

    J, w = fit.jacobian, fit.weights
    norms = np.sqrt(np.mean(J * J, axis=0))
    J = J / np.where(norms > 0, norms, 1.0)
    centred = J - (w @ J) / w.sum()  # (1)
    C = (w[:, None] * centred).T @ centred / w.sum()
    values, vectors = np.linalg.eigh(C)
    keep = values > RANK_RTOL * values.max(initial=0.0)
    d = np.sqrt(np.sum((centred @ vectors[:, keep]) ** 2 / values[keep], axis=1))  # (2)
    return d, float(np.sqrt(chdtri(max(int(keep.sum()), 1), 1 - QUANTILE)))

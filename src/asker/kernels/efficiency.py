"""How wide Cauchy's kernel must be so that little is lost where all noise is Gaussian.

Efficiency  In Gaussian noise of variance 1 for each of p numbers, an estimate with the weights w(u) = 1/(1 + u/c²) has
            the variance of least squares over e, where with u distributed as χ² with p degrees of freedom

                e = (E[p w + 2 u w′])² / (p E[u w²])

            At e = 0.95, the usual demand, c is 2.385 for p = 1, 2.549 for p = 2, 2.666 for p = 3.

Holland and Welsch: Robust regression using iteratively reweighted least-squares, Communications in Statistics 1977.
"""

from functools import cache

import numpy as np

DEMANDED = 0.95
NARROWEST = 2.0
"""In σ; residuals of very many numbers are of one length, and any width would do."""


@cache
def efficient_width(p: int) -> float:
    """The width of Cauchy's kernel, in σ, for residuals of p numbers."""
    low, high = NARROWEST, 10.0 * p**0.5
    while high - low > 1e-12 * high:
        c = (low + high) / 2
        low, high = (low, c) if efficiency(c, p) > DEMANDED else (c, high)
    return high


def efficiency(c: float, p: int) -> float:
    """e, for a kernel of width c."""
    x = (np.arange(2000) + 0.5) * (p**0.5 + 10.0) / 2000
    log_density = np.log(x) * (p - 1) - x**2 / 2
    density = np.exp(log_density - log_density.max())
    u, density = x**2, density / density.sum()
    w = 1 / (1 + u / c**2)
    slope, square = p * w - 2 * u * w**2 / c**2, u * w**2
    return float((density @ slope) ** 2 / (p * (density @ square)))

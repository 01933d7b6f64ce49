"""Width of Cauchy's kernel for a prescribed asymptotic efficiency under Gaussian noise.

Efficiency  In Gaussian noise of variance 1 for each of p numbers, an estimate with the weights w(u) = 1/(1 + u/c²) has
            the variance of least squares over e, where with u distributed as χ² with p degrees of freedom

                e = (E[p w + 2 u w′])² / (p E[u w²])

            For e = 0.95, the usual choice, c is 2.385 for p = 1, 2.549 for p = 2, 2.666 for p = 3.

Holland and Welsch: Robust regression using iteratively reweighted least-squares, Communications in Statistics 1977.
"""

from functools import cache

import numpy as np

EFFICIENCY = 0.95
"""Prescribed asymptotic efficiency."""
MIN_WIDTH = 2.0
"""Smallest width, in σ.  For residuals of many numbers all norms are nearly equal, and any width is efficient."""


@cache
def efficient_width(p: int) -> float:
    """Return the width of Cauchy's kernel, in σ, for residuals of p numbers."""
    from scipy.optimize import brentq

    if efficiency(MIN_WIDTH, p) > EFFICIENCY:
        return MIN_WIDTH
    return float(brentq(lambda c: efficiency(c, p) - EFFICIENCY, MIN_WIDTH, 10.0 * p**0.5, xtol=1e-14))


def efficiency(c: float, p: int) -> float:
    """Return the asymptotic efficiency e of Cauchy's kernel of width c, for residuals of p numbers."""
    x = (np.arange(2000) + 0.5) * (p**0.5 + 10.0) / 2000
    log_density = np.log(x) * (p - 1) - x**2 / 2
    density = np.exp(log_density - log_density.max())
    u, density = x**2, density / density.sum()
    w = 1 / (1 + u / c**2)
    slope, square = p * w - 2 * u * w**2 / c**2, u * w**2
    return float((density @ slope) ** 2 / (p * (density @ square)))

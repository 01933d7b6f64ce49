"""Widths of kernels for a prescribed breakdown point or a prescribed efficiency under Gaussian noise.

Breakdown   An S-estimator has the breakdown point b if E ρ(e/c) = b for Gaussian e of variance 1, with ρ = ψ/ψ(∞)
Efficiency  An M-estimator has the efficiency (E ωe²)² / E (ωe)², the variance of least squares relative to its variance

Maronna, Martin, Yohai: Robust Statistics, Theory and Methods, 2006, sections 2.2 and 5.9.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LARGEST_ERROR = 12.0
"""Bound of the integrals over Gaussian errors, in standard deviations."""
N_PIECES, N_NODES = 240, 8
"""Number of intervals of the integrals, and of nodes in each; kernels are not smooth at some points."""
WIDEST, NARROWEST = 1e3, 0.05
"""Range of the widths, in standard deviations."""


class Weights(Protocol):
    """Weights of residuals."""

    def omega(self, u: Floats) -> Floats:
        """Return the weights ω of residuals with squares u."""


@cache
def _gaussian() -> tuple[Floats, Floats]:
    """Return nodes e ≥ 0 and weights of expectations over a Gaussian error."""
    t, w = leggauss(N_NODES)
    ends = np.linspace(0.0, LARGEST_ERROR, N_PIECES + 1)
    half = np.diff(ends)[:, None] / 2
    e = (ends[:-1, None] + half * (1 + t)).ravel()
    return e, (half * w).ravel() * np.exp(-(e**2) / 2) * np.sqrt(2 / np.pi)


def expectation(function: Callable[[Floats], Floats]) -> float:
    """Return the expectation of an even function of a Gaussian error of variance 1."""
    e, density = _gaussian()
    return float(density @ function(e))


def efficiency(kernel: Weights) -> float:
    """Return the asymptotic efficiency of the M-estimator of a location."""
    slope = mean_slope(kernel)
    square = expectation(lambda e: (kernel.omega(e * e) * e) ** 2)
    return slope**2 / square


def mean_slope(kernel: Weights) -> float:
    """Return E of the derivative of the influence function ωe, which is E ωe² by Stein's identity."""
    return expectation(lambda e: kernel.omega(e * e) * e * e)


def supremum(kernel: Any) -> float:
    """Return ψ(∞), which is infinite for kernels whose cost is unbounded."""
    at, farther = (float(kernel.psi(np.array((k * kernel.tau) ** 2))) for k in (1e6, 1e9))
    return farther if farther <= at * (1 + 1e-9) else np.inf


def breakdown(kernel: Any) -> float:
    """Return E ρ, the breakdown point of the S-estimator with this kernel."""
    return expectation(lambda e: kernel.psi(e * e)) / supremum(kernel)


@cache
def width_at(quantity: Callable[[Any], float], kernel: Any, value: float) -> float:
    """Return the width, in σ, at which the efficiency or the breakdown point of a kernel of this kind has a value."""
    from scipy.optimize import brentq

    if not 0 < value < 1:
        raise ValueError(f"{quantity.__name__} must lie between 0 and 1, not {value!r}")

    def excess(log_width: float) -> float:
        return quantity(replace(kernel, tau=float(np.exp(log_width)))) - value

    ends = float(np.log(NARROWEST)), float(np.log(WIDEST))
    low, high = map(excess, ends)
    if not low * high < 0:
        raise ValueError(f"no width of {type(kernel).__name__} has {quantity.__name__} {value:g}")
    return float(np.exp(brentq(excess, *ends, xtol=1e-14)))

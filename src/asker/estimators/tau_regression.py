"""τ-estimate: the parameters whose residuals have the smallest τ-scale.

Yohai, Zamar: High Breakdown-Point Estimates of Regression by Means of the Minimization of an Efficient Scale, J. Am.
Stat. Assoc. 1988.
Salibian-Barrera, Willems, Zamar: The Fast-τ Estimator for Regression, J. Comput. Graph. Stat. 2008.

Problem     min over x of τ²(x) = s² · mean ρ₂(r/s) / b₂ with the M-scale s of ρ₁, b₂ = E ρ₂(e)
Symbols     ρ₁ -> first    ρ₂ -> second    s -> the M-scale    W -> weight
Algorithm   (1) the weights of the stationary point are W ω₁ + ω₂ with W = Σ (2ρ₂ − ω₂u) / Σ ω₁u, u = (r/s)²
            (2) the width of ρ₂ gives an efficiency of 95 % under Gaussian errors
            (3) start from the candidates of the S-estimate, refine them by descent on τ²
Deviations  The candidates are those of the S-estimate after its refinement, and the S-estimate itself.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.estimators.descent import Evaluated, Objective
from asker.estimators.robust_fit import kernel_of
from asker.estimators.s_regression import Scale
from asker.kernels.tuning import efficiency, expectation

Floats = NDArray[np.float64]
WIDEST, NARROWEST = 50.0, 1.5
"""Range of the width of ρ₂, in standard deviations."""


@dataclass(frozen=True)
class CombinedWeights:
    """Weights (W ω₁ + ω₂)/(W + 1) of the stationary point of a τ-scale, for residuals of scale 1."""

    first: Any
    second: Any
    weight: float
    """W"""

    def omega(self, u: Floats) -> Floats:
        """Return the weights ω of residuals with squares u."""
        return (self.weight * self.first.omega(u) + self.second.omega(u)) / (self.weight + 1)

    def domega(self, u: Floats) -> Floats:
        """Return dω/du."""
        return (self.weight * self.first.domega(u) + self.second.domega(u)) / (self.weight + 1)


def gaussian_weights(first: Any, second: Any) -> CombinedWeights:
    """Return the weights under Gaussian errors."""
    numerator = expectation(lambda e: 2 * second.psi(e * e) - second.omega(e * e) * e * e)
    return CombinedWeights(first, second, numerator / expectation(lambda e: first.omega(e * e) * e * e))


@cache
def second_kernel(rho: str, breakdown: float, value: float) -> Any:
    """Return ρ₂ for an efficiency of the τ-estimate (2)."""
    from scipy.optimize import brentq

    kernel = kernel_of(rho)
    first = kernel.at_breakdown(breakdown)

    def excess(width: float) -> float:
        return efficiency(gaussian_weights(first, kernel(tau=width))) - value

    return kernel(tau=float(brentq(excess, first.tau, WIDEST * first.tau, xtol=1e-12)))


def tau_objective(scale: Scale, second: Any) -> Objective:
    """Return τ² with its weights (1)."""
    b = expectation(lambda e: second.psi(e * e))

    def objective(r: Floats) -> Evaluated:
        s = scale(r)
        if s == 0:
            return Evaluated(0.0, 1.0 * (r == 0))
        u = (r / s) ** 2
        first_weights, second_weights = scale.kernel.omega(u), second.omega(u)
        numerator = float(np.sum(2 * second.psi(u) - second_weights * u))
        W = max(numerator, 0.0) / max(float(np.sum(first_weights * u)), np.finfo(float).tiny)
        return Evaluated(s * s * float(np.mean(second.psi(u))) / b, W * first_weights + second_weights)

    return objective

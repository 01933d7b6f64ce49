"""The M-scale of residuals: the solution s of the mean of ρ(rᵢ/s) = b.

Huber: Robust Estimation of a Location Parameter, Ann. Math. Stat. 1964.

Symbols     ρ = ψ/ψ(∞) of the kernel    b -> breakdown
Algorithm   (1) s is the normalised median of |r| at the start
            (2) Newton's method for log s; a step changes s by a factor of at most 2
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.kernels.tuning import supremum

Floats = NDArray[np.float64]
MAX_STEPS = 100
RTOL = 1e-12
MAD_FACTOR = 1.482602218505602
"""Standard deviation of a Gaussian error, relative to the median of its absolute value."""


def m_scale(r: Floats, kernel: Any, breakdown: float, start: float = 0.0) -> float:
    """Return the M-scale of residuals; 0 if too few of them differ from 0.

    Parameters
    ----------
    r
        Residuals.
    kernel
        Bounded kernel for residuals of scale 1.
    breakdown
        Mean of ρ; for a consistent scale, that of Gaussian errors.
    start
        Initial guess of the scale; by default the normalised median.
    """
    size = np.abs(r)
    if np.mean(size > 0) <= breakdown:
        return 0.0
    largest = supremum(kernel)
    s = start or MAD_FACTOR * float(np.median(size)) or float(size[size > 0].min())  # (1)
    for _ in range(MAX_STEPS):
        u = (r / s) ** 2
        excess = float(np.mean(kernel.psi(u))) / largest - breakdown
        slope = float(np.mean(kernel.omega(u) * u)) / largest
        step = np.clip(excess / slope, -np.log(2), np.log(2)) if slope > 0 else np.log(2) * np.sign(excess)  # (2)
        s *= float(np.exp(step))
        if abs(step) <= RTOL:
            break
    return s

"""A line through points with errors in both variables.

York: Least-Squares Fitting of a Straight Line, Can. J. Phys. 1966; Deming: Statistical Adjustment of Data, 1943.

Problem     min over a, b of Σ (yᵢ − a − b xᵢ)² / (σ_yᵢ² + b² σ_xᵢ²)
Algorithm   (1) the residual is divided by its standard deviation, which depends on the slope b
            (2) the start is the line through the medians with the slope of Theil and Sen, and with the inverse of the
                slope of x over y
"""

from dataclasses import replace
from typing import Any

import numpy as np

from asker._arguments import check_positive
from asker.problem.variables import ProblemError
from asker.scipy_compat.curve_fit import curve_fit
from asker.scipy_compat.fitted_curve import CurveFit
from asker.tracing.array_namespace import real_numbers


def orthogonal_line(x: Any, y: Any, sigma_x: Any = 1.0, sigma_y: Any = 1.0, **options: Any) -> CurveFit:
    """Fit y = intercept + slope·x to points with errors in both variables.

    With equal standard deviations it is the orthogonal regression.

    Parameters
    ----------
    x, y
        Data, (n,).
    sigma_x, sigma_y
        Standard deviations, or their ratio as two numbers.
    **options
        Arguments of `asker.curve_fit`, such as `method="mm"` or `loss=None`.

    Returns
    -------
    CurveFit
        With the parameters `intercept` and `slope`; its residuals are divided by their standard deviations.

    Raises
    ------
    ProblemError
        If the shapes differ or a standard deviation is not positive.
    """
    x, y = real_numbers("x", x), real_numbers("y", y)
    if x.shape != y.shape or x.ndim != 1:
        raise ProblemError(f"x and y have shapes {x.shape} and {y.shape}, expected both (n,)")
    for name, sigma in (("sigma_x", sigma_x), ("sigma_y", sigma_y)):
        for value in np.ravel(real_numbers(name, sigma)):
            check_positive(name, float(value))
    sx, sy = (np.broadcast_to(np.asarray(s, dtype=float), x.shape) for s in (sigma_x, sigma_y))

    def standardised(x: Any, intercept: Any, slope: Any) -> Any:
        return y + (intercept + slope * x - y) / np.sqrt(sy**2 + (slope * sx) ** 2)  # (1)

    fits = [curve_fit(standardised, x, y, p0=p0, **options) for p0 in _starts(x, y)]
    best = min(fits, key=lambda fit: float(fit.regression.objective(fit.regression.residuals).value))
    regression = replace(best.regression, model=lambda x, intercept, slope: intercept + slope * x)
    return CurveFit(tuple(best), regression, best.result, best.info)


def _starts(x: Any, y: Any) -> list[list[float]]:
    """Return two lines, from the regressions of y over x and of x over y (2)."""
    starts = []
    for u, v, is_inverse in ((x, y, False), (y, x, True)):
        i, j = np.triu_indices(len(u), 1)
        distinct = u[i] != u[j]
        slope = float(np.median((v[j] - v[i])[distinct] / (u[j] - u[i])[distinct])) if distinct.any() else 0.0
        slope = (1 / slope if slope else 0.0) if is_inverse else slope
        starts.append([float(np.median(y - slope * x)), slope])
    return starts

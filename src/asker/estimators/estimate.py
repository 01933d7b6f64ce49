"""High-breakdown estimators by name: S, MM, LTS and τ, for any residual function with few unknowns.

Yohai: High Breakdown-Point and High Efficiency Robust Estimates for Regression, Ann. Stat. 1987, for MM; the papers of
the others are cited in their modules.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.estimators.descent import Evaluated, Objective, descend, weighted_squares
from asker.estimators.lts_regression import lts_search
from asker.estimators.robust_fit import RobustFit, doubts_of, fit_of, kernel_of, search_arguments
from asker.estimators.s_regression import Scale, s_search
from asker.estimators.small_samples import adaptive_scale, leverages, robust_covariance
from asker.estimators.tau_regression import gaussian_weights, second_kernel, tau_objective
from asker.kernels.kernels import Quadratic
from asker.kernels.tuning import efficiency as efficiency_of

Floats = NDArray[np.float64]
N_M_STEPS = 2
"""Number of M-estimates, each with the scale of the last: the sequence S, M, D, M, D of Koller and Stahel (2011)."""
REWEIGHTING_QUANTILE = 2.241402727604947
"""97.5 % quantile of the absolute value of a Gaussian error: beyond it LTS rejects an observation."""
TRUNCATED_VARIANCE = (
    1 - 2 * REWEIGHTING_QUANTILE * float(np.exp(-(REWEIGHTING_QUANTILE**2) / 2)) / np.sqrt(2 * np.pi) / 0.975
)
"""Variance of Gaussian errors of variance 1 within this quantile."""


def s_estimate(
    residuals: Any, x0: Any = None, *, breakdown: float = 0.5, rho: str = "bisquare", **options: Any
) -> RobustFit:
    """Return the S-estimate, which tolerates the largest share of outliers but has a low efficiency.

    Parameters
    ----------
    residuals
        Function of x that returns the residuals (n,), with NumPy or with JAX.
    x0
        Initial guess.
    breakdown
        Share of outliers that the estimate tolerates, at most 0.5.
    rho
        "bisquare" or "lqq".
    **options
        `jac` and `bounds` as in `asker.least_squares`; `seed` of the random subsets; `n_subsets`, their number.

    Returns
    -------
    RobustFit
    """
    search = search_arguments(residuals, x0, breakdown, **options)
    kernel = kernel_of(rho).at_breakdown(breakdown)
    found = s_search(search.functions, Scale(kernel, breakdown, search.n_parameters), search.seed, search.n_subsets)
    return fit_of("s", search, found, kernel, efficiency_of(kernel), found.scale, found.scale)


def mm_estimate(
    residuals: Any,
    x0: Any = None,
    *,
    efficiency: float = 0.95,
    breakdown: float = 0.5,
    rho: str = "bisquare",
    **options: Any,
) -> RobustFit:
    """Return the MM-estimate: the M-estimate of a given efficiency that descends from the S-estimate, with its scale.

    Parameters
    ----------
    residuals
        Function of x that returns the residuals (n,), with NumPy or with JAX.
    x0
        Initial guess.
    efficiency
        Asymptotic efficiency under Gaussian errors.
    breakdown
        Share of outliers that the S-estimate tolerates, at most 0.5.
    rho
        "bisquare" or "lqq".
    **options
        `jac` and `bounds` as in `asker.least_squares`; `seed` of the random subsets; `n_subsets`, their number.

    Returns
    -------
    RobustFit
        Its `scale` is the design-adaptive one.

    Examples
    --------
    >>> fit = asker.estimators.mm_estimate(lambda x: x[0] + x[1] * t - y, [0.0, 0.0])
    """
    search = search_arguments(residuals, x0, breakdown, **options)
    functions, make = search.functions, kernel_of(rho)
    kernel = make.at_efficiency(efficiency)
    first = Scale(make.at_breakdown(breakdown), breakdown, search.n_parameters)
    found = s_search(functions, first, search.seed, search.n_subsets)
    if found.scale == 0:
        return fit_of("mm", search, found, kernel, efficiency, 0.0, 0.0)
    s, point = first.corrected(found.scale, len(found.point.residuals)), found.point
    for _ in range(N_M_STEPS):
        point = descend(functions, point.x, m_objective(replace(kernel, tau=kernel.tau * s)))
        s = adaptive_scale(point.residuals, functions.derivatives(point.x), kernel, s)
    return fit_of("mm", search, replace(found, point=point), kernel, efficiency, s, s)


def tau_estimate(
    residuals: Any,
    x0: Any = None,
    *,
    efficiency: float = 0.95,
    breakdown: float = 0.5,
    rho: str = "bisquare",
    **options: Any,
) -> RobustFit:
    """Return the τ-estimate, which minimises a scale that is robust and efficient.

    Parameters
    ----------
    residuals
        Function of x that returns the residuals (n,), with NumPy or with JAX.
    x0
        Initial guess.
    efficiency
        Asymptotic efficiency under Gaussian errors.
    breakdown
        Share of outliers that the estimate tolerates, at most 0.5.
    rho
        "bisquare" or "lqq".
    **options
        `jac` and `bounds` as in `asker.least_squares`; `seed` of the random subsets; `n_subsets`, their number.

    Returns
    -------
    RobustFit
    """
    search = search_arguments(residuals, x0, breakdown, **options)
    functions, make = search.functions, kernel_of(rho)
    scale = Scale(make.at_breakdown(breakdown), breakdown, search.n_parameters)
    second = second_kernel(rho, breakdown, float(efficiency))
    weights = gaussian_weights(scale.kernel, second)
    found = s_search(functions, scale, search.seed, search.n_subsets)
    if found.scale == 0:
        return fit_of("tau", search, found, weights, efficiency, 0.0, 0.0)
    point = descend(functions, found.point.x, tau_objective(scale, second))
    s = scale(point.residuals)
    adapted = adaptive_scale(point.residuals, functions.derivatives(point.x), weights, s)
    return fit_of("tau", search, replace(found, point=point), weights, efficiency, adapted, s)


def lts_estimate(residuals: Any, x0: Any = None, *, breakdown: float = 0.5, **options: Any) -> RobustFit:
    """Return least trimmed squares, followed by least squares of the observations that it does not reject.

    An observation is rejected if its residual exceeds the 97.5 % quantile for the scale of the trimmed residuals.

    Parameters
    ----------
    residuals
        Function of x that returns the residuals (n,), with NumPy or with JAX.
    x0
        Initial guess.
    breakdown
        Share of the observations that is trimmed, at most 0.5.
    **options
        `jac` and `bounds` as in `asker.least_squares`; `seed` of the random subsets; `n_subsets`, their number.

    Returns
    -------
    RobustFit
    """
    search = search_arguments(residuals, x0, breakdown, **options)
    found, _ = lts_search(search.functions, breakdown, search.seed, search.n_subsets)
    if found.scale == 0:
        return fit_of("lts", search, found, Quadratic(), 1.0, 0.0, 0.0)
    kept = np.abs(found.point.residuals) <= REWEIGHTING_QUANTILE * found.scale
    weights = kept.astype(float)
    point = descend(search.functions, found.point.x, weighted_squares(weights))
    J, r, n = search.functions.derivatives(point.x), point.residuals, int(kept.sum())
    scale = float(np.sqrt(np.sum(r[kept] ** 2) / max(n - search.n_parameters, 1) / TRUNCATED_VARIANCE))
    moved = replace(found, point=point)
    return replace(
        fit_of("lts", search, moved, Quadratic(), 1.0, scale, scale),
        weights=weights,
        leverage=leverages(J, weights),
        covariance=robust_covariance(r[kept], J[kept], Quadratic(), scale),
        doubts=doubts_of(moved),
    )


def m_objective(kernel: Any) -> Objective:
    """Return Σ ψ(r²) with its weights."""
    return lambda r: Evaluated(float(np.sum(kernel.psi(r * r))), kernel.omega(r * r))


ESTIMATORS: dict[str, Callable[..., RobustFit]] = {
    "s": s_estimate,
    "mm": mm_estimate,
    "lts": lts_estimate,
    "tau": tau_estimate,
}
"""Estimators by the names that `method` of `asker.curve_fit` accepts."""

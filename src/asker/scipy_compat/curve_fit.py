"""`curve_fit` with the arguments and the result of `scipy.optimize.curve_fit`."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker._arguments import check_function, check_positive
from asker.estimators import ESTIMATORS
from asker.problem.variables import ProblemError
from asker.problem.vector_problem import jacobian_of
from asker.scipy_compat.fitted_curve import CurveData, CurveFit, curve_of, robust_curve
from asker.scipy_compat.least_squares import least_squares
from asker.scipy_compat.parameters import Parameters, is_by_name, parameters_of
from asker.scipy_compat.starts import NestedCurve
from asker.tracing.array_namespace import numbers, real_numbers
from asker.tracing.trees import is_tree, leaves_of, like, mapped, tree_of

Floats = NDArray[np.float64]


def curve_fit(
    f: Callable[..., Any],
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    check_finite: bool | None = None,
    bounds: Any = (-np.inf, np.inf),
    method: str | None = None,
    jac: Any = None,
    *,
    fixed: Mapping[str, float] | None = None,
    full_output: bool = False,
    nan_policy: str | None = None,
    **options: Any,
) -> CurveFit:
    """Fit f(xdata, *p) to ydata, as `scipy.optimize.curve_fit` does.

    The result is SciPy's tuple, with a report (`summary()`, also displayed by notebooks), profile-likelihood intervals,
    confidence bands and tests: see `asker.CurveFit`.  Parameters have the names in the signature of f.

    Parameters
    ----------
    f
        Function of the independent variable and of each parameter, with NumPy or with JAX.
    xdata, ydata
        Independent variable, also as a dictionary, a named tuple or a dataclass of arrays, and measured values.
    p0
        Initial guess, also as a dictionary by names; by default 1 each, or a value between the bounds.  For a curve
        f(xdata, p) it may be a dictionary, a named tuple or a dataclass of numbers and arrays, and popt is one such
        value.
    sigma
        Standard deviations of ydata, (n,), or their covariance matrix, (n, n).
    absolute_sigma
        Whether sigma is absolute; otherwise only the ratios of its entries are used, as in SciPy.
    check_finite
        Whether NaN and infinity in the data raise an error; by default only if `nan_policy` is not given.
    bounds
        As in `least_squares`, or a dictionary of pairs by names.
    method
        As in `least_squares`; or "mm", "s", "lts" or "tau", estimators with a high breakdown point, with their settings
        in `options` (see `asker.estimators`).
    jac
        Function that returns the derivatives (n, d), or as in `least_squares`.
    fixed
        Values of parameters that are not fitted, by names.
    full_output
        Return also a dictionary with the number of calls and the residuals, the message, and the status.
    nan_policy
        "omit" to ignore observations with NaN, "raise" to raise an error.
    options
        Further arguments of `least_squares`: loss, f_scale, ftol, strategy, …; with loss=None the fit is robust to
        outliers, and the noise scale is estimated.

    Returns
    -------
    popt, pcov
        Parameters and their covariance matrix, in a `CurveFit`.

    Raises
    ------
    ValueError
        If the arguments are invalid.
    RuntimeError
        If the fit does not converge.
    """
    if "args" in options:
        raise ProblemError("curve_fit has no args: the only arguments of f are xdata and the parameters")
    check_function("f", f)
    if is_tree(p0) and not is_by_name(f, p0):
        further = {"fixed": fixed, "full_output": full_output, "nan_policy": nan_policy} | options
        return _nested_fit(f, (xdata, ydata), p0, (sigma, absolute_sigma, check_finite), (bounds, method, jac), further)
    checks = nan_policy is None if check_finite is None else check_finite
    parameters = parameters_of(f, p0, bounds, fixed)
    xdata, ydata, sigma, indices = _data(xdata, ydata, sigma, nan_policy, checks)
    _check_count(parameters, ydata, method)
    if ydata.size == 1:  # one number for all values of the curve
        ydata = np.broadcast_to(ydata, np.broadcast_shapes(ydata.shape, np.shape(f(xdata, *parameters.start))))
    whitened = _whitening(sigma, ydata.size)

    def residuals(p: Any) -> Any:
        return whitened(_values(f(xdata, *parameters.whole(p)), ydata) - ydata)

    def derivatives(p: Any) -> Any:
        J = jacobian_of(jac(xdata, *parameters.whole(p)), (ydata.size, len(parameters.names)))
        return whitened(J[:, ~parameters.fixed])

    indices = indices if len(indices) == ydata.size else np.arange(ydata.size)
    jac_option = derivatives if callable(jac) else "auto" if jac is None else jac
    data = CurveData(f, xdata, np.asarray(ydata), sigma, indices, absolute_sigma)
    fit = _estimate(method, parameters, data, residuals, jac_option, options)
    _warn_of_infinite_covariance(fit[1])
    return fit.with_full_output() if full_output else fit


def _estimate(
    method: str | None, parameters: Parameters, data: CurveData, residuals: Any, jac: Any, options: dict[str, Any]
) -> CurveFit:
    """Return the fit by an estimator with a high breakdown point, or by least squares."""
    if method in ESTIMATORS:
        return robust_curve(method, parameters, data, residuals, jac, options)
    translated = _translated_options(options)
    box = parameters.free_bounds
    found = least_squares(residuals, parameters.free_start, jac, box, method or "trf", **translated)
    if not found.success:
        raise RuntimeError(f"Optimal parameters not found: {found.message}")
    return curve_of(found, parameters, data, residuals, jac, translated)


def _nested_fit(f: Callable[..., Any], data: Any, p0: Any, sigma: Any, given: Any, further: dict[str, Any]) -> CurveFit:
    """Return the fit of a curve with one nested parameter, whose estimate is nested as well."""
    nested, (bounds, method, jac) = NestedCurve(f, p0), given
    slopes = NestedCurve(jac, p0) if callable(jac) else jac
    start, box = nested.vector(p0, "p0"), nested.bounds(bounds)
    fit: Any = curve_fit
    popt, *others = fit(nested, *data, start, *sigma, box, method, slopes, **further)
    return (nested.value(popt), *others)  # type: ignore[return-value]


def _check_count(parameters: Parameters, ydata: Floats, method: str | None) -> None:
    """Raise SciPy's error for more parameters than data, which its default method without bounds does not allow."""
    n = len(parameters.free_start)
    if ydata.size != 1 and n > ydata.size and method in (None, "lm") and not np.isfinite(parameters.free_bounds).any():
        raise TypeError(f"The number of func parameters={n} must not exceed the data points={ydata.size}")


def _warn_of_infinite_covariance(pcov: Floats) -> None:
    """Warn the caller of `curve_fit` if the covariance matrix is not finite."""
    if not np.isfinite(pcov).all():
        from scipy.optimize import OptimizeWarning

        warnings.warn("Covariance of the parameters could not be estimated", OptimizeWarning, stacklevel=3)


def _values(values: Any, ydata: Floats) -> Any:
    """Return the values of the curve; a single number is a constant curve."""
    values = values if hasattr(values, "dtype") else numbers("the value of f", values)
    if values.shape != ydata.shape and values.size != 1:
        raise ProblemError(f"the value of f has shape {values.shape}, expected that of ydata, {ydata.shape}")
    return values


def _translated_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of `scipy.optimize.leastsq`, which SciPy's `curve_fit` calls, as those of `least_squares`."""
    given = dict(options)
    if "maxfev" in given:
        given.setdefault("max_nfev", given.pop("maxfev") or None)
    if "epsfcn" in given and (relative := given.pop("epsfcn")) is not None:
        check_positive("epsfcn", relative)
        given.setdefault("diff_step", np.sqrt(max(relative, np.finfo(float).eps)))
    if "diag" in given and (diagonal := given.pop("diag")) is not None:
        given.setdefault("x_scale", 1 / real_numbers("diag", diagonal))
    if "factor" in given:  # it bounds the first step, whose length is adapted here
        check_positive("factor", given.pop("factor"))
    if given.pop("col_deriv", False):
        raise ProblemError(
            "asker.curve_fit does not support col_deriv: jac must return one row for each value of the curve"
        )
    return given


def _data(xdata: Any, ydata: Any, sigma: Any, policy: str | None, checks: bool) -> tuple[Any, Floats, Any, Any]:
    """Return xdata, ydata, sigma and the positions of the observations; NaN and infinity are rejected or omitted."""
    if policy == "propagate":
        raise ProblemError("`nan_policy='propagate'` is not supported by this function.")
    if policy not in (None, "raise", "omit"):
        raise ProblemError("nan_policy must be one of {None, 'raise', 'omit'}" + f", not {policy!r}")
    ydata = real_numbers("ydata", ydata)
    if is_tree(xdata):
        names = tree_of(xdata).names("xdata")
        xdata = like(xdata, [real_numbers(name, x) for name, x in zip(names, leaves_of(xdata), strict=True)])
    elif isinstance(xdata, list | tuple | np.ndarray):
        xdata = real_numbers("xdata", xdata)
    if not ydata.size:
        raise ProblemError("`ydata` must not be empty!")
    given = [x for x in (*leaves_of(xdata), ydata) if isinstance(x, np.ndarray)]
    if checks and not all(np.isfinite(x).all() for x in given):
        raise ProblemError("xdata or ydata hold NaN or infinity (nan_policy='omit' ignores NaN)")
    if policy == "raise" and any(np.isnan(x).any() for x in given):
        raise ProblemError("The input contains nan values")
    if policy != "omit":
        return xdata, ydata, sigma, np.arange(ydata.size)
    bad = np.isnan(ydata)
    if is_tree(xdata) or isinstance(xdata, np.ndarray):
        for x in leaves_of(xdata):
            bad = bad | np.isnan(x).any(axis=tuple(range(x.ndim - 1)))
        xdata = mapped(lambda x: x[..., ~bad], xdata)
    for axis in range(np.ndim(sigma)) if sigma is not None else ():
        sigma = np.compress(~bad, sigma, axis=axis)
    return xdata, ydata[~bad], sigma, np.flatnonzero(~bad)


def _whitening(sigma: Any, n: int) -> Callable[[Any], Any]:
    """Return a function that whitens residuals, or rows of derivatives, with the standard deviations or covariance."""
    if sigma is None:
        return lambda r: r
    sigma = real_numbers("sigma", sigma)
    if sigma.size == 1 or sigma.shape == (n,):
        bad = np.flatnonzero(~(np.isfinite(sigma) & (sigma != 0)))
        if bad.size:
            raise ProblemError(f"sigma is {sigma.flat[bad[0]]:g} at index {bad[0]}, expected positive numbers")
        return lambda r: (r.T / sigma).T
    if sigma.shape != (n, n):
        raise ProblemError(f"sigma has shape {sigma.shape}, expected ({n},) or ({n}, {n})")
    try:
        L = np.linalg.cholesky(sigma)
    except np.linalg.LinAlgError:
        raise ProblemError("`sigma` must be positive definite.") from None

    def divided(r: Any) -> Any:
        if isinstance(r, np.ndarray):
            from scipy.linalg import solve_triangular

            return solve_triangular(L, r, lower=True)
        from jax.scipy.linalg import solve_triangular as by_jax

        return by_jax(L, r, lower=True)

    return divided

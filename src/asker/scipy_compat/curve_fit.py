"""`curve_fit` with the arguments and the result of `scipy.optimize.curve_fit`."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker._arguments import check_function, check_positive
from asker.problem.variables import ProblemError
from asker.problem.vector_problem import jacobian_of
from asker.scipy_compat.least_squares import bounds_of, least_squares, vector
from asker.scipy_compat.losses import inverse_normal
from asker.tracing.array_namespace import numbers, real_numbers

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
    full_output: bool = False,
    nan_policy: str | None = None,
    **options: Any,
) -> tuple[Any, ...]:
    """Fit f(xdata, *p) to ydata, as `scipy.optimize.curve_fit` does.

    Parameters
    ----------
    f
        Function of the independent variable and of each parameter, with NumPy or with JAX.
    xdata, ydata
        Independent variable and measured values.
    p0
        Initial guess of the parameters; by default 1 each, or a value between the bounds.
    sigma
        Standard deviations of ydata, (n,), or their covariance matrix, (n, n).
    absolute_sigma
        Whether sigma is absolute; otherwise only the ratios of its entries are used, as in SciPy.
    check_finite
        Whether NaN and infinity in the data raise an error; by default only if `nan_policy` is not given.
    bounds, method
        As in `least_squares`.
    jac
        Function that returns the derivatives (n, d), or as in `least_squares`.
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
        Parameters and their covariance matrix.

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
    p0 = _start(f, bounds) if p0 is None else vector("p0", p0)
    checks = nan_policy is None if check_finite is None else check_finite
    xdata, ydata, sigma = _data(xdata, ydata, sigma, nan_policy, checks)
    _check_count(p0, ydata, bounds, method)
    if ydata.size == 1:  # one number for all values of the curve
        ydata = np.broadcast_to(ydata, np.broadcast_shapes(ydata.shape, np.shape(f(xdata, *p0))))
    whitened = _whitening(sigma, ydata.size)

    def residuals(p: Any) -> Any:
        return whitened(_values(f(xdata, *p), ydata) - ydata)

    def derivatives(p: Any) -> Any:
        return whitened(jacobian_of(jac(xdata, *p), (ydata.size, p0.size)))

    jac_option = derivatives if callable(jac) else "auto" if jac is None else jac
    fit = least_squares(residuals, p0, jac_option, bounds, method or "trf", **_translated_options(options))
    if not fit.success:
        raise RuntimeError(f"Optimal parameters not found: {fit.message}")
    pcov = _covariance(fit, absolute_sigma)
    info = {"nfev": fit.nfev, "fvec": fit.fun}
    return (fit.x, pcov, info, fit.message, fit.status) if full_output else (fit.x, pcov)


def _check_count(p0: Floats, ydata: Floats, bounds: Any, method: str | None) -> None:
    """Raise SciPy's error for more parameters than data, which its default method without bounds does not allow."""
    if (
        ydata.size != 1
        and p0.size > ydata.size
        and method in (None, "lm")
        and not np.isfinite(bounds_of(bounds, p0.shape)).any()
    ):
        raise TypeError(f"The number of func parameters={p0.size} must not exceed the data points={ydata.size}")


def _covariance(fit: Any, absolute_sigma: bool) -> Floats:
    """Return the covariance matrix of the parameters; warn the caller of `curve_fit` if it is not finite."""
    pcov: Floats = fit.covariance
    if absolute_sigma:
        unit = inverse_normal(fit.jac)
        pcov = np.full((fit.x.size, fit.x.size), np.inf) if unit is None else unit
    if not np.isfinite(pcov).all():
        from scipy.optimize import OptimizeWarning

        warnings.warn("Covariance of the parameters could not be estimated", OptimizeWarning, stacklevel=3)
    return pcov


def _values(values: Any, ydata: Floats) -> Any:
    """Return the values of the curve; a single number is a constant curve."""
    values = values if hasattr(values, "dtype") else numbers("the value of f", values)
    if values.shape != ydata.shape and values.size != 1:
        raise ProblemError(f"the value of f has shape {values.shape}, expected that of ydata, {ydata.shape}")
    return values


def _start(f: Callable[..., Any], bounds: Any) -> Floats:
    """Return the default initial guess: 1 for each parameter of the function, or a value between its bounds."""
    try:
        kinds = [p.kind for p in inspect.signature(f).parameters.values()]
    except ValueError:  # a function that is not written in Python may have no signature
        kinds = []
    n = sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds) - 1
    if n < 1:
        raise ProblemError("the number of parameters cannot be determined from the signature of f: give p0")
    lower, upper = bounds_of(bounds, (n,))
    below, above = np.isfinite(lower), np.isfinite(upper)
    low, high = np.where(below, lower, 0.0), np.where(above, upper, 0.0)
    one_sided = np.where(below, low + 1, np.where(above, high - 1, 1.0))
    return np.where(below & above, (low + high) / 2, one_sided)


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


def _data(xdata: Any, ydata: Any, sigma: Any, policy: str | None, checks: bool) -> tuple[Any, Floats, Any]:
    """Return xdata, ydata and sigma as numbers; NaN and infinity are rejected or omitted according to the policy."""
    if policy == "propagate":
        raise ProblemError("`nan_policy='propagate'` is not supported by this function.")
    if policy not in (None, "raise", "omit"):
        raise ProblemError("nan_policy must be one of {None, 'raise', 'omit'}" + f", not {policy!r}")
    ydata = real_numbers("ydata", ydata)
    if isinstance(xdata, list | tuple | np.ndarray):
        xdata = real_numbers("xdata", xdata)
    if not ydata.size:
        raise ProblemError("`ydata` must not be empty!")
    given = [x for x in (xdata, ydata) if isinstance(x, np.ndarray)]
    if checks and not all(np.isfinite(x).all() for x in given):
        raise ProblemError("xdata or ydata hold NaN or infinity (nan_policy='omit' ignores NaN)")
    if policy == "raise" and any(np.isnan(x).any() for x in given):
        raise ProblemError("The input contains nan values")
    if policy != "omit":
        return xdata, ydata, sigma
    bad = np.isnan(ydata)
    if isinstance(xdata, np.ndarray):
        bad = bad | np.isnan(xdata).any(axis=tuple(range(xdata.ndim - 1)))
        xdata = xdata[..., ~bad]
    for axis in range(np.ndim(sigma)) if sigma is not None else ():
        sigma = np.compress(~bad, sigma, axis=axis)
    return xdata, ydata[~bad], sigma


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

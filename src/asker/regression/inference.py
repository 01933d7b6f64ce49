"""Confidence and prediction bands, the robust Wald test, and robust R²."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker._arguments import check_number
from asker.problem.variables import ProblemError
from asker.problem.vector_problem import Functions
from asker.regression.fit import Regression

Floats = NDArray[np.float64]


class Band(NamedTuple):
    """A curve with a band around it."""

    value: Floats
    lower: Floats
    upper: Floats


class WaldTest(NamedTuple):
    """Test that some parameters have given values."""

    statistic: float
    """F statistic."""
    n_constraints: int
    degrees_of_freedom: int
    p_value: float


def check_level(level: float) -> None:
    """Raise a `ProblemError` unless a confidence level lies between 0 and 1."""
    check_number("level", level)
    if not 0 < level < 1:
        raise ProblemError(f"level must lie between 0 and 1, not {level!r}")


def quantile(fit: Regression, level: float) -> float:
    """Return the two-sided quantile of Student's t with the degrees of freedom of a fit."""
    from scipy.special import stdtrit

    check_level(level)
    df = fit.degrees_of_freedom
    return float(stdtrit(df, (1 + level) / 2)) if df > 0 else np.nan


def band(fit: Regression, x: Any, level: float, prediction: bool, sigma: Any) -> Band:
    """Return the curve at new points with a pointwise confidence band, or prediction band."""
    x = np.asarray(x, dtype=float) if isinstance(x, list | tuple | int | float) else x
    functions = Functions(lambda p: fit.model(x, *p), fit.x)
    value, J = functions(fit.x), functions.derivatives(fit.x)
    variance = np.einsum("nd,de,ne->n", J, fit.covariance, J)
    if prediction:
        if sigma is None and fit.sigma is not None and np.ndim(fit.sigma) > 0 and np.size(fit.sigma) > 1:
            raise ProblemError("the data have standard deviations: give sigma= at the new points for a prediction band")
        own = (1.0 if fit.sigma is None else float(np.ravel(fit.sigma)[0])) if sigma is None else np.asarray(sigma)
        variance = variance + (fit.scale * own) ** 2
    half = quantile(fit, level) * np.sqrt(variance)
    return Band(value, value - half, value + half)


def wald_test(fit: Regression, null: Any) -> WaldTest:
    """Return the Wald test of a nested model.

    Parameters
    ----------
    fit
        Fit of the larger model.
    null
        Values of parameters, {name: value}; or the fit of the same model with some of its parameters fixed.
    """
    from scipy.special import fdtrc

    if not isinstance(null, dict):
        other = null
        extra = other.fixed & ~fit.fixed if other.names == fit.names else np.zeros(0, dtype=bool)
        if not extra.any() or (fit.fixed & ~other.fixed).any():
            raise ProblemError(
                "the models are not nested: the smaller one must be the same model with more parameters fixed"
            )
        null = {
            name: float(value) for name, value, is_extra in zip(other.names, other.x, extra, strict=True) if is_extra
        }
    at, values = fit.values(null)
    if not at or fit.fixed[at].any():
        raise ProblemError("the Wald test needs at least one parameter, and none that is fixed in the larger model")
    difference, C = fit.x[at] - values, fit.covariance[np.ix_(at, at)]
    if not np.isfinite(C).all():
        return WaldTest(np.nan, len(at), fit.degrees_of_freedom, np.nan)
    statistic = float(difference @ np.linalg.solve(C, difference)) / len(at)
    return WaldTest(
        statistic, len(at), fit.degrees_of_freedom, float(fdtrc(len(at), fit.degrees_of_freedom, statistic))
    )


def r_squared(fit: Regression) -> float:
    """Return R², weighted by the robust weights.

    Renaud, Victoria-Feser: A Robust Coefficient of Determination for Regression, J. Stat. Plan. Inference 2010.  For
    least squares it is the usual one; for a model without a constant it may be negative.
    """
    values = np.broadcast_to(fit.fitted(fit.xdata), fit.ydata.shape).ravel()
    y, w = fit.ydata.ravel(), fit.weights
    if fit.sigma is not None and np.ndim(fit.sigma) < 2:
        w = w / np.broadcast_to(np.asarray(fit.sigma, dtype=float), w.shape) ** 2
    left = fit.consistency * float(w @ (y - values) ** 2)
    if fit.consistency == 1:
        total = float(w @ (y - w @ y / w.sum()) ** 2)
        return 1 - left / total if total > 0 else np.nan
    explained = float(w @ (values - w @ values / w.sum()) ** 2)
    return explained / (explained + left) if explained + left > 0 else np.nan

"""The result of `curve_fit`: SciPy's tuple with a report, profiles, bands and tests."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.estimators import ESTIMATORS
from asker.estimators.descent import Objective, weighted_squares
from asker.estimators.estimate import m_objective
from asker.estimators.m_scale import MAD_FACTOR
from asker.estimators.robust_fit import RobustFit
from asker.estimators.small_samples import kappa
from asker.kernels.kernel import Kernel
from asker.problem.vector_problem import Functions
from asker.regression import summary
from asker.regression.fit import Observation, Regression
from asker.regression.inference import Band, WaldTest, band, r_squared, wald_test
from asker.regression.profile import Profile, profile
from asker.scipy_compat.losses import LOSSES, GivenLoss, inverse_normal
from asker.scipy_compat.parameters import Parameters

Floats = NDArray[np.float64]
UNDETERMINED = "the data do not determine a direction of {}: fix a parameter, or simplify the curve"
TITLES = {
    "s": "S-estimate",
    "mm": "MM-estimate",
    "lts": "Least trimmed squares, reweighted",
    "tau": "τ-estimate",
}


@dataclass(frozen=True)
class CurveData:
    """The arguments of `curve_fit` that describe the data."""

    f: Callable[..., Any]
    xdata: Any
    ydata: Floats
    sigma: Any
    indices: NDArray[np.intp]
    absolute_sigma: bool


class CurveFit(tuple[Any, ...]):
    """The parameters and their covariance, as SciPy's `curve_fit` returns them, with a report and diagnostics.

    It unpacks as SciPy's tuple: `popt, pcov = asker.curve_fit(f, x, y)`.
    """

    regression: Regression
    """The fitted curve: names, estimates, residuals, weights, leverages, scale."""
    result: Any
    """The `asker.Result` of the solve; the `RobustFit` of a high-breakdown estimator."""
    info: tuple[Any, ...]
    """The three further items of SciPy's full output: calls and residuals, message, status."""

    def __new__(cls, items: tuple[Any, ...], regression: Regression, result: Any, info: tuple[Any, ...]) -> "CurveFit":
        """Return the tuple of `items` with these attributes."""
        self = super().__new__(cls, items)
        self.regression, self.result, self.info = regression, result, info
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Reduce to SciPy's tuple for pickles and deep copies: functions of a curve need not support them."""
        return tuple, (tuple(self),)

    def with_full_output(self) -> "CurveFit":
        """Return the same fit as the tuple of SciPy's full output."""
        return CurveFit((*self[:2], *self.info), self.regression, self.result, self.info)

    @property
    def params(self) -> dict[str, float]:
        """Estimates by names."""
        return dict(zip(self.regression.names, map(float, self.regression.x), strict=True))

    @property
    def stderr(self) -> dict[str, float]:
        """Standard errors by names; 0 for fixed parameters."""
        return dict(zip(self.regression.names, map(float, self.regression.standard_errors), strict=True))

    @property
    def weights(self) -> Floats:
        """Weight of each observation."""
        return self.regression.weights

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons not to rely on the fit."""
        return self.regression.doubts

    @property
    def r_squared(self) -> float:
        """R², weighted for robust methods."""
        return r_squared(self.regression)

    @property
    def outliers(self) -> list[Observation]:
        """Observations with standardised residuals beyond the 99.9 % quantile."""
        return self.regression.observations(self.regression.outliers)

    def summary(self, level: float = 0.95) -> str:
        """Return the report as text of at most 80 columns.

        Parameters
        ----------
        level
            Level of the confidence intervals.

        Returns
        -------
        str
        """
        return summary.as_text(summary.report(self.regression, level))

    def _repr_html_(self) -> str:
        return summary.as_html(summary.report(self.regression))

    def as_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the numbers of the report, for JSON."""
        return summary.as_dict(self.regression, level)

    def profile(self, name: str, level: float = 0.95) -> Profile:
        """Return the profile of a parameter and its profile-likelihood interval.

        Parameters
        ----------
        name
            Name of the parameter.
        level
            Confidence level.

        Returns
        -------
        Profile
            Its `interval`, and `values` with the signed root `z` of the likelihood ratio.
        """
        return profile(self.regression, name, level)

    def conf_band(self, x: Any, level: float = 0.95, prediction: bool = False, sigma: Any = None) -> Band:
        """Return the curve at new points with a pointwise confidence band or prediction band.

        Parameters
        ----------
        x
            Independent variable at the new points.
        level
            Confidence level.
        prediction
            True for a band that contains new observations, instead of the curve.
        sigma
            Standard deviations of new observations, if the data have some.

        Returns
        -------
        Band
            `value`, `lower` and `upper`.
        """
        return band(self.regression, x, level, prediction, sigma)

    def wald_test(self, null: Any) -> WaldTest:
        """Return the Wald test of a nested model; for a robust fit, the robust Wald test.

        Parameters
        ----------
        null
            Values of parameters by names, or the fit of the same curve with some of its parameters fixed.

        Returns
        -------
        WaldTest
            F statistic, numbers of degrees of freedom, and p-value.
        """
        return wald_test(self.regression, null.regression if isinstance(null, CurveFit) else null)


def robust_curve(
    method: str, parameters: Parameters, data: CurveData, residuals: Any, jac: Any, options: dict[str, Any]
) -> CurveFit:
    """Return the fit by a high-breakdown estimator."""
    functions = Functions(residuals, parameters.free_start, jac, *parameters.free_bounds)
    fit = ESTIMATORS[method](functions, **options)
    if not fit.converged:
        raise RuntimeError(f"Optimal parameters not found: {fit.doubts[-1]}")
    covariance = fit.covariance
    if data.absolute_sigma and fit.scale > 0:
        covariance = covariance / fit.scale**2
    rho = options.get("rho", "bisquare")
    settings = f"{rho}, efficiency {fit.efficiency:.0%}, " if method != "lts" else ""
    if method == "mm" and fit.weights_scale > 0:
        objective = m_objective(replace(fit.kernel, tau=fit.kernel.tau * fit.weights_scale))
    else:
        objective = weighted_squares(fit.weights)
    regression = _regression(
        parameters,
        data,
        functions,
        fit.x,
        covariance,
        method=f"{TITLES[method]} ({settings}breakdown point {fit.breakdown:.0%})",
        scale=fit.scale,
        scale_kind="M-scale, Koller-Stahel"
        if method in ("mm", "tau")
        else "M-scale"
        if method == "s"
        else "consistent",
        weights=fit.weights,
        consistency=1.0 if method == "lts" else 1 / kappa(fit.kernel),
        objective=objective,
        message="the descent on the objective has converged",
        doubts=fit.doubts,
        search=f"{fit.n_candidates} (minimal subsets, initial guess, least squares)",
    )
    info = ({"nfev": functions.n_calls, "fvec": fit.residuals}, regression.message, 1)
    return _curve_fit(regression, fit, info)


def curve_of(
    found: Any, parameters: Parameters, data: CurveData, residuals: Any, jac: Any, options: dict[str, Any]
) -> CurveFit:
    """Return the fit by `least_squares`."""
    functions = Functions(residuals, found.x, jac, *parameters.free_bounds)
    covariance: Floats = found.covariance
    if data.absolute_sigma:
        unit = inverse_normal(found.jac)
        covariance = np.full((found.x.size, found.x.size), np.inf) if unit is None else unit
    loss, f_scale = options.get("loss", "linear"), float(options.get("f_scale", 1.0))
    r, d = found.fun, found.x.size
    if isinstance(loss, str) and loss == "linear":
        spread = float(np.sqrt(r @ r / (len(r) - d))) if len(r) > d else np.nan
        described: dict[str, Any] = {
            "method": "Least squares",
            "scale": spread,
            "scale_kind": "standard deviation, n − p",
            "weights": np.ones(len(r)),
            "consistency": 1.0,
            "objective": weighted_squares(np.ones(len(r))),
            "doubts": found.result.found_doubts,
        }
    else:
        described = _robust_loss(found, loss, f_scale)
    regression = _regression(
        parameters, data, functions, found.x, covariance, message=found.message, search="", **described
    )
    info = ({"nfev": found.nfev, "fvec": found.fun}, found.message, found.status)
    return _curve_fit(regression, found.result, info)


def _robust_loss(found: Any, loss: Any, f_scale: float) -> dict[str, Any]:
    """Return the fields of a regression with a robust loss, a kernel, or estimated noise."""
    r = found.fun
    sigma = float(found.result.noise[0].sigma)
    kind = "estimated from the residuals"
    if not np.isfinite(sigma):
        sigma, kind = MAD_FACTOR * float(np.median(np.abs(r))), "normalised median absolute residual"
    doubts = found.result.doubts
    if loss is None:
        weights = np.clip(found.result.weights[0], 0.0, 1.0)
        title, objective = "Robust fit with estimated noise scale", weighted_squares(weights)
        kernel: Any = found.result.problem.factors[0].kernel
        return _fields(title, sigma, kind, weights, _consistency(kernel, sigma), objective, doubts)
    if isinstance(loss, Kernel):
        kernel = replace(loss, tau=loss.tau * f_scale)
        title = f"M-estimate with {kernel!r}"
    elif isinstance(loss, str):
        kernel, title, doubts = LOSSES[loss](tau=f_scale), f"M-estimate with loss {loss}, f_scale {f_scale:g}", ()
    else:
        kernel, title, doubts = GivenLoss(loss, f_scale), "M-estimate with a given loss", ()
    weights = np.clip(kernel.omega(r * r), 0.0, 1.0)
    return _fields(title, sigma, kind, weights, _consistency(kernel, sigma), m_objective(kernel), doubts)


def _fields(
    title: str,
    sigma: float,
    kind: str,
    weights: Floats,
    consistency: float,
    objective: Objective,
    doubts: tuple[str, ...],
) -> dict[str, Any]:
    return {
        "method": title,
        "scale": sigma,
        "scale_kind": kind,
        "weights": weights,
        "consistency": consistency,
        "objective": objective,
        "doubts": doubts,
    }


def _consistency(kernel: Any, sigma: float) -> float:
    """Return E w / E we² for errors of standard deviation sigma; 1 for a kernel without a width."""
    if not isinstance(kernel, Kernel) or not sigma > 0 or kernel.quadratic:
        return 1.0
    return 1 / kappa(replace(kernel, tau=kernel.tau / sigma))


def _regression(
    parameters: Parameters, data: CurveData, functions: Functions, x: Floats, covariance: Floats, **described: Any
) -> Regression:
    regression = Regression(
        names=parameters.names,
        x=parameters.whole_vector(x),
        covariance=parameters.whole_covariance(covariance),
        fixed=parameters.fixed,
        residuals=functions(x),
        jacobian=functions.derivatives(x),
        functions=functions,
        model=data.f,
        xdata=data.xdata,
        ydata=data.ydata,
        sigma=data.sigma,
        indices=data.indices,
        success=True,
        **described,
    )
    undetermined = [UNDETERMINED.format(names) for names in regression.undetermined]
    return replace(regression, doubts=(*regression.doubts, *undetermined))


def _curve_fit(regression: Regression, result: Any | RobustFit, info: tuple[Any, ...]) -> CurveFit:
    return CurveFit((regression.x, regression.covariance), regression, result, info)

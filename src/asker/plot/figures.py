"""Diagnostic figures of a fitted curve; each function draws into matplotlib axes and returns them."""

from typing import Any

import numpy as np

from asker.problem.variables import ProblemError
from asker.regression.distance import robust_distances
from asker.regression.fit import DOUBTFUL, OUTLIER
from asker.scipy_compat.fitted_curve import CurveFit

N_POINTS = 300
"""Number of points of a drawn curve."""
MARGIN = 0.02
"""Part of the range by which a curve is drawn beyond the data."""
INLIER_COLOR, DOUBTFUL_COLOR, OUTLIER_COLOR, CURVE_COLOR = "#33658a", "#e09f3e", "#c1121f", "#1d3557"
GROUPS = (("inliers", INLIER_COLOR, "o"), ("doubtful", DOUBTFUL_COLOR, "D"), ("outliers", OUTLIER_COLOR, "x"))


def fit(
    curve: CurveFit,
    ax: Any = None,
    *,
    level: float = 0.95,
    prediction: bool = True,
    xlabel: str = "x",
    ylabel: str = "y",
) -> Any:
    """Draw the data, the curve, its confidence band and its prediction band.

    Parameters
    ----------
    curve
        Result of `asker.curve_fit` with one independent variable.
    ax
        Axes to draw into; by default those of a new figure.
    level
        Level of the bands.
    prediction
        Whether to draw the prediction band as well; without effect if the data have standard deviations of their own.
    xlabel, ylabel
        Labels of the axes.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ProblemError
        If there is not one independent variable.
    """
    regression = _regression(curve)
    x = np.asarray(regression.xdata, dtype=float)
    if x.shape != regression.ydata.shape or x.ndim != 1:
        raise ProblemError(f"plot.fit draws curves of one variable, but xdata has shape {x.shape}: use plot.residuals")
    ax = _axes(ax)
    span = float(np.ptp(x)) or 1.0
    grid = np.linspace(x.min() - MARGIN * span, x.max() + MARGIN * span, N_POINTS)
    with np.errstate(all="ignore"):
        band = curve.conf_band(grid, level)
        if prediction and np.size(regression.sigma) <= 1:
            wide = curve.conf_band(grid, level, prediction=True)
            label = f"{level:.0%} prediction band"
            ax.fill_between(grid, wide.lower, wide.upper, color=CURVE_COLOR, alpha=0.08, lw=0, label=label)
    ax.fill_between(
        grid, band.lower, band.upper, color=CURVE_COLOR, alpha=0.25, lw=0, label=f"{level:.0%} confidence band"
    )
    ax.plot(grid, band.value, color=CURVE_COLOR, lw=1.5, label="fit")
    _points(ax, curve, x, regression.ydata)
    low, high = float(regression.ydata.min()), float(regression.ydata.max())
    room = 0.08 * (high - low or 1.0)
    ax.set(xlabel=xlabel, ylabel=ylabel, ylim=(low - room, high + room))
    ax.legend(fontsize="small")
    return ax


def residuals(curve: CurveFit, ax: Any = None) -> Any:
    """Draw the standardised residuals, observed minus fitted, against the fitted values.

    Parameters
    ----------
    curve
        Result of `asker.curve_fit`.
    ax
        Axes to draw into; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
    """
    regression, ax = _regression(curve), _axes(ax)
    fitted = np.broadcast_to(regression.fitted(regression.xdata), regression.ydata.shape).ravel()
    _limits(ax, (DOUBTFUL, OUTLIER))
    _points(ax, curve, fitted, _drawn(regression.standardised_residuals))
    ax.set(xlabel="fitted value", ylabel="standardised residual")
    ax.legend(fontsize="small")
    return ax


def leverage(curve: CurveFit, ax: Any = None) -> Any:
    """Draw the standardised residuals against the robust distances, with good and bad leverage points.

    A bad leverage point is an outlier with a large distance; a good one agrees with the curve.

    Parameters
    ----------
    curve
        Result of `asker.curve_fit`.
    ax
        Axes to draw into; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
    """
    regression, ax = _regression(curve), _axes(ax)
    distance, cutoff = robust_distances(regression)
    z = _drawn(regression.standardised_residuals)
    _limits(ax, (OUTLIER,))
    ax.axvline(cutoff, color="0.6", lw=0.8, ls="--")
    _points(ax, curve, distance, z)
    is_far = distance > cutoff
    for name, mask in (
        ("good leverage", is_far & ~regression.outliers),
        ("bad leverage", is_far & regression.outliers),
    ):
        color = INLIER_COLOR if name.startswith("good") else OUTLIER_COLOR
        style = {"s": 90, "facecolors": "none", "edgecolors": color, "lw": 1.2}
        if mask.any():
            ax.scatter(distance[mask], z[mask], **style, label=name)
    for i in np.flatnonzero(is_far | regression.outliers):
        where = (float(distance[i]), float(z[i]))
        ax.annotate(str(regression.indices[i]), where, xytext=(5, 4), textcoords="offset points", fontsize="x-small")
    ax.set(xlabel="robust distance", ylabel="standardised residual")
    ax.legend(fontsize="small")
    return ax


def weights(curve: CurveFit, ax: Any = None) -> Any:
    """Draw the weight of each observation.

    Parameters
    ----------
    curve
        Result of `asker.curve_fit`.
    ax
        Axes to draw into; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
    """
    regression, ax = _regression(curve), _axes(ax)
    ax.vlines(regression.indices, 0, regression.weights, color="0.8", lw=0.8)
    _points(ax, curve, regression.indices, regression.weights)
    ax.set(xlabel="observation", ylabel="weight", ylim=(-0.05, 1.08))
    ax.legend(fontsize="small")
    return ax


def _regression(curve: Any) -> Any:
    if not isinstance(curve, CurveFit):
        raise ProblemError(f"expected the result of asker.curve_fit, not {type(curve).__name__}")
    return curve.regression


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(figsize=(6.4, 4.2), layout="constrained").add_subplot()


def _points(ax: Any, curve: CurveFit, x: Any, y: Any) -> None:
    """Draw the inliers, the doubtful observations and the outliers."""
    regression = curve.regression
    masks = (~regression.outliers & ~regression.doubtful, regression.doubtful, regression.outliers)
    for (name, color, marker), mask in zip(GROUPS, masks, strict=True):
        if mask.any():
            ax.plot(x[mask], y[mask], marker, color=color, ms=5, ls="", label=f"{name} ({int(mask.sum())})")


def _limits(ax: Any, values: tuple[float, ...]) -> None:
    """Draw horizontal lines at 0 and at these standardised residuals."""
    ax.axhline(0.0, color="0.6", lw=0.8)
    for value in (*values, *(-v for v in values)):
        ax.axhline(value, color="0.6", lw=0.8, ls="--")


def _drawn(z: Any) -> Any:
    """Return residuals with infinite ones, of an exact fit, replaced by finite numbers."""
    finite = np.abs(z[np.isfinite(z)])
    largest = max(float(finite.max(initial=0.0)), OUTLIER) * 1.2
    return np.clip(z, -largest, largest)

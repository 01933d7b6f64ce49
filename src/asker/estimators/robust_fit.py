"""Results of the robust estimators, and the arguments that they share."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker._arguments import check_function, check_number
from asker.estimators.descent import Residuals
from asker.estimators.s_regression import Estimate, rounding
from asker.estimators.small_samples import leverages, robust_covariance
from asker.kernels.kernel import Kernel
from asker.kernels.kernels import LQQ, Tukey
from asker.problem.variables import ProblemError
from asker.problem.vector_problem import Functions
from asker.tracing.array_namespace import real_numbers

Floats = NDArray[np.float64]
RHO: dict[str, type[Kernel]] = {"bisquare": Tukey, "lqq": LQQ}
"""Kernels by the names of the literature."""
EXACT_FACTOR = 1e3
"""Residual of an exact fit, relative to the scale of rounding errors."""
EXACT_FIT = (
    "{} of {} observations are fitted exactly, so that the scale is 0 and there are no standard errors: check that the "
    "data are not rounded or copied"
)
UNCERTAIN = (
    "only 1 of {} refined candidates has the smallest scale, so that a smaller one may have been missed: give a larger "
    "n_subsets, or an initial guess nearer to the solution"
)
NOT_CONVERGED = "the descent has not converged: the estimate need not be a minimum"


@dataclass(frozen=True, eq=False)
class RobustFit:
    """A robust estimate with its scale, weights and covariance."""

    method: str
    """"s", "mm", "lts" or "tau"."""
    x: Floats
    scale: float
    """Scale of the residuals, with the correction for small samples; 0 for an exact fit."""
    residuals: Floats
    weights: Floats
    """Weight of each observation, 0 for rejected ones."""
    leverage: Floats
    """Diagonal of the weighted hat matrix."""
    jacobian: Floats
    """Derivatives of the residuals, (n, d)."""
    covariance: Floats
    kernel: Any
    """Weight function for residuals of scale 1."""
    weights_scale: float
    """Scale with which the weights are computed."""
    efficiency: float
    """Asymptotic efficiency under Gaussian errors."""
    breakdown: float
    """Share of outliers that the estimate tolerates."""
    n_candidates: int
    """Number of candidates: subsets, the initial guess, and least squares."""
    converged: bool
    doubts: tuple[str, ...] = ()
    """Reasons not to rely on the estimate."""

    @property
    def standard_errors(self) -> Floats:
        """Standard errors of x."""
        return np.sqrt(np.diag(self.covariance))


@dataclass(frozen=True)
class Search:
    """Arguments of the search for candidates."""

    functions: Residuals
    seed: int
    n_subsets: int | None
    breakdown: float

    @property
    def n_parameters(self) -> int:
        """Number of unknowns."""
        return len(self.functions.start)


def search_arguments(
    residuals: Any,
    x0: Any,
    breakdown: float,
    jac: Any = "auto",
    bounds: Any = (-np.inf, np.inf),
    seed: int = 0,
    n_subsets: int | None = None,
) -> Search:
    """Return the arguments after checks; `residuals` may be a `Functions`, which has its own start and derivatives."""
    check_number("breakdown", breakdown)
    if not 0 < breakdown <= 0.5:
        raise ProblemError(f"breakdown must lie between 0 and 0.5, not {breakdown!r}")
    check_number("seed", seed, whole=True)
    if n_subsets is not None:
        check_number("n_subsets", n_subsets, 1, whole=True)
    if not isinstance(residuals, Functions):
        check_function("residuals", residuals)
        start = np.atleast_1d(real_numbers("x0", x0))
        lower, upper = (np.broadcast_to(real_numbers("bounds", bound), start.shape) for bound in bounds)
        residuals = Functions(residuals, start, jac, lower, upper)
    if len(residuals.shape) != 1:
        raise ProblemError(f"the residuals have shape {residuals.shape}, expected (n,)")
    n, p = residuals.shape[0], len(residuals.start)
    if not np.isfinite(residuals(residuals.start)).all():
        raise ProblemError("the residuals at x0 are not finite")
    if n <= 2 * p:
        advice = f"a robust estimate needs at least {2 * p + 1}; use least squares"
        raise ProblemError(f"{n} observations are too few for {p} unknowns: {advice}")
    return Search(residuals, int(seed), n_subsets, float(breakdown))


def kernel_of(rho: str) -> type[Kernel]:
    """Return the class of a kernel by its name in the literature."""
    if rho not in RHO:
        raise ProblemError(f"rho must be one of {', '.join(RHO)}, not {rho!r}")
    return RHO[rho]


def fit_of(
    method: str, search: Search, found: Estimate, kernel: Any, efficiency: float, scale: float, weights_scale: float
) -> RobustFit:
    """Return the result at a point.

    Parameters
    ----------
    method
        Name of the estimator.
    search, found
        Its arguments and its candidates.
    kernel
        Weight function for residuals of scale 1.
    efficiency
        Asymptotic efficiency.
    scale, weights_scale
        Scale of the residuals, and the scale with which the weights are computed.
    """
    point, functions = found.point, search.functions
    r, J = point.residuals, functions.derivatives(point.x)
    shared: dict[str, Any] = {
        "method": method,
        "x": point.x,
        "residuals": r,
        "jacobian": J,
        "kernel": kernel,
        "weights_scale": weights_scale,
        "efficiency": efficiency,
        "breakdown": search.breakdown,
        "n_candidates": found.n_candidates,
        "converged": point.converged,
    }
    if weights_scale == 0:
        is_exact = np.abs(r) <= EXACT_FACTOR * rounding(functions, point.x)
        doubt = EXACT_FIT.format(int(is_exact.sum()), len(r))
        nothing = np.full((len(point.x), len(point.x)), np.nan)
        return RobustFit(
            scale=0.0,
            weights=is_exact.astype(float),
            leverage=np.zeros(len(r)),
            covariance=nothing,
            doubts=(doubt,),
            **shared,
        )
    weights = kernel.omega((r / weights_scale) ** 2)
    return RobustFit(
        scale=scale,
        weights=weights,
        leverage=leverages(J, weights),
        covariance=robust_covariance(r, J, kernel, scale),
        doubts=doubts_of(found),
        **shared,
    )


def doubts_of(found: Estimate) -> tuple[str, ...]:
    """Return reasons not to rely on an estimate."""
    uncertain = (UNCERTAIN.format(found.n_refined),) if found.n_agreeing == 1 < found.n_refined else ()
    return uncertain if found.point.converged else (*uncertain, NOT_CONVERGED)

"""A fitted curve with its parameters, its observations and the scale of its residuals."""

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.estimators.descent import Objective, Residuals
from asker.problem.variables import ProblemError
from asker.tracing.array_namespace import float64

Floats = NDArray[np.float64]
OUTLIER, DOUBTFUL = 3.2905, 2.5758
"""Standardised residuals beyond which an observation is an outlier (99.9 %), or doubtful (99 %)."""
MAX_LEVERAGE = 0.999
RANK_RTOL, RANK_RTOL_OF_DIFFERENCES = 1e-10, 3e-8
"""Singular value of the scaled derivatives, relative to the largest, below which a direction is undetermined: for exact
derivatives and for finite differences."""
MIN_SHARE = 0.1
"""Smallest component of a parameter that is named in an undetermined direction."""


@dataclass(frozen=True)
class Observation:
    """An observation that is not an inlier."""

    index: int
    """Position in the data as given, from 0."""
    standardised_residual: float
    leverage: float
    weight: float


@dataclass(frozen=True, eq=False)
class Regression:
    """A fitted curve: what `summary`, `profile`, `conf_band` and the tests need."""

    names: tuple[str, ...]
    """Names of all parameters, including fixed ones."""
    x: Floats
    """Estimates of all parameters."""
    covariance: Floats
    """Covariance of all parameters; 0 for fixed ones."""
    fixed: NDArray[np.bool_]
    """Mask of the fixed parameters."""
    method: str
    """Description of the method."""
    scale: float
    """Scale of the residuals, divided by `sigma` if that is given."""
    scale_kind: str
    residuals: Floats
    """Residuals f(x) − y, divided by `sigma` or whitened if that is given."""
    jacobian: Floats
    """Derivatives of the residuals with respect to the parameters that are not fixed."""
    weights: Floats
    """Weight of each observation, between 0 and 1."""
    consistency: float
    """Correction factor of robust R²: 1 for least squares, E w / E we² for weights w."""
    functions: Residuals
    """Residuals as a function of the parameters that are not fixed."""
    objective: Objective
    """Objective of the residuals that the estimate minimises; profiles are computed with it."""
    model: Callable[..., Any]
    """Function of xdata and of all parameters."""
    xdata: Any
    ydata: Floats
    sigma: Any
    """Standard deviations or covariance as given, or None."""
    indices: NDArray[np.intp]
    """Position of each observation in the data as given."""
    success: bool
    message: str
    doubts: tuple[str, ...]
    """Reasons not to rely on the fit."""
    search: str
    """Description of the search for candidates, or ""."""

    @property
    def n(self) -> int:
        """Number of observations."""
        return len(self.residuals)

    @property
    def n_parameters(self) -> int:
        """Number of parameters that are not fixed."""
        return int((~self.fixed).sum())

    @property
    def degrees_of_freedom(self) -> int:
        """Number of observations minus number of parameters."""
        return self.n - self.n_parameters

    @property
    def standard_errors(self) -> Floats:
        """Standard error of each parameter; 0 for fixed ones."""
        return np.sqrt(np.diag(self.covariance))

    @cached_property
    def leverage(self) -> Floats:
        """Leverage J(JᵀWJ)⁻¹Jᵀ of each observation; it may exceed 1 for observations of weight 0."""
        _, s, Vt = np.linalg.svd(np.sqrt(self.weights)[:, None] * self.jacobian, full_matrices=False)
        keep = s > RANK_RTOL * s.max(initial=0.0)
        return np.sum((self.jacobian @ (Vt[keep].T / s[keep])) ** 2, axis=1)

    @cached_property
    def standardised_residuals(self) -> Floats:
        """Observed minus fitted values, divided by the scale and by the root of 1 − leverage; ±inf if the scale is 0.

        Observations of low weight have not determined the fit, so that their leverage does not reduce their residuals.
        """
        difference = -self.residuals
        if self.scale == 0 or not np.isfinite(self.scale):
            return np.where(self.weights > 0, 0.0, np.copysign(np.inf, difference))
        h = np.where(self.weights > 0.5, np.minimum(self.leverage, MAX_LEVERAGE), 0.0)
        return difference / (self.scale * np.sqrt(1 - h))

    @property
    def outliers(self) -> NDArray[np.bool_]:
        """Mask of the observations with standardised residuals beyond the 99.9 % quantile."""
        return np.abs(self.standardised_residuals) > OUTLIER

    @property
    def doubtful(self) -> NDArray[np.bool_]:
        """Mask of the observations between the 99 % and the 99.9 % quantile."""
        return (np.abs(self.standardised_residuals) > DOUBTFUL) & ~self.outliers

    def fitted(self, x: Any) -> Floats:
        """Return the values of the curve at x, with NumPy or with JAX."""
        with float64() if "jax" in sys.modules else nullcontext():
            return np.asarray(self.model(x, *self.x), dtype=float)

    def observations(self, mask: NDArray[np.bool_]) -> list[Observation]:
        """Return observations by decreasing residual."""
        z, h = self.standardised_residuals, self.leverage
        order = sorted(np.flatnonzero(mask), key=lambda i: -abs(z[i]))
        return [Observation(int(self.indices[i]), float(z[i]), float(h[i]), float(self.weights[i])) for i in order]

    @cached_property
    def scaled_singular_values(self) -> tuple[Floats, Floats]:
        """Singular values and vectors of the weighted derivatives with columns of norm 1."""
        J = np.sqrt(self.weights)[:, None] * self.jacobian
        norms = np.linalg.norm(J, axis=0)
        _, s, Vt = np.linalg.svd(J / np.where(norms > 0, norms, 1.0), full_matrices=False)
        return s, Vt

    @property
    def condition(self) -> float:
        """Condition number of the derivatives with columns of norm 1."""
        s, _ = self.scaled_singular_values
        return float(s[0] / s[-1]) if s.size and s[-1] > 0 else np.inf

    @property
    def undetermined(self) -> tuple[str, ...]:
        """Names of the parameters in each direction that the data do not determine."""
        s, Vt = self.scaled_singular_values
        free = [name for name, is_fixed in zip(self.names, self.fixed, strict=True) if not is_fixed]
        is_exact = getattr(self.functions, "method", "jax") not in ("2-point", "3-point")
        rtol = RANK_RTOL if is_exact else RANK_RTOL_OF_DIFFERENCES
        directions = Vt[s <= rtol * s.max(initial=0.0)]
        return tuple(", ".join(n for n, v in zip(free, row, strict=True) if abs(v) > MIN_SHARE) for row in directions)

    def index_of(self, name: str) -> int:
        """Return the position of a parameter; raise a `ProblemError` that lists the names if there is none."""
        if name not in self.names:
            raise ProblemError(f"there is no parameter {name!r}; the parameters are {', '.join(self.names)}")
        return self.names.index(name)

    def values(self, given: Mapping[str, float]) -> tuple[list[int], Floats]:
        """Return the positions of named parameters and their given values."""
        return [self.index_of(name) for name in given], np.array(list(given.values()), dtype=float)

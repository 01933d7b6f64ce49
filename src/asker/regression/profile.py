"""Profile-likelihood intervals of single parameters.

Bates, Watts: Nonlinear Regression Analysis and Its Applications, 1988, section 6.1.

Problem     interval of a parameter b, without the assumption that the curve is linear in b
Symbols     Ψ(v) -> the minimum of the objective over all other parameters with b = v    se -> standard error of b
Algorithm   (1) z²(v) = 2c (Ψ(v) − Ψ(b̂)) with c such that z = (v − b̂)/se for a linear model
            (2) the ends of the interval have |z| = t, the quantile of Student's t
            (3) from the estimate outwards in steps that are predicted to reach t, then by bisection and secants
Deviations  For robust estimates Ψ is their objective with the final scale; for least squares c = 1/s², as in the book.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.estimators.descent import descend
from asker.problem.variables import ProblemError
from asker.regression.fit import Regression
from asker.regression.inference import quantile

Floats = NDArray[np.float64]
MAX_STEPS = 25
"""Maximum number of values of a parameter on each side."""
LARGEST_FACTOR = 30.0
"""Largest distance from the estimate, relative to that of the symmetric interval."""
Z_TOL = 1e-3
"""Tolerance of z at the ends of the interval."""


class Profile(NamedTuple):
    """Profile of a parameter."""

    values: Floats
    """Values of the parameter, ascending."""
    z: Floats
    """Signed root of the likelihood ratio; linear in the values for a linear model."""
    interval: tuple[float, float]
    """Profile-likelihood interval; infinite where the likelihood never falls below the level."""


@dataclass(frozen=True)
class WithoutOne:
    """Residuals as a function of all parameters except one."""

    functions: Any
    at: int
    value: float
    start: Floats
    lower: Floats
    upper: Floats

    def __call__(self, x: Floats) -> Floats:
        """Return the residuals."""
        return self.functions(self.whole(x))

    def derivatives(self, x: Floats) -> Floats:
        """Return the derivatives with respect to the other parameters."""
        return np.delete(self.functions.derivatives(self.whole(x)), self.at, axis=1)

    def whole(self, x: Floats) -> Floats:
        """Return all parameters."""
        return np.insert(x, self.at, self.value)


def profile(fit: Regression, name: str, level: float = 0.95) -> Profile:
    """Return the profile of a parameter of a fit."""
    position = fit.index_of(name)
    if fit.fixed[position]:
        raise ProblemError(f"the parameter {name!r} is fixed and has no profile")
    se, t = float(fit.standard_errors[position]), quantile(fit, level)
    if not np.isfinite(se) or se <= 0 or not np.isfinite(t):
        raise ProblemError(f"the parameter {name!r} has no finite standard error, so that its profile has no scale")
    at = int(np.flatnonzero(~fit.fixed).tolist().index(position))
    best = fit.objective(fit.residuals)
    root = np.sqrt(best.weights)
    inverse = np.linalg.inv((root[:, None] * fit.jacobian).T @ (root[:, None] * fit.jacobian))
    factor = 2 * float(inverse[at, at]) / se**2  # (1)
    estimate = fit.x[~fit.fixed]
    sides = [_side(fit, at, estimate, best.value, factor, sign * se, t) for sign in (-1.0, 1.0)]
    points = sorted({(float(estimate[at]), 0.0), *sides[0][0], *sides[1][0]})
    return Profile(np.array([v for v, _ in points]), np.array([z for _, z in points]), (sides[0][1], sides[1][1]))


def _side(
    fit: Regression, at: int, estimate: Floats, least: float, factor: float, step: float, t: float
) -> tuple[list[tuple[float, float]], float]:
    """Return the points (v, z) on one side of the estimate, and the end of the interval (3)."""
    lower, upper = (
        np.broadcast_to(bound, estimate.shape).astype(float) for bound in (fit.functions.lower, fit.functions.upper)
    )
    limit = float(upper[at] if step > 0 else lower[at])
    others = np.delete(estimate, at)
    points: list[tuple[float, float]] = []
    near, distance = (0.0, 0.0), t / 2
    far: tuple[float, float] | None = None
    for _ in range(MAX_STEPS):
        value = float(estimate[at] + distance * step)
        is_limit = (value - limit) * step >= 0
        value = limit if is_limit else value
        distance = (value - float(estimate[at])) / step
        one = WithoutOne(fit.functions, at, value, others, np.delete(lower, at), np.delete(upper, at))
        r = one(others)
        if not np.isfinite(r).all():
            return points, float(np.sign(step) * np.inf)
        objective = fit.objective(r).value
        if others.size:
            point = descend(one, others, fit.objective)
            others, objective = point.x, point.value
        z = float(np.sqrt(max(factor * (objective - least), 0.0)))
        points.append((value, float(np.sign(step)) * z))
        if abs(z - t) <= Z_TOL:
            return points, value
        if z > t:
            far = distance, z
        else:
            near = distance, z
            if is_limit:
                return points, limit
            if distance > LARGEST_FACTOR * t:
                return points, float(np.sign(step) * np.inf)
        if far is None:
            distance = distance * min(max(t / z if z > 0 else 2.0, 1.1), 2.0)
        else:
            share = (t - near[1]) / (far[1] - near[1])
            distance = near[0] + float(np.clip(share, 0.05, 0.95)) * (far[0] - near[0])
    return points, value

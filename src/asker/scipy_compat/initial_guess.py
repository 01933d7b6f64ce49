"""Initial guess and bounds of a vector of unknowns, with checks."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.problem.variables import ProblemError
from asker.tracing.array_namespace import real_numbers

Floats = NDArray[np.float64]


def vector(name: str, given: Any) -> Floats:
    """Return an initial guess as an array (d,); raise a `ProblemError` if it is invalid."""
    array = np.atleast_1d(real_numbers(name, given))
    if array.ndim > 1 or not array.size:
        raise ProblemError(f"{name} has shape {array.shape}, expected (d,)")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ProblemError(f"{name} holds NaN or infinity at index {bad[0]}")
    return array


def bounds_of(bounds: Any, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Return the lower and the upper bounds of each unknown, from a pair or SciPy's `Bounds`."""
    given = (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else bounds
    if not isinstance(given, tuple | list | np.ndarray):
        raise ProblemError(f"bounds is {bounds!r}, expected a pair: lower and upper bounds")
    if len(given) != 2:
        raise ProblemError(f"bounds has {len(given)} items, expected lower and upper")
    lower, upper = (real_numbers(f"bounds[{k}]", b) for k, b in enumerate(given))
    lower, upper = (np.full(shape, b) if b.ndim == 0 else b for b in (lower, upper))
    if lower.shape != shape or upper.shape != shape:
        raise ProblemError(f"bounds have shapes {lower.shape} and {upper.shape}, expected that of x0, {shape}")
    return lower, upper


def box_of(x0: Any, bounds: Any) -> tuple[Floats, Floats, Floats]:
    """Return the initial guess with the lower and the upper bounds of each unknown."""
    x0 = vector("x0", x0)
    lower, upper = bounds_of(bounds, x0.shape)
    if not (lower < upper).all():
        raise ProblemError(f"bounds: the lower one is not below the upper one at index {np.argmin(lower < upper)}")
    outside = (x0 < lower) | (x0 > upper)
    if outside.any():
        raise ProblemError(f"x0: Initial guess is outside of provided bounds at index {np.argmax(outside)}")
    return x0, lower, upper

"""Parameters of a curve: their names, initial guess, bounds, and which of them are fixed."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker._arguments import check_number
from asker.problem.variables import ProblemError
from asker.scipy_compat.initial_guess import bounds_of, vector

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Parameters:
    """Parameters of a curve."""

    names: tuple[str, ...]
    start: Floats
    """Initial guess, or the value of a fixed parameter."""
    lower: Floats
    upper: Floats
    fixed: NDArray[np.bool_]

    @property
    def free_start(self) -> Floats:
        """Initial guess of the parameters that are fitted."""
        return self.start[~self.fixed]

    @property
    def free_bounds(self) -> tuple[Floats, Floats]:
        """Bounds of the parameters that are fitted."""
        return self.lower[~self.fixed], self.upper[~self.fixed]

    def whole(self, p: Any) -> Any:
        """Return all parameters from those that are fitted, for arrays of NumPy and of JAX."""
        if not self.fixed.any():
            return p
        free = iter(range(len(self.free_start)))
        return [value if is_fixed else p[next(free)] for value, is_fixed in zip(self.start, self.fixed, strict=True)]

    def whole_vector(self, p: Floats) -> Floats:
        """Return all parameters as a vector."""
        x = self.start.copy()
        x[~self.fixed] = p
        return x

    def whole_covariance(self, covariance: Floats) -> Floats:
        """Return the covariance of all parameters; 0 for fixed ones."""
        if not self.fixed.any():
            return covariance
        whole = np.zeros((len(self.names), len(self.names)))
        whole[np.ix_(~self.fixed, ~self.fixed)] = covariance
        return whole


def parameters_of(f: Callable[..., Any], p0: Any, bounds: Any, fixed: Mapping[str, float] | None) -> Parameters:
    """Return the parameters of a function with the names in its signature.

    Parameters
    ----------
    f
        Function of the independent variable and of each parameter.
    p0
        Initial guess as a vector, as a dictionary by names, or None.
    bounds
        Lower and upper bounds, SciPy's `Bounds`, or a dictionary of pairs by names.
    fixed
        Values of parameters that are not fitted, by names.
    """
    named = _signature_names(f)
    if p0 is not None and not isinstance(p0, Mapping):
        p0 = vector("p0", p0)
        names = named if len(named) == len(p0) else tuple(f"p{k}" for k in range(len(p0)))
    else:
        names = named
    if not names:
        raise ProblemError("the number of parameters cannot be determined from the signature of f: give p0")
    lower, upper = _bounds(names, bounds)
    start = p0 if isinstance(p0, np.ndarray) else _default_start(lower, upper)
    if isinstance(p0, Mapping):
        start = _replaced("p0", names, start, p0)
    is_fixed = np.zeros(len(names), dtype=bool)
    if fixed:
        if not isinstance(fixed, Mapping):
            raise ProblemError(f"fixed must be a dictionary of values by names, not {fixed!r}")
        start = _replaced("fixed", names, start, fixed)
        is_fixed = np.array([name in fixed for name in names])
        if is_fixed.all():
            raise ProblemError("all parameters are fixed: there is nothing to fit")
    return Parameters(names, np.asarray(start, dtype=float), lower, upper, is_fixed)


def is_by_name(f: Callable[..., Any], p0: Any) -> bool:
    """Return whether an initial guess is a dictionary by the names of the parameters, not one nested parameter."""
    names = _signature_names(f)
    return isinstance(p0, Mapping) and (len(names) != 1 or set(p0) <= set(names))


def _signature_names(f: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the parameters after the independent variable; () without a signature."""
    if isinstance(named := getattr(f, "parameter_names", None), tuple):  # as `asker.models` has them
        return named
    try:
        given = [*inspect.signature(f).parameters.values()]
    except ValueError:  # a function that is not written in Python may have no signature
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in given if p.kind in positional)[1:]


def _default_start(lower: Floats, upper: Floats) -> Floats:
    """Return SciPy's default initial guess: 1 for each parameter, or a value between its bounds."""
    below, above = np.isfinite(lower), np.isfinite(upper)
    low, high = np.where(below, lower, 0.0), np.where(above, upper, 0.0)
    one_sided = np.where(below, low + 1, np.where(above, high - 1, 1.0))
    return np.where(below & above, (low + high) / 2, one_sided)


def _bounds(names: tuple[str, ...], bounds: Any) -> tuple[Floats, Floats]:
    """Return the bounds of each parameter."""
    if not isinstance(bounds, Mapping):
        return bounds_of(bounds, (len(names),))
    lower, upper = np.full(len(names), -np.inf), np.full(len(names), np.inf)
    for name, pair in bounds.items():
        k = _position("bounds", names, name)
        if np.shape(pair) != (2,):
            raise ProblemError(f"bounds[{name!r}] is {pair!r}, expected a pair: lower and upper bound")
        lower[k], upper[k] = pair
    return lower, upper


def _replaced(what: str, names: tuple[str, ...], start: Floats, given: Mapping[str, float]) -> Floats:
    """Return the initial guess with the values of named parameters replaced."""
    start = np.array(start, dtype=float)
    for name, value in given.items():
        k = _position(what, names, name)
        check_number(f"{what}[{name!r}]", value, -np.inf)
        start[k] = value
    return start


def _position(what: str, names: tuple[str, ...], name: str) -> int:
    if name not in names:
        raise ProblemError(f"{what} names {name!r}, which is not among the parameters {', '.join(names)}")
    return names.index(name)

"""Initial guesses and bounds of `least_squares` and `curve_fit`: vectors, or nested values that are flattened."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.problem.variables import ProblemError
from asker.tracing.array_namespace import real_numbers
from asker.tracing.trees import is_tree, tree_of

Floats = NDArray[np.float64]


class Nested:
    """Layout of a nested initial guess in a vector: its leaves are numbers or arrays, one after the other."""

    def __init__(self, name: str, start: Any):
        self.tree = tree_of(start)
        self.names = self.tree.names(name)
        leaves = self.tree.leaves(start, name)
        self.shapes = [np.shape(real_numbers(n, x)) for n, x in zip(self.names, leaves, strict=True)]
        self.stops = np.cumsum([np.prod(shape, dtype=int) for shape in self.shapes])

    def vector(self, value: Any, what: str) -> Floats:
        """Return a value of this structure as a vector; a number stands for all."""
        if not is_tree(value):
            return np.full(self.stops[-1], float(real_numbers(what, value)))
        parts = []
        for name, x, shape in zip(self.tree.names(what), self.tree.leaves(value, what), self.shapes, strict=True):
            array = real_numbers(name, x)
            if array.shape not in (shape, ()):
                raise ProblemError(f"{name} has shape {array.shape}, expected {shape}")
            parts.append(np.broadcast_to(array, shape).ravel())
        return np.concatenate(parts)

    def value(self, x: Any) -> Any:
        """Return the nested value of a vector, of NumPy or of JAX."""
        starts = [0, *self.stops[:-1]]
        slices = [x[a:b].reshape(shape) for a, b, shape in zip(starts, self.stops, self.shapes, strict=True)]
        return self.tree.build(slices)

    def bounds(self, bounds: Any) -> tuple[Floats, Floats]:
        """Return the bounds of the vector from a pair of nested values or numbers."""
        if not isinstance(bounds, tuple | list) or len(bounds) != 2:
            raise ProblemError(f"bounds is {bounds!r}, expected a pair: lower and upper bounds")
        return self.vector(bounds[0], "bounds[0]"), self.vector(bounds[1], "bounds[1]")


class OfNested:
    """Function of a vector that calls a user's function of the nested value; it can be pickled if that can."""

    def __init__(self, function: Callable[..., Any], layout: Nested):
        self.function, self.layout = function, layout

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        return self.function(self.layout.value(x), *args, **kwargs)


class NestedCurve(Nested):
    """Curve of numbers that calls a user's curve with one nested parameter."""

    def __init__(self, curve: Callable[..., Any], p0: Any):
        super().__init__("p0", p0)
        self.curve = curve

    def __call__(self, x: Any, *p: Any) -> Any:
        from asker.tracing.array_namespace import namespace

        return self.curve(x, self.value(namespace(p[0]).stack(p)))


def flattened(
    fun: Any, x0: Any, jac: Any, bounds: Any
) -> tuple[Callable[[Any], Any], Any, Any, Floats, Floats, Floats]:
    """Return the function that returns the user's value of a vector, fun, jac, the initial guess, and its bounds."""
    if not is_tree(x0):
        return lambda x: x, fun, jac, *box_of(x0, bounds)
    layout = Nested("x0", x0)
    fun, jac = (OfNested(f, layout) if callable(f) else f for f in (fun, jac))
    return layout.value, fun, jac, *box_of(layout.vector(x0, "x0"), layout.bounds(bounds))


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

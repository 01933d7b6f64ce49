"""Initial guesses and bounds of `least_squares` and `curve_fit`: vectors, or nested values that are flattened."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.problem.variables import ProblemError
from asker.scipy_compat.initial_guess import box_of
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

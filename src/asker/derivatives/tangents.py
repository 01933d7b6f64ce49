"""Derivatives of the values of variables with respect to steps on their manifolds.

Values y are the arrays of the user, such as poses (n, 3, 4); a step δ moves them by y(δ) = unpack(x ⊞ δ).
With T = ∂y/∂δ, a cotangent ȳ of the values is the cotangent Tᵀȳ of a step.  In the opposite direction, the cotangent of
a step is that cotangent of the values which is tangential to the manifold, ȳ = T(TᵀT)⁻¹δ̄, and a tangent ẏ of the values
is the step (TᵀT)⁻¹Tᵀẏ.  The derivative of `retract` is that of JAX; `unpack` is differentiated by central differences,
which are exact for the manifolds of asker, since it is linear or bilinear.
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.derivatives.retraction import retraction_slopes
from asker.problem.by_group import shape_of
from asker.problem.variables import ProblemError, Variables
from asker.tracing.array_namespace import real_numbers
from asker.tracing.trees import is_tree, leaves_of, like

Floats = NDArray[np.float64]
DIFFERENCE_STEP = 2.0**-12
"""Step of the central differences of `unpack`."""


class ValueTangents:
    """Derivatives T of the values of one group of variables at its rows."""

    def __init__(self, variables: Variables, rows: Floats):
        self.variables, self.rows = variables, rows
        self.values = variables.manifold.unpack(rows)

    @cached_property
    def T(self) -> Floats:
        """Derivatives (n, numbers, tangent)."""
        manifold, A = self.variables.manifold, retraction_slopes(self.variables, self.rows)
        columns = []
        for k in range(manifold.tangent):
            step = DIFFERENCE_STEP * A[:, :, k]
            ahead, back = flat(manifold.unpack(self.rows + step)), flat(manifold.unpack(self.rows - step))
            columns.append((ahead - back) / (2 * DIFFERENCE_STEP))
        return np.stack(columns, axis=2) if columns else np.zeros((len(self.rows), 0, 0))

    def step_cotangent(self, cotangent: Any) -> Floats:
        """Return the cotangent (n, tangent) of a step from one of the values."""
        y = self._checked("cotangent", cotangent)
        return np.einsum("nyd,ny->nd", self.T, y)

    def step(self, tangent: Any) -> Floats:
        """Return the step (n, tangent) whose change of the values is nearest to a tangent of them."""
        y = self._checked("tangent", tangent)
        return self._over_squares(np.einsum("nyd,ny->nd", self.T, y))

    def value_cotangent(self, cotangent: Floats) -> Any:
        """Return the cotangent of the values that is tangential to the manifold, from one of a step."""
        return self._shaped(np.einsum("nyd,nd->ny", self.T, self._over_squares(cotangent)))

    def value_tangent(self, step: Floats) -> Any:
        """Return the change of the values for a step (n, tangent)."""
        return self._shaped(np.einsum("nyd,nd->ny", self.T, step))

    def _over_squares(self, c: Floats) -> Floats:
        """Return (TᵀT)⁻¹ c."""
        squares = np.einsum("nyd,nye->nde", self.T, self.T)
        return np.linalg.solve(squares, c[:, :, None])[:, :, 0] if len(c) else c

    def _checked(self, what: str, given: Any) -> Floats:
        """Return numbers in the shape of the values, as rows."""
        name = f"the {what} of {self.variables.name}"

        def part(x: Any, expected: Any) -> Floats:
            array = real_numbers(name, x)
            if array.shape != np.shape(expected):
                raise ProblemError(f"{name} has shape {array.shape}, expected {np.shape(expected)}")
            return array.reshape(len(array), int(np.prod(array.shape[1:])))

        arrays, expected = leaves_of(given), leaves_of(self.values)
        if len(expected) > 1 and (len(arrays) != len(expected) or type(given) is not type(self.values)):
            raise ProblemError(f"{name} must have the structure of the values: arrays {shape_of(self.values)}")
        if len(expected) == 1 and is_tree(self.values) != is_tree(given):
            raise ProblemError(f"{name} must have the structure of the values")
        given_leaves = [given] if len(expected) == 1 and not is_tree(given) else arrays
        rows = np.concatenate([part(*pair) for pair in zip(given_leaves, expected, strict=True)], axis=1)
        if not np.isfinite(rows).all():
            raise ProblemError(f"{name} holds NaN or infinity at index {np.argmin(np.isfinite(rows).all(axis=1))}")
        return rows

    def _shaped(self, rows: Floats) -> Any:
        """Return numbers (n, …) in the shape of the values."""
        shapes = [np.shape(x) for x in leaves_of(self.values)]
        stops = np.cumsum([np.prod(shape[1:], dtype=int) for shape in shapes])
        parts = np.split(rows, stops[:-1], axis=1)
        return like(self.values, [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)])


def flat(values: Any) -> Floats:
    """Return values as rows (n, numbers)."""
    arrays = [np.asarray(x, dtype=float) for x in leaves_of(values)]
    return np.concatenate([x.reshape(len(x), int(np.prod(x.shape[1:]))) for x in arrays], axis=1)

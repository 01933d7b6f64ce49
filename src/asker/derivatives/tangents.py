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

        def part(x: Any, like: Any) -> Floats:
            array = real_numbers(name, x)
            if array.shape != np.shape(like):
                raise ProblemError(f"{name} has shape {array.shape}, expected {np.shape(like)}")
            return array.reshape(len(array), int(np.prod(array.shape[1:])))

        def parts(x: Any, like: Any) -> list[Floats]:
            if not isinstance(like, tuple):
                return [part(x, like)]
            if not isinstance(x, tuple | list) or len(x) != len(like):
                raise ProblemError(f"{name} must be a tuple of arrays {shape_of(like)}")
            return [y for pair in zip(x, like, strict=True) for y in parts(*pair)]

        rows = np.concatenate(parts(given, self.values), axis=1)
        if not np.isfinite(rows).all():
            raise ProblemError(f"{name} holds NaN or infinity at index {np.argmin(np.isfinite(rows).all(axis=1))}")
        return rows

    def _shaped(self, rows: Floats) -> Any:
        """Return numbers (n, …) in the shape of the values."""

        def take(like: Any, start: int) -> tuple[Any, int]:
            if isinstance(like, tuple):
                out = []
                for x in like:
                    part, start = take(x, start)
                    out.append(part)
                return tuple(out), start
            stop = start + int(np.prod(np.shape(like)[1:]))
            return rows[:, start:stop].reshape(np.shape(like)), stop

        return take(self.values, 0)[0]


def flat(values: Any) -> Floats:
    """Return values as rows (n, numbers)."""
    if isinstance(values, tuple):
        return np.concatenate([flat(x) for x in values], axis=1)
    array = np.asarray(values, dtype=float)
    return array.reshape(len(array), int(np.prod(array.shape[1:])))

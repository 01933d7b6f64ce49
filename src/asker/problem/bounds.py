"""Bounded variables, as a manifold whose steps are projected onto the bounds.

Bertsekas: Projected Newton Methods for Optimization Problems with Simple Constraints, SIAM J. Control and Opt. 1982.

Problem     min over x of Ψ(x), with lower ≤ x ≤ upper
Symbols     g -> the gradient of Ψ
Algorithm   (1) a bound is *active* if x is at it and −g points out of the feasible set
            (2) the linear system is solved without the directions of active bounds
            (3) each coordinate of a step is clipped to its bounds
Deviations  a bound is active only if x is exactly at it, not near it; a rejected step is shortened by a larger λ, not
            by a search along the projected path
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from asker.geometry.manifolds import Euclidean
from asker.tracing.array_namespace import Array, namespace


@dataclass(frozen=True)
class Bounded(Euclidean):
    """Vectors or arrays between bounds; a row consists of x, lower bounds, upper bounds, and units of steps."""

    @property
    def ambient(self) -> int:
        return 4 * self.tangent

    @property
    def tangent(self) -> int:
        return int(np.prod(self.shape))

    def pack(self, values: Any, lower: Any = None, upper: Any = None, unit: Any = None) -> np.ndarray:
        x = Euclidean(self.shape).pack(values)
        options = (("lower", lower, -np.inf), ("upper", upper, np.inf), ("unit", unit, 1.0))
        low, high, units = (self._broadcast(*option, np.shape(values)).reshape(x.shape) for option in options)
        self._reject_if(low > high, "a lower bound above the upper one")
        self._reject_if((x < low) | (x > high), "a number beyond its bounds")
        self._reject_if(~((units > 0) & np.isfinite(units)), "a unit that is not positive and finite")
        return np.concatenate([x, low, high, units], axis=1)

    def _broadcast(self, what: str, value: Any, default: float, shape: tuple[int, ...]) -> np.ndarray:
        try:
            each = np.broadcast_to(np.asarray(default if value is None else value, dtype=float), shape)
        except ValueError:
            raise ValueError(f"have shape {shape}, and {what} has {np.shape(value)}") from None
        if np.isnan(each).any():
            raise ValueError(f"have NaN in {what}")
        return each

    def _reject_if(self, wrong: np.ndarray, what: str) -> None:
        if wrong.any():
            raise ValueError(f"have {what} at index {np.flatnonzero(wrong.any(axis=1))[0]}")

    def unpack(self, rows: np.ndarray) -> Any:
        return super().unpack(self.parts(rows)[0])

    def view(self, x: Array) -> Any:
        return super().view(self.parts(x)[0])

    def retract(self, x: Array, delta: Array) -> Array:
        xp, (start, low, high, unit) = namespace(x), self.parts(x)
        to = start + unit * delta
        to = xp.where(
            to < low, low, xp.where(to > high, high, to)
        )  # (3); strict comparisons preserve the derivative at a bound
        return xp.concatenate([to, low, high, unit], axis=-1)

    def shortened(self, x: Any, delta: Any) -> Any:
        """Return a step after projection onto the bounds (3)."""
        start, _, _, unit = self.parts(x)
        return (self.parts(self.retract(x, delta))[0] - start) / unit

    def is_active(self, x: Any, g: Any) -> Any:
        """Return a mask of the coordinates with an active bound (1)."""
        start, low, high, _ = self.parts(x)
        return ((start <= low) & (g > 0)) | ((start >= high) & (g < 0))

    def parts(self, x: Any) -> list[Any]:
        """Return x, lower, upper and unit of a row, or of many rows."""
        d = self.tangent
        return [x[..., k * d : (k + 1) * d] for k in range(4)]

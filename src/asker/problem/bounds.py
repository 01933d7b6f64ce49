"""Variables between bounds, as a manifold whose steps end at the bounds.

Bertsekas: Projected Newton Methods for Optimization Problems with Simple Constraints, SIAM J. Control and Opt. 1982.

Problem     min over x of Ψ(x), with lower ≤ x ≤ upper
Symbols     g -> the gradient that a step goes against
Algorithm   (1) a direction is *barred* where x is at a bound and −g leads out
            (2) the linear system is solved without the barred directions
            (3) a step ends at each bound that it would cross
Deviations  a bound bars where x is at it, not near it; λ shortens a step that fails, and not a search along a curve
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from asker.geometry.manifolds import Euclidean
from asker.tracing.array_namespace import Array, namespace


@dataclass(frozen=True)
class Bounded(Euclidean):
    """Vectors (or arrays) between bounds; a row holds x, the lower and the upper bounds, and what a step of 1 is."""

    @property
    def ambient(self) -> int:
        return 4 * self.tangent

    @property
    def tangent(self) -> int:
        return int(np.prod(self.shape))

    def pack(self, values: Any, lower: Any = None, upper: Any = None, unit: Any = None) -> np.ndarray:
        x = Euclidean(self.shape).pack(values)
        asked = (("lower", lower, -np.inf), ("upper", upper, np.inf), ("unit", unit, 1.0))
        low, high, units = (self._each(*given, np.shape(values)).reshape(x.shape) for given in asked)
        self._refuse(low > high, "a lower bound above the upper one")
        self._refuse((x < low) | (x > high), "a number beyond its bounds")
        self._refuse(~((units > 0) & np.isfinite(units)), "a unit that is not positive and finite")
        return np.concatenate([x, low, high, units], axis=1)

    def _each(self, what: str, given: Any, none: float, shape: tuple[int, ...]) -> np.ndarray:
        try:
            each = np.broadcast_to(np.asarray(none if given is None else given, dtype=float), shape)
        except ValueError:
            raise ValueError(f"have shape {shape}, and {what} has {np.shape(given)}") from None
        if np.isnan(each).any():
            raise ValueError(f"have NaN in {what}")
        return each

    def _refuse(self, wrong: np.ndarray, what: str) -> None:
        if wrong.any():
            raise ValueError(f"have {what} at index {np.flatnonzero(wrong.any(axis=1))[0]}")

    def unpack(self, rows: np.ndarray) -> Any:
        return super().unpack(self.parts(rows)[0])

    def view(self, x: Array) -> Any:
        return super().view(self.parts(x)[0])

    def retract(self, x: Array, delta: Array) -> Array:
        xp, (start, low, high, unit) = namespace(x), self.parts(x)
        to = start + unit * delta
        to = xp.where(to < low, low, xp.where(to > high, high, to))  # (3); not at a bound, where derivatives are needed
        return xp.concatenate([to, low, high, unit], axis=-1)

    def shortened(self, x: Any, delta: Any) -> Any:
        """The part of a step that is taken (3)."""
        start, _, _, unit = self.parts(x)
        return (self.parts(self.retract(x, delta))[0] - start) / unit

    def barred(self, x: Any, g: Any) -> Any:
        """Which directions are barred (1)."""
        start, low, high, _ = self.parts(x)
        return ((start <= low) & (g > 0)) | ((start >= high) & (g < 0))

    def parts(self, x: Any) -> list[Any]:
        """x, lower, upper and unit of a row, or of many."""
        d = self.tangent
        return [x[..., k * d : (k + 1) * d] for k in range(4)]

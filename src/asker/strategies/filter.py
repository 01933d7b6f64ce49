"""The filter of a filter method, which decides on the acceptance of pairs (f, h).

Fletcher, Leyffer: Nonlinear Programming without a Penalty Function, 2002.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Filter:
    """Corners (f, h); a new pair must beat each of them in f or in h."""

    corners: tuple[tuple[float, float], ...] = ()

    def accepts(self, f: float, h: float) -> bool:
        """Return True if the pair beats each corner; a pair with a NaN does not."""
        return f == f and h == h and all(f < f_e or h < h_e for f_e, h_e in self.corners)

    def with_corner(self, f: float, h: float) -> "Filter":
        """Return the filter with another corner, without the corners that it dominates."""
        kept = tuple((f_e, h_e) for f_e, h_e in self.corners if f_e < f or h_e < h)
        return Filter((*kept, (f, h)))

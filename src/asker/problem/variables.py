"""Groups of variables, and slots that assign a variable to each observation."""

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from asker.geometry.manifolds import Euclidean, Manifold
from asker.geometry.structured import structured
from asker.problem.bounds import Bounded
from asker.tracing.array_namespace import ProblemError, has_masked, reject_tracers
from asker.tracing.trees import is_tree, leaves_of

__all__ = ["ProblemError", "Slot", "Variables"]


def name_or(name: str | None, otherwise: str) -> str:
    """Return the name that the user has chosen for a group, else `otherwise`; results are saved under it."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name is {name!r} ({type(name).__name__}), expected a str")
    return name or otherwise


class Variables:
    """Group of unknowns of one kind."""

    def __init__(
        self,
        values: Any,
        manifold: Manifold | None = None,
        fixed: bool | np.ndarray = False,
        name: str | None = None,
        *,
        lower: Any = None,
        upper: Any = None,
        unit: Any = None,
    ):
        """
        Parameters
        ----------
        values
            Initial guess, one variable per row: (n,), (n, d), …; poses (n, 3, 4) for SE3.  It may be a dictionary, a
            named tuple or a dataclass of such arrays, also nested; then the residual function receives the same.
        manifold
            Manifold of each variable; by default Euclidean.  For nested values, a dictionary with those of fields.
        fixed
            Mask (n,) of the variables that are kept constant, or True for all.
        name
            Name in error messages and results.
        lower, upper
            Bounds of Euclidean variables, in the shape of the values or a shape that broadcasts to it; infinite for
            coordinates without a bound.
        unit
            Typical scale of each coordinate of Euclidean variables; steps are measured in it.  By default 1.

        Raises
        ------
        ProblemError
            If values, masks or bounds are invalid.
        """
        self.name = name_or(name, "variables")
        reject_tracers(f"{self.name}: values", values)
        if has_masked(tuple(leaves_of(values))) or has_masked(fixed):
            raise ProblemError(f"{self.name}: values or fixed hold masked entries: leave these out")
        if is_tree(values) and not hasattr(manifold, "retract"):
            manifold = self._structured(values, manifold)
        if manifold is not None and (isinstance(manifold, type) or not hasattr(manifold, "retract")):
            raise ProblemError(f"{self.name}: manifold is {manifold!r}, expected an object such as asker.SE3")
        try:
            self.manifold = Euclidean(np.shape(values)[1:]) if manifold is None else manifold
            rows = self.manifold.pack(values)
            bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
            if bad.size:
                raise ValueError(f"hold NaN or infinity at index {bad[0]}")
            if any(option is not None for option in (lower, upper, unit)):
                if type(self.manifold) is not Euclidean:
                    raise ValueError(f"on {self.manifold}: lower, upper and unit are for Euclidean ones")
                self.manifold = Bounded(self.manifold.shape)
                rows = self.manifold.pack(values, lower, upper, unit)
        except (TypeError, ValueError) as e:
            raise ProblemError(f"{self.name}: values {e}") from None
        self.rows = np.array(rows, dtype=float, order="C")  # a copy
        self.fixed = self._mask(fixed)
        self.origin: Variables = self
        """Variables that the user created, if these are a copy with other values or another mask of fixed ones."""

    def _structured(self, values: Any, manifold: Any) -> Manifold:
        try:
            return structured(values, manifold)
        except ValueError as e:
            raise ProblemError(f"{self.name}: values {e}") from None

    def _mask(self, fixed: bool | np.ndarray) -> np.ndarray:
        mask = np.array(fixed)
        if mask.shape == () and mask.dtype == bool:
            return np.full(len(self), bool(mask))
        if mask.shape != (len(self),) or mask.dtype != bool:
            what = f"{mask.dtype} {mask.shape}"
            raise ProblemError(f"{self.name}: fixed is {what}, expected True, False or a mask: bool ({len(self)},)")
        return mask

    def at(self, values: Any) -> "Variables":
        """Return the same variables with other values and the same bounds."""
        manifold, between = self.manifold, {}
        if self.bounds:
            manifold = Euclidean(self.bounds.shape)
            low, high, unit = map(manifold.unpack, self.bounds.parts(self.rows)[1:])
            between = {"lower": low, "upper": high, "unit": unit}
        other = Variables(values, manifold, self.fixed, self.name, **between)
        other.origin = self.origin
        return other

    def with_fixed(self, fixed: bool | np.ndarray) -> "Variables":
        """Return the same variables with another mask of fixed ones."""
        other = copy(self)
        other.fixed = self._mask(fixed)
        return other

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> "Slot":
        """Return a slot: the variable of each observation, by numbers, a slice, a mask or `...`.

        Negative numbers, which mark missing variables in many data sets, are rejected.
        """
        if has_masked(index):
            raise ProblemError(f"{self.name}: the index holds masked entries: leave these out")
        if index is Ellipsis or isinstance(index, slice):
            return Slot(self, np.arange(len(self))[index])
        if isinstance(index, tuple) or index is None:
            raise ProblemError(f"{self.name}: the index is {index!r}, expected numbers, a slice or a mask of variables")
        try:
            numbers = np.asarray(index)
        except ValueError as e:
            raise ProblemError(f"{self.name}: the index is no array: {e}") from None
        if numbers.dtype != bool:
            return Slot(self, numbers)
        if numbers.shape != (len(self),):
            raise ProblemError(f"{self.name}: the mask has shape {numbers.shape}, expected ({len(self)},)")
        return Slot(self, np.flatnonzero(numbers))

    __iter__ = None  # without this, Python would iterate forever, since every index is valid

    def __repr__(self) -> str:
        return f"Variables({self.name!r}, n={len(self)}, manifold={self.manifold})"

    @property
    def is_free(self) -> bool:
        """True if any variable of the group can change."""
        return self.manifold.tangent > 0 and not self.fixed.all()

    @property
    def bounds(self) -> Bounded | None:
        """Manifold of bounded variables; None without bounds."""
        return self.manifold if isinstance(self.manifold, Bounded) else None

    @property
    def mixes_units(self) -> bool:
        """True if the coordinates of a step have different units; by default not."""
        return getattr(self.manifold, "mixes_units", False)


@dataclass(frozen=True, eq=False)
class Slot:
    """Variable argument of a residual function: the variable `index[k]` of a group for observation k."""

    variables: Variables
    index: np.ndarray

"""Sums over all observations of a problem, also where several processes hold a portion of it each.

All processes must then ask for the same sums in the same order; they get the same numbers.
"""

from collections.abc import Callable
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Sums:
    """Sums over what belongs to observations, added over all processes; one process adds nothing."""

    def __init__(self, dealt: Any = None, added: Callable[[np.ndarray], np.ndarray] | None = None):
        """
        dealt  the variables whose observations are with one process each
        added  adds arrays of all processes; None where there is one
        """
        self.dealt, self.added = dealt, added

    def of(self, *numbers: SupportsFloat) -> list[float]:
        """Each of the numbers, added over the processes."""
        own = list(map(float, numbers))
        return own if self.added is None else self.added(np.array(own)).tolist()

    def of_array(self, x: Floats) -> Floats:
        """All numbers of an array, added over the processes."""
        return x if self.added is None else self.added(x)

    def any(self, here: bool) -> bool:
        """Whether it is so in any process."""
        return self.of(float(here))[0] > 0

    def mean(self, x: NDArray[Any]) -> float:
        """The mean of one number for each observation; NaN where there are none."""
        total, n = self.of(float(x.sum()), len(x))
        return total / n if n else float("nan")

    def by_variable(self, variables: Any, x: Floats) -> Floats:
        """Sums for each variable of a group, added over the processes that share it."""
        return x if variables is self.dealt else self.of_array(x)

    def largest(self, x: Floats) -> float:
        """The largest of numbers that are not negative; 0 where there are none."""
        return self._smallest(x, int(self.of(len(x))[0])) if self.added else float(x.max(initial=0.0))

    def median(self, x: Floats) -> float:
        """The median of numbers that are not negative; NaN where there are none."""
        if self.added is None:
            return float(np.median(x)) if len(x) else float("nan")
        n = int(self.of(len(x))[0])
        return (self._smallest(x, (n + 1) // 2) + self._smallest(x, n // 2 + 1)) / 2 if n else float("nan")

    def _smallest(self, x: Floats, k: int) -> float:
        """The k-th smallest: numbers that are not negative are in the order of their bits."""
        bits = np.sort(np.asarray(x, dtype=np.float64) + 0.0).view(np.int64)
        low, high = 0, int(np.array(np.inf).view(np.int64))
        while low < high and k:
            middle = (low + high) // 2
            enough = self.of(float(np.searchsorted(bits, middle, side="right")))[0] >= k
            low, high = (low, middle) if enough else (middle + 1, high)
        return float(np.array(low).view(np.float64)) if k else 0.0


ALONE = Sums()
"""The sums of a single process."""

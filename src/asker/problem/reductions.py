"""Reductions over all observations of a problem, which may be distributed over several processes.

All processes must then request the same reductions in the same order; all receive the same numbers.
"""

from collections.abc import Callable
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Sums:
    """Reductions over observations: sums over all processes (all-reduce); the identity for a single process."""

    def __init__(self, dealt: Any = None, added: Callable[[np.ndarray], np.ndarray] | None = None):
        """
        dealt  partitioned variables, all of whose observations are on a single process
        added  adds arrays over all processes; None for a single process
        """
        self.dealt, self.added = dealt, added

    def of(self, *numbers: SupportsFloat) -> list[float]:
        """Return each of the numbers, added over the processes."""
        local = list(map(float, numbers))
        return local if self.added is None else self.added(np.array(local)).tolist()

    def of_array(self, x: Floats) -> Floats:
        """Return an array, added over the processes."""
        return x if self.added is None else self.added(x)

    def any(self, condition: bool) -> bool:
        """Return whether a condition is true in any process."""
        return self.of(float(condition))[0] > 0

    def mean(self, x: NDArray[Any]) -> float:
        """Return the mean of one number per observation; NaN without observations."""
        total, n = self.of(float(x.sum()), len(x))
        return total / n if n else float("nan")

    def by_variable(self, variables: Any, x: Floats) -> Floats:
        """Return sums for each variable of a group, added over the processes unless the group is partitioned."""
        return x if variables is self.dealt else self.of_array(x)

    def largest(self, x: Floats) -> float:
        """Return the maximum of non-negative numbers; 0 if there are none."""
        return self._smallest(x, int(self.of(len(x))[0])) if self.added else float(x.max(initial=0.0))

    def median(self, x: Floats) -> float:
        """Return the median of non-negative numbers; NaN if there are none."""
        if self.added is None:
            return float(np.median(x)) if len(x) else float("nan")
        n = int(self.of(len(x))[0])
        return (self._smallest(x, (n + 1) // 2) + self._smallest(x, n // 2 + 1)) / 2 if n else float("nan")

    def _smallest(self, x: Floats, k: int) -> float:
        """Return the k-th smallest of non-negative numbers by bisection over bit patterns, which are ordered alike."""
        bits = np.sort(np.asarray(x, dtype=np.float64) + 0.0).view(np.int64)
        low, high = 0, int(np.array(np.inf).view(np.int64))
        while low < high and k:
            middle = (low + high) // 2
            enough = self.of(float(np.searchsorted(bits, middle, side="right")))[0] >= k
            low, high = (low, middle) if enough else (middle + 1, high)
        return float(np.array(low).view(np.float64)) if k else 0.0


ALONE = Sums()
"""Reductions of a single process."""

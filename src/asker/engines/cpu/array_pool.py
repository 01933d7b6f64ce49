"""A pool of arrays that are reused once no other object refers to them.

Allocating a large array costs more than filling it: the operating system maps and clears its pages one by one.
"""

import sys
from collections import defaultdict
from math import prod

import numpy as np


def _references_when_idle() -> int:
    """Return the reference count of an array that is referenced only by a list and by the loop over that list."""
    for array in [np.empty(0)]:
        return sys.getrefcount(array)
    raise AssertionError


IDLE_REFERENCES = _references_when_idle()


class Pool:
    """A source of uninitialised float arrays."""

    def __init__(self) -> None:
        self._arrays: defaultdict[int, list[np.ndarray]] = defaultdict(list)
        """Arrays by their capacity, a power of 2.  Pages that were never written take no memory."""

    def empty(self, *shape: int) -> np.ndarray:
        """Return an uninitialised array of this shape, reusing an idle one of the same capacity if there is any."""
        size = prod(shape)
        capacity = 1 << max(size - 1, 0).bit_length()
        for array in self._arrays[capacity]:
            if sys.getrefcount(array) <= IDLE_REFERENCES:
                return array[:size].reshape(shape)
        array = np.empty(capacity)
        self._arrays[capacity].append(array)
        return array[:size].reshape(shape)

"""Arrays that nobody holds any more, used again.

A large fresh array costs more than what is written into it: the system maps and clears its pages one by one.
"""

import sys
from collections import defaultdict

import numpy as np


def _references_when_idle() -> int:
    """How many references Python counts to an array that only a list and the loop over it hold."""
    for array in [np.empty(0)]:
        return sys.getrefcount(array)
    raise AssertionError


IDLE = _references_when_idle()


class Pool:
    """Gives uninitialised arrays."""

    def __init__(self) -> None:
        self._arrays: defaultdict[tuple[int, ...], list[np.ndarray]] = defaultdict(list)

    def empty(self, *shape: int) -> np.ndarray:
        for array in self._arrays[shape]:
            if sys.getrefcount(array) <= IDLE:
                return array
        array = np.empty(shape)
        self._arrays[shape].append(array)
        return array

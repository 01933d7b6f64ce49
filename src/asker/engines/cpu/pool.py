"""Arrays that nobody holds any more, used again.

A large fresh array costs more than what is written into it: the system maps and clears its pages one by one.
"""

import sys
from collections import defaultdict

import numpy as np


class Pool:
    """Gives uninitialised arrays."""

    def __init__(self) -> None:
        self._arrays: defaultdict[tuple[int, ...], list[np.ndarray]] = defaultdict(list)

    def empty(self, *shape: int) -> np.ndarray:
        for array in self._arrays[shape]:
            if sys.getrefcount(array) <= 3:  # the list, this loop and the call itself
                return array
        array = np.empty(shape)
        self._arrays[shape].append(array)
        return array

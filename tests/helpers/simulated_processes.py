"""Threads in place of the processes of a distributed solve."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np


class Together:
    """n threads that exchange arrays like processes in `asker.engines.xla.distributed`."""

    def __init__(self, n):
        self.arrays, self.barrier = [None] * n, Barrier(n, timeout=120)

    def run(self, work):
        """Return work(k, all_gather) of each thread k."""
        with ThreadPoolExecutor(len(self.arrays)) as pool:
            return list(pool.map(lambda k: work(k, lambda x: self._all_gather(k, x)), range(len(self.arrays))))

    def _all_gather(self, k, x):
        self.arrays[k] = np.asarray(x)
        self.barrier.wait()
        each = np.stack(self.arrays)
        self.barrier.wait()
        return each

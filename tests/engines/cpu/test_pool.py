"""The pool of arrays."""

import numpy as np

from asker.engines.cpu.pool import Pool


def test_an_array_of_the_pool_is_used_again_only_when_nobody_holds_it():
    pool = Pool()
    held = pool.empty(3, 2)
    part = pool.empty(3, 2)[1:]
    assert not np.shares_memory(held, part)
    third = pool.empty(3, 2)
    assert not np.shares_memory(third, held)
    assert not np.shares_memory(third, part)
    address = held.ctypes.data
    del held
    assert pool.empty(3, 2).ctypes.data == address

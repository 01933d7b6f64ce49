"""The pool of arrays."""

import numpy as np

import asker
from asker.engines.cpu.array_pool import Pool
from asker.engines.cpu.engine import CpuEngine


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


def test_arrays_of_like_sizes_share_a_place():
    """Trials differ in number from round to round."""
    pool = Pool()
    address = pool.empty(5, 2).ctypes.data
    other = pool.empty(3, 3, 1)
    assert other.shape == (3, 3, 1)
    assert other.flags.c_contiguous
    assert other.ctypes.data == address
    assert pool.empty(0).shape == (0,)


def test_the_engine_of_trials_uses_the_arrays_of_the_first():
    x = asker.Variables(np.zeros((4, 1)), name="x")
    problem = asker.Problem(asker.Factors(lambda x, y: x - y, x[np.arange(4)], data=np.ones((4, 1))))
    engine = CpuEngine(problem)
    assert engine.for_other(problem).pool is engine.pool

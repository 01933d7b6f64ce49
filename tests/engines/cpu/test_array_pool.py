"""The pool of arrays."""

import numpy as np

import asker
from asker.engines.cpu.array_pool import Pool
from asker.engines.cpu.engine import CpuEngine


def test_an_array_is_reused_only_without_references():
    pool = Pool()
    first = pool.empty(3, 2)
    part = pool.empty(3, 2)[1:]
    assert not np.shares_memory(first, part)
    third = pool.empty(3, 2)
    assert not np.shares_memory(third, first)
    assert not np.shares_memory(third, part)
    address = first.ctypes.data
    del first
    assert pool.empty(3, 2).ctypes.data == address


def test_arrays_of_similar_sizes_share_memory():
    """Batches of subproblems vary in size from round to round."""
    pool = Pool()
    address = pool.empty(5, 2).ctypes.data
    other = pool.empty(3, 3, 1)
    assert other.shape == (3, 3, 1)
    assert other.flags.c_contiguous
    assert other.ctypes.data == address
    assert pool.empty(0).shape == (0,)


def test_the_engine_of_a_subproblem_shares_the_pool():
    x = asker.Variables(np.zeros((4, 1)), name="x")
    problem = asker.Problem(asker.Factors(lambda x, y: x - y, x[np.arange(4)], data=np.ones((4, 1))))
    engine = CpuEngine(problem)
    assert engine.for_other(problem).pool is engine.pool

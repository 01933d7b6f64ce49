"""Tasks that wait for the results of earlier tasks."""

import numpy as np
import pytest

from asker.engines.cpu.compiler import compile_source
from asker.engines.cpu.system.codegen import WAIT_FOR, run_loop
from asker.engines.cpu.threads import team_of

CHAIN = (
    WAIT_FOR
    + """
def chain(start, stop, finished, x):
    for k in range(start, stop):
        if k > np.uint64(0):
            wait_for(finished, k - np.uint64(1), 1)
            x[k] = x[k - np.uint64(1)] * 0.5 + k
        store_release(finished, k, 1)
"""
)


@pytest.mark.parametrize("n_threads", [1, 2, 7])
def test_waiting_tasks_see_the_results_of_earlier_tasks(n_threads):
    """The loop also ends with more threads than cores, since waiting threads yield."""
    n = 2000
    x, expected = np.zeros(n), np.zeros(n)
    for k in range(1, n):
        expected[k] = expected[k - 1] * 0.5 + k
    with team_of(n_threads):
        bounds = np.arange(n + 1, dtype=np.uint64)
        run_loop(compile_source("chain", CHAIN), bounds, finished=np.zeros(n, dtype=np.int64), x=x)
    np.testing.assert_array_equal(x, expected)

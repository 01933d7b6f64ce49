"""Thread teams: each solve has its own, and concurrent solves and forks do not disturb each other."""

import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import asker
from asker.engines.cpu import cholesky, threads
from asker.engines.cpu.compiler import Printed


def shift(x, a):
    return x - a


WAIT = 300  # seconds: a busy machine is no fault


def many_observations(seed=0):
    """A problem with several tasks in every loop."""
    rng = np.random.default_rng(seed)
    i = rng.integers(0, 50, 20_000)
    x = asker.Variables(np.zeros((50, 2)), name="x")
    data = rng.normal(size=(len(i), 2)) + i[:, None]
    return asker.Problem(asker.Factors(shift, x[i], data=data, kernel=asker.SmoothTruncated()))


def solved(n):
    return asker.solve(many_observations(), asker.IRLS(), max_iterations=5, threads=n, engine="cpu")


def test_the_number_of_threads_applies_to_one_solve():
    counts = []
    before = threads.n_threads()

    def count(_):
        counts.append(threads.n_threads())

    asker.solve(many_observations(), max_iterations=1, threads=before + 2, on_iteration=count, engine="cpu")
    assert set(counts) == {before + 2}
    assert threads.n_threads() == before


@pytest.mark.parametrize("n", [0, -1])
def test_less_than_one_thread_is_rejected(n):
    with pytest.raises(ValueError, match="the number of threads must be at least 1"):
        asker.solve(many_observations(), threads=n)


def test_concurrent_solves_are_reproducible():
    alone = [h.cost for h in solved(1).history]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(solved, [2, 3, 1, 2, 4, 2, 3, 2, 1]))
    assert all([h.cost for h in result.history] == alone for result in results)


def test_concurrent_creation_of_functions():
    """Parsing in two threads at once can fail in Python 3.11 if garbage collection switches threads in between."""
    lines = "".join(f"        v{j} = a0[k] * {j}.0 - (a0[k] + 1.0) / 3.0\n" for j in range(300))

    def give_way(*_):
        time.sleep(1e-4)

    def read(k):
        return Printed(
            "f", f"def f(start, stop, a0, sums):\n    for k in range(start, stop):\n{lines}    sums[0] = {k}.0\n"
        )

    gc.callbacks.append(give_way)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert {printed.parameters for printed in pool.map(read, range(24))} == {("a0", "sums")}
    finally:
        gc.callbacks.remove(give_way)


def test_helper_threads_end_with_the_solve():
    before = set(threading.enumerate())  # compilations of other tests may end meanwhile
    solved(4)
    assert set(threading.enumerate()) <= before


def test_nested_tasks_do_not_deadlock():
    done = []
    with threads.team_of(2):
        team = threads._team()
        team.run(lambda i: team.run(lambda j: done.append((i, j)), 3), 4)
    assert sorted(done) == [(i, j) for i in range(4) for j in range(3)]


def test_every_task_runs_once():
    text = "def mark(start, stop, task, out):\n    for k in range(start, stop):\n        out[k] += 1.0 + task\n"
    bounds, out = np.arange(0, 1001, 10, dtype=np.uint64), np.zeros(1000)
    loop, counter = Printed("mark", text), np.zeros(1, dtype=np.int64)
    with threads.team_of(3):
        threads.run_together(lambda: loop.share(counter, bounds, out), 3)
    assert np.array_equal(out, 1 + np.arange(1000) // 10)


def test_running_helpers_are_waited_for():
    here, all_have_begun, ends = threading.get_ident(), threading.Barrier(3), []

    def work():
        all_have_begun.wait(WAIT)
        time.sleep(0.0 if threading.get_ident() == here else 0.02)
        ends.append(threading.get_ident())

    with threads.team_of(3):
        threads.run_together(work, 3)
        assert len(set(ends)) == len(ends) == 3


def test_an_error_in_a_helper_is_raised():
    here, both_have_begun = threading.get_ident(), threading.Barrier(2)

    def fail():
        both_have_begun.wait(WAIT)
        if threading.get_ident() != here:
            raise ZeroDivisionError

    with threads.team_of(2), pytest.raises(ZeroDivisionError):
        threads.run_together(fail, 2)


def test_an_error_in_a_task_is_raised():
    def fail(k):
        if k == 3:
            raise ZeroDivisionError

    with threads.team_of(2), pytest.raises(ZeroDivisionError):
        threads.run_tasks(fail, 8)


def test_the_blas_thread_limit_ends_with_the_last_context():
    """The first thread to enter leaves before the last one."""
    import scipy.linalg  # noqa: F401  loads SciPy's BLAS
    from threadpoolctl import threadpool_info, threadpool_limits

    def numbers():
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    limits = threadpool_limits(2, "blas")
    before, one = numbers(), cholesky.one_blas_thread()
    with ThreadPoolExecutor(1) as other:
        other.submit(one.__enter__).result()
        one.__enter__()
        other.submit(one.__exit__).result()
        assert numbers() <= {1}
        one.__exit__()
        assert numbers() == before
        other.submit(one.__enter__).result()
        assert numbers() <= {1}
        other.submit(one.__exit__).result()
        assert numbers() == before
    limits.restore_original_limits()


FORKED = """
import os, sys
sys.path.insert(0, {tests!r})
import asker, jax.numpy as jnp
from test_threads import many_observations, solved
first = solved(2).cost
jnp.ones(2) + 1
reading, writing = os.pipe()
child = os.fork()
if not child:
    cost = repr(solved(2).cost)
    try:
        asker.solve(many_observations(), engine="xla")
    except RuntimeError as error:
        assert "forked" in str(error), error
        os.write(writing, cost.encode())
    os._exit(0)
os.waitpid(child, 0)
os.close(writing)
cost = os.read(reading, 100).decode()
assert cost == repr(first), cost
assert solved(3).cost == first
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_can_solve():
    """The CPU engine works after a fork; the xla engine, whose threads are lost, raises an error instead of hanging."""
    code = FORKED.format(tests=os.path.dirname(os.path.abspath(__file__)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr

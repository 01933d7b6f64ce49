"""The memory of machine code is released with its functions."""

import gc
import os
import subprocess
import sys
import weakref

import pytest

from asker.engines.cpu import code_cache
from asker.engines.cpu.code_cache import FUNCTIONS_PER_ENGINE, Code
from asker.engines.sparsity import MOST_DERIVATIVES
from asker.problem.factors import MAX_TRACED

FEW_MEGABYTES, MANY_MEGABYTES = 25.0, 50.0
"""Limits for 100 functions compiled by LLVM and 20 by XLA; without release they take 87 and 104 MB."""
SOLVES = """
import contextlib, ctypes, gc, os
import jax.numpy as jnp
import numpy as np
import asker

def megabytes():
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)  # return free memory to the system
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

p, first, last = {p}, {first}, {last}
x = np.linspace(0.0, 1.0, 10)

def solve(k):
    curve = asker.Variables([[1.0, 1.0]], name="curve")
    residual = lambda c, x, y: np.linspace(1.0, 2.0, p) * (c[0] * jnp.exp(-c[1] * x) * (1.0 + 0.001 * k) - y)
    factors = asker.Factors(residual, curve[np.zeros(10, int)], data=(x, np.exp(-x)), kernel=asker.Huber(tau=0.1))
    asker.solve(asker.Problem(factors), max_iterations=1)

for k in range(first):
    solve(k)
before = megabytes()
for k in range(first, last):
    solve(k)
print(megabytes() - before)
"""


@pytest.mark.parametrize(
    ("p", "first", "last", "most"),
    [(1, 10, 110, FEW_MEGABYTES), (2 * MOST_DERIVATIVES, MAX_TRACED + 8, MAX_TRACED + 28, MANY_MEGABYTES)],
    ids=["LLVM", "XLA"],
)
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
def test_memory_of_many_functions_is_released(p, first, last, most, tmp_path):
    script = SOLVES.format(p=p, first=first, last=last)
    environment = os.environ | {"ASKER_CACHE": str(tmp_path), "MALLOC_ARENA_MAX": "1"}
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert float(told.stdout) < most


def code(k: int) -> Code:
    text = 'define i64 @"{}"(i64 %x) {{\n%y = add i64 %x, {}\nret i64 %y\n}}'
    made = Code("released", ("released", k), lambda symbol: text.format(symbol, k), lambda name: None)
    made.make()
    return made


def test_an_engine_is_released_with_its_last_function(tmp_path, monkeypatch):
    monkeypatch.setenv("ASKER_CACHE", str(tmp_path))
    monkeypatch.setattr(code_cache, "_engine", None)  # the current one has functions of other tests
    codes = [code(k) for k in range(3 * FUNCTIONS_PER_ENGINE)]
    first, last = weakref.ref(codes[0].engine), weakref.ref(codes[-1].engine)
    middle = weakref.ref(codes[FUNCTIONS_PER_ENGINE].engine)
    del codes[1:]
    gc.collect()
    assert first() is not None  # its first function is still referenced
    assert middle() is None
    assert last() is code_cache._engine  # the next function is loaded into it
    codes[:] = [code(-k) for k in range(1, FUNCTIONS_PER_ENGINE + 2)]
    gc.collect()
    assert first() is None
    code(-FUNCTIONS_PER_ENGINE - 2)
    assert not code_cache._released

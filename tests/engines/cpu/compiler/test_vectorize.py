"""Loops over `lanes`: SIMD vectors of any length compute the same as Python item by item."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from asker.engines.cpu.compiler import jit
from asker.engines.cpu.compiler.compile import Printed

n = 21  # whole vectors and a remainder, for every vector length
RNG = np.random.default_rng(5)
X, ROWS, WIDE = RNG.normal(size=n), RNG.normal(size=(4, 3)), RNG.normal(size=(n, 19))
INDEX = RNG.integers(0, 4, size=n).astype("int32")

CASES = {
    "gathered rows": "j = np.uint64(i[k])\nout[k, 0] = rows[j, 0] * x[k] - rows[j, 2]",
    "wide rows": "\n".join(f"out[k, {c}] = wide[k, {18 - c}] + {c}.5" for c in range(19)),
    "some columns": "a = wide[k, 2] * wide[k, 3]\nb = wide[k, 17]\nout[k, 1] = a\nout[k, 18] = b\nout[k, 5] = a - b",
    "a number of all": "out[k, 0] = given * x[k] / 3.0",
    "truth": "p = x[k] > 0.0\nq = x[k] <= 1.0\nout[k, 0] = 1.0 if p & q | (x[k] != x[k]) else -x[k]",
    "not": "p = x[k] > 0.0\nq = not p\nout[k, 0] = x[k] if q else 2.0",
    "truth as numbers": "p = x[k] > 0.0\nout[k, 0] = float(p) + x[k]",
    "functions": "a = math.sqrt(abs(x[k]))\nout[k, 0] = math.sin(a) + math.tan(a) + a ** 2.0 + np.floor(x[k])",
    "whole numbers": "j = np.uint64(i[k])\nm = i[k] + 2\nout[k, 0] = m * 2 + x[k]\nout[k, 1] = float(m) * rows[j, 1]",
    "single precision": "a = narrow[k]\nout[k, 0] = a * 2.0 + x[k]",
    "an infinity": "a = x[k] / 0.0\nout[k, 0] = 1.0 if math.isfinite(a) else 0.0\nout[k, 1] = a",
    "constants": "out[k, 0] = 1.0\nout[k, 1] = 2.0",
    "a column of its own": "single[k] = x[k] + 1.0",
    "sums": "a = x[k] * 0.1\ntotal += a\nout[k, 0] = a",
}


def text(body):
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return (
        "def loop(start, stop, x, rows, i, wide, narrow, given, single, out, sums):\n    total = 0.5\n"
        f"    for k in lanes(start, stop):\n{lines}    sums[0] += total\n"
    )


@pytest.mark.parametrize("length", [2, 4, 8])
@pytest.mark.parametrize("case", CASES)
def test_vectors_compute_what_python_does(case, length, monkeypatch):
    monkeypatch.setattr(jit, "vector_length", lambda: length)
    ours, expected = ([np.zeros(n), np.zeros((n, 19)), np.zeros(1)] for _ in range(2))
    given = (X, ROWS, INDEX, WIDE, X.astype("float32"), 0.7)
    Printed("loop", text(CASES[case]))(1, n, *given, *ours)
    here = {"np": np, "math": math, "lanes": range}
    exec(text(CASES[case]), here)
    with np.errstate(divide="ignore"):
        here["loop"](1, n, *given, *expected)
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("length", [2, 8])
def test_sums_are_accumulated_in_order(length, monkeypatch):
    """The sum is bit-identical; the first term is large, so that later ones are rounded."""
    monkeypatch.setattr(jit, "vector_length", lambda: length)
    x = np.concatenate([[1e16], RNG.normal(size=n - 1)])
    sums = np.zeros(1)
    given = (x, ROWS, INDEX, WIDE, X.astype("float32"), 0.7, np.zeros(n), np.zeros((n, 19)))
    Printed("loop", text("total += x[k]"))(0, n, *given, sums)
    total = 0.5
    for one in x:
        total += one
    assert sums[0] == total


TEXT = """
from asker.engines.cpu.compiler.expressions import Kind
from asker.engines.cpu.compiler.llvm import to_llvm

sines = " + ".join(f"math.sin(x{k} * y{k})" for k in range(9))
lines = [*(f"x{k} = x[k, {k}]" for k in range(9)), *(f"y{k} = x{k} * 2.0" for k in range(9)), f"out[k] = {sines}"]
text = "def f(x, out):\\n    for k in lanes(0, len(out)):\\n" + "".join(f"        {line}\\n" for line in lines)
print(to_llvm(text, "f", (Kind("float64", 2), Kind("float64", 1)), 16))
"""


def test_the_generated_code_is_deterministic():
    outputs = set()
    for seed in ("1", "2"):
        settings = os.environ | {"PYTHONHASHSEED": seed}
        outputs.add(subprocess.run([sys.executable, "-c", TEXT], env=settings, capture_output=True, check=True).stdout)
    assert len(outputs) == 1

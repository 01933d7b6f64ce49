"""The Python subset of printed loops: machine code computes the same as Python."""

import math
import textwrap

import numpy as np
import pytest

from asker.engines.cpu.compiler import compile_source
from asker.engines.cpu.compiler.expressions import UnsupportedSyntax

n = 9
RNG = np.random.default_rng(3)
X = RNG.normal(size=n)
M = RNG.normal(size=(n, 3))


def ints(dtype, high=n):
    return RNG.integers(0, high, size=n).astype(dtype)


CASES = {
    "arithmetic": ("x, out", "out[k] = (x[k] - 2.0) * -x[k] / (1.5 + x[k] * x[k]) + x[k] ** 2.0", (X,)),
    "whole numbers": ("i, out", "out[k] = (i[k] + 3) * i[k] - 7 + abs(2 - i[k]) + -i[k] / 4", (ints("int64"),)),
    "narrow whole numbers": ("i, j, out", "out[k] = i[k] * i[k] + j[k]", (ints("int32"), ints("uint8"))),
    "unsigned": ("i, out", "u = np.uint64(i[k])\nout[k] = u + np.uint64(3)\nif u > np.uint64(4):\n    out[k] += 0.5",
                 (ints("int32"),)),
    "single precision": ("f, x, out", "out[k] = f[k] + x[k]", (X.astype("float32"), X)),
    "truth": ("b, x, out", "out[k] = 1.0 if b[k] & (x[k] > 0.0) | (not x[k] <= 1.0) else x[k]", (X > 0.3, X)),
    "NaN": ("x, out", "y = math.nan if x[k] > 0.0 else x[k]\nout[k] = 1.0 if y != y else y * 2.0", (X,)),
    "infinity": ("x, out", "y = math.inf * x[k]\nout[k] = 1.0 if math.isfinite(y) else -1.0", (X,)),
    "functions": ("x, out", "out[k] = math.sin(x[k]) + math.exp(x[k]) * math.atan2(x[k], 2.0) - np.floor(x[k])", (X,)),
    "others": ("x, out", "out[k] = math.tanh(x[k]) * math.erf(x[k]) + np.fmod(x[k], 2.0) * max(x[k], 0.0)", (X,)),
    "conversions": ("x, out", "i = int(3.0 * x[k])\nout[k] = float(i) + np.int64(x[k])", (X,)),
    "bits": ("x, out", "out[k] = np.int64(np.float64(x[k]).view(np.int64)).view(np.float64)", (X,)),
    "bits of whole numbers": ("i, out", "u = np.uint64(i[k])\nout[k] = (i[k] & 6) + (i[k] ^ 5) + (u | np.uint64(8))",
                              (ints("int64"),)),
    "indices": ("i, M, out", "out[k] = M[i[k], 2] - M[k, i[0] - i[0] + 1]", (ints("int32"), M)),
    "a row": ("M, out", "row = M[k]\nout[k] = row[0] + row[2]", (M,)),
    "rows in turn": ("M, i, out", "row = M[0]\nif i[k] > 3:\n    row = M[k]\nout[k] = row[1]", (M, ints("int64"))),
    "two at once": ("x, out", "a, b = x[k], 2.0\na, b = b, a\nout[k] = a - b", (X,)),
    "a sum": ("M, out", "s = 0.0\nfor j in range(3):\n    s += M[k, j]\nout[k] = s", (M,)),
    "loops that end": ("M, out", "for j in range(1, 3):\n    if M[k, j] > 0.5:\n        break\n    if M[k, j] < 0.0:\n"
                       "        continue\n    out[k] += M[k, j]", (M,)),
    "counts": ("x, out", "c = 0\nfor j in range(start, stop):\n    c += x[j] < x[k]\nout[k] = c", (X,)),
    "the other way": ("i, x, out", "if i[k] > 4:\n    out[k] = x[k]\nelif i[k] > 2:\n    out[k] = 2.0\nelse:\n"
                      "    out[k] = -x[k]", (ints("int64"), X)),
    "as long as": ("i, out", "j = i[k]\nwhile j > 1 and i[j] != j:\n    j = j // 2\n    if j == 3:\n        break\n"
                   "out[k] = j", (ints("int64"),)),
    "or": ("i, x, out", "out[k] = 1.0 if i[k] > 99 or not x[k] > 0.0 or i[k] == 3 else 0.0", (ints("int64"), X)),
    "divided": ("i, out", "out[k] = (i[k] - 4) // 3 + (4 - i[k]) // -2 + i[k] // 2", (ints("int64"),)),
    "least and most": ("i, x, out", "out[k] = min(i[k], 3) + max(i[k], 5) * min(x[k], 0.5)", (ints("int64"), X)),
    "backwards": ("x, out", "s = 0.0\nfor j in range(k, -1, -1):\n    s = 0.5 * s + x[j]\nout[k] = s", (X,)),
    "every third": ("x, out", "for j in range(k, len(x), 3):\n    out[k] += x[j]", (X,)),
    "parts": ("x, M, out", "for y in x[1:k]:\n    out[k] += y\nfor y in M[k, 1:]:\n    out[k] += y\n"
              "out[k] += len(x[k:])", (X, M)),
    "another shape": ("x, out", "A = x[1:7].reshape(2, 3)\nout[k] = A[1, k // 4] + len(A)", (X,)),
    "vectors": ("x, M, out", "v, j = x[k] * vector(M[k], 1, 2) - 2.0, k + np.uint64(2)\nif j < np.uint64(9):\n"
                "    v += vector(x, k, 2) * v\n    out[k:j] = v - vector(out, k, 2)", (X, M)),
    "no pass": ("x, out", "for j in range(0):\n    pass\nout[k] = 1.0", (X,)),
}  # fmt: skip


def source(parameters, lines):
    body = textwrap.indent(lines, "        ")
    return f"def loop(start, stop, {parameters}):\n    for k in range(start, stop):\n{body}\n"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_machine_code_computes_what_python_does(case):
    parameters, lines, arrays = case
    text = source(parameters, lines)
    names = {"math": math, "np": np, "vector": lambda row, first, n: row[first : first + n].copy()}
    exec(text, names)
    expected, ours = np.zeros(n), np.zeros(n)
    names["loop"](2, n, *arrays, expected)
    compile_source("loop", text)(2, n, *arrays, ours)
    np.testing.assert_allclose(ours, expected, rtol=1e-14)
    assert (ours[:2] == 0).all()


@pytest.mark.parametrize(
    "lines",
    ["out[k] = y", "if x[k] > 0.0:\n    y = 1.0\nout[k] = y", "out[k] = len(x[k])", "with x:\n    pass",
     "y = x[::2]", "out[0:2] = 1.0", "y = x[k]\ny = x",
     "out[k] = vector(x, 0, 2)", "out[0:2] = vector(x, 0, 2) + vector(x, 0, 4)",
     "out[k] = [1.0][0]", "for k in range(3):\n    k = 2", "out[x[k]] = 1.0", "import os"],
)  # fmt: skip
def test_unsupported_syntax_is_rejected(lines):
    with pytest.raises((UnsupportedSyntax, AssertionError)):
        compile_source("loop", source("x, out", lines))(0, n, X, np.zeros(n))


def test_each_kind_of_arguments_has_a_specialisation():
    twice = compile_source("loop", source("x, out", "out[k] = 2 * x[k]"))
    for x in (X, X.astype("float32"), ints("int32"), X):
        out = np.zeros(n)
        twice(0, n, x, out)
        np.testing.assert_array_equal(out, 2 * x)


def test_noncontiguous_arrays_are_rejected():
    twice = compile_source("loop", source("x, out", "out[k] = 2 * x[k]"))
    for _ in range(2):
        with pytest.raises(TypeError, match="contiguous"):
            twice(0, n, M[:, 1], np.zeros(n))
        twice(0, n, X, np.zeros(n))
    with pytest.raises(TypeError, match="contiguous"):
        twice(0, n, X.astype(">f8"), np.zeros(n))


def test_numbers_and_arrays_have_different_specialisations():
    text = source("x, out", "out[k] = 1.0")  # as for a kernel that has no use for its width
    ones = compile_source("loop", text)
    for x in (X, 2.0, X, 2.0, np.float64(3.0)):
        out = np.zeros(n)
        ones(0, n, x, out)
        assert (out == 1).all()

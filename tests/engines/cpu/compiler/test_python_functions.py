"""Functions compiled from their source compute the same as Python."""

import math
from typing import NamedTuple

import numpy as np
import pytest

from asker.engines.cpu.compiler import compiled
from asker.engines.cpu.compiler.expressions import UnsupportedSyntax

STEP = 3
HALF = 0.5


class Lists(NamedTuple):
    """Lists in CSR form, and a factor for all of them."""

    ptr: np.ndarray
    numbers: np.ndarray
    times: float


@compiled
def first_above(numbers, least):
    """Return the index of the first larger number, −1 if there is none."""
    for k in range(len(numbers)):
        if numbers[k] > least:
            return k
    return -1


@compiled
def both(k, lists: Lists):
    """Return a list and the index of its first large number."""
    numbers = lists.numbers[lists.ptr[k] : lists.ptr[k + 1]]
    return numbers, first_above(numbers, HALF)


@compiled
def large(lists: Lists, out):
    """Sum the lists from their first large number on; return the number of lists without one."""
    none = 0
    for k in range(len(out)):
        numbers, at = both(k, lists)
        if at < 0:
            none += 1
            continue
        for j in range(at, len(numbers), STEP):
            out[k] += lists.times * numbers[j]
    return none


@compiled
def norms(A, out):
    """Compute the norms of columns, which are passed as noncontiguous subarrays."""
    for k in range(len(out)):
        out[k] = norm(A[:, k])


@compiled
def norm(x):
    total = 0.0
    for k in range(len(x)):
        total += x[k] * x[k]
    return math.sqrt(total)


@compiled
def turned_back(n, out):
    if n > len(out):
        return
    for k in range(n):
        out[k] = k


@compiled
def not_in_it(x):
    return [y + 1 for y in x]


def lists(dtype=float):
    rng = np.random.default_rng(0)
    sizes = np.array([4, 0, 7, 1, 9])
    numbers = (3 * rng.normal(size=sizes.sum())).astype(dtype)
    numbers[11] = 0
    return Lists(np.concatenate([[0], np.cumsum(sizes)]), numbers, 2.0)


@pytest.mark.parametrize("dtype", [float, "float32", int])
def test_named_tuples_calls_and_returned_values(dtype):
    given, ours, expected = lists(dtype), np.zeros(5), np.zeros(5)
    names = {"math": math, "np": np}
    exec(large.source, names)
    assert large(given, ours) == names["large"](*given, expected) == 2
    np.testing.assert_allclose(ours, expected, rtol=1e-15)
    assert ours.any()


def test_columns():
    A, out = np.random.default_rng(1).normal(size=(5, 3)), np.zeros(3)
    assert norms(A, out) == 0
    np.testing.assert_allclose(out, np.linalg.norm(A, axis=0), rtol=1e-15)


def test_numpy_scalars_are_accepted():
    out = np.zeros(4)
    for n in (np.int64(9), 3):
        turned_back(n, out)
    np.testing.assert_array_equal(out, [0, 1, 2, 0])


def test_unsupported_syntax_is_rejected():
    with pytest.raises(UnsupportedSyntax):
        not_in_it(np.zeros(3))

"""Functions that are compiled from their own text: they compute what Python computes from it."""

import math
from typing import NamedTuple

import numpy as np
import pytest

from asker.engines.cpu.compiler import compiled
from asker.engines.cpu.compiler.expressions import UnsupportedSyntax

STEP = 3
HALF = 0.5


class Lists(NamedTuple):
    """Numbers in lists that follow each other, and a number for all."""

    ptr: np.ndarray
    numbers: np.ndarray
    times: float


@compiled
def first_above(numbers, least):
    """Where a number is larger; −1 for nowhere."""
    for k in range(len(numbers)):
        if numbers[k] > least:
            return k
    return -1


@compiled
def both(k, lists: Lists):
    """A list, and where its first large number is."""
    own = lists.numbers[lists.ptr[k] : lists.ptr[k + 1]]
    return own, first_above(own, HALF)


@compiled
def large(lists: Lists, out):
    """Sums of the lists behind their first large number; returns how many have none."""
    none = 0
    for k in range(len(out)):
        own, at = both(k, lists)
        if at < 0:
            none += 1
            continue
        for j in range(at, len(own), STEP):
            out[k] += lists.times * own[j]
    return none


@compiled
def norms(A, out):
    """Of columns: parts of an array that are not contiguous are passed on."""
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
def test_records_calls_and_returned_values(dtype):
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


def test_numbers_of_numpy_are_numbers():
    out = np.zeros(4)
    for n in (np.int64(9), 3):
        turned_back(n, out)
    np.testing.assert_array_equal(out, [0, 1, 2, 0])


def test_what_is_not_in_the_language_is_refused():
    with pytest.raises(UnsupportedSyntax):
        not_in_it(np.zeros(3))

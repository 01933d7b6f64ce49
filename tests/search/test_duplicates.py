"""Observations that repeat others exactly, where the noise is sought."""

import numpy as np
import pytest

import asker
from asker.search.data_checks import first_copies


def mean_of(y):
    mean = asker.Variables([[0.0]], name="mean")
    return asker.Factors(lambda m, y: m[0] - y, mean[np.zeros(len(y), int)], data=y, name="readings")


@pytest.mark.parametrize("copies", [2, 12])
def test_copies_are_no_noise(copies):
    """The mean is that of the readings themselves, and the noise up to the degree of freedom that the mean uses up."""
    y = 10 + np.random.default_rng(0).normal(0, 0.05, 40)
    once, copied = (asker.solve(asker.Problem(mean_of(x))) for x in (y, np.repeat(y, copies)))
    assert copied.noise[0].sigma == pytest.approx(once.noise[0].sigma, rel=1.2 / 80)
    np.testing.assert_allclose(copied["mean"], once["mean"], rtol=1e-6)
    assert not once.doubts
    (told,) = copied.doubts
    assert told.kind is asker.Doubt.DUPLICATES
    assert told.startswith(f"{40 * (copies - 1)} of {40 * copies} readings are exact duplicates of others")


def test_the_first_of_each_copy_is_listed():
    a, b = np.random.default_rng(0).normal(size=2)
    x, where = np.array([a, b, a, a, b, a]), np.array([0, 0, 0, 1, 0, 1])
    variables = asker.Variables(np.zeros((2, 1)), name="x")
    found = first_copies(asker.Factors(lambda v, y: v[0] - y, variables[where], data=x))
    assert found.tolist() == [0, 1, 3]  # the fourth is of another variable


@pytest.mark.parametrize(
    "y", [np.round(np.random.default_rng(1).normal(10, 0.1, 100), 1), np.arange(5) % 2, np.zeros(0)]
)
def test_data_on_a_grid_repeat_by_chance(y):
    assert first_copies(mean_of(y)) is None


def test_rounded_data_with_outliers_off_the_grid_are_no_copies():
    rng = np.random.default_rng(1)
    assert first_copies(mean_of(np.concatenate([np.repeat(20.0, 30), rng.uniform(20, 70, 30)]))) is None

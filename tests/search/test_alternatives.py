"""Alternatives: other solutions that the data do not exclude."""

import numpy as np
import pytest

import asker

LINES = ((0.5, 1.0), (-0.7, 8.0))


def offset(line, x, y):
    return line[0] * x + line[1] - y


def solved(x, y):
    line = asker.Variables([[0.0, 0.0]], name="line")
    factors = asker.Factors(offset, line[np.zeros(len(x), dtype=int)], data=(x, y), name="points")
    return asker.solve(asker.Problem(factors))


def crossing(seed):
    """Return 20 points on each of two lines, with residuals of the same size about both."""
    noise = np.random.default_rng(seed).normal(0, 0.1, 20)
    x = np.linspace(0, 10, 20)
    return np.r_[x, x], np.r_[0.5 * x + 1 + noise, -0.7 * x + 8 - noise]


@pytest.mark.parametrize("seed", range(4))
def test_one_of_two_equal_lines_is_the_result_and_the_other_an_alternative(seed):
    result = solved(*crossing(seed))
    (other,) = result.alternatives
    found = sorted(map(tuple, (result["line"][0], other["line"][0])), reverse=True)
    np.testing.assert_allclose(found, LINES, atol=0.3)
    (doubt,) = (doubt for doubt in result.doubts if doubt.kind is asker.Doubt.AMBIGUOUS)
    assert doubt.numbers == {"n_alternatives": 1}
    differ = result.inliers["points"] != other.inliers["points"]
    assert differ.sum() >= 30
    assert -5 < other.evidence_difference <= 5
    assert set(other.deciding["points"]) <= set(range(40))


@pytest.mark.parametrize("seed", range(6))
def test_clean_data_have_no_alternatives(seed):
    rng = np.random.default_rng(100 + seed)
    x = rng.uniform(-5, 5, 150)
    result = solved(x, 0.8 * x - 1 + rng.normal(0, 0.05, 150))
    assert result.alternatives == result.doubts == ()

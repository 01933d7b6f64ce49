"""What the data do not determine is told in words, and does not spoil what they do."""

import re

import numpy as np
import pytest

import asker

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, 50)
Y = 2 * X + 1 + RNG.normal(0, 0.1, 50)
AT = np.zeros(50, int)


def solved(residual, **starts):
    groups = [asker.Variables(start, name=name) for name, start in starts.items()]
    return asker.solve(asker.Problem(asker.Factors(residual, *(v[AT] for v in groups), data=(X, Y))))


def test_a_number_that_no_residual_depends_on_is_named_and_the_others_have_intervals():
    result = solved(lambda p, x, y: p[0] * x + p[2] - y, p=[[0.0, 7.0, 0.0]])
    assert result.doubts == ("the data do not determine p[0, 1]: what stands there is from the start",)
    assert np.isnan(result.interval("p")).tolist() == [[False, True, False]]
    assert result.interval("p")[0, [0, 2]] == pytest.approx((0.05, 0.03), rel=0.4)
    determined = solved(lambda p, x, y: p[0] * x + p[1] - y, p=[[0.0, 0.0]])
    assert result.interval("p")[0, 0] == pytest.approx(determined.interval("p")[0, 0], rel=1e-2)
    told = str(result.uncertainty())
    assert "2 of 3 unknowns determined" in told
    assert "the data do not determine p[0, 1]; all others are determined" in told


@pytest.mark.parametrize(
    ("residual", "starts", "names"),
    [
        (lambda p, x, y: (p[0] + p[1]) * x + p[2] - y, {"p": [[0.0, 1.0, 0.0]]}, r"p\[0, 0\], p\[0, 1\]"),
        (lambda p, q, x, y: p * x + 1 + q * x - y, {"p": [0.5], "q": [0.5]}, r"p\[0\], q\[0\]"),
    ],
)
def test_numbers_that_move_together_are_named(residual, starts, names):
    (doubt,) = solved(residual, **starts).doubts
    assert re.search(f"{names}: they can move together", doubt)


def test_a_fixed_number_is_known():
    p = asker.Variables([1.0], name="p")
    q = asker.Variables([1.0], fixed=True, name="q")
    factors = asker.Factors(lambda p, q, x, y: p * x + q * x + 1 - y, p[AT], q[AT], data=(X, Y))
    assert not asker.solve(asker.Problem(factors)).doubts


def test_what_is_determined_is_no_doubt():
    result = solved(lambda p, x, y: p[0] * x + p[1] - y, p=[[0.0, 0.0]])
    assert not result.doubts
    assert "2 of 2 unknowns determined" in str(result.uncertainty())


def test_the_noise_can_be_given_where_all_fit_exactly():
    p = asker.Variables([[0.0]], name="p")
    exact = asker.solve(asker.Problem(asker.Factors(lambda p, x, y: p[0] * x - y, p[AT], data=(X, 2 * X))))
    assert exact.noise[0].sigma == 0
    with pytest.raises(asker.ProblemError, match=r"fit exactly.*result.interval\(..., sigma=...\)"):
        exact.interval("p")
    assert exact.standard_errors("p", sigma=0.1)[0, 0] == pytest.approx(0.1 / np.linalg.norm(X), rel=1e-6)


def test_fixed_variables_are_not_counted():
    """Of 20 000 variables one is free: its numbers alone are looked at."""
    n = 20_000
    place = asker.Variables(np.zeros((n, 2)), name="place", fixed=np.arange(n) > 0)
    factors = asker.Factors(
        lambda p, q, y: p[:1] + q[:1] - y, place[np.zeros(30, int)], place[np.arange(1, 31)], data=np.ones(30)
    )
    result = asker.solve(asker.Problem(factors), asker.IRLS())
    assert any("place[0, 1]" in doubt for doubt in result.doubts)

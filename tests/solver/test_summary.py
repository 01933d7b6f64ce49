"""The report of a result has the numbers of its methods, and the outliers by index."""

import numpy as np
import pytest

import asker

X = np.linspace(-5, 5, 60)


def line(p, x, y):
    return p[0] * x + p[1] - y


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(0)
    y = 0.8 * X - 1.0 + 0.05 * rng.normal(size=60)
    y[[3, 30, 44]] += [2.0, -4.0, 3.0]
    p = asker.Variables([[0.0, 0.0]], name="line")
    return asker.solve(asker.Problem(asker.Factors(line, p[np.zeros(60, dtype=int)], data=(X, y), name="points")))


def test_the_report_has_the_estimates_and_fits_a_terminal(result):
    text = result.summary(0.9)
    assert max(map(len, text.splitlines())) <= 80
    (x,), (se,), (half,) = result.values[0], result.standard_errors("line"), result.interval("line", 0.9)
    for k in range(2):
        row = next(words for words in map(str.split, text.splitlines()) if words[:1] == [f"line[{k}]"])
        expected = [x[k], se[k], x[k] / se[k], x[k] - half[k], x[k] + half[k]]
        np.testing.assert_allclose([float(row[i]) for i in (1, 2, 3, 5, 6)], expected, rtol=6e-3)


def test_outliers_are_listed_by_decreasing_residual(result):
    text = result.summary()
    listed = text.split("outliers of points")[1].splitlines()[2:]
    assert [int(row.split()[0]) for row in listed] == [30, 44, 3]


def test_loaded_and_large_results_have_a_report(result, tmp_path):
    result.save(tmp_path / "result.npz")
    assert "outliers of points" in asker.Result.load(tmp_path / "result.npz").summary()
    v = asker.Variables(np.zeros((60, 1)), name="many")
    factors = asker.Factors(lambda a, y: a - y, v[np.arange(60)], data=(X,), kernel=asker.Huber(1.0))
    assert "more than 40 unknowns" in asker.solve(asker.Problem(factors)).summary()

"""Undetermined unknowns are named in messages, and do not affect the others."""

import re

import numpy as np
import pytest

import asker
from asker.solver.stationarity import MAX_DENSE_UNKNOWNS

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, 50)
Y = 2 * X + 1 + RNG.normal(0, 0.1, 50)
AT = np.zeros(50, int)


def solved(residual, **starts):
    groups = [asker.Variables(start, name=name) for name, start in starts.items()]
    return asker.solve(asker.Problem(asker.Factors(residual, *(v[AT] for v in groups), data=(X, Y))))


def test_a_parameter_without_effect_is_named_and_the_others_have_intervals():
    result = solved(lambda p, x, y: p[0] * x + p[2] - y, p=[[0.0, 7.0, 0.0]])
    assert result.doubts == ("the data do not determine p[0, 1]: their values are still those of the initial guess",)
    assert np.isnan(result.interval("p")).tolist() == [[False, True, False]]
    assert result.interval("p")[0, [0, 2]] == pytest.approx((0.05, 0.03), rel=0.4)
    determined = solved(lambda p, x, y: p[0] * x + p[1] - y, p=[[0.0, 0.0]])
    assert result.interval("p")[0, 0] == pytest.approx(determined.interval("p")[0, 0], rel=1e-2)
    text = str(result.uncertainty())
    assert "2 of 3 unknowns determined" in text
    assert "the data do not determine p[0, 1]; all others are determined" in text


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


def test_determined_unknowns_raise_no_doubt():
    result = solved(lambda p, x, y: p[0] * x + p[1] - y, p=[[0.0, 0.0]])
    assert not result.doubts
    assert "2 of 2 unknowns determined" in str(result.uncertainty())


def test_the_noise_can_be_stated_if_all_observations_fit_exactly():
    p = asker.Variables([[0.0]], name="p")
    exact = asker.solve(asker.Problem(asker.Factors(lambda p, x, y: p[0] * x - y, p[AT], data=(X, 2 * X))))
    assert exact.noise[0].sigma == 0
    with pytest.raises(asker.ProblemError, match=r"fit exactly.*result.interval\(..., sigma=...\)"):
        exact.interval("p")
    assert exact.standard_errors("p", sigma=0.1)[0, 0] == pytest.approx(0.1 / np.linalg.norm(X), rel=1e-6)


def test_fixed_variables_are_not_counted():
    """One of 20 000 variables is free: only its parameters are examined."""
    n = 20_000
    place = asker.Variables(np.zeros((n, 2)), name="place", fixed=np.arange(n) > 0)
    factors = asker.Factors(
        lambda p, q, y: p[:1] + q[:1] - y, place[np.zeros(30, int)], place[np.arange(1, 31)], data=np.ones(30)
    )
    result = asker.solve(asker.Problem(factors), asker.IRLS())
    assert any("place[0, 1]" in doubt for doubt in result.doubts)


def differences(kernel, name="h"):
    """Return factors of measured height differences, the heights, and their true values."""
    rng = np.random.default_rng(0)
    h = rng.normal(0, 50, 5)
    i = rng.integers(0, 5, 300)
    j = (i + rng.integers(1, 5, 300)) % 5
    v = asker.Variables(np.full(5, 1000.0), name=name)
    d = h[i] - h[j] + rng.normal(0, 1, 300)
    return asker.Factors(lambda a, b, d: a - b - d, v[i], v[j], data=d, kernel=kernel, name="differences"), v, h


@pytest.mark.parametrize("kernel", [None, asker.Huber(1.0)], ids=str)
def test_gauge_dependent_parameters_have_intervals_only_relative_to_a_datum(kernel):
    factors, v, h = differences(kernel)
    result = asker.solve(asker.Problem(factors))
    assert "can move together" in result.doubts[0]
    for values in (result.interval(v), result.standard_errors(v), result.covariance(v).blocks):
        assert np.isnan(values).all()
    assert result.covariance(v).undetermined.all()
    assert "need a datum" in result.covariance(v).gauge
    off = result[v] - h
    error = result.interval(v, datum=v[[0]])[:, 0]
    assert error[0] == pytest.approx(0, abs=1e-6)
    assert (np.abs(off - off[0]) <= error + 1e-9).all()
    assert (np.abs(off - off.mean()) <= result.interval(v, datum="h")[:, 0]).all()
    assert np.isfinite(result.leverage[0].used).all()


def test_what_is_determined_keeps_its_interval_beside_a_free_gauge():
    """One of two separate nets of heights is tied, and of places in the plane one axis is."""
    free, v, _ = differences(asker.Huber(1.0))
    net, w, h = differences(asker.Huber(1.0), "tied")
    tie = asker.Factors(lambda a, d: a - d, w[[0]], data=h[:1], kernel=asker.Quadratic(1.0), name="tie")
    place = asker.Variables(np.zeros((3, 2)), name="place")
    i, j = np.arange(90) % 3, (np.arange(90) + 1) % 3
    step = RNG.normal(0, 0.1, (90, 2))
    steps = asker.Factors(lambda a, b, d: a - b - d, place[i], place[j], data=step, kernel=asker.Huber(1.0))
    levels = asker.Factors(lambda a, d: a[1] - d, place[i], data=step[:, 1], kernel=asker.Huber(1.0), name="levels")
    result = asker.solve(asker.Problem(free, net, tie, steps, levels))
    alone = asker.solve(asker.Problem(net, tie))
    assert np.isnan(result.interval(v)).all()
    assert result.standard_errors(w, sigma=1.0) == pytest.approx(alone.standard_errors(w, sigma=1.0), rel=1e-6)
    assert np.isnan(result.interval(place)).tolist() == [[True, False]] * 3
    assert np.isnan(result.interval(place, datum=v)).tolist() == [[True, False]] * 3
    assert not np.isnan(result.interval(place, datum=[place, v])).any()
    assert not np.isnan(result.interval(v, datum=["place", v[[0, 2]]])).any()
    assert result.uncertainty().n_undetermined == {"h": 5, "place": 3}


@pytest.mark.parametrize("seed", range(25))
def test_doubts_and_intervals_name_the_same_parameters(seed):
    """Unobservable parameters of random linear problems are those that the null space of the Jacobian moves."""
    rng = np.random.default_rng(seed)
    d, n_groups = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    groups = [asker.Variables(rng.normal(size=(int(rng.integers(1, 4)), d)), name=f"v{k}") for k in range(n_groups)]
    first = np.concatenate([[0], np.cumsum([d * len(v) for v in groups])])
    factors, rows = [], []
    for k in range(int(rng.integers(1, 5))):
        v, w = (int(x) for x in rng.integers(0, n_groups, 2))
        i, j = int(rng.integers(len(groups[v]))), int(rng.integers(len(groups[w])))
        A, B = rng.integers(-1, 2, (2, 2, d)) * rng.uniform(0.5, 2, (2, 2, d)) * 10.0 ** rng.integers(-2, 3)
        J = np.zeros((2, first[-1]))
        J[:, first[v] + d * i : first[v] + d * (i + 1)] += A
        J[:, first[w] + d * j : first[w] + d * (j + 1)] += B
        rows.append(J)
        slots = groups[v][np.full(20, i)], groups[w][np.full(20, j)]
        data = rng.normal(size=(20, 2))
        kernel = asker.Quadratic(1.0)
        factors.append(
            asker.Factors(lambda x, y, z, A=A, B=B: A @ x + B @ y - z, *slots, data=data, kernel=kernel, name=f"f{k}")
        )
    problem = asker.Problem(*factors)
    _, s, Vt = np.linalg.svd(np.concatenate(rows))
    null = Vt[np.count_nonzero(s > 1e-10 * s.max()) :]
    is_open = np.linalg.norm(null, axis=0) > 1e-8
    expected = {v: is_open[first[k] : first[k + 1]].reshape(len(v), d) for k, v in enumerate(groups)}
    result = asker.solve(problem)
    for v in problem.variables:
        assert np.array_equal(np.isnan(result.interval(v, sigma=1.0)), expected[v])
    if sum(expected[v].size for v in problem.variables) > MAX_DENSE_UNKNOWNS:  # larger ones have a gauge as a rule
        return
    doubts = "".join(result.doubts)
    n_named = len(re.findall(r"v\d\[\d, \d\]", doubts))
    assert n_named + sum(map(int, re.findall(r"and (\d+) more", doubts))) == sum(
        expected[v].sum() for v in problem.variables
    )


@pytest.mark.parametrize("kernel", [asker.TruncatedQuadratic(0.1), asker.Tukey(0.1)])
def test_parameters_without_influential_observations_have_no_interval(kernel):
    """All observations are within the estimated noise, and all have weight 0 under a kernel that is too narrow."""
    p = asker.Variables([[2.0, 1.5]], name="p")
    factors = asker.Factors(lambda p, x, y: p[0] * x + p[1] - y, p[AT], data=(X, Y), kernel=kernel)
    result = asker.solve(asker.Problem(factors), asker.IRLS())
    assert not result.weights[0].any()
    assert result.inliers[0].all()
    assert any("the data do not determine p[0, 0], p[0, 1]" in doubt for doubt in result.doubts)
    assert np.isnan(result.interval("p")).all()

"""High-breakdown estimators: brute force, published answers, equivariance, exact fits."""

import json
from itertools import combinations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import asker
from asker.estimators import ESTIMATORS, lts_estimate, mm_estimate, s_estimate
from asker.estimators.lts_regression import consistency, n_kept
from asker.estimators.m_scale import m_scale
from asker.estimators.small_samples import adaptive_scale, leverages, robust_covariance, taus
from asker.estimators.tau_regression import second_kernel

T = np.linspace(0, 4, 50)
TRUTH = np.array([2.0, 1.1, 0.5])
EVERY_ESTIMATOR = pytest.mark.parametrize("method", ESTIMATORS)


def curve(t, a, b, c):
    return a * np.exp(-b * t) + c


def contaminated(share, seed=0):
    rng = np.random.default_rng(seed)
    y = curve(T, *TRUTH) + 0.05 * rng.normal(size=len(T))
    bad = rng.choice(len(T), int(share * len(T)), replace=False)
    y[bad] = 3.0 + 0.3 * rng.normal(size=len(bad))
    return y, bad


def plane(seed=0, n=12):
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), rng.normal(size=n)]
    y = X @ [1.0, 2.0] + rng.normal(size=n)
    y[:3] += 8
    return X, y


@EVERY_ESTIMATOR
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_a_nonlinear_curve_is_estimated_with_clustered_outliers(method, share):
    """Least squares is lost: its error is ten times as large."""
    y, bad = contaminated(share)
    fit = ESTIMATORS[method](lambda p: curve(T, *p) - y, [1.0, 1.0, 1.0], n_subsets=200)
    good = np.delete(np.arange(len(T)), bad)
    best = asker.least_squares(lambda p: (curve(T, *p) - y)[good], TRUTH)
    errors = np.sqrt(np.diag(best.covariance))
    assert (np.abs(fit.x - TRUTH) < 5 * errors).all()
    assert 0.03 < fit.scale < 0.1  # the bias of a scale at 40 % outliers is bounded, not 0
    assert fit.converged
    if share:
        assert (fit.weights[bad] < 0.01).all()
        assert np.median(fit.weights[good]) > 0.3


def test_lts_is_the_best_of_all_subsets():
    X, y = plane()
    h = n_kept(len(y), 2, 0.5)
    every = [np.linalg.lstsq(X[list(s)], y[list(s)])[1].sum() for s in combinations(range(len(y)), h)]
    fit = asker.estimators.lts_estimate(lambda b: X @ b - y, [0.0, 0.0])
    raw = asker.estimators.estimate.lts_search(
        asker.estimators.robust_fit.search_arguments(lambda b: X @ b - y, [0.0, 0.0], 0.5).functions
    )[0]
    assert 2 * raw.point.value == pytest.approx(min(every))
    kept = fit.weights > 0
    np.testing.assert_allclose(fit.x, np.linalg.lstsq(X[kept], y[kept])[0], rtol=1e-6)


def test_the_s_estimate_has_the_smallest_scale_of_many_descents():
    X, y = plane(1, 30)
    kernel = asker.Tukey.at_breakdown(0.5)
    fit = s_estimate(lambda b: X @ b - y, [0.0, 0.0])
    starts = np.random.default_rng(0).normal(0, 3, (15, 2))
    others = [minimize(lambda b: m_scale(X @ b - y, kernel, 0.5), x, method="Nelder-Mead").fun for x in starts]
    assert fit.scale <= min(others) * (1 + 1e-6)


def test_the_m_scale_solves_its_equation_and_has_the_unit_of_the_residuals():
    r = np.random.default_rng(0).standard_t(2, size=200)
    for kernel in (asker.Tukey.at_breakdown(0.5), asker.LQQ.at_breakdown(0.5)):
        s = m_scale(r, kernel, 0.5)
        assert np.mean(kernel.psi((r / s) ** 2)) / kernel.psi(np.array(1e12)) == pytest.approx(0.5)
        assert m_scale(1e9 * r, kernel, 0.5) == pytest.approx(1e9 * s)
    assert m_scale(np.where(np.arange(200) < 110, 0.0, r), kernel, 0.5) == 0


@pytest.mark.parametrize(
    "name", ["stackloss", "starsCYG", "hbk", "wood", "telef", "coleman", "pilot", "cloud", "education"]
)
def test_mm_estimates_of_classical_sets_are_those_of_statsmodels(name, data_file):
    """RLMDetSMM with a breakdown point of 50 % and an efficiency of 95 %."""
    given = json.loads(data_file("classical.json").read_text())[name]
    x, y = np.array(given["x"]), np.array(given["y"])
    A = np.c_[np.ones(len(y)), x]
    fit = mm_estimate(lambda b: A @ b - y, np.zeros(A.shape[1]), jac=lambda b: A)
    assert (np.abs(fit.x - given["mm"]) < 0.5 * np.array(given["mm_se"])).all()
    refused = np.array(given["mm_refuses"], dtype=int) - 1
    assert (fit.weights[refused] < 0.6).all()


def test_the_second_width_of_tau_is_that_of_the_paper():
    """Salibian-Barrera, Willems, Zamar 2008: 6.08 for an efficiency of 95 %, which is rounded."""
    assert second_kernel("bisquare", 0.5, 0.95).tau == pytest.approx(6.08, abs=0.05)


def test_corrections_for_small_samples_of_least_squares_are_the_textbook_ones():
    X, y = plane(2)
    b = np.linalg.lstsq(X, y)[0]
    r, h = X @ b - y, leverages(X, np.ones(len(y)))
    s = np.sqrt(r @ r / (len(y) - 2))
    np.testing.assert_allclose(h, np.diag(X @ np.linalg.inv(X.T @ X) @ X.T))
    np.testing.assert_allclose(taus(asker.Quadratic(), h), np.sqrt(1 - h), rtol=2e-3)
    assert adaptive_scale(r, X, asker.Quadratic(), 1.0) == pytest.approx(s, rel=2e-3)
    np.testing.assert_allclose(robust_covariance(r, X, asker.Quadratic(), s), s**2 * np.linalg.inv(X.T @ X), rtol=5e-3)


def test_the_consistency_factor_of_lts_is_that_of_a_simulation():
    e = np.sort(np.random.default_rng(0).normal(size=200_000) ** 2)
    assert consistency(0.6) == pytest.approx(e[:120_000].mean(), rel=0.02)


@EVERY_ESTIMATOR
def test_units_and_shifts_of_the_response_do_not_matter(method):
    X, y = plane(3, 25)
    one = ESTIMATORS[method](lambda b: X @ b - y, [0.0, 0.0])
    other = ESTIMATORS[method](lambda b: X @ b - (1e6 * y + X @ [5e6, -3e6]), [0.0, 0.0])
    np.testing.assert_allclose((other.x - [5e6, -3e6]) / 1e6, one.x, rtol=1e-4)
    assert other.scale / 1e6 == pytest.approx(one.scale, rel=1e-4)


@EVERY_ESTIMATOR
def test_an_exact_fit_of_the_majority_is_reported(method):
    X, _ = plane(4, 30)
    y = X @ [1.0, 2.0]
    y[:9] += np.arange(1, 10)
    fit = ESTIMATORS[method](lambda b: jnp.asarray(X) @ b - y, [0.0, 0.0])
    np.testing.assert_allclose(fit.x, [1.0, 2.0], atol=1e-6)
    assert fit.scale == 0
    np.testing.assert_array_equal(fit.weights, np.arange(30) >= 9)
    assert "21 of 30 observations are fitted exactly" in fit.doubts[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"breakdown": 0.7}, "breakdown must lie between 0 and 0.5"),
        ({"rho": "hampel"}, "rho must be one of bisquare, lqq"),
        ({"n_subsets": 0}, "n_subsets must be at least 1"),
    ],
)
def test_invalid_settings_are_named(given, message):
    X, y = plane()
    with pytest.raises(ValueError, match=message):
        mm_estimate(lambda b: X @ b - y, [0.0, 0.0], **given)
    with pytest.raises(ValueError, match="3 observations are too few for 2 unknowns"):
        lts_estimate(lambda b: (X @ b - y)[:3], [0.0, 0.0])

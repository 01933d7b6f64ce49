"""The noise of a factor group from its residuals, at a solution under specified kernels."""

import numpy as np
import pytest
from scipy.stats import chi2

import asker
from asker.statistics.noise import Noise, rounding_variance
from asker.statistics.scale import estimate


def line_residuals(n, sigma, n_outliers=0, d=2, p=1, seed=0):
    """Return a factor group of a linear model with d unknowns and ‖r‖² at the least-squares fit of its inliers."""
    rng = np.random.default_rng(seed)
    J, noise = rng.normal(size=(n, p, d)), sigma * rng.normal(size=(n, p))
    noise[:n_outliers] = rng.uniform(-10, 10, (n_outliers, p))
    fit = np.linalg.lstsq(J[n_outliers:].reshape(-1, d), noise[n_outliers:].ravel(), rcond=None)[0]
    r = noise - J @ fit
    x = asker.Variables([fit], name="x")
    factors = asker.Factors(lambda x, J, y: y - J @ x, x[np.zeros(n, int)], data=(J, noise))
    return factors, np.einsum("np,np->n", r, r)


@pytest.mark.parametrize("share", [0.1, 0.4])
@pytest.mark.parametrize("seed", range(4))
def test_with_outliers_it_lies_in_its_interval(seed, share):
    n = 500
    factors, u = line_residuals(n, 0.05, int(share * n), seed=seed)
    (noise,) = estimate([factors], [u])
    dof = noise.n_spare
    assert dof == pytest.approx((1 - share) * n, rel=0.05)
    low, high = np.sqrt(chi2.ppf([1e-4, 1 - 1e-4], dof) / dof)
    assert low < noise.sigma / 0.05 < high
    assert noise.inlier_ratio == pytest.approx(1 - share, abs=0.03)


@pytest.mark.parametrize("unit", [1e-100, 1e-6, 1e8])
def test_the_unit_does_not_matter(unit):
    factors, u = line_residuals(300, 0.05, 60)
    one, other = (estimate([factors], [x])[0] for x in (u, unit**2 * u))
    assert other.sigma == pytest.approx(unit * one.sigma, rel=1e-6)
    assert (other.inlier_ratio, other.n_spare) == pytest.approx((one.inlier_ratio, one.n_spare), rel=1e-6)


def test_exact_residuals_have_no_noise():
    factors, u = line_residuals(100, 0.0, 30)
    (noise,) = estimate([factors], [np.where(np.arange(100) < 30, u, 0.0)])
    assert noise.sigma == 0
    assert noise.inlier_ratio == pytest.approx(0.7)


def test_no_degrees_of_freedom_mean_no_estimate():
    factors, u = line_residuals(2, 0.3, d=2)
    (noise,) = estimate([factors], [u])
    assert not noise.is_known
    assert np.isnan(noise.sigma)


def test_the_uncertainty_is_that_of_repeated_estimates():
    """The standard deviation of σ over data sets, relative to σ, is 1/√(2n)."""
    found = [estimate(*([x] for x in line_residuals(60, 0.3, seed=seed)))[0] for seed in range(100)]
    assert np.std([x.sigma for x in found]) / 0.3 == pytest.approx(found[0].uncertainty, rel=0.25)


def test_errors_of_rounding_have_their_variance():
    x = np.random.default_rng(0).uniform(-100, 100, 100_000)
    assert np.var(x - 0.3 * np.round(x / 0.3)) == pytest.approx(rounding_variance(0.3), rel=0.02)


def test_it_prints_what_is_known():
    assert str(Noise(0.5, 0.7, 50)) == "0.5 ± 10 %, inliers 70.0%"
    assert str(Noise(0.0, 0.7, 50)) == "0 (exact), inliers 70.0%"
    assert "unknown" in str(Noise(float("nan"), 1.0, 0.5))

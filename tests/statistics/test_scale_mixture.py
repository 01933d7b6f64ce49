"""Laws of the scale mixture: densities, posteriors, the fit by EM and the evidence."""

from dataclasses import replace
from math import inf, log

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import chi2, multivariate_t

from asker.statistics.scale_mixture import (
    Outliers,
    Residuals,
    ScaleMixture,
    background,
    best_fit,
    evidence,
    fit,
    log_density,
    log_likelihoods,
    posterior,
    squarem,
    weights,
)

DOFS = [inf, 4.0, 1.0]
HYPOTHESES = [Outliers.SPARSE, Outliers.CLUTTER]
PRICE = 5.0


def clutter(seed=0, n=400, p=2, sigma=0.1, ratio=0.6, width=5.0, dof=inf):
    """Return residuals of p numbers, inliers of this noise among uniform outliers; the background is that of a worse
    fit, which is off by a tenth of the width of the outliers."""
    rng = np.random.default_rng(seed)
    r = sigma * rng.normal(size=(n, p))
    if dof < inf:
        r /= np.sqrt(rng.chisquare(dof, (n, 1)) / dof)
    is_out = rng.random(n) > ratio
    r[is_out] = rng.uniform(-width, width, (np.count_nonzero(is_out), p))
    u, worse = squared(r), squared(r + 0.1 * width)
    return Residuals(u, np.full(n, float(p)), background(worse, np.zeros(n), p, DOFS)), is_out


def squared(r):
    return np.einsum("np,np->n", r, r)


@pytest.mark.parametrize("dof", DOFS)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_density_integrates_to_one(p, dof):
    """Over the norm of p numbers, whose sphere has the surface 2 π^(p/2) / Γ(p/2) r^(p−1)."""
    surface = {1: 2.0, 2: 2 * np.pi, 3: 4 * np.pi}[p]

    def of(r):
        return surface * r ** (p - 1) * np.exp(log_density(np.array([r**2]), float(p), 0.49, dof)[0])

    assert quad(of, 0, 1)[0] + quad(of, 1, np.inf)[0] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("p", [1, 3])
def test_the_heavy_tails_are_those_of_scipy(p):
    r = np.random.default_rng(0).normal(size=(20, p))
    own = log_density(np.einsum("np,np->n", r, r), float(p), 0.49, 4.0)
    np.testing.assert_allclose(own, multivariate_t(np.zeros(p), 0.49 * np.eye(p), df=4).logpdf(r), rtol=1e-12)


@pytest.mark.parametrize("dof", DOFS)
@pytest.mark.parametrize("outliers", Outliers)
def test_the_weight_is_the_derivative_of_the_log_likelihood(outliers, dof):
    of, _ = clutter()
    model = ScaleMixture(0.04, 0.7 if outliers is not Outliers.NONE else 1.0, dof, outliers)
    h = 1e-6 * of.u
    above, below = (log_likelihoods(model, replace(of, u=of.u + sign * h)) for sign in (1, -1))
    # a likelihood is bounded from below, where the weight of an outlier is immaterial
    inner = log_likelihoods(model, of) > -600
    numerical = -2 * (above - below) / (2 * h)
    np.testing.assert_allclose(weights(model, of)[inner], numerical[inner], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("outliers", HYPOTHESES)
def test_the_posterior_is_the_derivative_by_the_log_odds(outliers):
    """Σ(q − π) is the gradient of the log likelihood with respect to log(π / (1 − π))."""
    of, _ = clutter()

    def total(odds):
        return log_likelihoods(ScaleMixture(0.04, 1 / (1 + np.exp(-odds)), inf, outliers), of).sum()

    model = ScaleMixture(0.04, 1 / (1 + np.exp(-0.8)), inf, outliers)
    numerical = (total(0.8 + 1e-5) - total(0.8 - 1e-5)) / 2e-5
    assert (posterior(model, of) - model.inlier_ratio).sum() == pytest.approx(numerical, rel=1e-6)


def test_an_impossible_observation_is_an_outlier():
    of, _ = clutter(n=50)
    of = replace(of, u=np.where(np.arange(50) < 5, inf, of.u))
    for outliers in Outliers:
        q = posterior(ScaleMixture(0.01, 0.6 if outliers is not Outliers.NONE else 1.0, inf, outliers), of)
        assert (q[:5] == 0).all()
        assert q[5:].max() > 0.9
    assert fit(of, ScaleMixture(0.01, 0.6), 1e-8, 300).inlier_ratio < 0.9


@pytest.mark.parametrize("dof", DOFS[:2])
@pytest.mark.parametrize("outliers", HYPOTHESES)
@pytest.mark.parametrize("seed", range(3))
def test_em_ends_at_the_maximum_of_the_likelihood(seed, outliers, dof):
    of, _ = clutter(seed, dof=dof)
    found = fit(of, ScaleMixture(0.05, 0.7, dof, outliers), 1e-10, 3000)

    def loss(at):
        return -log_likelihoods(ScaleMixture(np.exp(at[0]), 1 / (1 + np.exp(-at[1])), dof, outliers), of).sum()

    at = np.array([log(found.variance), log(found.inlier_ratio / (1 - found.inlier_ratio))])
    best = minimize(loss, at + 0.1, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 2000})
    np.testing.assert_allclose(at, best.x, atol=1e-5)


@pytest.mark.parametrize("m", [2.0, 1.25])
def test_without_outliers_the_variance_is_that_of_the_degrees_of_freedom(m):
    of, _ = clutter(ratio=1.0)
    of = replace(of, m=np.full(len(of.u), m))
    assert fit(of, ScaleMixture(1.0, 1.0, outliers=Outliers.NONE), 1e-10, 300).variance == pytest.approx(
        of.u.sum() / (m * len(of.u)), rel=1e-9
    )


def test_extrapolation_of_a_linear_iteration_is_exact():
    """SQUAREM solves x ← a x + b at once, unless the step would be longer than its limit."""
    x, a, b = np.array([3.0]), 0.5, 1.0
    one = a * x + b
    assert squarem(x, one, a * one + b) == pytest.approx(b / (1 - a))


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1e6])
@pytest.mark.parametrize("outliers", Outliers)
def test_the_evidence_does_not_depend_on_the_unit(outliers, unit):
    of, _ = clutter()
    of = replace(of, log_background=background(of.u + 1.0, np.zeros(len(of.u)), 2, DOFS))
    log_background = background(unit**2 * (of.u + 1.0), np.zeros(len(of.u)), 2, DOFS)
    other = Residuals(unit**2 * of.u, of.m, log_background)
    ratio = 1.0 if outliers is Outliers.NONE else 0.6
    found = [
        fit(x, ScaleMixture(0.01 * k**2, ratio, outliers=outliers), 1e-10, 300) for x, k in ((of, 1.0), (other, unit))
    ]
    assert found[1].variance == pytest.approx(unit**2 * found[0].variance, rel=1e-6)
    assert evidence(found[1], other, PRICE) == pytest.approx(evidence(found[0], of, PRICE), abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("p", [1, 3])
def test_gaussian_data_explain_nothing(p, seed):
    """Their background is their own density: L is near 0, and no outliers have more evidence."""
    rng = np.random.default_rng(seed)
    u = (rng.normal(size=(300, p)) ** 2).sum(axis=1)
    of = Residuals(u, np.full(300, float(p)), background(u, np.zeros(300), p, DOFS))
    none = fit(of, ScaleMixture(1.0, 1.0, outliers=Outliers.NONE), 1e-8, 300)
    assert abs(evidence(none, of, PRICE)) < 1
    for outliers in HYPOTHESES:
        starts = [ScaleMixture(x, 0.7, outliers=outliers) for x in (0.05, 0.3, 1.0)]
        assert evidence(best_fit(of, starts, DOFS[:2], 1e-6, 300, PRICE), of, PRICE) < evidence(none, of, PRICE)


@pytest.mark.parametrize("ratio", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_structure_among_clutter_has_evidence_and_its_inliers_are_found(seed, ratio):
    of, is_out = clutter(seed, ratio=ratio)
    firsts = [ScaleMixture(float(np.quantile(of.u, q)) / 2, 0.7) for q in (0.1, 0.25, 0.5, 0.8)]
    found = best_fit(of, firsts, DOFS[:2], 1e-6, 300, PRICE)
    assert np.sqrt(found.variance) == pytest.approx(0.1, rel=0.2)
    assert found.inlier_ratio == pytest.approx(ratio, abs=0.08)
    assert evidence(found, of, PRICE) > 50
    q = posterior(found, of)
    assert q[of.u < chi2.ppf(0.9, 2) * 0.01].min() > 0.5
    assert q[is_out & (of.u > 1)].max(initial=0.0) < 0.05


def test_a_minority_has_a_price():
    of, _ = clutter()
    for ratio, price in ((0.49, PRICE), (0.51, 0.0)):
        model = ScaleMixture(0.01, ratio)
        assert evidence(model, of, 0.0) - evidence(model, of, PRICE) == pytest.approx(price)


def test_d_fitted_numbers_gain_nothing_by_themselves():
    """With a tenth of the noise, n numbers of which d are used up gain (n − d) log 10."""
    rng, n, d = np.random.default_rng(0), 50, 10
    u = rng.normal(size=n) ** 2
    of = Residuals(u, np.full(n, 1 - d / n), np.zeros(n))
    found = [
        evidence(fit(replace(of, u=s**2 * u), ScaleMixture(s**2, 1.0, outliers=Outliers.NONE), 1e-12, 300), of, 0.0)
        for s in (1.0,)
    ]
    scaled = replace(of, u=0.01 * u)
    other = evidence(fit(scaled, ScaleMixture(0.01, 1.0, outliers=Outliers.NONE), 1e-12, 300), scaled, 0.0)
    assert other - found[0] == pytest.approx((n - d) * np.log(10), rel=1e-9)


def test_heavy_tails_are_chosen_by_the_evidence():
    for dof in (inf, 2.5):
        of, _ = clutter(1, n=2000, ratio=1.0, dof=dof)
        of = replace(of, log_background=np.full(2000, -3.0))
        found = best_fit(of, [ScaleMixture(0.01, 1.0, outliers=Outliers.NONE)], (inf, 4.0), 1e-6, 300, PRICE)
        assert found.dof == (inf if dof == inf else 4.0)

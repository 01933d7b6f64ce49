"""One rule by which an observation is an inlier: for every dimension, and the same wherever inliers are counted."""

import re

import numpy as np
import pytest
from scipy.stats import chi2

import asker
from asker.statistics.inliers import REJECTED, classify, inlier_radius
from asker.statistics.noise import Noise

N, BAD = 200, 80
DIMENSIONS = (1, 2, 3, 6, 10, 15, 20, 40, 80, 150)


def lines(d, seed=0, n=N, bad=BAD, **given):
    """Vector observations of a line, the first of them gross outliers."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-5, 5, (n, d))
    y = 0.8 * x - 1 + rng.normal(0, 0.05, x.shape)
    y[:bad] = rng.uniform(-8, 8, (bad, d))
    line = asker.Variables([[0.0, 0.0]], name="line")
    slot = line[np.zeros(n, int)]
    return asker.Problem(asker.Factors(lambda p, x, y: p[0] * x + p[1] - y, slot, data=(x, y), name="points", **given))


def residuals(p, sigma, n, seed=0):
    """A factor group whose residuals have p numbers of noise σ at 0, and u."""
    r = np.random.default_rng(seed).normal(0, sigma, (n, p))
    x = asker.Variables(np.zeros((1, 1)), fixed=True, name="x")
    factors = asker.Factors(lambda x, r: r + 0 * x[0], x[np.zeros(n, int)], data=r, kernel=asker.Quadratic())
    return factors, np.einsum("np,np->n", r, r)


def shares_told(result):
    """The shares in both rows of the printed table."""
    rows = dict(row.split(maxsplit=1) for row in str(result).splitlines())
    return [float(x) for x in re.findall(r"([\d.]+) ?%", rows["inliers"])], re.findall(
        r"inliers ([\d.]+)%", rows.get("noise", "")
    )


@pytest.mark.parametrize("p", range(1, 81))
def test_an_inlier_is_rarely_beyond_the_limit(p):
    assert chi2.sf((inlier_radius(p, 0.7) / 0.7) ** 2, p) == pytest.approx(REJECTED)
    factors, u = residuals(p, 0.7, 20_000, seed=p)
    found = classify([factors], [u], [Noise(0.7, 1.0, 20_000.0)])
    assert found.inliers[0].mean() == pytest.approx(1 - REJECTED, abs=5 * np.sqrt(REJECTED / 20_000))
    assert found.noises[0].inlier_ratio == found.inliers[0].mean()


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("kernel", [None, asker.SmoothTruncated(1.0), asker.Cauchy(0.2), asker.Huber(0.1)], ids=str)
def test_good_observations_are_inliers_in_every_dimension(d, kernel):
    """By the noise, whatever the kernel and its width; and what is printed agrees with the masks."""
    result = asker.solve(lines(d, seed=d, kernel=kernel))
    mask = result.inliers["points"]
    assert mask[BAD:].mean() >= 0.97
    assert mask[:BAD].mean() <= 0.05
    share = mask.mean()
    assert result.inlier_ratio == result.noise[0].inlier_ratio == share
    of_inliers, of_noise = shares_told(result)
    assert of_inliers == [pytest.approx(100 * share, abs=0.051)]
    assert len(of_noise) == (kernel is None)
    assert all(float(x) == pytest.approx(100 * share, abs=0.051) for x in of_noise)
    assert f"{mask.sum()} of {N}" in result._repr_html_()


def test_a_kernel_of_another_width_marks_the_same():
    """The rule is that of the noise; the inflection point of the kernel is another quantity, as the paper has it."""
    narrow, wide = (asker.solve(lines(2, kernel=asker.SmoothTruncated(tau))) for tau in (0.15, 1.5))
    assert np.mean(narrow.inliers[0] == wide.inliers[0]) > 0.99
    for result, tau in ((narrow, 0.15), (wide, 1.5)):
        near = np.linalg.norm(result.residuals[0], axis=1) <= tau / np.sqrt(3)
        np.testing.assert_array_equal(result.within_inflection[0], near)
    assert narrow.within_inflection[0].mean() < 0.55 < narrow.inlier_ratio


def test_least_squares_without_outliers_reject_next_to_nothing():
    result = asker.solve(lines(3, n=2000, bad=0, kernel=asker.Quadratic()))
    assert result.inlier_ratio == pytest.approx(1 - REJECTED, abs=0.003)


def test_observations_of_weight_0_are_not_counted():
    weight = np.ones(N)
    weight[100:150] = 0.0
    result = asker.solve(lines(2, kernel=asker.SmoothTruncated(1.0), weight=weight))
    mask = result.inliers[0]
    assert not mask[100:150].any()
    share = mask[weight > 0].mean()
    assert result.inlier_ratio == result.noise[0].inlier_ratio == share
    assert f"{mask.sum()} of 150" in str(result)


def test_where_the_noise_cannot_be_told_only_a_robust_kernel_rejects():
    factors, u = residuals(1, 1.0, 4)
    r = np.sqrt(u)
    unknown = [Noise(float("nan"), 1.0, 3.0)]
    assert classify([factors], [u], unknown).inliers[0].all()
    tau = np.median(r) * np.sqrt(3)
    robust = factors.with_kernel(asker.SmoothTruncated(tau))
    np.testing.assert_array_equal(classify([robust], [u], unknown).inliers[0], r <= tau / np.sqrt(3))


def test_a_loaded_result_has_the_same_inliers(tmp_path):
    result = asker.solve(lines(20))
    result.save(tmp_path / "a.npz")
    loaded = asker.Result.load(tmp_path / "a.npz")
    np.testing.assert_array_equal(loaded.inliers[0], result.inliers[0])
    assert loaded.inlier_ratio == result.inlier_ratio == loaded.noise[0].inlier_ratio
    assert str(loaded) == str(result)
    with pytest.raises(AttributeError, match="inflection point needs the whole problem"):
        loaded.within_inflection  # noqa: B018


def test_doubts_count_the_inliers_of_the_result():
    """Six of ten points on a line agree."""
    rng = np.random.default_rng(3)
    x = np.linspace(-1, 1, 10)
    y = 2 * x + 0.01 * rng.normal(size=10)
    y[[1, 4, 6, 8]] += (1.0, -2.0, 3.0, -0.7)
    line = asker.Variables([[0.0, 0.0]], name="line")
    factors = asker.Factors(lambda p, x, y: p[0] * x + p[1] - y, line[np.zeros(10, int)], data=(x, y), name="points")
    result = asker.solve(asker.Problem(factors))
    told = [int(k) for doubt in result.doubts for k in re.findall(r"(\d+) of 10 points agree,", doubt)]
    told += [int(k) for doubt in result.doubts for k in re.findall(r"(\d+) inliers with", doubt)]
    assert set(told) <= {int(result.inliers[0].sum())}
    assert result.noise[0].inlier_ratio == result.inliers[0].mean()


def test_observations_that_fit_exactly_under_a_kernel_are_inliers():
    x = asker.Variables([[0.5, 2.0]], name="x")
    factors = asker.Factors(lambda x, y: x - y, x[[0, 0]], data=[[0.5, 2.0]] * 2, kernel=asker.Huber(1.0))
    result = asker.solve(asker.Problem(factors))
    assert result.inliers[0].all()

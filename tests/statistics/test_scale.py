"""The noise that residuals show: on made problems, whose noise is known."""

import numpy as np
import pytest

import asker
from asker.applications import bundle
from asker.statistics.noise import Noise
from asker.statistics.scale import estimate, kept_shares


def fitted(n, d, sigma, outliers, seed, spread=50.0):
    """A linear fit with d unknowns to n numbers, some of them far off: its result."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, d))
    y = A @ np.ones(d) + sigma * rng.normal(size=n)
    y[: round(outliers * n)] += spread * sigma * rng.normal(size=round(outliers * n))

    def residual(x, row, y):
        return row @ x - y

    x = asker.Variables(np.zeros((1, d)), name="x")
    kernel = asker.SmoothTruncated(5 * sigma)
    return asker.solve(asker.Problem(asker.Factors(residual, x[np.zeros(n, int)], data=(A, y), kernel=kernel)))


@pytest.mark.parametrize("sigma", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("outliers", [0.0, 0.2, 0.5])
def test_the_noise_of_a_fit_is_found(sigma, outliers):
    found = [fitted(400, 3, sigma, outliers, seed).noise[0] for seed in range(5)]
    assert np.mean([noise.sigma for noise in found]) == pytest.approx(sigma, rel=0.06)
    for noise in found:
        assert abs(noise.sigma / sigma - 1) < 5 * noise.uncertainty + 0.05
        assert noise.inlier_ratio == pytest.approx(1 - outliers, abs=0.08)
        assert noise.tau == 5 * noise.sigma


def test_what_a_fit_has_used_up_counts():
    """Half as many unknowns as numbers: without that the noise would come out 0.7 times as large."""
    found = [fitted(60, 30, 1.0, 0.0, seed).noise[0].sigma for seed in range(20)]
    assert np.mean(found) == pytest.approx(1.0, rel=0.1)


def test_what_a_fit_has_used_up_counts_once():
    """Half of thirty numbers are inliers, and there are three unknowns: twelve are left, enough to tell σ."""
    found = [fitted(30, 3, 1.0, 0.5, seed, spread=500.0).noise[0] for seed in range(10)]
    assert np.mean([noise.n_spare for noise in found]) == pytest.approx(12.0, abs=0.7)
    assert all(noise.is_known for noise in found)


@pytest.mark.parametrize(("noise", "outliers"), [(0.1, 0.3), (0.4, 0.7), (1.5, 0.5), (1.0, 0.0)])
def test_the_noise_of_a_scene_is_found(noise, outliers):
    scene = bundle.make_scene(12, 3600, noise=noise, outlier_ratio=outliers, start_error=8.0, seed=5)
    problem = bundle.bundle_problem(scene.start, asker.Cauchy(2 * noise)).problem
    found = asker.solve(problem, asker.IRLS()).noise["reprojection"]
    assert found.sigma == pytest.approx(noise, rel=0.12)


@pytest.mark.parametrize("outliers", [0.1, 0.6])
def test_from_the_noise_close_by_it_is_the_same(outliers):
    result = fitted(2000, 3, 1.0, outliers, 8)
    factors, u = result.problem.factors, [np.sum(r**2, axis=1) for r in result.residuals]
    (found,) = estimate(factors, u)
    for off in (0.7, 1.4):
        (again,) = estimate(factors, u, near=[Noise(off * found.sigma, found.inlier_ratio, found.n_spare)])
        assert again.sigma == pytest.approx(found.sigma, rel=1e-3)


def test_the_shares_that_are_kept_add_up():
    """A fit with full weights keeps as many numbers as there are beyond the unknowns."""
    scene = bundle.make_scene(6, 600, outlier_ratio=0.0)
    factors = bundle.bundle_problem(scene.start).problem.factors
    (a,) = kept_shares(factors, [np.ones(600)])
    unknowns = 6 * 6 + 3 * scene.start.n_points
    assert np.all((a >= 0) & (a <= 1))
    assert 2 * a.sum() == pytest.approx(1200 - unknowns)


def test_a_tree_keeps_nothing():
    """Its inner nodes have three edges each: by themselves those between two such nodes would keep a third."""
    i, j = np.array([[0, 0, 0, 1, 1, 2, 2, 3, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9]])
    x = asker.Variables(np.zeros((10, 1)), name="x")
    factors = [asker.Factors(lambda a, b, d: b - a - d, x[i], x[j], data=np.ones((9, 1)))]
    for voting in (False, True):
        (a,) = kept_shares(factors, [np.ones(9)], voting=voting)
        assert np.all(a == 0)


def test_weights_count():
    rng = np.random.default_rng(0)

    def residual(x, y):
        return x - y

    x = asker.Variables(np.zeros(1), name="x")
    weight = np.where(np.arange(1000) < 500, 4.0, 1.0)
    data = rng.normal(size=1000) / np.sqrt(weight)
    factors = asker.Factors(residual, x[np.zeros(1000, int)], data=data, weight=weight, kernel=asker.Huber())
    assert asker.solve(asker.Problem(factors)).noise[0].sigma == pytest.approx(1.0, rel=0.07)


def test_it_can_be_printed():
    result = fitted(100, 3, 1.0, 0.2, 0)
    assert str(result.noise) == f"Groups('residual': {result.noise[0]})"
    assert "inliers" in str(result.noise)
    assert str(Noise(2.0, 0.75, 50.0)) == "2 ± 10 %, inliers 75.0%"


def test_unknown_noise_is_reported():
    few = fitted(6, 3, 1.0, 0.0, 0).noise[0]
    assert not few.is_known
    assert np.isnan(few.sigma)
    assert few.uncertainty == np.inf
    assert str(few) == "unknown: too few observations agree"


def test_exact_residuals_have_no_noise():
    x = asker.Variables(np.zeros(1), name="x")
    factors = asker.Factors(lambda x, y: x - y, x[np.zeros(50, int)], data=np.ones(50), kernel=asker.Huber())
    noise = asker.solve(asker.Problem(factors)).noise[0]
    assert noise.sigma == pytest.approx(0.0, abs=1e-6)
    assert noise.inlier_ratio == pytest.approx(1.0)


def test_a_loaded_result_knows_it(tmp_path):
    result = fitted(20, 2, 1.0, 0.0, 0)
    result.save(tmp_path / "a.npz")
    loaded = asker.Result.load(tmp_path / "a.npz")
    assert loaded.estimated_noise is None
    assert loaded.noise[0] == result.noise[0]


def test_an_empty_group_says_nothing():
    x = asker.Variables(np.zeros(1), name="x")
    factors = asker.Factors(lambda x, y: x - y, x[np.zeros(0, int)], data=np.zeros(0))
    (noise,) = estimate([factors], [np.zeros(0)])
    assert isinstance(noise, Noise)
    assert not noise.is_known


@pytest.mark.parametrize("seed", [3, 5, 6, 7, 14, 17, 19])
def test_noise_with_tails_a_little_heavy_can_be_told(seed):
    """Two Gaussians explain it no better than one does: then a width at which nobody votes must not win."""
    residuals = np.random.default_rng([seed, 5]).laplace(size=(150, 2)).mean(axis=1)
    x = asker.Variables(np.zeros(1), name="x")
    factors = asker.Factors(lambda x, y: x - y, x[np.zeros(150, int)], data=residuals)
    (found,) = estimate([factors], [residuals**2])
    assert found.is_known
    assert 0.2 < found.sigma < 1.2


def made_residuals(sizes, scales, outliers, seed):
    """Numbers around 0 in groups, of which a share is far off: factors of one unknown, and their squares."""
    rng = np.random.default_rng(seed)
    x = asker.Variables(np.zeros(1), name="x")
    u, factors = [], []
    for n, scale in zip(sizes, scales, strict=True):
        far = np.where(rng.random(n) < outliers, 50.0, 1.0)
        u.append((scale * far * rng.normal(size=n)) ** 2)
        factors.append(asker.Factors(lambda x, y: x - y, x[np.zeros(n, int)], data=np.zeros(n)))
    return factors, u


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_a_small_group_is_seen_beside_a_large_one(scale):
    for seed in range(12):
        factors, u = made_residuals((300_000, 100), (1.0, scale), 0.6, seed)
        large, small = estimate(factors, u)
        assert large.sigma == pytest.approx(1.0, rel=0.02)
        assert small.sigma == pytest.approx(scale, rel=0.5)


def test_many_observations_in_a_pattern_are_no_others():
    """Every fourth is exact; in any order the noise is the same."""
    rng = np.random.default_rng(3)
    y = np.where(np.arange(20_000) % 4, rng.normal(size=20_000), 0.0)
    y[rng.random(20_000) < 0.3] *= 1000
    (factors,), _ = made_residuals((20_000,), (1.0,), 0.0, 0)
    found = [estimate([factors], [u])[0].sigma for u in (y**2, rng.permutation(y) ** 2)]
    assert found[0] == pytest.approx(found[1], rel=0.01)

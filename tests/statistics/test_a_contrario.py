"""Few observations that agree: by chance, or not."""

from itertools import combinations

import numpy as np
import pytest

import asker
from asker.statistics.a_contrario import agreement, log_chances, told
from asker.statistics.scale import FEW, UNLIKELY, Noise

UNTOLD = Noise(float("nan"), 1.0, 5.0)


def squares_of(A, y, chosen):
    """The squares of a line that is fitted to the chosen ones, and all others."""
    x, *_ = np.linalg.lstsq(A[chosen], y[chosen], rcond=None)
    return (A @ x - y) ** 2


def residuals(n, n_out, seed, sigma=0.01):
    rng = np.random.default_rng(seed)
    return np.concatenate([sigma * rng.normal(size=n - n_out), rng.uniform(1, 3, n_out)]) ** 2


def test_chance_is_no_likelier_than_said():
    """Every choice of the points of a line in noise, and all there is in it is chance."""
    n, d, n_trials = 7, 2, 400
    rng = np.random.default_rng(0)
    choices = [np.array(c) for k in range(d + 1, n) for c in combinations(range(n), k)]
    lowest = np.zeros(n_trials)
    for trial in range(n_trials):
        A, y = np.stack([rng.normal(size=n), np.ones(n)], axis=1), rng.normal(size=n)
        total = squares_of(A, y, np.arange(n)).sum()
        for chosen in choices:
            u = squares_of(A, y, chosen)
            own = np.concatenate([u[chosen], np.delete(u, chosen)])
            lowest[trial] = min(lowest[trial], log_chances(own, 1, d, total)[len(chosen) - 1])
    for chance in (0.03, 0.1, 0.3):
        part = np.mean(lowest < np.log(chance))
        assert part < chance + 2 * np.sqrt(chance / n_trials)
        assert part > chance / 20  # the bound is of use


def test_chances_go_on_where_they_are_too_small_for_a_number():
    u = residuals(40, 10, 0)
    u.sort()
    falls = [
        log_chances(u * np.where(np.arange(40) < 30, f, 1.0), 1, 2, 40.0)[29] for f in 10.0 ** -np.arange(0, 60, 5)
    ]
    np.testing.assert_allclose(np.diff(falls), -14 * 5 * np.log(10), rtol=1e-3)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_unit_does_not_matter(unit):
    u = residuals(10, 3, 1)
    one, other = (told(UNTOLD, c**2 * u, 1, 2, c**2) for c in (1.0, unit))
    assert other.chance == pytest.approx(one.chance)
    assert other.sigma == pytest.approx(unit * one.sigma)


def test_what_agrees_beyond_chance_tells_its_noise():
    found = [told(UNTOLD, residuals(10, 3, seed), 1, 2, 1.0) for seed in range(20)]
    assert all(noise.is_known and noise.chance < UNLIKELY and noise.n_spare < FEW for noise in found)
    assert {noise.inlier_ratio for noise in found} == {0.7}
    assert np.mean([noise.sigma**2 for noise in found]) == pytest.approx(7 / 5 * 0.01**2, rel=0.3)  # nothing was fitted


def test_repeated_observations_count_once():
    u = residuals(10, 3, 2)
    one, twice = (agreement(x, 1, 2, 1.0) for x in (u, np.tile(u, 2)))
    assert one == twice


def test_a_minority_that_fits_exactly_proves_nothing():
    u = np.concatenate([np.zeros(6), np.random.default_rng(0).uniform(1, 3, 7)])
    assert told(UNTOLD, u, 1, 2, 1.0) is UNTOLD
    assert told(UNTOLD, u[:10], 1, 2, 1.0).sigma == 0


def test_a_line_along_steps_of_rounded_data_proves_nothing():
    u = np.array([0.0] * 6 + [1.0] * 5)
    assert told(UNTOLD, u, 1, 2, 0.3) is UNTOLD


def test_what_is_told_by_two_gaussians_stays():
    noise = Noise(0.01, 0.7, 20.0)
    assert told(noise, residuals(31, 9, 0), 1, 2, 1.0) is noise


def line(n, n_out, sigma, seed, kind="normal"):
    """A problem with few points, and least squares with its inliers: all residuals there."""
    rng = np.random.default_rng([seed, 77])
    x = rng.uniform(-5, 5, n)
    y = 0.8 * x - 1 + sigma * getattr(rng, kind)(size=n)
    y[:n_out] = rng.uniform(-8, 8, n_out)
    A = np.stack([x, np.ones(n)], axis=1)
    oracle, *_ = np.linalg.lstsq(A[n_out:], y[n_out:], rcond=None)
    v = asker.Variables([[-1.5, 5.0]], name="line")
    factors = asker.Factors(lambda v, x, y: v[0] * x + v[1] - y, v[np.zeros(n, int)], data=(x, y), name="points")
    return asker.Problem(factors), lambda result: np.sqrt(np.mean((A @ (result["line"][0] - oracle)) ** 2))


@pytest.mark.parametrize(("n", "n_out"), [(8, 2), (10, 4), (14, 4), (14, 7), (20, 8), (20, 12)])
def test_gross_outliers_of_few_are_refused(n, n_out):
    """Within the noise of least squares on the inliers, in all but one of ten: an outlier may lie on the line."""
    right = 0
    for seed in range(10):
        problem, off = line(n, n_out, 0.02, seed)
        right += off(asker.solve(problem)) < 0.02
    assert right >= 9


@pytest.mark.parametrize("sigma", [0.5, 1.0])
def test_few_are_right_or_doubted(sigma):
    wrong = [asker.solve(problem) for problem, off in (line(14, 4, sigma, seed) for seed in range(10))]
    offs = [line(14, 4, sigma, seed)[1](result) for seed, result in enumerate(wrong)]
    assert all(result.doubts for result, off in zip(wrong, offs, strict=True) if off > sigma)


@pytest.mark.parametrize("kind", ["normal", "laplace", "uniform"])
@pytest.mark.parametrize("n", [8, 14, 20])
def test_where_all_of_few_are_inliers_least_squares_stays(n, kind):
    offs = []
    for seed in range(10):
        problem, off = line(n, 0, 1.0, seed, kind)
        offs.append(off(asker.solve(problem)))
    assert np.median(offs) < 0.15


def test_weak_evidence_is_told():
    """Three of twelve are a few times as far off as the others."""
    said = []
    for seed in range(20):
        said += asker.solve(line(12, 3, 0.6, seed)[0]).doubts
    assert any("agree, possibly by chance" in doubt for doubt in said)
    assert any("cannot be estimated" in doubt for doubt in said)


@pytest.mark.parametrize("values", [[3, 3, 5], [1, 1, 1], [1, 2], [0, 0, 7, 7]])
def test_two_values_that_differ_are_no_majority(values):
    """Whole numbers that repeat leave fewer than three that differ."""
    mean = asker.Variables([[4.0]], name="mean")
    index = np.zeros(len(values), int)
    problem = asker.Problem(asker.Factors(lambda m, y: m[0] - y, mean[index], data=np.array(values)))
    assert min(values) <= asker.solve(problem)[mean][0, 0] <= max(values)


def test_variables_that_nothing_touches_stay_where_they_are():
    """A group without observations beside one whose noise is sought."""
    rng = np.random.default_rng(9)
    x, y = asker.Variables([[0.0]], name="x"), asker.Variables([[5.0], [6.0]], name="y")
    some = asker.Factors(lambda x, m: x - m, x[np.zeros(60, int)], data=rng.normal(size=(60, 1)))
    none = asker.Factors(lambda y, m: y - m, y[np.zeros(0, int)], data=np.zeros((0, 1)), name="none")
    result = asker.solve(asker.Problem(some, none))
    np.testing.assert_array_equal(result[y], [[5.0], [6.0]])
    assert abs(result[x][0, 0]) < 0.6

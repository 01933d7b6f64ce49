"""What holds a variable may agree by chance: probabilities and intervals beside what was made."""

import numpy as np
import pytest
from scipy.stats import chi

import asker
from asker.kernels.kernels import SmoothTruncated
from asker.statistics.inliers import inlier_radius
from asker.uncertainty.coincidence import Seen, chances
from asker.uncertainty.information import _truncation_correction

N, M, SIGMA, FAR = 6000, 3, 0.1, 20.0


def off(x, y):
    return x[:, 0] - y


def slope(x, y):
    return np.ones((len(y), 1, 1))


def places(share, known=0.0, seed=0):
    """N places, each seen M times with outliers, and by `known` of them once more beyond doubt; the truth is 0."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random((N, M)) < share, rng.uniform(-FAR, FAR, (N, M)), SIGMA * rng.standard_normal((N, M)))
    a, b = np.triu_indices(M, 1)
    apart, rows = np.abs(y[:, a] - y[:, b]), np.arange(N)
    nearest = apart.argmin(axis=1)
    start = np.where(apart.min(axis=1) < 6 * SIGMA, y[rows, a[nearest]] + y[rows, b[nearest]], 2 * y[:, 0]) / 2
    sure = rng.random(N) < known
    start[sure] = 0.0
    x = asker.Variables(start[:, None], name="x")
    slot = x[np.repeat(np.arange(N), M)]
    factors = [asker.Factors(off, slot, data=(y.ravel(),), kernel=SmoothTruncated(5 * SIGMA), jacobian=slope)]
    if sure.any():
        of = np.flatnonzero(sure)
        exact = SIGMA * rng.standard_normal(len(of))
        factors += [asker.Factors(off, x[of], data=(exact,), kernel=asker.Quadratic(), jacobian=slope, name="known")]
    result = asker.solve(asker.Problem(*factors), asker.IRLS(), max_iterations=30)
    return result, x, sure


@pytest.fixture(scope="module")
def seen():
    return places(0.5)


def test_chances_are_those_of_made_places(seen):
    """Of places that one observation holds, and of those that two do, about as many are elsewhere."""
    result, x, _ = seen
    of = result.uncertainty(sigma=SIGMA)
    elsewhere = np.abs(result[x][:, 0]) > 6 * SIGMA
    n = of.information[0].counted.reshape(N, M).sum(axis=1)
    for k, within in ((1, 0.03), (2, 0.4)):
        assert of.chance(x)[n == k].mean() == pytest.approx(elsewhere[n == k].mean(), rel=within)
    likely = (n == 2) & (of.chance(x) > 0.2)
    assert elsewhere[likely].mean() > 5 * elsewhere[(n == 2) & ~likely].mean()


def test_intervals_hold_the_truth_about_as_often_as_they_say(seen):
    result, x, _ = seen
    for level in (0.8, 0.95):
        half = result.interval(x, level, sigma=SIGMA)[:, 0]
        known = np.isfinite(half)
        inside = np.abs(result[x][known, 0]) <= half[known]
        assert inside.mean() == pytest.approx(level, abs=0.03)
        assert np.isinf(half[np.abs(result[x][:, 0]) > 6 * SIGMA]).mean() > 0.9


def test_what_is_held_beyond_doubt_does_not_agree_by_chance():
    result, x, sure = places(0.5, known=0.3)
    of = result.uncertainty(sigma=SIGMA)
    assert of.chance(x)[sure].max() < 1e-100
    assert of.chance(x)[~sure].max() > 0.2
    normal = of.interval(x)[sure, 0] / of.standard_errors(x)[sure, 0]
    assert np.allclose(normal, 1.959964, atol=1e-5)  # nothing was estimated
    with pytest.raises(asker.ProblemError, match="level must be between 0 and 1, not 95"):
        of.interval(x, 95)


@pytest.mark.parametrize("p", [1, 2, 6])
def test_noise_of_inliers_is_a_part_of_it(p):
    norm = np.linspace(0, inlier_radius(p, 1.0), 10_001)
    density = chi.pdf(norm, p)
    assert (norm**2 * density).sum() / density.sum() / p == pytest.approx(_truncation_correction(p), abs=1e-3)


def test_few_numbers_make_intervals_wider():
    """By Student's distribution: a mean of few numbers."""
    y = np.random.default_rng(0).standard_normal(12)
    x = asker.Variables(np.zeros((1, 1)))
    factors = asker.Factors(off, x[np.zeros(12, int)], data=(y,), kernel=asker.Quadratic(), jacobian=slope)
    result = asker.solve(asker.Problem(factors))
    assert result.interval(x)[0, 0] == pytest.approx(2.200985 * y.std(ddof=1) / np.sqrt(12), rel=1e-6)


def test_outliers_of_zero_residual_are_no_division_by_zero():
    """As of observations that are not possible, or that are within rounding like all others."""
    x = asker.Variables(np.zeros(3), name="x")
    factors = asker.Factors(lambda x, d: x - d, x[np.arange(12) % 3], data=np.zeros(12), kernel=SmoothTruncated())
    seen = Seen(np.zeros(12), np.arange(12) > 0, 1e-16, 0.0)
    chance = chances(asker.Problem(factors), [seen])[x]
    assert ((chance >= 0) & (chance <= 1)).all()

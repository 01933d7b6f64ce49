"""Two Gaussians in one sample: made samples, whose variances are known."""

import numpy as np
import pytest

from asker.problem.reductions import ALONE
from asker.statistics import gaussian_mixture
from asker.statistics.gaussian_mixture import Sample, first_fits, fitted


def sample_of(seed, outliers=0.4, spread=8.0, n=4000, p=2, rows=1, left=1.0):
    rng = np.random.default_rng(seed)
    kept = np.where(np.arange(n) < outliers * n, 1.0, left)  # a fit uses up nothing of outliers
    scale = np.where(np.arange(n) < outliers * n, spread, np.sqrt(left))
    u = (scale[:, None] ** 2 * rng.normal(size=(n, p)) ** 2).sum(axis=1)
    return Sample(u, p, np.tile(p * kept, (rows, 1)), np.ones((rows, n)), 0.0, ALONE)


@pytest.mark.parametrize("left", [1.0, 0.6])
def test_both_variances_and_the_share_are_found(left):
    """Also where a fit has used up a part of every residual."""
    found = fitted(sample_of(0, left=left), first_fits([0.3]), 100, True)
    assert found.variance == pytest.approx(1.0, rel=0.06)
    assert found.ratio == pytest.approx(0.6, abs=0.03 if left == 1 else 0.06)
    assert found.broad == pytest.approx(64.0, rel=0.15)
    assert found.gain > 100


def test_fits_together_are_those_of_each_alone():
    first = np.array([1e-3, 0.3, 5.0, 60.0])
    together = fitted(sample_of(1, rows=4), first_fits(first), 100, True)
    alone = [fitted(sample_of(1), first_fits([x]), 100, True) for x in first]
    for number, each in zip(together, zip(*alone, strict=True), strict=True):
        assert number == pytest.approx(np.concatenate(each), rel=5e-3)


@pytest.mark.parametrize("spread", [2.5, 4.0])
def test_leaps_lead_where_steps_do_and_in_fewer(spread, monkeypatch):
    steps = []
    step = gaussian_mixture._step

    def counted(*args):
        steps.append(1)
        return step(*args)

    def count(leap):
        monkeypatch.setattr(gaussian_mixture, "leap", leap)
        steps.clear()
        found = fitted(sample_of(2, spread=spread), first_fits([0.02]), 1000, False)
        return found, len(steps)

    monkeypatch.setattr(gaussian_mixture, "_step", counted)
    monkeypatch.setattr(gaussian_mixture, "AT_REST", 1e-7)
    leaping, few = count(gaussian_mixture.leap)
    walking, many = count(lambda first, second, end: end)
    assert leaping.variance == pytest.approx(walking.variance, rel=1e-3)
    assert leaping.broad == pytest.approx(walking.broad, rel=1e-3)
    assert few < 0.7 * many


def test_one_variance_is_one_also_where_much_is_used_up():
    """Beside the variance of what is left: beside that of everything two would always gain."""
    found = fitted(sample_of(3, outliers=0.0, left=0.4), first_fits([0.05]), 100, True)
    assert found.broad == 0
    assert found.inlier_ratio == 1
    assert found.variance == pytest.approx(1.0, rel=0.05)


def test_what_nobody_votes_for_is_lost_and_the_others_are_not():
    sample = sample_of(4, rows=2)
    sample.vote[0] = 0
    found = fitted(sample, first_fits([1.0, 1.0]), 100, True)
    assert found.gain[0] == -np.inf
    assert found.n_spare[0] == 0
    assert found.variance[1] == pytest.approx(1.0, rel=0.1)


def test_exact_residuals_have_the_least_variance():
    found = fitted(
        Sample(np.zeros(50), 1, np.ones((1, 50)), np.ones((1, 50)), 0.0, ALONE), first_fits([1.0]), 100, True
    )
    assert found.variance < 1e-300
    assert found.n_spare == 50


@pytest.mark.parametrize("seed", range(20))
def test_no_leap_goes_below_the_least_variance(seed):
    sample = sample_of(seed, outliers=0.7, spread=3.0, n=200)._replace(least=0.5)
    for n_pairs in (1, 2, 3):
        found = fitted(sample, first_fits([0.6]), n_pairs, False)
        assert found.variance >= 0.5


def test_a_lost_fit_keeps_its_first_variance():
    """Whatever the unit: with another number nobody would vote in the next round."""
    sample = sample_of(5)
    sample.vote[0] = 0
    assert fitted(sample, first_fits([1e6]), 100, True).variance == 1e6


def test_numbers_too_large_to_square_are_outliers():
    sample = sample_of(6)
    sample.u[0] = 1e300
    found = fitted(sample, first_fits([1e-200]), 2, False)
    assert np.all(np.isfinite(found.variance))

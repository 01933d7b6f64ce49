"""Reductions over processes, simulated by threads, agree with those of a single process."""

import numpy as np
import pytest

import asker
from asker.problem.reductions import ALONE, Sums
from asker.statistics.inliers import classify
from asker.statistics.leverage import remaining_fractions
from asker.statistics.scale import estimate
from asker.statistics.scale_mixture import Residuals, ScaleMixture, background, evidence, fit, posterior
from simulated_processes import Together


def added_by(of_all):
    return lambda x: of_all(x).sum(axis=0)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 6, 101])
def test_order_statistics_are_exact(n):
    values = np.random.default_rng(n).lognormal(0, 20, n)
    values[n // 2 :: 7] = 0.0
    alone = ALONE.median(values), ALONE.largest(values)

    def both_of(k, of_all):
        sums = Sums(None, added_by(of_all))
        return sums.median(values[k::3]), sums.largest(values[k::3])

    for both in Together(3).run(both_of):
        np.testing.assert_array_equal(both, alone)


def scene(points):
    """Return observations of points of a plane in 12 cameras, a third of which are outliers."""
    rng = np.random.default_rng(0)
    camera, point = np.repeat(np.arange(12), 40), np.tile(np.arange(40), 12)
    u = 0.01 * rng.chisquare(2, len(point))
    u[rng.random(len(u)) < 0.3] *= 1000
    u[point == 30] += 10.0  # all observations of this point are outliers
    local = np.isin(point, points)
    cameras, places = (
        asker.Variables(np.zeros((12, 3)), name="cameras"),
        asker.Variables(np.zeros((len(points), 2)), name="places"),
    )
    slots = cameras[camera[local]], places[np.searchsorted(points, point[local])]
    factors = asker.Factors(lambda c, p, d: c[:2] + p * c[2] - d, *slots, data=np.zeros((local.sum(), 2)))
    return factors, places, (u[local],)


def test_the_noise_and_its_inliers_are_those_of_one_process():
    def statistics(points, added=None):
        factors, places, u = scene(points)
        sums = Sums(places, added) if added else ALONE
        noises = estimate([factors], u, sums=sums)
        classified = classify([factors], u, noises, None, sums)
        h = np.full(len(u[0]), 0.3)
        of = Residuals(u[0], 2 - h, background(u[0], h, 2, (np.inf, 4.0), sums), sums=sums)
        mixture = fit(of, ScaleMixture(0.02, 0.7), 1e-8, 300)
        (kept,) = remaining_fractions([factors], [posterior(mixture, of)], sums)
        number = np.tile(np.arange(40), 12)[np.isin(np.tile(np.arange(40), 12), points)]
        of_mixture = mixture.variance, mixture.inlier_ratio, evidence(mixture, of, 5.0), of.n
        return noises[0], of_mixture, classified.n_inliers[0], {k: kept[number == k] for k in points}

    whole = statistics(np.arange(40))
    assert whole[0].sigma == pytest.approx(0.1, rel=0.25)
    assert whole[1][3] == 480
    partition = [np.arange(3), np.arange(3, 25), np.arange(25, 40)]
    each = Together(3).run(lambda k, of_all: statistics(partition[k], added_by(of_all)))
    for noise, of_mixture, n, kept in each:
        assert noise.sigma == pytest.approx(whole[0].sigma, rel=1e-9)
        assert noise.n_spare == pytest.approx(whole[0].n_spare, rel=1e-9)
        assert of_mixture == pytest.approx(whole[1], rel=1e-9)
        assert n == whole[2]
        for k, fractions in kept.items():
            np.testing.assert_allclose(fractions, whole[3][k], rtol=1e-9)
    assert sum(len(kept) for *_, kept in each) == 40

"""Reductions over processes, simulated by threads, agree with those of a single process."""

import numpy as np
import pytest
from asker.statistics.diagnostics import Support
from asker.statistics.scale import estimate

import asker
from asker.problem.problem import Portion
from asker.problem.reductions import ALONE, Sums
from asker.statistics.inliers import classify
from asker.uncertainty.coincidence import Seen, chances
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
        noises = estimate([factors], u, [25.0], sums)
        numbers = np.flatnonzero(np.isin(np.tile(np.arange(40), 12), points))
        problem = asker.Problem(factors, portion=Portion(places, points, 40, (numbers,), (480,)))
        support = Support(problem, u, noises, [None], sums)
        classified = classify([factors], u, noises, None, sums)
        n = classified.n_inliers[0]
        doubts = support.doubts(2 * n - 2, lambda: 7, [], classified)
        flags = support.is_blurred, support.differs(support), support.has_lost_a_variable(), doubts
        of_cameras, of_places = chances(problem, [Seen(u[0], support.inliers[0], noises[0].sigma, 1.0)], sums).values()
        return noises[0], (of_cameras, of_places), flags, n

    whole = statistics(np.arange(40))
    assert whole[2][2]
    assert whole[1][1][30] > 0.5 > whole[1][1][0]
    assert whole[2][3][0].endswith("leave 9 degrees of freedom; add observations")
    assert whole[2][3][1] == "1 of 40 places have no redundant inlier: their inliers cannot be cross-checked"
    assert whole[0].sigma == pytest.approx(0.1, rel=0.25)
    partition = [np.arange(3), np.arange(3, 25), np.arange(25, 40)]
    each = Together(3).run(lambda k, of_all: statistics(partition[k], added_by(of_all)))
    np.testing.assert_allclose(np.concatenate([chance[1] for _, chance, _, _ in each]), whole[1][1], rtol=1e-9)
    for noise, chance, flags, n in each:
        np.testing.assert_allclose(chance[0], whole[1][0], rtol=1e-9)
        assert noise.sigma == pytest.approx(whole[0].sigma, rel=1e-9)
        assert noise.n_spare == pytest.approx(whole[0].n_spare, rel=1e-9)
        assert noise.inlier_ratio == pytest.approx(whole[0].inlier_ratio, rel=1e-9)
        assert (flags, n) == whole[2:]

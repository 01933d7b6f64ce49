"""The marginal over the inlier sets equals a brute-force sum of Gaussian integrals."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from asker.statistics.inlier_sets import Observations, marginal

S2, OUTLIER, RATIO = 0.04, 4.0, 0.7


def scene(n, m, d, p, seed=0):
    """Return linear residuals r + Jδ of n variables of d unknowns, with m observations of p numbers each."""
    rng = np.random.default_rng(seed)
    r, J = rng.normal(0, 0.5, (n, m, p)), rng.normal(size=(n, m, p, d))
    JJ, Jr = np.einsum("nmpa,nmpb->nmab", J, J), np.einsum("nmpa,nmp->nma", J, r)
    return r, J, Observations(JJ, Jr, np.einsum("nmp,nmp->nm", r, r), np.full((n, m), float(p)))


def of_all_sets(of, last=None, max_varied=9, ratio=RATIO):
    shape = of.u.shape
    full = (np.full(shape, x) for x in (S2, OUTLIER, ratio))
    return marginal(of, *full, np.full(shape, 0.5) if last is None else last, max_varied)


def brute_force(r, J):
    """Yield for one variable each set, its integral over δ, and those of e = ‖r + Jδ‖², by the trapezoidal rule."""
    m, _, d = J.shape
    one = np.linspace(-80, 80, 40_001) if d == 1 else np.linspace(-12, 12, 501)
    delta = np.stack(np.meshgrid(*[one] * d), axis=-1).reshape(-1, d)
    moved = r + np.einsum("mpd,kd->kmp", J, delta)
    for inlier in product([0, 1], repeat=m):
        is_in = np.array(inlier) == 1
        each = norm.logpdf(moved, scale=np.sqrt(np.where(is_in, S2, OUTLIER))[:, None]).sum(axis=2)
        density = np.exp((each + np.log(np.where(is_in, RATIO, 1 - RATIO))).sum(axis=1)) * (one[1] - one[0]) ** d
        yield inlier, density.sum(), density @ np.einsum("kmp,kmp->km", moved, moved)


@pytest.mark.parametrize(("m", "p", "seed"), [(1, 2, 0), (2, 1, 1), (3, 1, 2), (3, 2, 3)])
def test_the_marginal_is_the_sum_of_integrals_over_all_sets(m, p, seed):
    r, J, of = scene(1, m, 1, p, seed)
    found = of_all_sets(of)
    each = list(brute_force(r[0], J[0]))
    total = sum(integral for _, integral, _ in each)
    # the integral of a Gaussian is (2π)^(d/2) |B|^(−1/2), whose constant is left out
    assert found.evidence[0] == pytest.approx(np.log(total) - 0.5 * np.log(2 * np.pi), abs=1e-6)
    P = {tuple(row.astype(int)): q for row, q in zip(found.sets[0], found.P[0], strict=True)}
    for inlier, integral, _ in each:
        assert P[inlier] == pytest.approx(integral / total, abs=1e-7)
    for k in range(m):
        inside = sum(integral for inlier, integral, _ in each if inlier[k]) / total
        squares = [(inlier[k], e[k] / total) for inlier, _, e in each]
        assert found.inlier[0, k] == pytest.approx(inside, abs=1e-7)
        assert found.squares[0, k] == pytest.approx(sum(e for is_in, e in squares if is_in), rel=1e-5)
        assert found.outlier_squares[0, k] == pytest.approx(sum(e for is_in, e in squares if not is_in), rel=1e-5)


def test_the_marginal_of_two_unknowns_is_an_integral_over_a_plane():
    r, J, of = scene(1, 2, 2, 2, seed=4)
    total = sum(integral for _, integral, _ in brute_force(r[0], J[0]))
    assert of_all_sets(of).evidence[0] == pytest.approx(np.log(total) - np.log(2 * np.pi), abs=1e-4)


def test_the_step_of_a_set_is_weighted_least_squares():
    r, J, of = scene(3, 4, 2, 2)
    found = of_all_sets(of)
    for i, (sets, deltas) in enumerate(zip(found.sets, found.delta, strict=True)):
        for inlier, delta in zip(sets, deltas, strict=True):
            root = np.repeat(np.sqrt(np.where(inlier == 1, 1 / S2, 1 / OUTLIER)), 2)
            expected = np.linalg.lstsq(root[:, None] * J[i].reshape(8, 2), -root * r[i].ravel(), rcond=None)[0]
            np.testing.assert_allclose(delta, expected, atol=1e-6)


def test_variables_do_not_affect_each_other():
    _, _, of = scene(5, 3, 2, 2)
    whole = of_all_sets(of)
    for i in range(5):
        alone = of_all_sets(Observations(of.JJ[[i]], of.Jr[[i]], of.u[[i]], of.p[[i]]))
        np.testing.assert_allclose(whole.inlier[i], alone.inlier[0], rtol=1e-12)
        assert whole.evidence[i] == pytest.approx(alone.evidence[0])


def test_only_the_most_doubtful_are_varied():
    """The others count with their last probability in every set."""
    _, _, of = scene(2, 5, 1, 1)
    last = np.array([[0.9, 0.45, 0.05, 0.6, 0.99]] * 2)
    found = of_all_sets(of, last, max_varied=2)
    assert found.sets.shape == (2, 4, 5)
    np.testing.assert_array_equal(found.sets[:, :, [0, 2, 4]], np.broadcast_to(last[:, None, [0, 2, 4]], (2, 4, 3)))
    assert {tuple(x) for x in found.sets[0][:, [1, 3]]} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_an_impossible_observation_is_in_no_set_and_does_not_count():
    _, _, of = scene(1, 3, 1, 1)
    u = of.u.copy()
    u[0, 1] = np.inf
    found = of_all_sets(Observations(of.JJ, of.Jr, u, of.p))
    kept = of_all_sets(Observations(of.JJ[:, [0, 2]], of.Jr[:, [0, 2]], of.u[:, [0, 2]], of.p[:, [0, 2]]))
    assert found.inlier[0, 1] == 0
    np.testing.assert_allclose(found.inlier[0, [0, 2]], kept.inlier[0], atol=1e-9)

"""The leverage by variable: exact where observations are alike, and never more than an observation has."""

import numpy as np
import pytest

import asker
from asker.statistics.leverage import remaining_fractions


def leverage(factors, weights, precisions=None):
    kept = remaining_fractions(factors, weights, precisions=precisions)
    return [f.residual_size * (1 - x) for f, x in zip(factors, kept, strict=True)]


def of_index(index, d=2, n=None):
    v = asker.Variables(np.zeros((n or int(index.max()) + 1, d)), name="v")
    return v, asker.Factors(lambda v, y: v - y, v[index], data=np.zeros((len(index), d)))


@pytest.mark.parametrize("seed", range(3))
def test_it_is_exact_for_observations_of_one_variable(seed):
    """h = w tr(J (Σ w JᵀJ)⁻¹ Jᵀ) with J = I."""
    rng = np.random.default_rng(seed)
    index, d = rng.integers(4, size=60), 3
    _, f = of_index(index, d, n=4)
    w = rng.uniform(size=60)
    J = np.zeros((60, d, 4 * d))
    for k, i in enumerate(index):
        J[k, :, d * i : d * i + d] = np.eye(d)
    H = np.einsum("n,npa,npb->ab", w, J, J)
    exact = w * np.einsum("npa,ab,npb->n", J, np.linalg.inv(H), J)
    np.testing.assert_allclose(leverage([f], [w])[0], exact, rtol=1e-10)


def test_it_adds_up_to_the_number_of_unknowns():
    rng = np.random.default_rng(0)
    v, f = of_index(np.repeat(np.arange(10), 12))
    g = asker.Factors(lambda v, y: v[:1] - y, v[np.arange(10)], data=np.zeros((10, 1)))
    h = leverage([f, g], [rng.uniform(0.1, 1, 120), np.ones(10)], precisions=[1.0, 0.1])
    assert sum(x.sum() for x in h) == pytest.approx(20)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_it_is_at_most_the_numbers_of_an_observation(n):
    """One observation of two numbers for three unknowns uses up both, however many variables it has."""
    a, b = asker.Variables(np.zeros((1, 3)), name="a"), asker.Variables(np.zeros((1, 3)), name="b")
    f = asker.Factors(
        lambda a, b, y: a[:2] + b[:2] - y, a[np.zeros(n, int)], b[np.zeros(n, int)], data=np.zeros((n, 2))
    )
    (h,) = leverage([f], [np.ones(n)])
    assert (h <= 2).all()
    assert (h >= 0).all()
    assert (h == 2).all() == (n <= 2)


def test_fixed_variables_and_weightless_observations_use_up_nothing():
    v = asker.Variables(np.zeros((2, 1)), fixed=np.array([True, False]), name="v")
    f = asker.Factors(lambda v, y: v - y, v[np.array([0, 0, 1, 1, 1])], data=np.zeros((5, 1)))
    (h,) = leverage([f], [np.array([1.0, 1.0, 1.0, 1.0, 0.0])])
    np.testing.assert_allclose(h, [0, 0, 0.5, 0.5, 0])

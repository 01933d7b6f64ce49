"""The proof that residuals of few unknowns are noise alone, and what a search costs with it."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import asker
from asker.agreement import noise_alone
from asker.engines.cpu.engine import CpuEngine
from asker.engines.cpu.linear_model import dense_model
from asker.subsets import Subsets

T = np.linspace(0, 10, 100)
TRUTH = np.array([2.0, 1.5, 0.5])
FAR = 100.0
"""The mean square at a start that explains nothing."""


def wave(p, t, y):
    return jnp.array([p[0] * jnp.sin(p[1] * t + p[2]) - y])


def problem_of(at, y, t=T):
    p = asker.Variables(np.atleast_2d(at), name="p")
    return asker.Problem(asker.Factors(wave, p[np.zeros(len(t), dtype=int)], data=(t, y)))


def measured(seed, noise=0.1, t=T):
    return TRUTH[0] * np.sin(TRUTH[1] * t + TRUTH[2]) + noise * np.random.default_rng(seed).normal(size=len(t))


def proved(y, start=TRUTH, at_start=FAR, t=T):
    """At the nearest minimum of least squares."""
    x = scipy.optimize.least_squares(lambda p: p[0] * np.sin(p[1] * t + p[2]) - y, start).x
    engine = CpuEngine(problem_of(x, y, t))
    return noise_alone(engine, engine.start(), [None], [at_start])


def test_noise_alone_is_proved_but_for_chance():
    found = [proved(measured(seed)) for seed in range(40)]
    some = [each[0].sigma for each in found if each is not None]
    assert len(some) >= 38
    assert np.mean(some) == pytest.approx(0.1, rel=0.03)


def test_outliers_are_seen_in_sizes_and_subsets():
    for seed in range(10):
        y, rng = measured(seed), np.random.default_rng(100 + seed)
        for share in (0.1, 0.3, 0.5):
            wrong = rng.choice(len(T), int(share * len(T)), replace=False)
            assert proved(np.where(np.isin(np.arange(len(T)), wrong), y + rng.uniform(-5, 5, len(T)), y)) is None


def test_half_of_the_data_on_another_curve_are_seen_in_subsets(monkeypatch):
    """Residuals of all are spread as noise is: without subsets it would be proved."""
    rng = np.random.default_rng(0)
    y = measured(0, 0.01)
    y = np.where(rng.random(len(T)) < 0.5, y, rng.normal(size=len(T)))
    assert proved(y) is None
    monkeypatch.setattr("asker.agreement._are_noise", lambda r, root: True)
    monkeypatch.setattr("asker.agreement._are_alike", lambda r, root: False)
    assert proved(y) is None
    monkeypatch.setattr("asker.agreement._some_agree", lambda *_: False)
    assert proved(y) is not None


def test_a_wrong_curve_is_seen_in_neighbours(monkeypatch):
    y, other = measured(0), (1.0, 3.0, 0.0)
    monkeypatch.setattr("asker.agreement._are_noise", lambda r, root: True)
    monkeypatch.setattr("asker.agreement._some_agree", lambda *_: False)
    assert proved(y, other) is None
    monkeypatch.setattr("asker.agreement._are_alike", lambda r, root: False)
    assert proved(y, other) is not None


def test_nothing_is_proved_where_the_start_was_as_good():
    assert proved(measured(0), at_start=0.01) is None


def test_neither_is_it_with_a_kernel_that_is_given_or_few_observations():
    y = measured(0)
    engine = CpuEngine(problem_of(TRUTH, y))
    assert noise_alone(engine, engine.start(), [asker.Tukey(0.3)], [FAR]) is None
    few = np.arange(0, 100, 9)
    assert proved(y[few], t=T[few]) is None


def test_derivatives_with_respect_to_several_variables():
    """One group twice in a factor, and one whose variables are partly fixed."""
    a = asker.Variables(np.array([[1.0], [2.0]]), name="a")
    b = asker.Variables(np.array([[3.0, 4.0]]), name="b")
    first, second = np.array([0, 1, 0]), np.array([1, 1, 0])
    f = asker.Factors(
        lambda x, y, z: jnp.array([x[0] * y[0], z[0] + 2 * z[1]]),
        a[first],
        a[second],
        b[np.zeros(3, int)],
        weight=[1, 4, 1],
    )
    r, J = dense_model(asker.Problem(f), (a.rows, b.rows))
    np.testing.assert_allclose(r, [[2, 11], [8, 22], [1, 11]])
    of_a = [[2.0, 1.0], [0.0, 8.0], [2.0, 0.0]]
    np.testing.assert_allclose(J[:, 0], np.pad(of_a, ((0, 0), (0, 2))))
    np.testing.assert_allclose(J[:, 1], np.outer([1, 2, 1], [0, 0, 1, 2]))


class Counted:
    def __init__(self, y, t=T):
        self.y, self.t, self.n = y, t, 0

    def __call__(self, p):
        self.n += 1
        return p[0] * np.sin(p[1] * self.t + p[2]) - self.y


@pytest.mark.parametrize("n", [10, 30, 100, 1000])
def test_a_clean_fit_costs_a_few_times_the_calls_of_scipy(n):
    t = np.linspace(0, 10, n)
    ours, best = Counted(measured(1, t=t), t), Counted(measured(1, t=t), t)
    found = asker.least_squares(ours, [1.0, 1.4, 0.0], loss=None)
    expected = scipy.optimize.least_squares(best, [1.0, 1.4, 0.0])
    assert ours.n < 10 * best.n
    spread = np.sqrt(np.diag(np.linalg.inv(expected.jac.T @ expected.jac))) * 0.1
    np.testing.assert_allclose(found.x, expected.x, atol=float(spread.max()))


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_among_outliers_trials_are_as_many_as_their_share_asks_for(share):
    y, rng = measured(2), np.random.default_rng(2)
    y[rng.choice(100, int(100 * share), replace=False)] += 3.0
    fun = Counted(y)
    found = asker.least_squares(fun, [1.0, 1.4, 0.0], loss=None)
    np.testing.assert_allclose(found.x, TRUTH, atol=0.1)
    assert fun.n < 4000


def test_no_subset_is_tried_where_no_outlier_could_be_told():
    engine = CpuEngine(problem_of(TRUTH, measured(0)[:12], T[:12]))
    assert Subsets(engine, engine.start(), [False]).best(3, [1.0], 0.0) == []

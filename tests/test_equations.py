"""The per-residual formulas of the strategies, each against what it stands for."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.arrays import float64
from asker.strategies import gnc, gnc_yang, regemm
from asker.strategies.sqrt_psi import sqrt_psi_weights
from asker.strategies.triggs import triggs_weights

SMOOTH = [
    asker.SmoothTruncated(1.3), asker.PseudoHuber(0.7), asker.Cauchy(0.9), asker.GemanMcClure(1.1), asker.Welsch(1.2),
    asker.Tukey(2.0), asker.Barron(1.0, alpha=-0.5),
]  # fmt: skip


def residuals(p, n=12):
    """Vectors of size p, of lengths between 0.1 and 1.2."""
    r = np.random.default_rng(p).normal(size=(n, p))
    return r / np.linalg.norm(r, axis=1, keepdims=True) * np.linspace(0.1, 1.2, n)[:, None]


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_sqrt_psi_is_gauss_newton_on_the_rooted_residual(kernel, p):
    def rooted(r):
        return jnp.sqrt(2 * kernel.psi(r @ r) / (r @ r)) * r

    def cost(r):
        return kernel.psi(r @ r)

    for r in residuals(p):
        a, b, c = sqrt_psi_weights(kernel, np.float64(r @ r))
        with float64():
            J, gradient = np.asarray(jax.jacfwd(rooted)(r)), np.asarray(jax.grad(cost)(r))
        np.testing.assert_allclose(a * np.eye(p) + b * np.outer(r, r), J.T @ J, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(c * r, gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_triggs_is_the_hessian_kept_convex(kernel, p):
    epsilon = 0.3
    for r in residuals(p):
        w, b = triggs_weights(kernel, np.float64(r @ r), epsilon)
        with float64():
            H = np.asarray(jax.hessian(lambda r: kernel.psi(r @ r))(r))
        M = w * np.eye(p) + b * np.outer(r, r)
        u = r @ r
        assert r @ M @ r / u == pytest.approx(max(r @ H @ r / u, epsilon * w), rel=1e-9)
        across = np.eye(p) - np.outer(r, r) / u  # at right angles to r
        np.testing.assert_allclose(across @ M @ across, across @ H @ across, rtol=1e-8, atol=1e-10)


def test_gm_weights_are_those_of_a_wide_kernel():
    u = np.linspace(0, 30, 50)
    for mu in (1.0, 2.0, 40.0):
        wide = asker.GemanMcClure(1.3 * np.sqrt(mu))
        np.testing.assert_allclose(gnc_yang.gm_weights(asker.SmoothTruncated(1.3), u, mu), wide.omega(u))


def test_tls_weights_fall_from_one_to_zero_and_end_as_truncation():
    kernel = asker.SmoothTruncated(0.8)
    u = np.linspace(0, 4, 4001)
    for mu in (0.05, 1.0, 20.0):
        w = gnc_yang.tls_weights(kernel, u, mu)
        assert (w[u <= mu / (mu + 1) * 0.64] == 1).all()
        assert (w[u >= (mu + 1) / mu * 0.64] == 0).all()
        assert (np.diff(w) <= 0).all()
        assert np.abs(np.diff(w)).max() < 0.2  # no jump
    off = np.abs(u - 0.64) > 1e-3
    np.testing.assert_array_equal(
        gnc_yang.tls_weights(kernel, u, 1e6)[off], asker.TruncatedQuadratic(0.8).omega(u)[off]
    )


def test_schedules():
    gm, tls, fast = gnc_yang.GM(), gnc_yang.TLS(), gnc_yang.TLS(superlinear=True)
    assert gm.start(50.0) == 100
    assert tls.start(50.0) == pytest.approx(1 / 99)
    assert (gm.next(14.0), tls.next(0.25), fast.next(0.25), fast.next(4.0)) == pytest.approx((10, 0.35, 0.7, 5.6))
    assert not gm.is_over(1.0)
    assert gm.is_over(0.99)


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_the_surrogate_of_regemm_lies_above_the_target(kernel):
    u = np.linspace(0, 9, 60)
    np.testing.assert_allclose(regemm.surrogate(kernel, u, 1.0), kernel.psi(u), rtol=1e-9, atol=1e-12)
    wide = [regemm.surrogate(kernel, u, sigma) for sigma in (1.0, 1.5, 4.0, 20.0)]
    for lower, upper in itertools.pairwise(wide):
        assert (upper >= lower - 1e-12).all()


def test_regemm_finds_a_surrogate_in_the_band():
    class Engine:
        calls = 0

        def total(self, formula, point, scale):
            self.calls += 1
            return float(formula(asker.SmoothTruncated(1.0), point, scale).sum())

    engine, u = Engine(), np.random.default_rng(0).uniform(0, 400, 500)
    target = asker.SmoothTruncated(1.0).psi(u).sum()
    for high in (u.sum() / 2, 30 * target, 1.5 * target, 1.01 * target):
        low = (target + high) / 2
        sigma = regemm.ReGeMM()._scale(engine, u, low, high, 1e4)
        assert low <= regemm.surrogate(asker.SmoothTruncated(1.0), u, sigma).sum() <= high
    assert engine.calls < 80


def test_changes_are_what_fell_and_what_rose():
    kernel, before, after = asker.SmoothTruncated(1.0), np.array([0.1, 0.5, 3.0]), np.array([0.5, 0.1, 9.0])
    fell, rose = gnc.changes(kernel, after, before, 2.0)
    step = 4 * (kernel.psi(after / 4) - kernel.psi(before / 4))
    np.testing.assert_allclose(rose - fell, step)
    assert (fell * rose == 0).all()

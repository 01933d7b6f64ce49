"""Laws that hold for every kernel; to test a new kernel, list it in SHAPES."""

import inspect
from dataclasses import fields, replace

import numpy as np
import pytest

from asker.kernels import kernels
from asker.kernels.kernel import Kernel, Scaled
from asker.kernels.kernels import (
    LQQ,
    Barron,
    Cauchy,
    GemanMcClure,
    Huber,
    Mixture,
    PseudoHuber,
    Quadratic,
    SmoothTruncated,
    TruncatedQuadratic,
    Tukey,
    Welsch,
)
from asker.kernels.registry import KERNELS as NAMED
from asker.kernels.registry import kernel_named
from asker.tracing.array_namespace import float64

SHAPES = [
    SmoothTruncated(),
    Quadratic(),
    Huber(),
    PseudoHuber(),
    Cauchy(),
    GemanMcClure(),
    Welsch(),
    Tukey(),
    LQQ(),
    TruncatedQuadratic(),
    *[Mixture(c=c) for c in (1.0, 6.0, 14.0)],
    *[Barron(alpha=alpha) for alpha in (2, 1, 0.5, 0, -2, -10, -np.inf)],
]
"""Kernels of every class and shape, with τ = 1."""
PLAIN = [replace(kernel, tau=tau) for kernel in SHAPES for tau in (1.0, 0.03, 20.0)]
KERNELS = PLAIN + [Scaled(kernel, 4.0) for kernel in SHAPES] + [Scaled(Scaled(Tukey(0.5), 3.0), 2.0)]

EVERY_SHAPE = pytest.mark.parametrize("kernel", SHAPES, ids=repr)
EVERY_KERNEL_NAME = pytest.mark.parametrize("name", NAMED)
EVERY_KERNEL = pytest.mark.parametrize("kernel", KERNELS, ids=repr)

V = np.concatenate([np.logspace(-6, -1, 40), np.linspace(0.1, 6, 301), np.logspace(1, 4, 40)])
V = V[np.abs(V - 1) > 1e-3]  # several kernels have their corner at u = τ²


def slope(function, u, h):
    return (function(u + h) - function(u - h)) / (2 * h)


def test_every_kernel_of_the_module_is_listed():
    classes = {c for _, c in inspect.getmembers(kernels, inspect.isclass) if issubclass(c, Kernel)}
    assert classes - {Kernel} == {type(kernel) for kernel in SHAPES} == set(NAMED.values())


@EVERY_KERNEL_NAME
def test_a_kernel_has_a_name(name):
    assert kernel_named(name) == NAMED[name]()
    assert kernel_named(name, tau=0.7) == NAMED[name](tau=0.7)


@EVERY_KERNEL_NAME
def test_every_parameter_of_a_kernel_can_be_parsed(name):
    plain = NAMED[name]()
    values = {f.name: 0.25 * getattr(plain, f.name) - 1 for f in fields(plain) if f.name != "tau"}
    text = f"{name}:" + ",".join(f"{key}={value}" for key, value in values.items())
    assert kernel_named(text, tau=3.0) == replace(plain, tau=3.0, **values)


def test_the_parameters_of_barron():
    assert kernel_named("barron:alpha=-2", tau=2.0) == Barron(2.0, alpha=-2.0)
    assert kernel_named("barron: alpha = -inf") == Barron(alpha=-np.inf)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hubber", [*NAMED, "(did you mean huber?)"]),
        ("", list(NAMED)),
        ("barron:alhpa=1", ["barron takes alpha after the colon", "not 'alhpa=1' (did you mean alpha?)"]),
        ("barron:alpha=1,alpha=2", ["each once, not 'alpha=2'"]),
        ("barron:alpha", ["alpha is '', expected alpha=NUMBER"]),
        ("barron:alpha=two", ["alpha is 'two', expected alpha=NUMBER"]),
        ("barron:alpha=3", ["alpha must be at most 2"]),
        ("barron:alpha=nan", ["alpha must be at most 2"]),
        ("barron:", ["barron takes alpha after the colon"]),
        ("cauchy:tau=2", ["cauchy takes nothing after a colon", "tau has an option of its own"]),
    ],
)
def test_an_invalid_kernel_name_or_parameter_is_rejected(text, message):
    with pytest.raises(ValueError, match="--kernel is ") as error:
        kernel_named(text, option="--kernel")
    for words in (repr(text), *message):
        assert words in str(error.value)


@EVERY_KERNEL
def test_weight_is_twice_the_slope(kernel):
    u = kernel.tau**2 * V
    np.testing.assert_allclose(kernel.omega(u), 2 * slope(kernel.psi, u, 1e-5 * u), rtol=1e-6, atol=1e-9)


@EVERY_KERNEL
def test_domega_is_the_slope_of_the_weight(kernel):
    u, h = kernel.tau**2 * V, 1e-5 * kernel.tau**2 * np.maximum(V, 0.1)
    expected = kernel.tau**2 * slope(kernel.omega, u, h)
    np.testing.assert_allclose(kernel.tau**2 * kernel.domega(u), expected, rtol=1e-6, atol=1e-8)


@EVERY_KERNEL
def test_near_zero_it_is_least_squares(kernel):
    zero = np.zeros(3)
    np.testing.assert_array_equal(kernel.psi(zero), 0.0)
    np.testing.assert_array_equal(kernel.omega(zero), 1.0)
    u = kernel.tau**2 * np.logspace(-30, -10, 21)  # ψ'' = 1 at 0: ψ = u/2, to the last digits
    np.testing.assert_allclose(kernel.psi(u), u / 2, rtol=1e-9)


@EVERY_KERNEL
def test_cost_rises_and_weight_falls(kernel):
    u = kernel.tau**2 * np.sort(np.concatenate([V, [0.0, 1.0]]))
    psi, omega = kernel.psi(u), kernel.omega(u)
    assert np.all(np.diff(psi) >= -1e-15 * psi[1:])
    assert np.all(np.diff(omega) <= 0)
    assert np.all((omega >= 0) & (omega <= 1))


@EVERY_KERNEL
def test_huge_residuals_give_finite_weights_and_bounded_costs(kernel):
    """A bounded ψ converges to its supremum, and no kernel returns NaN."""
    huge = kernel.tau**2 * np.array([1e12, 1e100, 1e300])
    with np.errstate(over="ignore", under="ignore"):
        psi, omega = kernel.psi(huge), kernel.omega(huge)
    assert not np.isnan(psi).any()
    assert np.all((omega >= 0) & (omega <= 1))
    saturates = kernel.psi(kernel.tau**2 * 1e8) > 0.999 * psi[0]  # as for Welsch, whose ψ is constant there
    if saturates:
        np.testing.assert_allclose(psi, psi[0], rtol=1e-6)


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.has_penalty], ids=repr)
def test_psi_is_the_minimum_of_the_lifted_cost(kernel):
    """ψ(u) is the minimum of w·u/2 + penalty(w), attained at w = ω(u)."""
    u = kernel.tau**2 * np.append(0.0, V)
    w = np.concatenate([np.logspace(-12, -2, 101), np.linspace(0.01, 1, 400)])
    psi, scale = kernel.psi(u), kernel.tau**2 * 1e-12
    assert np.all(w * u[:, None] / 2 + kernel.penalty(w) >= psi[:, None] - scale - 1e-12 * psi[:, None])
    best = np.maximum(kernel.omega(u), 1e-300)
    np.testing.assert_allclose(best * u / 2 + kernel.penalty(best), psi, rtol=1e-9, atol=scale)


@EVERY_SHAPE
def test_has_penalty_agrees_with_penalty(kernel):
    for k in (kernel, Scaled(kernel, 2.0)):
        if k.has_penalty:
            assert k.penalty(np.array([1.0])) == 0.0
        else:
            with pytest.raises(TypeError, match="penalty"):
                k.penalty(np.array([1.0]))


def test_only_least_squares_has_no_lifted_penalty():
    assert [k for k in SHAPES if not k.has_penalty] == [Quadratic(), Barron(alpha=2)]


@pytest.mark.parametrize("kernel", PLAIN, ids=repr)
@pytest.mark.parametrize("eta", [0.5, 8.0])
def test_scaled_is_the_kernel_with_another_tau(kernel, eta):
    scaled, wide = Scaled(kernel, eta), replace(kernel, tau=eta * kernel.tau)
    u = wide.tau**2 * V
    for name in ("psi", "omega", "domega"):
        np.testing.assert_allclose(getattr(scaled, name)(u), getattr(wide, name)(u), rtol=1e-12, atol=1e-300)
    if kernel.has_penalty:
        w = np.linspace(0.01, 1, 50)
        np.testing.assert_allclose(scaled.penalty(w), wide.penalty(w), rtol=1e-12)
    assert scaled.tau == pytest.approx(wide.tau, rel=1e-14)
    assert scaled.inlier_radius == pytest.approx(wide.inlier_radius, rel=1e-14)


@EVERY_SHAPE
def test_jax_gives_the_same_numbers(kernel):
    import jax

    kernel = replace(kernel, tau=0.7)
    lifted = kernel.has_penalty

    def every(u, w):
        return kernel.psi(u), kernel.omega(u), kernel.domega(u), kernel.penalty(w) if lifted else w

    u, w = np.append(0.0, V), np.linspace(0.001, 1, len(V) + 1)
    with float64():
        traced = [np.asarray(x) for x in jax.jit(every)(u, w)]
    for ours, jitted in zip(every(u, w), traced, strict=True):
        assert jitted.dtype == np.float64
        np.testing.assert_allclose(jitted, ours, rtol=1e-12, atol=1e-14)


@EVERY_KERNEL
def test_influence_is_largest_at_the_inlier_radius(kernel):
    """The influence function ψ'(r) = r ω(r²) of a non-convex kernel has its maximum at the inlier radius."""

    def influence(r):
        return r * kernel.omega(r**2)

    R = kernel.inlier_radius
    inside, outside = influence(R * np.linspace(0, 1, 500)), influence(R * np.linspace(1 + 1e-9, 50, 5000))
    assert np.all(np.diff(inside) >= 0)
    if np.any(np.diff(outside) < -1e-12 * R) or outside[0] < 0.5 * inside[-1]:  # not convex
        assert outside.max() <= inside[-1] * (1 + 1e-12)
        assert influence(0.98 * R) < inside[-1]
        assert influence(1.02 * R) < inside[-1]
    else:
        assert pytest.approx(kernel.tau) == R


CONVEX = [Quadratic(), Huber(), PseudoHuber(), Barron(alpha=2), Barron(alpha=1)]


@EVERY_SHAPE
def test_convex_is_true_if_the_influence_never_decreases(kernel):
    r = np.linspace(0, 20, 4001)
    assert np.all(np.diff(r * kernel.omega(r**2)) >= -1e-12) == (kernel in CONVEX)


SAME = [
    (Barron(0.8, 2), Quadratic(0.8)),
    (Barron(0.8, 1), PseudoHuber(0.8)),
    (Barron(0.8, 0), Cauchy(0.8 * np.sqrt(2))),  # Barron's v/2 is the v of a kernel √2 times as wide
    (Barron(0.8, -2), GemanMcClure(0.8 * 2)),
    (Barron(0.8, -np.inf), Welsch(0.8 * np.sqrt(2))),
]
LIMITS = [(2, 2 - 1e-9), (0, 1e-9), (0, -1e-9), (-np.inf, -1e9)]
PAIRS = [(*pair, 1e-12) for pair in SAME] + [(Barron(1.3, a), Barron(1.3, b), 1e-6) for a, b in LIMITS]


@pytest.mark.parametrize(("one", "other", "rtol"), PAIRS, ids=repr)
def test_special_cases_and_limits_of_barrons_kernel(one, other, rtol):
    u = one.tau**2 * V[(V > 0.1) & (V < 50)]  # ω' of α → 2 is steep next to 0
    for name in ("psi", "omega", "domega"):
        np.testing.assert_allclose(getattr(one, name)(u), getattr(other, name)(u), rtol=rtol, atol=1e-8)
    if one.has_penalty and other.has_penalty:
        w = np.linspace(0.05, 1, 40)
        np.testing.assert_allclose(one.penalty(w), other.penalty(w), rtol=rtol, atol=1e-6)
    if one.alpha != 2:
        assert one.inlier_radius == pytest.approx(other.inlier_radius, rel=1e-6)


@pytest.mark.parametrize("alpha", [2.1, np.inf, np.nan])
def test_barron_rejects_shapes_above_2(alpha):
    with pytest.raises(ValueError, match="alpha"):
        Barron(alpha=alpha)


def test_a_kernel_without_formulas_names_the_missing_one():
    for name in ("psi", "omega", "domega"):
        with pytest.raises(TypeError, match=f"unit_{name}"):
            getattr(Kernel(), name)(np.ones(1))

"""Laws of the status: units decide nothing, and CONVERGED is said only where nothing known prevents a minimum."""

import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.kernel_names import KERNELS

N = 60
RNG = np.random.default_rng(3)
T = np.abs(RNG.uniform(-5, 5, N))
Y = np.where(RNG.random(N) < 0.3, RNG.uniform(-8, 8, N), np.exp(-0.7 * T) + 0.5) + 0.05 * RNG.normal(size=N)
AT = np.zeros(N, int)


def curve(x, t, y, unit):
    return (x[0] * jnp.exp(-x[1] * t) + x[2] - y) * unit


def in_units(unit, kernel):
    """A curve with outliers, whose residuals are multiplied by `unit`, as is the width of the kernel."""
    x = asker.Variables(np.array([[1.0, 0.3, 0.2]]), name="x")
    data = T, Y, np.full(N, unit)
    return asker.Problem(asker.Factors(curve, x[AT], data=data, kernel=kernel(tau=0.3 * unit)))


def path(result, unit):
    """What a solve did, whatever the unit."""
    return [(line.accepted, line.cost / unit**2) for line in result.history]


# ------------------------------------------------------------------ units

UNITS = [2.0**k for k in (-332, -66, 66, 332)]
"""From 1e-100 to 1e100; in powers of two not even rounding differs."""


def check_units(kernel, method):
    plain = asker.solve(in_units(1.0, kernel), method(), max_iterations=30, relative_damping=True)
    assert plain.cost < plain.initial_cost
    for unit in UNITS:
        other = asker.solve(in_units(unit, kernel), method(), max_iterations=30, relative_damping=True)
        assert other.status is plain.status
        accepted, costs = zip(*path(other, unit), strict=True)
        expected = tuple(zip(*path(plain, 1.0), strict=True))
        assert accepted == expected[0]
        np.testing.assert_allclose(costs, expected[1], rtol=1e-9)


@pytest.mark.parametrize("method", asker.METHODS)
def test_the_unit_of_the_residuals_decides_nothing(method):
    check_units(asker.SmoothTruncated, asker.METHODS[method])


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_unit_of_the_residuals_decides_nothing_under_any_kernel(kernel):
    check_units(KERNELS[kernel], asker.IRLS)

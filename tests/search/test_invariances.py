"""Units, the order of the observations and the number of threads do not affect a search."""

import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.applications import bundle
from search_problems import circle_problem, off_circle


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_unit_does_not_matter(unit):
    """Every number of the problem times one factor: so is the result."""
    given, other = (circle_problem(0.1, 0.4, 3) for _ in range(2))
    factors = other.factors[0]
    circle = asker.Variables(unit * factors.slots[0].variables.rows, name="circle")

    def scaled(circle, point):
        return unit * off_circle(circle / unit, point / unit)

    changed = asker.Factors(scaled, circle[factors.slots[0].index], data=unit * factors.data[0])
    found = [asker.solve(p, relative_damping=True) for p in (given, asker.Problem(changed))]
    np.testing.assert_allclose(found[1].x, unit * found[0].x, rtol=1e-3)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_unit_of_the_unknowns_decides_nothing(unit):
    rng = np.random.default_rng(4)
    x, is_out = rng.uniform(-5, 5, 100), rng.random(100) < 0.3
    y = np.where(is_out, rng.uniform(-8, 8, 100), 0.8 * x - 1.0 + 0.05 * rng.normal(size=100))

    def solved(unit):
        line = asker.Variables([[-1.5 * unit, 5.0 * unit]], name="line")
        factors = asker.Factors(
            lambda line, x, y, unit: line[0] / unit * x + line[1] / unit - y,
            line[np.zeros(100, int)],
            data=(x, y, np.full(100, unit)),
        )
        return asker.solve(asker.Problem(factors))["line"]

    np.testing.assert_allclose(solved(unit) / unit, solved(1.0), rtol=1e-6)


def growth(p, t, y):
    return p[0] / (1 + jnp.exp(-p[1] * (t - p[2]))) - y


@pytest.mark.parametrize("outliers", [0, 10])
@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1e-6, 1e-3, 1e6])
def test_the_unit_of_residuals_and_of_an_unknown_decides_nothing(unit, outliers):
    rng = np.random.default_rng(4)
    t = rng.uniform(0, 30, 50)
    y = 1 / (1 + np.exp(-0.4 * (t - 14))) + rng.normal(0, 0.02, 50)
    y[:outliers] = rng.uniform(-0.5, 1.5, outliers)
    found = []
    for scale in (1.0, unit):
        p = asker.Variables([[2 * scale, 0.1, 5.0]], name="p")
        factors = asker.Factors(growth, p[np.zeros(50, int)], data=(t, scale * y))
        result = asker.solve(asker.Problem(factors))
        assert result.status is asker.Status.CONVERGED
        found.append((result[p] / [scale, 1, 1], result.noise[0].sigma / scale, result.cost / scale**2))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)
    assert found[0][0][0, 2] == pytest.approx(14, abs=0.5)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_observations_does_not_matter(seed):
    """Up to draws of subsets, which are of other observations then."""
    f = circle_problem(0.1, 0.4, seed).factors[0]
    order = np.random.default_rng(seed).permutation(f.n)
    slot = f.slots[0].variables[f.slots[0].index]
    other = asker.Problem(asker.Factors(off_circle, slot, data=f.data[0][order]))
    one, other = asker.solve(asker.Problem(asker.Factors(off_circle, slot, data=f.data))), asker.solve(other)
    np.testing.assert_allclose(other.x, one.x, rtol=1e-4)
    np.testing.assert_array_equal(other.inliers[0], one.inliers[0][order])
    assert other.noise[0].sigma == pytest.approx(one.noise[0].sigma, rel=1e-3)


def test_the_number_of_threads_does_not_matter():
    scene = bundle.make_scene(6, 600, noise=1.0, outlier_ratio=0.3, start_error=10.0, seed=4)
    problem = bundle.bundle_problem(scene.start, None).problem
    one, two = (asker.solve(problem, threads=n, engine="cpu") for n in (1, 2))
    for a, b in zip(one.values, two.values, strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.noise[0] == two.noise[0]
    assert [line.cost for line in one.history] == [line.cost for line in two.history]

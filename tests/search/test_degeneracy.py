"""Whether residuals still depend on the data."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.engines.cpu.engine import CpuEngine
from asker.search.data_checks import Dependence, is_degenerate
from asker.statistics.scale_mixture import Outliers

BIAS, SCALE = np.array([30.0, -12.0, 5.0]), np.array([1 / 48, 1 / 52, 1 / 45])


def field(p, m):
    """The length of the field that a magnetometer should show, less 1."""
    d = p[3:] * (m - p[:3])
    return jnp.sqrt(d @ d + 1e-12) - 1


def calibration(seed, noise=0.01, outliers=40, n=200):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n, 3))
    u *= (1 + noise * rng.normal(size=(n, 1))) / np.linalg.norm(u, axis=1, keepdims=True)
    m = u / SCALE + BIAS
    m[:outliers] += rng.normal(0, 30, (outliers, 3))
    p = asker.Variables([[*m.mean(axis=0), 0.02, 0.02, 0.02]], name="p")
    return p, asker.Problem(asker.Factors(field, p[np.zeros(n, int)], data=m))


def dependence_of(problem):
    return Dependence(CpuEngine(problem), problem.factors, [v.rows for v in problem.variables])


def skewed(p, m):
    """As `field`, with all of a triangular matrix: nine unknowns."""
    d = m - p[:3]
    v = jnp.array([p[3] * d[0] + p[4] * d[1] + p[5] * d[2], p[6] * d[1] + p[7] * d[2], p[8] * d[2]])
    return jnp.sqrt(v @ v + 1e-12) - 1


@pytest.mark.parametrize("noise", [0.003, 0.03])
@pytest.mark.parametrize("seed", range(3))
def test_unknowns_do_not_flee(seed, noise):
    """Where b is far and A small, all residuals are; most such calibrations ended there."""
    _, plain = calibration(seed, noise)
    (m,) = plain.factors[0].data
    p = asker.Variables([[*m.mean(axis=0), 0.02, 0, 0, 0.02, 0, 0.02]], name="p")
    result = asker.solve(asker.Problem(asker.Factors(skewed, p[np.zeros(len(m), int)], data=m)))
    np.testing.assert_allclose(result[p][0, :3], BIAS, atol=3.0)
    assert result.noise[0].sigma == pytest.approx(noise, rel=0.3)
    assert not any("degenerate" in doubt for doubt in result.doubts)


def test_residuals_that_do_not_depend_on_the_data_are_seen():
    _, problem = calibration(0)
    dependence = dependence_of(problem)
    near, far = (
        dependence.at([np.array([[*bias, *scale]])]) for bias, scale in ((BIAS, SCALE), (1e5 * BIAS, 1e-7 / SCALE))
    )
    assert is_degenerate(near, far)
    assert not is_degenerate(far, near)
    assert not is_degenerate(near, near)


@pytest.mark.parametrize("slope", [1e-9, 1.0, 1e9])
def test_a_model_less_what_was_measured_depends_on_that_everywhere(slope):
    """Also where it has ceased to depend on where it was measured."""
    x, y = np.random.default_rng(1).normal(size=(2, 2000))
    line = asker.Variables([[0.0, 1.0]], name="line")
    problem = asker.Problem(asker.Factors(lambda c, x, y: c[0] + c[1] * x - y, line[np.zeros(2000, int)], data=(x, y)))
    dependence = dependence_of(problem)
    of_x, of_y = dependence.at([np.array([[0.0, slope]])])
    assert of_y == pytest.approx(1.0, rel=1e-2)  # beside 1e9 digits are lost
    assert of_x == pytest.approx(slope, rel=1e-4, abs=1e-6)
    assert not is_degenerate(dependence.at([line.rows]), [of_x, of_y])


def test_columns_of_one_array_are_looked_at_one_by_one():
    """A start so steep that the line depends a hundred times less on x where it is right; on y it always does."""
    rng = np.random.default_rng(2)
    x = rng.uniform(-5, 5, 300)
    y = np.where(np.arange(300) < 200, rng.uniform(-8, 8, 300), 0.8 * x - 1 + 0.1 * rng.normal(size=300))
    line = asker.Variables([[3.0, 80.0]], name="line")
    off = asker.Factors(lambda c, q: c[0] + c[1] * q[0] - q[1], line[np.zeros(300, int)], data=np.stack([x, y], axis=1))
    result = asker.solve(asker.Problem(off))
    np.testing.assert_allclose(result[line], [[-1.0, 0.8]], atol=0.1)
    assert [doubt.kind for doubt in result.doubts] == [asker.Doubt.MINORITY]


def test_a_line_that_turns_has_not_fled():
    """It begins upright, where only x matters, and ends level, where hardly more than y does."""
    rng = np.random.default_rng(3)
    q = np.stack([rng.uniform(-8, 8, 200), 3.0 + 0.1 * rng.normal(size=200)], axis=1)
    q[:80] = rng.uniform(-8, 8, (80, 2))
    line = asker.Variables([[0.0, 0.0]], name="line")
    off = asker.Factors(
        lambda c, q: jnp.cos(c[0]) * q[0] + jnp.sin(c[0]) * q[1] - c[1], line[np.zeros(200, int)], data=q
    )
    result = asker.solve(asker.Problem(off))
    angle, distance = result[line][0]
    assert abs(np.cos(angle)) < 0.05
    assert abs(distance) == pytest.approx(3.0, abs=0.1)
    assert not result.doubts


def test_without_numbers_that_vary_nothing_is_told():
    x = asker.Variables([[0.0]], name="x")
    index = np.zeros(30, int)
    problem = asker.Problem(asker.Factors(lambda x, k: x - k, x[index], data=np.arange(30)))
    assert dependence_of(problem).at([x.rows]) == []
    assert not is_degenerate([], [])


@dataclass(frozen=True)
class Far:
    """A generator of a degenerate point alone."""

    name: str = "far"
    hypotheses: tuple = (Outliers.NONE,)

    def suits(self, context):
        return True

    def starts(self, context, state):
        yield context.engine.evaluate((np.array([[*(1e5 * BIAS), *(1e-7 / SCALE)]]),))


def test_a_degenerate_solution_is_doubted():
    _, problem = calibration(0)
    doubts = asker.solve(problem, asker.Search((Far(),))).doubts
    assert asker.Doubt.DEGENERATE in [doubt.kind for doubt in doubts]
    assert asker.Doubt.DEGENERATE not in [doubt.kind for doubt in asker.solve(problem).doubts]

"""`Factors(valid=...)`: invalid observations are no inliers, and do not improve a candidate."""

import numpy as np
import pytest

import asker
from asker.engines.cpu.engine import CpuEngine
from asker.engines.validity import Conditions
from asker.engines.xla.engine import XlaEngine
from asker.strategies.composite.block_moves import Moves

ENGINES = [CpuEngine, XlaEngine]


def off_line(line, t, y):
    return line[0] + line[1] * t - y


def rises(line, t, y):
    return line[1]


def lines(valid, start, n=7, wrong=4):
    """n observations of lines: `wrong` of them on a falling line, the others on a rising one."""
    t = np.linspace(-1, 1, n)
    y = np.where(np.arange(n) < wrong, 0.3 - t, 2 * t)
    line = asker.Variables(np.array([start, (0.0, 5.0)]), name="lines")
    index = np.zeros(n, dtype=int)
    return asker.Problem(
        asker.Factors(off_line, line[index], data=(t, y), kernel=asker.Cauchy(0.01), valid=valid)
    ), line


@pytest.mark.parametrize("engine", ENGINES)
def test_conditions_are_evaluated_at_any_point(engine):
    problem, line = lines(rises, (0.3, -1.0))
    conditions = Conditions(engine(problem, "auto", True, True))
    assert conditions.impossible([line.rows])[0].all()
    assert not conditions.impossible([np.abs(line.rows)])[0].any()


@pytest.mark.parametrize("valid", [None, rises])
def test_an_invalid_observation_is_no_inlier(valid):
    problem, _ = lines(valid, (0.3, -1.0), n=4, wrong=3)
    result = asker.solve(problem, asker.IRLS())
    assert np.count_nonzero(result.inliers[0]) == (3 if valid is None else 0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("valid", [None, rises])
def test_invalid_observations_do_not_improve_a_candidate(engine, valid):
    """Four observations are on the falling line, three on the rising one."""
    problem, line = lines(valid, (0.1, 4.0))
    made = engine(problem, "auto", True, True)
    point, n = Moves(problem, trials=64)(made, made.start())
    assert n == 1
    fitted = dict(zip(problem.variables, made.rows(point), strict=True))[line][0]
    np.testing.assert_allclose(fitted, (0.3, -1.0) if valid is None else (0.0, 2.0), atol=0.01)


def test_a_condition_is_a_number():
    problem, _ = lines(lambda line, t, y: line, (0.0, 1.0))
    with pytest.raises(asker.ProblemError, match=r"valid returns an array of shape \(2,\), expected a number"):
        asker.solve(problem, asker.IRLS())


def test_conditions_require_residuals_differentiated_by_jax():
    x = asker.Variables(np.zeros((1, 1)))
    with pytest.raises(asker.ProblemError, match="valid is for factors without `jacobian`"):
        asker.Factors(lambda a: a, x[[0]], jacobian=lambda a: a, valid=rises)


@pytest.mark.parametrize("kernel", [None, asker.Huber(tau=0.1)])
def test_fixed_variables_have_noise_estimates_and_conditions(kernel):
    """The problem has other factors, which constrain the free variable."""
    rng, index = np.random.default_rng(0), np.zeros(60, dtype=int)
    x, known = asker.Variables([[0.0]], name="x"), asker.Variables([[1.0]], fixed=True, name="known")
    free = asker.Factors(lambda x, d: x - d, x[index], data=rng.normal(3, 0.1, 60), name="free")
    data = rng.normal(1, 0.2, 60)
    fixed = asker.Factors(
        lambda c, d: c - d, known[index], data=data, kernel=kernel, valid=lambda c, d: d, name="fixed"
    )
    result = asker.solve(asker.Problem(free, fixed))
    assert abs(result["x"][0, 0] - 3) < 0.1
    assert result.noise["fixed"].sigma == pytest.approx(0.2, rel=0.3)

"""Weights and several factor groups, where the noise is sought."""

from dataclasses import replace

import numpy as np
import pytest

import asker
from asker._solve import engine_for
from asker.search.group_weights import Balance, at_the_start, by_noise, even
from asker.statistics.scale import Noise
from search_problems import off_the_line, points_of_line, problem_of_lines


def weighted_oracle(*groups):
    """The line by least squares on the true inliers (x, y, noise), each as its noise asks for."""
    A = np.concatenate([(np.stack([x, np.ones_like(x)]) / noise).T for x, _, noise in groups])
    b = np.concatenate([y / noise for _, y, noise in groups])
    return np.linalg.solve(A.T @ A, A.T @ b), np.sqrt(np.diag(np.linalg.inv(A.T @ A)))


@pytest.mark.parametrize("engine", ["cpu", "xla"])
def test_a_weight_is_the_precision_of_an_observation(engine):
    """As if its residual were multiplied with the root."""
    rng = np.random.default_rng(3)
    deviation = np.exp(rng.uniform(-5, 1, 150))
    x, y, is_out = points_of_line(rng, 150, deviation)
    line, every = asker.Variables([[-1.5, 5.0]], name="line"), np.zeros(150, int)
    found = []
    for residual, data, weight in (
        (off_the_line, (x, y), deviation**-2.0),
        (lambda line, x, y, d: off_the_line(line, x, y) / d, (x, y, deviation), None),
    ):
        factors = asker.Factors(residual, line[every], data=data, weight=weight)
        found.append(asker.solve(asker.Problem(factors), engine=engine))
    a, b = found
    np.testing.assert_allclose(a["line"], b["line"], rtol=1e-7)
    assert (a.noise[0].sigma, a.noise[0].inlier_ratio) == pytest.approx((b.noise[0].sigma, b.noise[0].inlier_ratio))
    np.testing.assert_allclose(a.standard_errors("line"), b.standard_errors("line"), rtol=1e-6)
    np.testing.assert_array_equal(a.inliers[0], b.inliers[0])
    assert a.cost == pytest.approx(b.cost)
    truth, error = weighted_oracle((x[~is_out], y[~is_out], deviation[~is_out]))
    assert (np.abs(a["line"][0] - truth) < error).all()


@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_the_unit_of_a_factor_group_decides_nothing(unit):
    rng = np.random.default_rng(5)
    groups = [points_of_line(rng, 100, 0.2)[:2], points_of_line(rng, 100, 0.3)[:2]]
    plain, other = asker.solve(problem_of_lines(*groups)), asker.solve(problem_of_lines(*groups, unit=unit))
    error = plain.standard_errors("line")
    assert (np.abs(plain["line"] - other["line"]) < 0.2 * error).all()
    np.testing.assert_allclose(other.standard_errors("line"), error, rtol=0.1)
    assert other.noise[1].sigma == pytest.approx(unit * plain.noise[1].sigma, rel=0.1)
    assert other.uncertainty().sigma["group 2"] == pytest.approx(unit * 0.3, rel=0.3)
    assert other.residuals[1] == pytest.approx(unit * plain.residuals[1], rel=0.1, abs=0.1 * unit)


@pytest.mark.parametrize("unit", [2.0**-20, 2.0**20])
def test_the_unit_of_all_factor_groups_decides_nothing(unit):
    """Two groups with the same unit, whatever it is: a power of two, so that not even rounding differs."""
    rng = np.random.default_rng(5)
    groups = [points_of_line(rng, 100, 0.2)[:2], points_of_line(rng, 100, 0.3)[:2]]
    problem = problem_of_lines(*groups)
    data = [(x, y, np.full(len(x), unit)) for x, y in groups]
    changed = problem.with_data(data[0], "group 1").with_data(data[1], "group 2")
    plain, other = asker.solve(problem), asker.solve(changed)
    assert other.iterations == plain.iterations
    np.testing.assert_allclose(other["line"], plain["line"], rtol=1e-9)
    assert other.cost == pytest.approx(unit**2 * plain.cost, rel=1e-9)
    for ours, expected in zip(other.noise, plain.noise, strict=True):
        assert ours.sigma == pytest.approx(unit * expected.sigma, rel=1e-9)


@pytest.mark.parametrize("ratio", [0.01, 30.0])
def test_factor_groups_count_as_their_noise_asks_for(ratio):
    off = []
    for seed in range(5):
        rng = np.random.default_rng([7, seed])
        (x, y, a), (s, t, b) = points_of_line(rng, 100, 0.2), points_of_line(rng, 100, 0.2 * ratio, outliers=0.1)
        result = asker.solve(problem_of_lines((x, y), (s, t)))
        truth, error = weighted_oracle((x[~a], y[~a], 0.2), (s[~b], t[~b], 0.2 * ratio))
        off.append(np.abs(result["line"][0] - truth) / error)
        if ratio < 1:
            assert result.noise[1].sigma == pytest.approx(0.2 * ratio, rel=0.3)
            assert result.standard_errors("line")[0] == pytest.approx(error, rel=0.3)
    assert np.median(off) < 0.5


def test_widths_that_are_given_stay_beside_noise_that_is_sought():
    rng = np.random.default_rng(1)
    x, y, _ = points_of_line(rng, 60, 0.1)
    line = asker.Variables([[0.0, 0.0]], name="line")
    widths, every = rng.uniform(0.5, 2.0, 60), np.zeros(60, int)
    sought = asker.Factors(off_the_line, line[every], data=(x, y), name="sought")
    given = asker.Factors(off_the_line, line[every], data=(x, y), tau=widths, name="given")
    result = asker.solve(asker.Problem(sought, given))
    np.testing.assert_array_equal(result.problem.factors[1].tau, widths)
    assert result.problem.factors[0].balance == 1


def test_a_balance_follows_the_noises_that_are_known():
    x = np.zeros(20)
    problem = problem_of_lines((x, x), (x[:10], x[:10]), (x, x))
    told, exact, unknown = Noise(2.0, 0.5, 50.0), Noise(0.0, 0.5, 50.0), Noise(float("nan"), 1.0, 3.0)
    before = Balance((1.0, 3.0, 1.0))
    assert by_noise(problem, [told, Noise(0.5, 0.5, 50.0), told], before) == Balance((1.0, 4.0, 1.0))
    assert by_noise(problem, [told, unknown, told], before) == before
    assert (
        by_noise(problem, [told, exact, told], before) == before
    )  # it may be exact because the start was made from it
    assert by_noise(problem, [unknown] * 3, before) == before
    assert by_noise(problem, [unknown, told, unknown], before) == before  # what is left counts as it did beside it
    assert before.off(even(problem)) == pytest.approx(3.0)
    assert before.undone([told, Noise(6.0, 0.5, 50.0, rounding=3.0), told])[1] == Noise(2.0, 0.5, 50.0, rounding=1.0)
    assert before.converted([2.0, 9.0, 1.0], even(problem)) == [2.0, 81.0, 1.0]


@pytest.mark.parametrize(("unit", "multiplier"), [(1.0, 1.0), (1e4, 1e-4), (1e-9, 1.0)])
def test_residuals_at_the_start_say_what_the_unit_of_a_group_is(unit, multiplier):
    """Unless they are so small that they are rounding."""
    x, y, _ = points_of_line(np.random.default_rng(0), 50, 0.1)
    engine = engine_for(problem_of_lines((x, y), (x, y), unit=unit))
    found = at_the_start(engine, engine.start()).multipliers
    assert found == pytest.approx((1.0, multiplier), rel=0.1)


@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_a_prior_counts_in_standard_deviations(unit):
    """Whatever the unit and the noise of the observations are: its interval holds the truth, and it bends nothing."""
    inside = []
    for seed in range(6):
        rng = np.random.default_rng([3, seed])
        x, y, is_out = points_of_line(rng, 60, 0.1)
        problem = problem_of_lines((x, y), unit=1.0).with_data((x, y, np.full(60, unit)))
        line, middle = problem.variables[0], np.array([[0.8, -1.0]]) + 0.02 * rng.normal(size=(1, 2))
        prior = asker.Factors(
            lambda line, m: (line - m) / 0.02, line[[0]], data=middle, kernel=asker.Quadratic(), name="prior"
        )
        result = asker.solve(asker.Problem(*problem.factors, prior))
        A = np.vstack([np.stack([x, np.ones(60)], axis=1)[~is_out] / 0.1, np.eye(2) / 0.02])
        oracle = np.linalg.lstsq(A, np.concatenate([y[~is_out] / 0.1, middle[0] / 0.02]), rcond=None)[0]
        error = np.sqrt(np.diag(np.linalg.inv(A.T @ A)))
        assert (np.abs(result["line"][0] - oracle) < 1.5 * error).all()
        assert result.noise[0].sigma == pytest.approx(0.1 * unit, rel=0.3)
        inside.append(np.abs(result["line"][0] - [0.8, -1.0]) < result.interval("line")[0])
    assert np.mean(inside) > 0.8


@pytest.fixture(scope="module")
def unlike():
    rng = np.random.default_rng(5)
    problem = problem_of_lines(points_of_line(rng, 100, 0.2)[:2], points_of_line(rng, 100, 0.002)[:2])
    result = asker.solve(problem)
    assert result.problem.factors[1].balance == pytest.approx(100, rel=0.4)
    return problem, result


def test_the_noise_of_a_balanced_result_is_in_the_units_of_the_user(unlike):
    _, result = unlike
    seen = replace(result, estimated_noise=None).noise
    for found, again in zip(result.noise, seen, strict=True):
        assert again.sigma == pytest.approx(found.sigma, rel=0.1)
    told = result.uncertainty(sigma=[0.2, 0.002])
    assert list(told.sigma) == pytest.approx([0.2, 0.002])
    assert told.standard_errors("line") == pytest.approx(result.standard_errors("line"), rel=0.3)


def test_a_part_of_balanced_factors_counts_as_they_do(unlike):
    _, result = unlike
    part = asker.Problem(*(f.taken(np.arange(f.n) % 2 == 0) for f in result.problem.factors))
    noise = asker.solve(part, asker.IRLS(), start=result).noise
    assert [n.sigma for n in noise] == pytest.approx([0.2, 0.002], rel=0.4)


def test_a_kernel_of_the_user_counts_as_given_on_a_balanced_problem(unlike):
    problem, result = unlike
    ours, theirs = (asker.solve(p.with_kernel(asker.Huber(0.3))) for p in (result.problem, problem))
    np.testing.assert_allclose(ours["line"], theirs["line"], rtol=1e-6)


def test_a_path_that_its_odometry_fits_exactly_is_moved():
    """The noise of odometry would be 0 where the path begins as its sum; 0.05 from five fixes for each place."""
    off = []
    for seed in (1, 4, 5):
        rng = np.random.default_rng(seed)
        truth, k = np.cumsum(rng.normal(0, 1, (40, 2)) + np.array([1, 0]), axis=0), np.tile(np.arange(40), 5)
        odometry = np.diff(truth, axis=0) + 0.05 * rng.normal(size=(39, 2))
        fixes, is_out = truth[k] + rng.normal(size=(200, 2)), rng.random(200) < 0.3
        fixes[is_out] += rng.uniform(-30, 30, (is_out.sum(), 2))
        path = asker.Variables(np.vstack([fixes[0], fixes[0] + np.cumsum(odometry, axis=0)]), name="path")
        i = np.arange(39)
        steps = asker.Factors(lambda a, b, z: b - a - z, path[i], path[i + 1], data=odometry, name="odometry")
        result = asker.solve(asker.Problem(steps, asker.Factors(lambda a, z: a - z, path[k], data=fixes, name="fixes")))
        assert result.noise["fixes"].sigma == pytest.approx(1.0, rel=0.2)
        off.append(np.sqrt(((result["path"] - truth) ** 2).sum(axis=1).mean()))
    assert max(off) < 0.4


def test_precise_observations_are_used_up_first():
    """Two lab readings and many in the field, of each instrument: their noises are neither 0 nor far too small."""
    rng = np.random.default_rng(2)
    truth, i, j = rng.normal(0, 2, 20), np.repeat(np.arange(20), 15), np.repeat(np.arange(20), 3)
    offsets = asker.Variables(np.zeros(20), name="offsets")
    field, lab = truth[i] + 0.5 * rng.normal(size=300), truth[j] + 0.05 * rng.normal(size=60)
    groups = [
        asker.Factors(lambda b, z: b - z, offsets[k], data=z, name=n)
        for k, z, n in ((i, field, "field"), (j, lab, "lab"))
    ]
    result = asker.solve(asker.Problem(*groups))
    assert [n.sigma for n in result.noise] == pytest.approx([0.5, 0.05], rel=0.3)
    assert np.mean(np.abs(result["offsets"] - truth) < result.interval("offsets").ravel()) >= 0.8

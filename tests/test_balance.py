"""Weights and several factor groups, where the noise is sought."""

import numpy as np
import pytest

import asker
from asker.balance import Balance, by_noise, even
from asker.noise import Noise


def off_the_line(line, x, y):
    return line[0] * x + line[1] - y


def drawn(rng, n, noise, outliers=0.3):
    """Points of a line, and which are outliers."""
    x, is_out = rng.uniform(-5, 5, n), rng.random(n) < outliers
    y = 0.8 * x - 1.0 + noise * rng.normal(size=n)
    return x, np.where(is_out, rng.uniform(-8, 8, n), y), is_out


def line_problem(*groups, unit=1.0):
    """A line from several groups (x, y); residuals of the second one are in another unit."""
    line = asker.Variables([[-1.5, 5.0]], name="line")

    def off(line, x, y, scale):
        return scale * off_the_line(line, x, y)

    units = (1.0, unit, 1.0)
    return asker.Problem(
        *(
            asker.Factors(
                off, line[np.zeros(len(x), int)], data=(x, y, np.full(len(x), units[k])), name=f"group {k + 1}"
            )
            for k, (x, y) in enumerate(groups)
        )
    )


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
    x, y, is_out = drawn(rng, 150, deviation)
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
    groups = [drawn(rng, 100, 0.2)[:2], drawn(rng, 100, 0.3)[:2]]
    plain, other = asker.solve(line_problem(*groups)), asker.solve(line_problem(*groups, unit=unit))
    error = plain.standard_errors("line")
    assert (np.abs(plain["line"] - other["line"]) < 0.2 * error).all()
    np.testing.assert_allclose(other.standard_errors("line"), error, rtol=0.1)
    assert other.noise[1].sigma == pytest.approx(unit * plain.noise[1].sigma, rel=0.1)
    assert other.uncertainty().sigma["group 2"] == pytest.approx(unit * 0.3, rel=0.3)
    assert other.residuals[1] == pytest.approx(unit * plain.residuals[1], rel=0.1, abs=0.1 * unit)


@pytest.mark.parametrize("ratio", [0.01, 30.0])
def test_factor_groups_count_as_their_noise_asks_for(ratio):
    off = []
    for seed in range(5):
        rng = np.random.default_rng([7, seed])
        (x, y, a), (s, t, b) = drawn(rng, 100, 0.2), drawn(rng, 100, 0.2 * ratio, outliers=0.1)
        result = asker.solve(line_problem((x, y), (s, t)))
        truth, error = weighted_oracle((x[~a], y[~a], 0.2), (s[~b], t[~b], 0.2 * ratio))
        off.append(np.abs(result["line"][0] - truth) / error)
        if ratio < 1:
            assert result.noise[1].sigma == pytest.approx(0.2 * ratio, rel=0.3)
            assert result.standard_errors("line")[0] == pytest.approx(error, rel=0.3)
    assert np.median(off) < 0.5


def test_widths_that_are_given_stay_beside_noise_that_is_sought():
    rng = np.random.default_rng(1)
    x, y, _ = drawn(rng, 60, 0.1)
    line = asker.Variables([[0.0, 0.0]], name="line")
    widths, every = rng.uniform(0.5, 2.0, 60), np.zeros(60, int)
    sought = asker.Factors(off_the_line, line[every], data=(x, y), name="sought")
    given = asker.Factors(off_the_line, line[every], data=(x, y), tau=widths, name="given")
    result = asker.solve(asker.Problem(sought, given))
    np.testing.assert_array_equal(result.problem.factors[1].tau, widths)
    assert result.problem.factors[0].balance == 1


def test_a_balance_follows_the_noises_that_are_known():
    x = np.zeros(20)
    problem = line_problem((x, x), (x[:10], x[:10]), (x, x))
    told, exact, unknown = Noise(2.0, 0.5, 50.0), Noise(0.0, 0.5, 50.0), Noise(float("nan"), 1.0, 3.0)
    before = Balance((1.0, 3.0, 1.0))
    assert by_noise(problem, [told, Noise(0.5, 0.5, 50.0), told], before) == Balance((1.0, 4.0, 1.0))
    assert by_noise(problem, [told, unknown, told], before).factors[1] == 3.0
    assert by_noise(problem, [told, exact, told], before).factors[1] == 1e6
    assert by_noise(problem, [unknown] * 3, before) == before
    assert before.off(even(problem)) == pytest.approx(3.0)
    assert before.undone([told, Noise(6.0, 0.5, 50.0, rounding=3.0), told])[1] == Noise(2.0, 0.5, 50.0, rounding=1.0)

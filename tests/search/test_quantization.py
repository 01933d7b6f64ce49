"""Rounded data: the grid is seen where it is, and a line along one step does not beat the right one."""

import numpy as np
import pytest

import asker
from asker.search.data_checks import step_of_grid

RNG = np.random.default_rng(7)


def off_the_line(line, x, y):
    return line[0] * x + line[1] - y


def rounded_line(step, noise, seed, n=400, n_outliers=100):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-5, 5, n)
    y = 0.8 * x - 1.0 + rng.normal(0, noise, n)
    y[:n_outliers] = rng.uniform(-8, 8, n_outliers)
    line = asker.Variables([[-1.5, 5.0]], name="line")
    data = (x, step * np.round(y / step))
    return asker.solve(asker.Problem(asker.Factors(off_the_line, line[np.zeros(n, int)], data=data, name="heights")))


@pytest.mark.parametrize("step", [1.0, 0.1, 0.03, 1e-3, 7e5])
def test_the_step_of_a_grid_is_found(step):
    numbers = step * RNG.integers(-900, 900, 200)
    assert step_of_grid(numbers) == pytest.approx(step, rel=1e-9)
    assert step_of_grid(step * np.array([6, 10, 15, 0])) == pytest.approx(step, rel=1e-9)


@pytest.mark.parametrize("numbers", [np.zeros(9), np.array([0.0, 5.0, -5.0]), np.pi * RNG.normal(size=50), np.zeros(0)])
def test_no_grid_is_seen_in_what_has_none(numbers):
    assert step_of_grid(numbers) == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_line_along_a_step_does_not_beat_the_right_one(noise, seed):
    """55 of 400 rounded values lie on one level exactly, and 300 on the right line within the noise."""
    result = rounded_line(1.0, noise, seed)
    assert result.x == pytest.approx([0.8, -1.0], abs=0.15)
    assert result.noise[0].sigma == pytest.approx(np.hypot(noise, 1 / np.sqrt(12)), rel=0.2)
    assert {doubt.kind for doubt in result.doubts} <= ({asker.Doubt.ROUNDED} if noise == 0 else set())


def rounded_mean(noise, seed):
    rng = np.random.default_rng(seed)
    y = 3.0 + rng.normal(0, noise, 300)
    y[:60] = rng.uniform(-20, 20, 60)
    mean = asker.Variables([[0.0]], name="mean")
    factors = asker.Factors(lambda m, y: m[0] - y, mean[np.zeros(300, int)], data=np.round(y), name="counts")
    return asker.solve(asker.Problem(factors))


def test_where_most_fit_exactly_the_noise_is_that_of_rounding():
    result = rounded_mean(0.1, 0)
    assert result.noise[0].rounding == pytest.approx(1.0)
    assert result.noise[0].sigma == pytest.approx(1 / np.sqrt(12))
    assert "rounded to 1" in str(result.noise[0])
    assert any("counts are rounded to 1" in doubt for doubt in result.doubts)
    n = np.count_nonzero(np.abs(result.residuals[0]) < 0.5)
    assert result.interval("mean") == pytest.approx(1.96 / np.sqrt(12 * n), rel=0.05)


def test_noise_above_the_rounding_is_found():
    result = rounded_mean(1.0, 0)
    assert result.noise[0].sigma == pytest.approx(np.hypot(1.0, 1 / np.sqrt(12)), rel=0.15)
    assert not result.doubts


def test_exact_data_with_whole_outliers_are_not_rounded():
    x = RNG.uniform(1, 5, 40)
    y = 2 * x
    y[:12] += RNG.integers(3, 30, 12)
    line = asker.Variables([[1.0, 0.0]], name="line")
    result = asker.solve(asker.Problem(asker.Factors(off_the_line, line[np.zeros(40, int)], data=(x, y))))
    assert result.noise[0].sigma == 0
    assert result.x == pytest.approx([2.0, 0.0], abs=1e-6)


def test_a_search_in_rounded_data_goes_on_from_its_file(tmp_path):
    """What one candidate has shown of the rounding is a part of what was found."""
    whole = rounded_line(1.0, 0.3, 0)
    n = whole.iterations
    for cut in (n // 3, n // 2, 3 * n // 4):
        path = tmp_path / f"{cut}.npz"
        problem = unknown(whole.problem)
        asker.solve(problem, checkpoint=path, max_iterations=cut)
        again = asker.solve(problem, checkpoint=path)
        assert again.x == pytest.approx(whole.x, abs=1e-12)
        assert again.noise[0] == whole.noise[0]


def unknown(problem):
    """The same without the kernel that was found."""
    f = problem.factors[0]
    return asker.Problem(asker.Factors(f.residual, *f.slots, data=f.data, name=f.name))

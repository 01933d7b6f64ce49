"""GNC: levels of scaled kernels and the criteria for their end."""

import numpy as np

import asker
from asker.strategies import gnc
from small_problems import curve_problem, linear_problem


def test_a_level_without_accepted_steps_ends():
    """Every step at the minimum of a level is rejected; the level ends before the run."""
    problem, *_ = linear_problem(2, kernel=asker.SmoothTruncated(100.0))
    result = asker.solve(problem, asker.GNC(levels=3, level_tol=0.0), max_iterations=200, tol=0)
    assert result.history[-1].details["level"] == 0


def test_levels_share_the_iterations():
    result = asker.solve(curve_problem(1), asker.GNC(levels=4, level_tol=0.0), max_iterations=40, tol=0)
    levels = [h.details["level"] for h in result.history[:-1]]
    assert [levels.count(k) for k in (3, 2, 1, 0)] == [10, 10, 10, 10]


def test_changes_are_decreases_and_increases():
    kernel, before, after = asker.SmoothTruncated(1.0), np.array([0.1, 0.5, 3.0]), np.array([0.5, 0.1, 9.0])
    fell, rose = gnc.changes(kernel, after, before, 2.0)
    step = 4 * (kernel.psi(after / 4) - kernel.psi(before / 4))
    np.testing.assert_allclose(rose - fell, step)
    assert (fell * rose == 0).all()

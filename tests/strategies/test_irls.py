"""Iteratively reweighted least squares."""

import numpy as np

import asker
from small_problems import linear_problem


def test_relaxed_step_of_irls_is_levenberg_marquardt():
    problem, A, b = linear_problem(2, kernel=asker.Quadratic())
    result = asker.solve(problem, asker.IRLS(damping=0.5), max_iterations=1)
    x0 = problem.variables[0].rows[0]
    J, r = A.reshape(-1, 4), (A @ x0 - b).reshape(-1)
    np.testing.assert_allclose(result.x, x0 - np.linalg.solve(J.T @ J + 0.5 * np.eye(4), J.T @ r), rtol=1e-12)

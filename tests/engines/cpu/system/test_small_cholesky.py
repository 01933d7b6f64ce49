"""Blocked dense Cholesky factorisation, compared with LAPACK and between numbers of threads."""

import numpy as np
import pytest

from asker.engines.cpu import threads
from asker.engines.cpu.system import small_cholesky
from asker.engines.cpu.system.small_cholesky import PANEL, SmallCholesky

SIZES = [1, 7, 8, 9, 16, 17, PANEL, PANEL + 1, 2 * PANEL - 1, 100, 294]


def filled(n, seed=0):
    """A matrix, a right-hand side, and a solver with both and arbitrary numbers to the left of the diagonal."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n + 3))
    A, b, small = X @ X.T, rng.normal(size=n), SmallCholesky(n)
    small.R[:n, :n] = np.triu(A) + np.tril(rng.normal(size=(n, n)), -1)
    small.right[:] = b
    return A, b, small


@pytest.mark.parametrize("n", SIZES)
def test_the_factor_equals_that_of_lapack(n):
    A, b, small = filled(n)
    x = small.solve()
    assert np.linalg.norm(A @ x - b) <= 1e-12 * np.linalg.norm(A) * np.linalg.norm(x)
    np.testing.assert_allclose(np.triu(small.R[:n, :n]), np.linalg.cholesky(A).T, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("n", SIZES)
def test_the_result_does_not_depend_on_the_number_of_threads(n, monkeypatch):
    solutions = []
    monkeypatch.setattr(small_cholesky, "MIN_SHARED_UNKNOWNS", 0)
    for n_threads in (1, 2, 5):
        with threads.team_of(n_threads):
            solutions.append(filled(n)[2].solve())
    assert all(np.array_equal(solutions[0], x) for x in solutions)


@pytest.mark.parametrize(("n", "at"), [(PANEL, 0), (PANEL, 31), (71, 0), (71, 5), (71, 31), (71, 32), (71, 70)])
@pytest.mark.parametrize("pivot", [-1.0, 0.0, np.nan])
def test_a_nonpositive_pivot_is_reported(n, at, pivot):
    _, _, small = filled(n)
    small.diagonal[at] = pivot
    assert small.solve() is None
    _, b, again = filled(n)
    small.R[...], small.right[:] = again.R, b
    assert np.array_equal(small.solve(), again.solve())  # the failure has no effect on the next solve

"""The dense factorisation in blocks: LAPACK is its oracle, and the number of threads does not matter."""

import numpy as np
import pytest

from asker.engines.cpu import threads
from asker.engines.cpu.system import small_cholesky
from asker.engines.cpu.system.small_cholesky import PANEL, SmallCholesky

SIZES = [1, 7, 8, 9, 16, 17, PANEL, PANEL + 1, 2 * PANEL - 1, 100, 294]


def filled(n, seed=0):
    """A matrix and a right-hand side, and both in place; what is left of the diagonal is anything."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n + 3))
    A, b, small = X @ X.T, rng.normal(size=n), SmallCholesky(n)
    small.R[:n, :n] = np.triu(A) + np.tril(rng.normal(size=(n, n)), -1)
    small.right[:] = b
    return A, b, small


@pytest.mark.parametrize("n", SIZES)
def test_the_solution_is_lapacks(n):
    A, b, small = filled(n)
    x = small.solve()
    assert np.linalg.norm(A @ x - b) <= 1e-12 * np.linalg.norm(A) * np.linalg.norm(x)
    np.testing.assert_allclose(np.triu(small.R[:n, :n]), np.linalg.cholesky(A).T, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("n", SIZES)
def test_the_number_of_threads_does_not_matter(n, monkeypatch):
    found = []
    monkeypatch.setattr(small_cholesky, "MIN_SHARED_UNKNOWNS", 0)
    for n_threads in (1, 2, 5):
        with threads.team_of(n_threads):
            found.append(filled(n)[2].solve())
    assert all(np.array_equal(found[0], x) for x in found)


@pytest.mark.parametrize(("n", "at"), [(PANEL, 0), (PANEL, 31), (71, 0), (71, 5), (71, 31), (71, 32), (71, 70)])
@pytest.mark.parametrize("pivot", [-1.0, 0.0, np.nan])
def test_a_pivot_that_is_not_positive_is_told(n, at, pivot):
    _, _, small = filled(n)
    small.diagonal[at] = pivot
    assert small.solve() is None
    _, b, again = filled(n)
    small.R[...], small.right[:] = again.R, b
    assert np.array_equal(small.solve(), again.solve())  # nothing is left of what failed

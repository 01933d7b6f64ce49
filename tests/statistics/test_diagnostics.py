"""The doubt that few observations support a solution counts degrees of freedom."""

import numpy as np
import pytest

import asker


def few(n, loops, engine="cpu"):
    """The doubt about heights of n places, from steps between them and loops."""
    rng = np.random.default_rng(0)
    h = rng.normal(0, 10, n)
    i, j = rng.integers(0, n, (2, loops))
    i, j = np.concatenate([np.arange(n - 1), i]), np.concatenate([np.arange(1, n), (j + (i == j)) % n])
    v = asker.Variables(h + rng.normal(0, 0.01, n), name="h")
    d = h[i] - h[j] + rng.normal(0, 0.01, len(i))
    problem = asker.Problem(asker.Factors(lambda a, b, d: a - b - d, v[i], v[j], data=d, name="steps"))
    return [doubt for doubt in asker.solve(problem, engine=engine).doubts if doubt.startswith("few observations")]


def test_many_unknowns_with_enough_degrees_of_freedom_are_no_doubt():
    """150 unknowns, and 200 numbers: the noise is known from 51 degrees of freedom."""
    assert not few(150, loops=51)


@pytest.mark.parametrize("engine", ["cpu", "xla"])
def test_the_gauge_is_no_unknown_that_observations_determine(engine):
    """Nine degrees of freedom, or ten with the one that the gauge leaves."""
    (doubt,) = few(40, loops=9, engine=engine)
    assert doubt.endswith(
        "48 inliers with 48 residual components for 39 unknowns leave 9 degrees of freedom; add observations"
    )
    assert not few(40, loops=10, engine=engine)

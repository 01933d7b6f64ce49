"""Studentised residuals: their distribution, and the observations that are sampled."""

import numpy as np
import pytest

import asker
from asker.engines.cpu.engine import CpuEngine
from asker.engines.cpu.linearized_problem import LinearModel
from asker.statistics.scale import kept_shares
from asker.strategies.irls import IRLS
from asker.uncertainty.studentized_residuals import studentised


def line(of, x, y):
    return of[0] + of[1] * x - y


def planar(of, x, y):
    """A residual with two components of different leverage."""
    return np.array([1.0, 0.3]) * of[0] + np.array([0.2, 1.0]) * x * of[1] - y


def lines(n, tracks, residual=line, unit=1.0, seed=1, noise=1.0):
    """Return a problem of n lines; `tracks` are their numbers of points, `unit` that of the second unknown."""
    rng = np.random.default_rng(seed)
    index = np.repeat(np.arange(n), np.resize(tracks, n))
    x = rng.uniform(-1, 1, len(index))
    size = (len(index),) if residual is line else (len(index), 2)
    v = asker.Variables(np.zeros((n, 2)), name="lines")
    factors = asker.Factors(
        residual, v[index], data=(x / unit, noise * rng.normal(size=size)), kernel=asker.Quadratic()
    )
    return v, index, asker.Problem(factors)


def fitted(problem):
    """Return the rows of the least-squares solution."""
    engine = CpuEngine(problem, relative_damping=True)
    state = IRLS(damping=1e-12).init(engine, engine.start(), 9)
    for _ in range(3):
        state = IRLS(damping=1e-12).step(engine, state)
    return engine.rows(state.point)


def squares_of(problem, v, rows, max_per_group=10**6):
    every = [np.ones(f.n, bool) for f in problem.factors]
    a = kept_shares(problem.factors, [m.astype(float) for m in every], without=v)
    return studentised(problem, rows, v, every, a, max_per_group)


@pytest.mark.parametrize("residual", [line, planar])
def test_the_covariance_is_a_block_of_the_residual_projection(residual):
    """C equals a diagonal block of the dense I − J(JᵀJ)⁻¹Jᵀ for one free group."""
    v, _, problem = lines(7, [5, 9], residual)
    rows = fitted(problem)
    linear = LinearModel(problem, rows)
    ((J, r, index),) = linear.derivatives_by(v)
    n, p, d = J.shape
    dense = np.zeros((n, p, len(v), d))
    dense[np.arange(n), :, index] = J
    dense = dense.reshape(n * p, -1)
    P = (np.eye(n * p) - dense @ np.linalg.inv(dense.T @ dense) @ dense.T).reshape(n, p, n, p)
    C = P[np.arange(n), :, np.arange(n), :]
    ok = np.linalg.eigvalsh(C)[:, 0] > 0.5
    expected = np.einsum("np,np->n", r[ok], np.linalg.solve(C[ok], r[ok][..., None])[..., 0])
    (squares,) = squares_of(problem, v, rows)
    np.testing.assert_allclose(squares, expected, rtol=1e-8)
    np.testing.assert_allclose(
        linear.diagonal_blocks([np.ones(n)])[v][3], np.einsum("npd,npe->de", *[J[index == 3]] * 2)
    )


@pytest.mark.parametrize("track", [5, 8, 30])
@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e7])
def test_tracks_and_units_do_not_matter(track, unit):
    """The mean is p and the variance 2p, for short tracks as for long."""
    v, _, problem = lines(20_000 // track, [track], unit=unit)
    (squares,) = squares_of(problem, v, fitted(problem))
    assert len(squares) > 5000
    assert squares.mean() == pytest.approx(1.0, abs=0.05)
    assert squares.var() == pytest.approx(2.0, abs=0.25)


def test_a_large_group_is_sampled_and_a_small_one_is_not():
    """All observations of the small group, on every second variable, are evaluated."""
    rng = np.random.default_rng(2)
    v = asker.Variables(np.zeros((400, 1)), name="x")
    many, few = np.repeat(np.arange(400), 100), np.repeat(np.arange(1, 400, 2), 2)
    groups = [
        asker.Factors(lambda x, y: x - y, v[index], data=rng.normal(size=(len(index), 1)), kernel=asker.Quadratic())
        for index in (many, few)
    ]
    problem = asker.Problem(*groups)
    large, small = squares_of(problem, v, fitted(problem), max_per_group=1000)
    assert len(small) == len(few)
    assert 900 < len(large) < 1100


def test_groups_without_redundancy_are_not_evaluated():
    """A residual function is not called with an empty batch, and a variable without redundancy gives no residual."""
    rng = np.random.default_rng(3)
    x, y = asker.Variables(np.zeros((50, 1)), name="x"), asker.Variables(np.zeros((3, 1)), name="y")
    sizes = set()

    def batched(y, m):
        sizes.add(len(m))
        return y - m

    def jacobian(y, m):
        return (np.ones((len(m), 1, 1)),)

    once = asker.Factors(lambda x, m: x - m, x[np.arange(50)], data=rng.normal(size=(50, 1)), kernel=asker.Quadratic())
    other = asker.Factors(
        batched, y[np.arange(60) % 3], data=rng.normal(size=(60, 1)), kernel=asker.Quadratic(), jacobian=jacobian
    )
    problem = asker.Problem(once, other)
    rows = fitted(problem)
    sizes.clear()
    assert [len(each) for each in squares_of(problem, x, rows)] == [0, 0]
    assert 0 not in sizes

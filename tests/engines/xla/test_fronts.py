"""The batched multifrontal factorisation agrees with a dense solver, for all amalgamations of fronts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asker.engines.cpu.sparse import wide_fronts
from asker.engines.xla import fronts, sparse
from asker.tracing.array_namespace import float64


def pattern(pairs, n):
    """Return the pointers and columns of the lower triangle."""
    keys = np.unique([max(a, b) * n + min(a, b) for a, b in [*pairs, *((k, k) for k in range(n))]])
    row, column = np.divmod(keys, n)
    return np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]), column


def places(meeting, dims):
    """Return row, column and number of every value of the lower triangle."""
    first = np.concatenate([[0], np.cumsum(dims)])
    blocks = zip(np.repeat(np.arange(len(dims)), np.diff(meeting[0])), meeting[1], strict=True)
    at = [np.meshgrid(first[a] + np.arange(dims[a]), first[b] + np.arange(dims[b]), indexing="ij") for a, b in blocks]
    row, column = (np.concatenate([x[k].ravel() for x in at]) for k in range(2))
    lower = row >= column
    return np.stack([row[lower], column[lower], np.arange(lower.sum())])


def positive(at, n, rng):
    """Return a symmetric matrix with values at these positions."""
    A = np.zeros((n, n))
    A[at[0], at[1]] = rng.normal(size=at.shape[1])
    A = A + np.tril(A, -1).T
    return A + np.diag(np.abs(A).sum(axis=1) + 1)


def grid(n, side):
    return [(k, k + d) for k in range(n) for d in (1, side) if k + d < n]


GRAPHS = {
    "chain": (20, lambda rng, n: [(k, k + 1) for k in range(n - 1)]),
    "grid": (64, lambda rng, n: grid(n, 8)),
    "random": (30, lambda rng, n: rng.integers(n, size=(45, 2)).tolist()),
    "apart": (12, lambda rng, n: [(k, k + 1) for k in range(0, n - 1, 2)]),
    "full": (12, lambda rng, n: [(a, b) for a in range(n) for b in range(a)]),
}


@pytest.mark.parametrize("block", [4, 64], ids=["blocks", "calls"])
@pytest.mark.parametrize("narrow", [(1,), (12,), (64,)], ids=str)
@pytest.mark.parametrize("name", GRAPHS)
def test_the_solution_is_that_of_a_dense_solver(name, narrow, block, monkeypatch):
    rng = np.random.default_rng(sum(map(ord, name)))
    n, edges = GRAPHS[name]
    dims = rng.integers(1, 4, n)
    meeting = pattern(edges(rng, n), n)
    at = places(meeting, dims)
    A, b = positive(at, dims.sum(), rng), rng.normal(size=dims.sum())
    monkeypatch.setattr(fronts, "UNRESTRICTED_SIZES", narrow)
    monkeypatch.setattr(sparse, "BLOCK_PIVOTS", block)
    monkeypatch.setattr(sparse, "MAX_PIVOTS_BATCHED_SOLVE", block)
    found = fronts.batched(fronts.cheapest(meeting, dims), at)
    with float64():
        solve = jax.jit(sparse.sparse_cholesky, static_argnums=0)
        x = solve(found.takes, jax.tree.map(jnp.asarray, found.arrays), A[at[0], at[1]], b)
    np.testing.assert_allclose(x, np.linalg.solve(A, b), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("width", [64, 200])
def test_back_substitution_by_blocks_is_as_exact_as_without_blocks(width):
    """‖Lᵀx − y‖ is compared with the effect of rounding of L and y."""
    t = np.linspace(0, 1, width)
    L = np.linalg.cholesky(np.exp(-(((t[:, None] - t) / 0.3) ** 2)) + 1e-10 * np.eye(width))[None]
    y = np.random.default_rng(width).normal(size=(1, width))
    with float64():
        padded = sparse._padded(jnp.asarray(L))
        (D,) = sparse._inverses([padded])
        x = np.asarray(sparse._solve_by_blocks(padded, D, jnp.asarray(y)))
    error = np.abs(np.einsum("nki,nk->ni", L, x) - y) / (np.einsum("nki,nk->ni", np.abs(L), np.abs(x)) + np.abs(y))
    assert error.max() < 1e-15


def test_every_plan_eliminates_each_unknown_once_and_children_first():
    rng = np.random.default_rng(3)
    n = 144
    dims = rng.integers(1, 4, n)
    ways = list(wide_fronts(pattern(grid(n, 12), n), dims, (8, 40), 0.3))
    assert len({len(way.parent) for way in ways}) > 1
    for way in ways:
        assert np.array_equal(np.sort(way.order), np.arange(dims.sum()))
        assert (way.first[1:] > way.first[:-1]).all()
        has = way.parent >= 0
        assert (way.parent[has] > np.flatnonzero(has)).all()
        for k in np.flatnonzero(has):  # the coupled unknowns of a front belong to its parent
            left = way.coupled[way.coupled_ptr[k] : way.coupled_ptr[k + 1]]
            p = way.parent[k]
            there = np.r_[way.first[p] : way.first[p + 1], way.coupled[way.coupled_ptr[p] : way.coupled_ptr[p + 1]]]
            assert np.isin(left, there).all()


def test_few_batches_for_many_fronts():
    """Fronts of one level are batched, so that a chain of 2000 needs few steps."""
    n = 2000
    meeting = pattern(GRAPHS["chain"][1](None, n), n)
    dims = np.full(n, 3)
    found = fronts.cheapest(meeting, dims)
    assert len(found.groups) < 20
    assert found.cost < fronts.dense_cost(3 * n)

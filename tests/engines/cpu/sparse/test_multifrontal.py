"""Sparse Cholesky factorisation on various graphs."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from asker.engines.cpu import cholesky
from asker.engines.cpu.sparse import Multifrontal, elimination_tree, multifrontal, symbolic
from asker.engines.cpu.sparse.elimination_tree import work_of
from asker.engines.cpu.sparse.minimum_degree import eliminate
from asker.engines.cpu.sparse.symbolic import graph_of

pytestmark = pytest.mark.slow


def lower_triangle(n, a, b):
    """CSR pointers and columns of the lower triangle with the diagonal, from the edges (a, b)."""
    i, j = np.concatenate([np.maximum(a, b), np.arange(n)]), np.concatenate([np.minimum(a, b), np.arange(n)])
    m = sparse.csr_array((np.ones(len(i)), (i, j)), (n, n))
    m.sort_indices()
    return m.indptr.astype(np.int64), m.indices.astype(np.int64)


def grid(height, width):
    number = np.arange(height * width).reshape(height, width)
    return (
        height * width,
        np.concatenate([number[:, :-1].ravel(), number[:-1].ravel()]),
        np.concatenate([number[:, 1:].ravel(), number[1:].ravel()]),
    )


def chain(n):
    return n, np.arange(n - 1), np.arange(1, n)


def star(n):
    return n, np.zeros(n - 1, int), np.arange(1, n)


def chain_with_a_hub(n):
    """A chain with a variable that is coupled to all others, such as intrinsics shared by all cameras."""
    return (
        n,
        np.concatenate([np.arange(n - 2), np.full(n - 1, n - 1)]),
        np.concatenate([np.arange(1, n - 1), np.arange(n - 1)]),
    )


def complete(n):
    a, b = np.triu_indices(n, 1)
    return n, a, b


def isolated(n):
    return n, np.zeros(0, int), np.zeros(0, int)


def scattered(n, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, n, (2, n))
    return n, a[a != b], b[a != b]


def chain_with_chords(n, n_chords, seed=0):
    """A trajectory with loop closures between random places."""
    a, b = np.random.default_rng(seed).integers(0, n, (2, n_chords))
    return n, np.concatenate([np.arange(n - 1), a[a != b]]), np.concatenate([np.arange(1, n), b[a != b]])


GRAPHS = [
    grid(1, 1), grid(40, 53), grid(3, 400), chain(500), star(200), complete(120), isolated(300), scattered(900),
    chain_with_a_hub(2000), chain_with_chords(1500, 150),
]  # fmt: skip


@pytest.fixture(params=["as it is", "cut everywhere", "never cut"])
def ordered(request, monkeypatch):
    """Run a test with each ordering method."""
    if request.param == "cut everywhere":
        monkeypatch.setattr(elimination_tree, "MAX_UNCUT_VERTICES", 4)
        monkeypatch.setattr(elimination_tree, "MAX_VERTICES_FOR_BOTH", 0)
    if request.param == "never cut":
        monkeypatch.setattr(elimination_tree, "MAX_UNCUT_WORK_RATIO", np.inf)


@pytest.mark.usefixtures("ordered")
@pytest.mark.parametrize("graph", GRAPHS)
def test_fronts_are_in_postorder_and_separate_their_subtrees(graph):
    n, a, b = graph
    tree = elimination_tree.elimination_tree(graph_of(*lower_triangle(n, a, b), np.ones(n, dtype=np.int64)))
    assert sorted(tree.order) == list(range(n))
    front = np.empty(n, dtype=int)
    for k in range(len(tree.parent)):
        front[tree.order[tree.first[k] : tree.first[k + 1]]] = k
    above = [set() for _ in tree.parent]
    for k in range(len(tree.parent) - 1, -1, -1):
        p = tree.parent[k]
        if p >= 0:
            assert p > k
            above[k] = above[p] | {p}
    for i, j in zip(front[a], front[b], strict=True):
        assert i == j or max(i, j) in above[min(i, j)]
    for k in range(len(tree.parent)):
        below = [c for c in range(len(tree.parent)) if k in above[c]]
        assert below == list(range(k - len(below), k))  # a subtree is contiguous


def by_sets(n, a, b, weight, order=None):
    """Eliminate on sets, by exact minimum degree if no order is given.

    Returns the vertices that each one is coupled to at its elimination, and the multiply-adds.
    """
    near = [set() for _ in range(n)]
    for i, j in zip(a, b, strict=True):
        near[i].add(j)
        near[j].add(i)
    coupled, left, work = {}, set(range(n)), 0
    for k in range(n):
        v = min(left, key=lambda v: sum(weight[w] for w in near[v])) if order is None else order[k]
        left.remove(v)
        coupled[v] = near[v]
        work += weight[v] * (weight[v] + sum(weight[w] for w in near[v])) ** 2
        for w in near[v]:
            near[w] = (near[w] | near[v]) - {v, w}
    return coupled, work


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 80), st.integers(0, 80), st.integers(0, 2**32 - 1))
def test_minimum_degree_returns_the_elimination_tree_and_the_fill_in(n, n_chords, seed):
    n, a, b = chain_with_chords(n, n_chords, seed)
    weight = np.random.default_rng(seed).integers(1, 7, n)
    graph = graph_of(*lower_triangle(n, a, b), weight)
    order, parent, load = eliminate(*graph)
    assert sorted(order) == list(range(n))
    coupled, work = by_sets(n, a, b, weight, order.tolist())
    place = np.argsort(order)
    for v in range(n):
        assert load[v] == sum(weight[w] for w in coupled[v])
        assert parent[v] == min(coupled[v], key=lambda w: place[w], default=-1)
    assert work_of(order, graph) == work
    assert work <= 2 * by_sets(n, a, b, weight)[1]


@pytest.mark.parametrize("n_chords", [80, 120, 300])
def test_random_loop_closures_cause_little_fill_in(n_chords):
    """Nested dissection accepts poor separators for few chords, and there are none for many."""
    n, a, b = chain_with_chords(4000, n_chords)
    graph = graph_of(*lower_triangle(n, a, b), np.full(n, 6))
    tree = elimination_tree.elimination_tree(graph)
    work = work_of(tree.order, graph)
    assert work <= 1.3 * work_of(eliminate(*graph)[0], graph)
    core = 2 * n_chords * 6  # at most both ends of all chords
    assert work < core**3 / 3 / 20


EACH_SHARING = pytest.mark.parametrize("shared_out", ["whole", "rows", "tiles"])


def share_out(how, monkeypatch):
    """Process small fronts as large ones are."""
    monkeypatch.setattr(symbolic, "RECENT_PATTERNS", deque())
    if how != "whole":
        monkeypatch.setattr(symbolic, "MIN_SHARED_WORK", 0)
        monkeypatch.setattr(symbolic, "N_TASKS", np.inf)
        monkeypatch.setattr(multifrontal, "MIN_TILED_NUMBERS", 0 if how == "tiles" else np.inf)
    if how == "tiles":
        monkeypatch.setattr(symbolic, "MIN_UNSPLIT_PIVOTS", 10)
        monkeypatch.setattr(cholesky, "TILE_SIZE", 8)


def matrix(graph, dims, seed=0):
    """A solver for a random positive definite matrix on a graph of variables, its lower values and the matrix."""
    n, a, b = graph
    rng = np.random.default_rng(seed)
    ptr, columns = lower_triangle(n, a, b)
    starts = np.concatenate([[0], np.cumsum(dims)])
    row, column = np.repeat(np.arange(n), np.diff(ptr)), columns  # for each block
    size = dims[row] * dims[column]
    within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    row, column = np.repeat(row, size), np.repeat(column, size)
    i, j = starts[row] + within // dims[column], starts[column] + within % dims[column]
    values = rng.normal(size=len(i))
    A = sparse.coo_array((np.where(i > j, values, 0.0), (i, j)), (starts[-1], starts[-1])).tocsc()
    A = A + A.T
    heavy = np.abs(A).sum(axis=1) + rng.uniform(0.1, 1, starts[-1])
    values[i == j] = heavy[i[i == j]]
    return Multifrontal((ptr, columns), dims, (i, j)), values, sparse.csc_array(A + sparse.diags_array(heavy))


@pytest.mark.usefixtures("ordered")
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("dim", [1, 3])
@EACH_SHARING
def test_the_residual_of_the_solution_is_small(graph, dim, shared_out, monkeypatch):
    share_out(shared_out, monkeypatch)
    fronts, values, A = matrix(graph, np.full(graph[0], dim))
    b = np.random.default_rng(1).normal(size=A.shape[0])
    x = fronts.solve(values, b)
    assert np.linalg.norm(A @ x - b) <= 1e-12 * np.linalg.norm(b)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_any_graph_with_variables_of_any_size(n, seed):
    rng = np.random.default_rng(seed)
    m = rng.integers(0, 3 * n)
    a, b = rng.integers(0, n, (2, m))
    fronts, values, A = matrix((n, a[a != b], b[a != b]), rng.integers(1, 8, n), seed)
    b = rng.normal(size=A.shape[0])
    assert np.linalg.norm(A @ fronts.solve(values, b) - b) <= 1e-12 * np.linalg.norm(b)


@EACH_SHARING
def test_an_indefinite_matrix_is_rejected(shared_out, monkeypatch):
    share_out(shared_out, monkeypatch)
    fronts, values, A = matrix(grid(20, 20), np.ones(400, dtype=int))
    b = np.ones(400)
    assert fronts.solve(values, b) is not None
    bad, at = values.copy(), np.flatnonzero(values == A.diagonal()[200])
    bad[at] = -1.0
    assert fronts.solve(bad, b) is None
    bad[at] = np.nan
    assert fronts.solve(bad, b) is None


def test_work_grows_like_that_of_nested_dissection():
    """n^1.5 multiply-adds and n log n numbers, on a square grid."""
    works, numbers = [], []
    for side in (32, 64, 128, 256):
        n, a, b = grid(side, side)
        ptr, columns = lower_triangle(n, a, b)
        at = np.repeat(np.arange(n), np.diff(ptr)), columns
        fronts = Multifrontal((ptr, columns), np.ones(n, dtype=int), at)
        works.append(fronts.work.sum() / n**1.5)
        numbers.append(len(fronts.panels) / (n * np.log2(n)))
    assert works[-1] <= works[-2] < 25
    assert numbers[-1] <= numbers[-2] < 4


def test_uninitialised_memory_is_not_used(monkeypatch):
    share_out("tiles", monkeypatch)
    fronts, values, A = matrix(chain_with_chords(400, 120), np.full(400, 6))
    for numbers in (fronts.panels, fronts.updates, fronts.left):
        numbers.view(np.int64)[:] = 0x7FF0000000000001  # a signalling NaN
    b = np.ones(len(fronts.order))
    assert np.linalg.norm(A @ fronts.solve(values, b) - b) <= 1e-12 * np.linalg.norm(b)


def test_a_hub_causes_no_fill_in():
    n, a, b = chain_with_a_hub(200_000)  # half a minute if minimum degree traversed the hub
    ptr, columns = lower_triangle(n, a, b)
    at = np.repeat(np.arange(n), np.diff(ptr)), columns
    assert len(Multifrontal((ptr, columns), np.ones(n, dtype=int), at).panels) < 100 * n


def test_independent_dense_blocks_are_parallel_tasks():
    size, n_parts = 400, 40
    i, j = np.tril_indices(size)
    rows, columns = (np.concatenate([k * size + x for k in range(n_parts)]) for x in (i, j))
    n = size * n_parts
    block_pattern = np.arange(n_parts + 1), np.arange(n_parts)
    fronts = Multifrontal(block_pattern, np.full(n_parts, size), (rows, columns))
    assert len(fronts.tasks) >= symbolic.N_TASKS / 2
    x = fronts.solve(np.where(rows == columns, 1.0 + size, 1.0), np.ones(n))
    np.testing.assert_allclose(x, 1 / (2 * size), rtol=1e-12)


def test_a_pattern_is_analysed_once():
    n, a, b = grid(9, 7)
    ptr, columns = lower_triangle(n, a, b)
    at = np.repeat(np.arange(n), np.diff(ptr)), columns
    values = np.where(at[0] == at[1], 5.0, -1.0)
    one = Multifrontal((ptr, columns), np.ones(n, dtype=int), at)
    again = Multifrontal((ptr.copy(), columns.copy()), np.ones(n, dtype=int), at)
    assert again.fronts is one.fronts
    x, y = one.solve(values, np.ones(n)), again.solve(2 * values, np.ones(n))
    np.testing.assert_allclose(x, 2 * y, rtol=1e-14)
    wider = Multifrontal(
        (ptr, columns), np.where(np.arange(n) == 3, 2, 1), (at[0] + (at[0] > 3), columns + (columns > 3))
    )
    assert wider.fronts is not one.fronts


def test_the_analysis_of_many_components_takes_linear_time():
    n, a, b = isolated(200_000)
    ptr, columns = lower_triangle(n, a, b)
    at = np.arange(n), np.arange(n)
    fronts = Multifrontal((ptr, columns), np.ones(n, dtype=int), at)  # minutes, if one were split off at a time
    assert len(fronts.tasks) + len(fronts.top) <= 2 * symbolic.N_TASKS
    np.testing.assert_array_equal(fronts.solve(np.full(n, 4.0), np.full(n, 2.0)), 0.5)

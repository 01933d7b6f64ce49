"""A sparse factorisation without zero blocks computes the same step."""

import numpy as np
import pytest

from asker.applications.pose_graph import pose_graph_problem
from asker.applications.pose_graph.loops.false_loops import add_false_loops
from asker.engines.cpu.engine import CpuEngine
from asker.engines.cpu.system import schur_solve
from asker.engines.interface import Model
from synthetic_graphs import circle


@pytest.fixture(scope="module")
def engine():
    graph, _ = add_false_loops(circle()[1], 1.0, "random", 0)
    return CpuEngine(pose_graph_problem(graph).problem, "sparse-cholesky")


def steps(engine, weights):
    """The step for each set of weights, in turn."""
    point = engine.start()
    models = [Model(a, None, a) for a in weights]
    return [np.concatenate([d.ravel() for d in engine.solve(point, m, 1.0).delta.values()]) for m in models]


def test_the_step_is_the_same(engine, monkeypatch):
    rng = np.random.default_rng(0)
    some = [
        tuple(np.where(rng.random(f.n) < share, 0.0, 1.0) for f in engine.structure.factors) for share in (0.8, 0.5)
    ]
    ones = tuple(np.ones(f.n) for f in engine.structure.factors)
    fewer = tuple(a * b for a, b in zip(*some, strict=True))
    weights = [ones, some[0], fewer, some[1], ones, some[0]]
    expected = steps(engine, weights)
    assert engine.system.finish.pruned is None
    monkeypatch.setattr(schur_solve, "ANALYSIS_WORK_PER_VALUE", 0)
    monkeypatch.setattr(schur_solve, "MAX_WORK_RATIO", 0.99)
    pruned = []
    solve = schur_solve.SparseCholesky._pruned
    monkeypatch.setattr(
        schur_solve.SparseCholesky, "_pruned", lambda self, values: pruned.append(solve(self, values)) or pruned[-1]
    )
    for ours, right in zip(steps(engine, weights), expected, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-8, atol=1e-10)
    n = [np.count_nonzero(each.blocks) for each in pruned]
    assert n[2] < n[1] < n[0] == n[4]
    assert n[3] > n[2]  # omitted blocks are added again

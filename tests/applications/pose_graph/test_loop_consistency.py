"""Consistency of loop closures."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import expm

import asker
from asker.applications.pose_graph.loops import loop_consistency, work_budget
from asker.applications.pose_graph.loops.false_loops import add_false_loops
from asker.applications.pose_graph.loops.loop_consistency import LoopConsistency
from asker.applications.pose_graph.loops.loop_search import solve_pose_graph
from asker.geometry import poses
from asker.geometry.poses import N_DOF
from synthetic_graphs import EVERY_FILE_KIND, EVERY_KIND, circle, some_poses

FALSE = pytest.mark.parametrize("false", ["random", "local"])
"""Kinds of false loops.  Grouped ones are excluded: on a circle with equal steps, they agree with each other."""


def ties(graph):
    of = LoopConsistency(graph)
    return [of._odometry_cycles, *of._neighbour_cycles]


@EVERY_FILE_KIND
def test_adjoints_transform_tangent_vectors(kind):
    """T exp(x) = exp(Ad x) T, and logarithms of small transformations are their tangent vectors."""
    rng = np.random.default_rng(0)
    T, x = poses.matrices(kind, some_poses(kind, 5, rng)), rng.normal(size=(5, N_DOF[kind]))
    moved = np.einsum("nij,nj->ni", loop_consistency._adjoints(kind, T), x)
    for t, a, b in zip(T, x, moved, strict=True):
        np.testing.assert_allclose(t @ exponential(kind, a), exponential(kind, b) @ t, atol=1e-9)
    small = np.array([exponential(kind, 1e-6 * a) for a in x])
    np.testing.assert_allclose(loop_consistency._logarithms(kind, small), 1e-6 * x, atol=1e-10)


def exponential(kind, x):
    return expm(np.einsum("k,kij->ij", x, loop_consistency._generators(kind)))


@EVERY_KIND
def test_errors_of_true_loops_are_chi2_distributed(kind):
    """cᵀΣ⁻¹c has the mean of χ², over odometry alone and over pairs."""
    own, pairs = zip(*((t[0].u, np.concatenate([p.u for p in t[1:]])) for t in map(ties, graphs(kind))), strict=True)
    for u in (own, pairs):
        mean = np.mean([of.mean() for of in u])
        assert mean == pytest.approx(N_DOF[kind], rel=0.25)


def graphs(kind):
    return [circle(kind, n=90, seed=seed)[1] for seed in range(12)]


@EVERY_KIND
@FALSE
def test_the_more_consistent_half_is_true(kind, false):
    graph, is_false = add_false_loops(circle(kind, n=180)[1], 0.5, false, seed=2)
    order = LoopConsistency(graph).order
    assert np.array_equal(np.sort(order), np.flatnonzero(~graph.is_odometry))
    assert np.count_nonzero(is_false[order[: len(order) // 2]]) <= 2


@EVERY_KIND
def test_consistency_does_not_depend_on_the_scale_of_the_stated_noise(kind):
    graph, _ = add_false_loops(circle(kind, n=90)[1], 0.3, "random", seed=2)
    louder = replace(graph, information=graph.information / 100)
    assert np.mean(LoopConsistency(graph).order == LoopConsistency(louder).order) > 0.9


@EVERY_KIND
def test_false_loops_are_inconsistent(kind):
    start = circle(kind, n=180)[1]
    assert not LoopConsistency(start).has_inconsistent_loops
    assert LoopConsistency(add_false_loops(start, 0.1, "random", seed=3)[0]).has_inconsistent_loops


def test_missing_odometry_is_bridged_by_a_short_loop():
    graph = circle(n=90)[1]
    across = replace(
        graph,
        i=np.append(graph.i, np.int32(39)),
        j=np.append(graph.j, np.int32(41)),
        measurements=np.concatenate([graph.measurements, _composed(graph, 39)]),
        information=np.concatenate([graph.information, graph.information[:1]]),
    )
    gap = ~((np.minimum(across.i, across.j) == 40) & across.is_odometry)
    alone = graph.with_edges(gap[:-1] & graph.is_odometry)
    assert np.array_equal(LoopConsistency(alone).chain.segment, np.arange(90) > 40)
    whole = LoopConsistency(across.with_edges(gap))
    assert len(np.unique(whole.chain.segment)) == 1
    np.testing.assert_allclose(whole.chain.T[-1], LoopConsistency(graph).chain.T[-1], atol=1e-9)


def _composed(graph, k):
    """Two steps of odometry from pose k, as one measurement."""
    T = LoopConsistency(graph).chain.T
    return poses.rows(graph.kind, poses.inverses(graph.kind, T[k : k + 1]) @ T[k + 2 : k + 3])


def test_the_most_consistent_loops_connect_all_poses():
    graph = circle(n=90)[1]
    gap = ~((np.minimum(graph.i, graph.j) == 40) & graph.is_odometry)
    of = LoopConsistency(graph.with_edges(gap))
    is_loop = ~of.graph.is_odometry
    assert np.count_nonzero(of.most_consistent(0) & is_loop) == 1
    n = of.n // 2
    assert n <= np.count_nonzero(of.most_consistent(n) & is_loop) <= n + 1


@FALSE
def test_a_large_graph_is_solved_without_all_loops_at_once(false, monkeypatch):
    """Least squares with the consistent loops, then descents; the method itself is not used."""
    monkeypatch.setattr(work_budget, "INEXACT_WORK", 1.0)
    graph, is_false = add_false_loops(circle(n=150)[1], 0.3, false, seed=1)
    methods = []

    def recorded_solve(problem, strategy, **limits):
        methods.append(type(strategy))
        return asker.solve(problem, strategy, **limits)

    chosen = solve_pose_graph(graph, recorded_solve, asker.ASKER(), thorough=True).chosen
    assert asker.ASKER not in methods
    assert np.count_nonzero(chosen.graph_problem.rejected(chosen.result) != is_false) <= 1

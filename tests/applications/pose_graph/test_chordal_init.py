"""Chordal initialisation: exact for consistent measurements, and close to the optimum otherwise."""

from dataclasses import replace

import numpy as np
import pytest

import asker
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.initial.chordal_init import (
    chordal_initialization,
    chordal_start,
    has_large_rotation_error,
)
from asker.applications.pose_graph.problem import pose_graph_problem
from asker.geometry import poses
from asker.geometry.poses import N_AXES, N_DOF
from asker.geometry.rotations import matrix_from_quaternion
from synthetic_graphs import circle


def exact(kind, n=30, seed=1):
    """Return true poses, and a graph with exact edges whose initial poses all equal the first true one."""
    rng = np.random.default_rng(seed)
    d = N_AXES[kind]
    T = np.tile(np.eye(d + 1), (n, 1, 1))
    T[:, :d, d] = rng.normal(size=(n, d))
    if d == 2:
        angle = rng.uniform(-np.pi, np.pi, n)
        c, s = np.cos(angle), np.sin(angle)
        T[:, :2, :2] = np.stack([c, -s, s, c], axis=1).reshape(-1, 2, 2)
    else:
        q = rng.normal(size=(n, 4))
        T[:, :3, :3] = matrix_from_quaternion(q / np.linalg.norm(q, axis=1)[:, None])
    if kind == "SIM3":
        T[:, :3, :3] *= np.exp(rng.normal(size=n))[:, None, None]
    i = np.concatenate([np.arange(n - 1), rng.integers(0, n // 2, n)]).astype(np.int32)
    j = np.concatenate([np.arange(1, n), rng.integers(n // 2, n, n)]).astype(np.int32)
    measured = poses.rows(kind, poses.inverses(kind, T)[i] @ T[j])
    information = np.tile(np.diag(rng.uniform(1, 9, N_DOF[kind])), (len(i), 1, 1))
    start = poses.rows(kind, np.tile(T[:1], (n, 1, 1)))
    return T, PoseGraph(kind, np.arange(n), start, i, j, measured, information, np.zeros(n, bool))


@pytest.mark.parametrize("kind", ["SE2", "SE3", "SIM3"])
def test_consistent_measurements_yield_the_true_poses(kind):
    T, graph = exact(kind)
    np.testing.assert_allclose(poses.matrices(kind, chordal_initialization(graph).poses), T, atol=1e-8)


@pytest.mark.parametrize("kind", ["SE2", "SE3", "SIM3"])
@pytest.mark.parametrize(("angle", "turns"), [(0.0, False), (1.5, False), (-1.5, False), (1.6, True), (np.pi, True)])
def test_a_rotation_error_is_large_from_90_degrees(kind, angle, turns):
    T, graph = exact(kind)
    turn = np.eye(N_AXES[kind] + 1)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    T[-1] = T[-1] @ turn  # only this pose is rotated
    assert has_large_rotation_error(replace(graph, poses=poses.rows(kind, T))) == turns


def test_constant_poses_are_unchanged():
    T, graph = exact("SE3")
    graph.fixed[[3, 7]] = True
    graph.poses[[3, 7]] = poses.rows("SE3", T[[3, 7]])
    initial = chordal_initialization(graph)
    np.testing.assert_array_equal(initial.poses[[3, 7]], graph.poses[[3, 7]])
    np.testing.assert_allclose(poses.matrices("SE3", initial.poses), T, atol=1e-8)


def test_unconnected_poses_have_no_chordal_initialisation():
    _, graph = exact("SE2")
    assert chordal_initialization(graph.with_edges((graph.i != 29) & (graph.j != 29))) is None


def test_the_initial_cost_of_drifting_odometry_is_much_lower():
    """Odometry has a rotation bias that adds up to several turns; a few loops correct it."""
    graph = circle(n=400)[1]
    drifting = replace(graph, measurements=graph.measurements.copy())
    drifting.measurements[graph.is_odometry, 2] += 0.03
    made = [pose_graph_problem(of, robust="none") for of in (drifting, chordal_initialization(drifting))]
    ends = [asker.solve(one.problem, asker.IRLS(), max_iterations=30) for one in made]
    assert ends[1].initial_cost < ends[0].initial_cost / 10
    assert ends[1].cost <= ends[0].cost * (1 + 1e-6)


def test_edges_without_weight_are_ignored():
    T, graph = exact("SE2")
    graph.measurements[-1] += 5.0
    made = pose_graph_problem(graph)
    weights = [np.ones(len(index)) for index in made.edges.values()]
    weights[1][-1] = 0.0
    (rows,) = chordal_start(made, tuple(weights))
    np.testing.assert_allclose(rows[:, :2], T[:, :2, 2], atol=1e-8)

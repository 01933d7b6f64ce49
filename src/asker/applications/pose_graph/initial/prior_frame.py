"""Alignment of a pose graph with its priors.

Poses may be relative to the first one, and priors relative to a map.  A robust kernel would reject such priors, so the
whole graph is moved to the frame of the priors before it is solved.
"""

from dataclasses import replace

import numpy as np

from asker.applications.pose_graph.formats.g2o_tags import MEASUREMENT_TAGS
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.initial.landmark_init import offset_rows
from asker.geometry import poses
from asker.geometry.alignment import distances, similarity
from asker.geometry.poses import N_AXES

REWEIGHTING_ITERATIONS = 20
"""Number of iterations of reweighted least squares, which minimise the sum of distances, not of their squares."""


def aligned_with_priors(graph: PoseGraph) -> PoseGraph:
    """Return the graph aligned with its priors; unchanged if it has none, or if a vertex is constant."""
    if not graph.has_priors or graph.fixed.any() or graph.landmarks.fixed.any():
        return graph
    d = N_AXES[graph.kind]
    T = _motion(graph)
    moved = poses.rows(graph.kind, T @ poses.matrices(graph.kind, graph.poses))
    if graph.kind == "SE2":  # add the same angle to all, so that multiples of 2π are preserved
        moved[:, 2] = graph.poses[:, 2] + np.arctan2(T[1, 0], T[0, 0])
    points = graph.landmarks.points
    points = points @ T[:d, :d].T + T[:d, d] if len(points) else points
    return replace(graph, poses=moved, landmarks=replace(graph.landmarks, points=points))


def _motion(graph: PoseGraph) -> np.ndarray:
    """Return the rigid motion as a homogeneous matrix."""
    d = N_AXES[graph.kind]
    positions, priors = _positions(graph)
    motion = _pose_prior(graph)
    T = np.eye(d + 1)
    if len(positions) < 3 and motion is not None:
        return motion
    if len(positions) == 1:
        T[:d, d] = (priors - positions)[0]
        return T
    weights = np.ones(len(positions))
    for _ in range(REWEIGHTING_ITERATIONS):
        fit = similarity(positions, priors, scale=False, weights=weights)
        errors = distances(fit, positions, priors)
        weights = 1 / np.maximum(errors, 1e-6 * errors.max() + 1e-300)
        weights /= weights.max()
    T[:d, :d], T[:d, d] = fit[1:]
    return T


def _positions(graph: PoseGraph) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions that have priors, and the positions that these priors state."""
    d = N_AXES[graph.kind]
    positions, priors = [], []
    for tag, m in graph.measured.items():
        if MEASUREMENT_TAGS[tag].ends == ("landmark",):
            positions.append(graph.landmarks.points[m.ends[:, 0]])
            priors.append(m.values)
        elif MEASUREMENT_TAGS[tag].ends == ("pose",):
            positions.append(poses.positions(graph.kind, graph.poses)[m.ends[:, 0]])
            priors.append(_pose_rows(graph, tag)[:, :d])
    return np.concatenate(positions), np.concatenate(priors)


def _pose_prior(graph: PoseGraph) -> np.ndarray | None:
    """Return the motion according to the first prior of a full pose."""
    tag = next((tag for tag in graph.measured if MEASUREMENT_TAGS[tag].is_pose), None)
    if tag is None:
        return None
    first = graph.poses[graph.measured[tag].ends[:1, 0]]
    X, M = (poses.matrices(graph.kind, rows) for rows in (first, _pose_rows(graph, tag)[:1]))
    return (M @ poses.inverses(graph.kind, X))[0]


def _pose_rows(graph: PoseGraph, tag: str) -> np.ndarray:
    """Return the poses that priors state, corrected for sensor offsets."""
    m = graph.measured[tag]
    if not (MEASUREMENT_TAGS[tag].is_pose and MEASUREMENT_TAGS[tag].has_offset):
        return m.values
    X = poses.matrices(graph.kind, m.values) @ poses.inverses(
        graph.kind, poses.matrices(graph.kind, offset_rows(graph, m))
    )
    return poses.rows(graph.kind, X)

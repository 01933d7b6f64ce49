"""The frame of a graph with priors: where they say that it is.

Poses may come in a frame of their own, such as that of the first one, and priors in that of a map.  A prior that is far
off has no weight, so the whole graph is moved to its priors before it is solved.
"""

from dataclasses import replace

import numpy as np

from asker.applications.pose_graph.formats.g2o_tags import MEASURED
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.initial.landmark_init import offset_rows
from asker.geometry import poses
from asker.geometry.alignment import distances, similarity
from asker.geometry.poses import N_AXES

ROUNDS = 20
"""Of reweighting: the sum of distances is small in the end, and not that of their squares."""


def moved_to_priors(graph: PoseGraph) -> PoseGraph:
    """The graph in the frame of its priors; as it is where there are none, or where something is fixed."""
    if not graph.has_priors or graph.fixed.any() or graph.landmarks.fixed.any():
        return graph
    d = N_AXES[graph.kind]
    T = _motion(graph)
    moved = poses.rows(graph.kind, T @ poses.matrices(graph.kind, graph.poses))
    if graph.kind == "SE2":  # by the same turn for all, so that an angle may be any number as before
        moved[:, 2] = graph.poses[:, 2] + np.arctan2(T[1, 0], T[0, 0])
    points = graph.landmarks.points
    points = points @ T[:d, :d].T + T[:d, d] if len(points) else points
    return replace(graph, poses=moved, landmarks=replace(graph.landmarks, points=points))


def _motion(graph: PoseGraph) -> np.ndarray:
    """The motion as a homogeneous matrix."""
    d = N_AXES[graph.kind]
    here, there = _positions(graph)
    whole = _pose_prior(graph)
    T = np.eye(d + 1)
    if len(here) < 3 and whole is not None:
        return whole
    if len(here) == 1:
        T[:d, d] = (there - here)[0]
        return T
    weights = np.ones(len(here))
    for _ in range(ROUNDS):
        fit = similarity(here, there, scale=False, weights=weights)
        off = distances(fit, here, there)
        weights = 1 / np.maximum(off, 1e-6 * off.max() + 1e-300)
        weights /= weights.max()
    T[:d, :d], T[:d, d] = fit[1:]
    return T


def _positions(graph: PoseGraph) -> tuple[np.ndarray, np.ndarray]:
    """Positions that priors are of, and where they say these are."""
    d = N_AXES[graph.kind]
    here, there = [], []
    for tag, m in graph.measured.items():
        if MEASURED[tag].ends == ("landmark",):
            here.append(graph.landmarks.points[m.ends[:, 0]])
            there.append(m.values)
        elif MEASURED[tag].ends == ("pose",):
            here.append(poses.positions(graph.kind, graph.poses)[m.ends[:, 0]])
            there.append(_pose_rows(graph, tag)[:, :d])
    return np.concatenate(here), np.concatenate(there)


def _pose_prior(graph: PoseGraph) -> np.ndarray | None:
    """The motion by the first prior of a whole pose."""
    tag = next((tag for tag in graph.measured if MEASURED[tag].is_pose), None)
    if tag is None:
        return None
    of = graph.poses[graph.measured[tag].ends[:1, 0]]
    X, M = (poses.matrices(graph.kind, rows) for rows in (of, _pose_rows(graph, tag)[:1]))
    return (M @ poses.inverses(graph.kind, X))[0]


def _pose_rows(graph: PoseGraph, tag: str) -> np.ndarray:
    """What priors say of poses, without the offset of a sensor."""
    m = graph.measured[tag]
    if not (MEASURED[tag].is_pose and MEASURED[tag].has_offset):
        return m.values
    X = poses.matrices(graph.kind, m.values) @ poses.inverses(
        graph.kind, poses.matrices(graph.kind, offset_rows(graph, m))
    )
    return poses.rows(graph.kind, X)

"""Landmarks that a file does not give, from the measurements that determine them.

A landmark is put at the median of where its measurements see it.  One that is seen in directions alone is put where
these meet.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.formats.g2o_tags import MEASURED
from asker.applications.pose_graph.graph import Landmarks, Measurements, PoseGraph
from asker.geometry import poses
from asker.geometry.poses import N_AXES
from asker.io.files import FileError, FilePath

PARALLEL = 1e-6
"""Directions whose angles differ by less do not meet."""
Floats = NDArray[np.float64]


def placed_landmarks(path: FilePath, graph: PoseGraph, lines: Mapping[str, list[int]]) -> Landmarks:
    """All landmarks of a graph of which `landmarks.points` holds the first few."""
    given = graph.landmarks.points
    n, n_given = len(graph.landmarks), len(given)
    if n == n_given:
        return graph.landmarks
    points = np.full((n, N_AXES[graph.kind]), np.nan)
    index, seen = _seen(graph)
    found, middle = _medians(index, seen)
    points[found] = middle
    if "EDGE_BEARING_SE2_XY" in graph.measured:
        met = _meeting_points(graph, graph.measured["EDGE_BEARING_SE2_XY"])
        points = np.where(np.isfinite(points), points, met)
    points[:n_given] = given
    lost = np.flatnonzero(~np.isfinite(points).all(axis=1))
    if lost.size:
        name = graph.landmarks.ids[lost[0]]
        line = next(
            lines[tag][int(np.argmax(m.ends[:, -1] == lost[0]))]
            for tag, m in graph.measured.items()
            if "landmark" in MEASURED[tag].ends and np.any(m.ends[:, -1] == lost[0])
        )
        raise FileError(path, f"no measurements say where landmark {name} is, and no vertex does", line)
    return replace(graph.landmarks, points=points)


def sensors(graph: PoseGraph, measured: Measurements) -> Floats:
    """Where the sensors of measurements from poses are, as homogeneous matrices."""
    T = poses.matrices(graph.kind, graph.poses)[measured.ends[:, 0]]
    return T if not len(measured.offsets) else T @ poses.matrices(graph.kind, offset_rows(graph, measured))


def offset_rows(graph: PoseGraph, measured: Measurements) -> Floats:
    """The offset of each measurement, (n, 3) or (n, 7)."""
    ids, of = np.unique(measured.offsets, return_inverse=True)
    return np.array([graph.offsets[k] for k in ids.tolist()])[of]


def _seen(graph: PoseGraph) -> tuple[NDArray[np.int32], Floats]:
    """Landmarks, and where each of their measurements puts them."""
    d = N_AXES[graph.kind]
    index, points = [np.zeros(0, np.int32)], [np.zeros((0, d))]
    for tag, m in graph.measured.items():
        if "landmark" in MEASURED[tag].ends and m.values.shape[1] == d:
            is_prior = len(MEASURED[tag].ends) == 1
            T = sensors(graph, m) if not is_prior else np.tile(np.eye(d + 1), (len(m), 1, 1))
            index.append(m.ends[:, -1])
            points.append(np.einsum("nij,nj->ni", T[:, :d, :d], m.values) + T[:, :d, d])
    return np.concatenate(index), np.concatenate(points)


def _medians(index: NDArray[np.int32], points: Floats) -> tuple[NDArray[np.int32], Floats]:
    """The median of the points of each index, along every axis."""
    found, counts = np.unique(index, return_counts=True)
    begin = np.cumsum(counts) - counts
    middle = []
    for axis in points.T:
        ordered = axis[np.lexsort((axis, index))]
        middle.append((ordered[begin + (counts - 1) // 2] + ordered[begin + counts // 2]) / 2)
    return found, np.stack(middle, axis=1)


def _meeting_points(graph: PoseGraph, bearings: Measurements) -> Floats:
    """(n_landmarks, 2): the point that is nearest to all lines of sight, in squares; NaN where they do not meet."""
    x, y, theta = graph.poses[bearings.ends[:, 0]].T
    angle = theta + bearings.values[:, 0]
    across = np.stack([-np.sin(angle), np.cos(angle)], axis=1)
    n = len(graph.landmarks)
    A, b = np.zeros((n, 2, 2)), np.zeros((n, 2))
    np.add.at(A, bearings.ends[:, 1], across[:, :, None] * across[:, None])
    np.add.at(b, bearings.ends[:, 1], across * (across[:, 0] * x + across[:, 1] * y)[:, None])
    meet = np.linalg.det(A) > PARALLEL**2
    found = np.full((n, 2), np.nan)
    found[meet] = np.linalg.solve(A[meet], b[meet][..., None])[..., 0]
    return found

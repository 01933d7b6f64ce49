"""Initial positions of landmarks without a vertex line.

A landmark is initialised at the median of its measured positions, or, if only its bearings are measured, at the
intersection of the lines of sight.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.formats.g2o_tags import MEASUREMENT_TAGS
from asker.applications.pose_graph.graph import Landmarks, Measurements, PoseGraph
from asker.geometry import poses
from asker.geometry.poses import N_AXES
from asker.io.files import FileError, FilePath

PARALLEL_ANGLE = 1e-6
"""Angle, in radians, below which lines of sight count as parallel."""
Floats = NDArray[np.float64]


def initial_landmarks(path: FilePath, graph: PoseGraph, lines: Mapping[str, list[int]]) -> Landmarks:
    """Return all landmarks of a graph, with those that have no vertex line initialised from measurements.

    Parameters
    ----------
    path
        File that the error names.
    graph
        Graph whose `landmarks.points` has the points of the first landmarks only.
    lines
        Line numbers of the measurements, by tag.

    Raises
    ------
    FileError
        If the measurements of a landmark do not determine its position.
    """
    known = graph.landmarks.points
    n, n_known = len(graph.landmarks), len(known)
    if n == n_known:
        return graph.landmarks
    points = np.full((n, N_AXES[graph.kind]), np.nan)
    index, medians = _medians(*_measured_positions(graph))
    points[index] = medians
    if "EDGE_BEARING_SE2_XY" in graph.measured:
        triangulated = _triangulate(graph, graph.measured["EDGE_BEARING_SE2_XY"])
        points = np.where(np.isfinite(points), points, triangulated)
    points[:n_known] = known
    missing = np.flatnonzero(~np.isfinite(points).all(axis=1))
    if missing.size:
        name = graph.landmarks.ids[missing[0]]
        line = next(
            lines[tag][int(np.argmax(m.ends[:, -1] == missing[0]))]
            for tag, m in graph.measured.items()
            if "landmark" in MEASUREMENT_TAGS[tag].ends and np.any(m.ends[:, -1] == missing[0])
        )
        raise FileError(path, f"measurements do not determine landmark {name}, and it has no vertex line", line)
    return replace(graph.landmarks, points=points)


def sensor_poses(graph: PoseGraph, measured: Measurements) -> Floats:
    """Return the sensor poses of measurements from poses, as homogeneous matrices."""
    T = poses.matrices(graph.kind, graph.poses)[measured.ends[:, 0]]
    return T if not len(measured.offsets) else T @ poses.matrices(graph.kind, offset_rows(graph, measured))


def offset_rows(graph: PoseGraph, measured: Measurements) -> Floats:
    """Return the sensor offset of each measurement, (n, 3) or (n, 7)."""
    ids, inverse = np.unique(measured.offsets, return_inverse=True)
    return np.array([graph.offsets[k] for k in ids.tolist()])[inverse]


def _measured_positions(graph: PoseGraph) -> tuple[NDArray[np.int32], Floats]:
    """Return the landmark index and the measured position of each measurement."""
    d = N_AXES[graph.kind]
    index, points = [np.zeros(0, np.int32)], [np.zeros((0, d))]
    for tag, m in graph.measured.items():
        if "landmark" in MEASUREMENT_TAGS[tag].ends and m.values.shape[1] == d:
            is_prior = len(MEASUREMENT_TAGS[tag].ends) == 1
            T = sensor_poses(graph, m) if not is_prior else np.tile(np.eye(d + 1), (len(m), 1, 1))
            index.append(m.ends[:, -1])
            points.append(np.einsum("nij,nj->ni", T[:, :d, :d], m.values) + T[:, :d, d])
    return np.concatenate(index), np.concatenate(points)


def _medians(index: NDArray[np.int32], points: Floats) -> tuple[NDArray[np.int32], Floats]:
    """Return the distinct indices, and the coordinatewise median of the points of each."""
    distinct, counts = np.unique(index, return_counts=True)
    begin = np.cumsum(counts) - counts
    medians = []
    for axis in points.T:
        ordered = axis[np.lexsort((axis, index))]
        medians.append((ordered[begin + (counts - 1) // 2] + ordered[begin + counts // 2]) / 2)
    return distinct, np.stack(medians, axis=1)


def _triangulate(graph: PoseGraph, bearings: Measurements) -> Floats:
    """Return the least-squares intersection of the lines of sight per landmark, (n_landmarks, 2); NaN if parallel."""
    x, y, theta = graph.poses[bearings.ends[:, 0]].T
    angle = theta + bearings.values[:, 0]
    normal = np.stack([-np.sin(angle), np.cos(angle)], axis=1)
    n = len(graph.landmarks)
    A, b = np.zeros((n, 2, 2)), np.zeros((n, 2))
    np.add.at(A, bearings.ends[:, 1], normal[:, :, None] * normal[:, None])
    np.add.at(b, bearings.ends[:, 1], normal * (normal[:, 0] * x + normal[:, 1] * y)[:, None])
    intersects = np.linalg.det(A) > PARALLEL_ANGLE**2
    points = np.full((n, 2), np.nan)
    points[intersects] = np.linalg.solve(A[intersects], b[intersects][..., None])[..., 0]
    return points

"""Connectivity of a pose graph."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.formats.g2o_tags import MEASUREMENT_TAGS
from asker.applications.pose_graph.graph import PoseGraph
from asker.geometry.spanning import connected_parts
from asker.io.files import FileError, FilePath


def check_connected(path: FilePath, graph: PoseGraph, lines: Mapping[str, list[int]], trajectory: bool) -> None:
    """Raise a `FileError` if the graph is not connected, or no edges lead to a pose without a vertex line.

    Parameters
    ----------
    path
        File that the error names.
    graph
        Graph whose first poses are those with a vertex line.
    lines
        Line numbers of "vertices", of "edges" and of each other tag.
    trajectory
        Whether several components are allowed.

    Raises
    ------
    FileError
        With the line of the first edge or vertex concerned.
    """
    n_given = len(graph.poses)
    n_parts, part = connected_parts(graph.i, graph.j, graph.n_poses)
    if n_parts == 1:
        return
    unknown = np.setdiff1d(part, part[:n_given] if n_given else part[:1])
    if unknown.size:
        pose, line = _first_use(graph, np.isin(part, unknown), lines)
        raise FileError(path, f"no edges connect vertex {graph.ids[pose]} with a vertex that has a line", line)
    if not trajectory:
        n_parts, part = connected_parts(*_connections(graph))
        if n_parts > 1:
            apart = int(np.argmax(part != part[0]))
            ends = f"vertex {graph.ids[0]} to vertex {graph.ids[apart]}"
            message = f"the graph has {n_parts} components: no edges lead from {ends}"
            raise FileError(path, message, lines["vertices"][apart])


def _first_use(graph: PoseGraph, mask: NDArray[np.bool_], lines: Mapping[str, list[int]]) -> tuple[int, int]:
    """Return the first pose of a mask that is the first end of a measurement, and the line of that measurement."""
    firsts = {"edges": graph.i} | {
        tag: m.ends[:, 0] for tag, m in graph.measured.items() if MEASUREMENT_TAGS[tag].ends[0] == "pose"
    }
    for name, index in firsts.items():
        if mask[index].any():
            k = int(np.argmax(mask[index]))
            return int(index[k]), lines[name][k]
    raise AssertionError("every pose without measurements has a vertex line")


def _connections(graph: PoseGraph) -> tuple[NDArray[np.intp], NDArray[np.intp], int]:
    """Return the pairs of connected vertices and the number of vertices: poses, landmarks, and the world for priors."""
    n = graph.n_poses
    world = n + len(graph.landmarks)
    offset = {"pose": 0, "landmark": n}
    i, j = [graph.i], [graph.j]
    for tag, m in graph.measured.items():
        ends = [offset[end] + m.ends[:, k] for k, end in enumerate(MEASUREMENT_TAGS[tag].ends)]
        i.append(ends[0])
        j.append(ends[1] if len(ends) == 2 else np.full(len(m), world))
    return np.concatenate(i), np.concatenate(j), world + graph.has_priors

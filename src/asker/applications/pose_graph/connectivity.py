"""Whether the measurements of a graph tie its vertices together."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.formats.g2o_tags import MEASURED
from asker.applications.pose_graph.graph import PoseGraph
from asker.geometry.spanning import connected_parts
from asker.io.files import FileError, FilePath


def check_connected(path: FilePath, graph: PoseGraph, lines: Mapping[str, list[int]], trajectory: bool) -> None:
    """Refuse a graph in parts, and poses that no edges lead to from one that is given.

    lines       those of "vertices", "edges" and each tag
    trajectory  several parts are fine
    """
    n_given = len(graph.poses)
    n_parts, part = connected_parts(graph.i, graph.j, graph.n_poses)
    if n_parts == 1:
        return
    nowhere = np.setdiff1d(part, part[:n_given] if n_given else part[:1])
    if nowhere.size:
        pose, line = _first_use(graph, np.isin(part, nowhere), lines)
        raise FileError(path, f"an edge to nowhere: no vertex is connected with vertex {graph.ids[pose]}", line)
    if not trajectory:
        n_parts, part = connected_parts(*_ties(graph))
        if n_parts > 1:
            apart = int(np.argmax(part != part[0]))
            ends = f"vertex {graph.ids[0]} to vertex {graph.ids[apart]}"
            raise FileError(path, f"the graph has {n_parts} parts: no edges lead from {ends}", lines["vertices"][apart])


def _first_use(graph: PoseGraph, wanted: NDArray[np.bool_], lines: Mapping[str, list[int]]) -> tuple[int, int]:
    """The first pose of a mask that a measurement has as its first end, and the line."""
    firsts = {"edges": graph.i} | {
        tag: m.ends[:, 0] for tag, m in graph.measured.items() if MEASURED[tag].ends[0] == "pose"
    }
    for name, index in firsts.items():
        if wanted[index].any():
            k = int(np.argmax(wanted[index]))
            return int(index[k]), lines[name][k]
    raise AssertionError("a pose that nothing measures has a line of its own")


def _ties(graph: PoseGraph) -> tuple[NDArray[np.intp], NDArray[np.intp], int]:
    """The pairs that measurements tie, and the number of vertices: poses, landmarks, and the world for priors."""
    n = graph.n_poses
    world = n + len(graph.landmarks)
    begin = {"pose": 0, "landmark": n}
    i, j = [graph.i], [graph.j]
    for tag, m in graph.measured.items():
        ends = [begin[end] + m.ends[:, k] for k, end in enumerate(MEASURED[tag].ends)]
        i.append(ends[0])
        j.append(ends[1] if len(ends) == 2 else np.full(len(m), world))
    return np.concatenate(i), np.concatenate(j), world + graph.has_priors

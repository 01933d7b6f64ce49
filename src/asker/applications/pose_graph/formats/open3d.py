"""Pose graphs in the JSON of Open3D (`open3d.io.write_pose_graph`).

A node has a pose.  The transformation of an edge takes points of its source node to the frame of its target node: it is
the pose of the source, seen from the target.  Matrices are stored column by column; the information is rotation first.
Nodes are numbered from 0.  `uncertain` and `confidence` are not used: edges between consecutive nodes are odometry.
"""

from typing import Any

import numpy as np

from asker.applications.pose_graph.formats.file_issues import Dirt, Information
from asker.applications.pose_graph.formats.graph_builder import Assembly
from asker.applications.pose_graph.formats.tagged_lines import Lines
from asker.applications.pose_graph.graph import PoseGraph
from asker.geometry import poses
from asker.io.files import FileError, FilePath
from asker.io.json import read_json

WHAT = "a pose graph of Open3D"
OFF = 1e-3
"""How far RᵀR may be off the identity."""


def read_open3d(path: FilePath, information: Information = "nearest", strict: bool = False) -> PoseGraph:
    """Read a pose graph of Open3D; the arguments are those of `read_g2o`.  An error names the node or the edge."""
    record = read_json(path, WHAT)
    if not isinstance(record, dict) or record.get("class_name") != "PoseGraph":
        raise FileError(path, f"this is not {WHAT}: `class_name` must be PoseGraph")
    nodes, edges = (_listed(path, record, name) for name in ("nodes", "edges"))
    ids = np.arange(len(nodes), dtype=np.float64)[:, None]
    given = _rows(path, nodes, "node", "pose")
    ends = _numbers(path, edges, "edge", ("target_node_id", "source_node_id"))
    measured = _rows(path, edges, "edge", "transformation")
    omega = _matrices(path, edges, "edge", "information", 6)[:, [3, 4, 5, 0, 1, 2]][:, :, [3, 4, 5, 0, 1, 2]]
    omega = omega / 2 + np.swapaxes(omega, 1, 2) / 2
    bad = ~((ends >= 0) & (ends < len(nodes)) & (ends == np.floor(ends))).all(axis=1)
    if bad.any():
        raise FileError(path, f"edge {np.argmax(bad)} is of a node that is not there")
    upper = omega[:, *np.triu_indices(6)]
    found = {
        "VERTEX_SE3:QUAT": Lines(_lines(nodes), [], np.concatenate([ids, given], axis=1)),
        "EDGE_SE3:QUAT": Lines(_lines(edges), [], np.concatenate([ends, measured, upper], axis=1)),
    }
    found = {tag: lines for tag, lines in found.items() if lines.line}
    try:
        return Assembly(path, found, Dirt(path, strict), "strict" if strict else information).graph(Lines(), False)
    except FileError as error:
        raise FileError(path, error.what) from None  # there are no lines


def _lines(items: list[Any]) -> list[int]:
    return list(range(len(items)))


def _listed(path: FilePath, record: dict[str, Any], name: str) -> list[Any]:
    items = record.get(name)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise FileError(path, f"this is not {WHAT}: `{name}` must be a list of objects")
    return items


def _numbers(path: FilePath, items: list[Any], what: str, names: tuple[str, ...]) -> np.ndarray:
    """(n, names)"""
    return np.stack([_matrices(path, items, what, name, 1)[:, 0, 0] for name in names], axis=1)


def _matrices(path: FilePath, items: list[Any], what: str, name: str, d: int) -> np.ndarray:
    """(n, d, d): stored column by column."""
    found = np.zeros((len(items), d, d))
    for k, item in enumerate(items):
        values = _numbers_in(item.get(name))
        if values.size != d * d or not np.isfinite(values).all():
            wanted = "a number" if d == 1 else f"{d * d} numbers"
            raise FileError(path, f"{what} {k}: `{name}` must be {wanted}, all finite")
        found[k] = values.reshape(d, d).T
    return found


def _numbers_in(value: Any) -> np.ndarray:
    """The numbers of a JSON value that is a number or a list of numbers; none of anything else."""
    numbers = value if isinstance(value, list) else [value]
    try:
        return np.array([float(x) if type(x) in (int, float) else np.nan for x in numbers])
    except OverflowError:  # an integer that is larger than any float
        return np.zeros(0)


def _rows(path: FilePath, items: list[Any], what: str, name: str) -> np.ndarray:
    """Poses as rows, (n, 7)."""
    T = _matrices(path, items, what, name, 4)
    R = T[:, :3, :3]
    with np.errstate(all="ignore"):
        off = np.abs(np.swapaxes(R, 1, 2) @ R - np.eye(3)).max(axis=(1, 2), initial=0)
        right = (off < OFF) & (np.linalg.det(R) > 0) & (np.abs(T[:, 3] - [0, 0, 0, 1]).max(axis=1, initial=0) < OFF)
    if not right.all():
        raise FileError(path, f"{what} {np.argmin(right)}: `{name}` is no rigid motion")
    return poses.rows("SE3", T)

"""Pose graphs in the JSON format of Open3D (`open3d.io.write_pose_graph`).

A node has a pose.  The transformation of an edge maps points from its source frame to its target frame: it is the pose
of the source relative to the target.  Matrices are stored column by column; information matrices have rotation first.
Nodes are numbered from 0.  `uncertain` and `confidence` are ignored: edges between consecutive nodes are odometry.
"""

from typing import Any

import numpy as np

from asker.applications.pose_graph.formats.file_issues import FileIssues, Information
from asker.applications.pose_graph.formats.graph_builder import GraphBuilder
from asker.applications.pose_graph.formats.tagged_lines import Lines
from asker.applications.pose_graph.graph import PoseGraph
from asker.geometry import poses
from asker.io.files import FileError, FilePath
from asker.io.json import read_json

WHAT = "a pose graph of Open3D"
ROTATION_TOL = 1e-3
"""Largest deviation of RᵀR from the identity."""


def read_open3d(path: FilePath, information: Information = "nearest", strict: bool = False) -> PoseGraph:
    """Read a pose graph of Open3D.

    Parameters
    ----------
    path, information, strict
        As for `read_g2o`.

    Raises
    ------
    FileError
        With the node or edge that is invalid.
    """
    record = read_json(path, WHAT)
    if not isinstance(record, dict) or record.get("class_name") != "PoseGraph":
        raise FileError(path, f"this is not {WHAT}: `class_name` must be PoseGraph")
    nodes, edges = (_listed(path, record, name) for name in ("nodes", "edges"))
    ids = np.arange(len(nodes), dtype=np.float64)[:, None]
    node_poses = _rows(path, nodes, "node", "pose")
    ends = _numbers(path, edges, "edge", ("target_node_id", "source_node_id"))
    measured = _rows(path, edges, "edge", "transformation")
    omega = _matrices(path, edges, "edge", "information", 6)[:, [3, 4, 5, 0, 1, 2]][:, :, [3, 4, 5, 0, 1, 2]]
    omega = omega / 2 + np.swapaxes(omega, 1, 2) / 2
    bad = ~((ends >= 0) & (ends < len(nodes)) & (ends == np.floor(ends))).all(axis=1)
    if bad.any():
        raise FileError(path, f"edge {np.argmax(bad)} refers to a node that does not exist")
    upper = omega[:, *np.triu_indices(6)]
    by_tag = {
        "VERTEX_SE3:QUAT": Lines(_lines(nodes), [], np.concatenate([ids, node_poses], axis=1)),
        "EDGE_SE3:QUAT": Lines(_lines(edges), [], np.concatenate([ends, measured, upper], axis=1)),
    }
    by_tag = {tag: lines for tag, lines in by_tag.items() if lines.line}
    try:
        return GraphBuilder(path, by_tag, FileIssues(path, strict), "strict" if strict else information).build(
            Lines(), False
        )
    except FileError as error:
        raise FileError(path, error.what) from None  # without the line number, which JSON does not have


def _lines(items: list[Any]) -> list[int]:
    return list(range(len(items)))


def _listed(path: FilePath, record: dict[str, Any], name: str) -> list[Any]:
    items = record.get(name)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise FileError(path, f"this is not {WHAT}: `{name}` must be a list of objects")
    return items


def _numbers(path: FilePath, items: list[Any], what: str, names: tuple[str, ...]) -> np.ndarray:
    """Return numeric fields of objects, (n, names)."""
    return np.stack([_matrices(path, items, what, name, 1)[:, 0, 0] for name in names], axis=1)


def _matrices(path: FilePath, items: list[Any], what: str, name: str, d: int) -> np.ndarray:
    """Return matrices that are stored column by column, (n, d, d)."""
    matrices = np.zeros((len(items), d, d))
    for k, item in enumerate(items):
        values = _numbers_in(item.get(name))
        if values.size != d * d or not np.isfinite(values).all():
            expected = "a finite number" if d == 1 else f"{d * d} finite numbers"
            raise FileError(path, f"{what} {k}: `{name}` must be {expected}")
        matrices[k] = values.reshape(d, d).T
    return matrices


def _numbers_in(value: Any) -> np.ndarray:
    """Return the numbers of a JSON value that is a number or a list of numbers; NaN for other types."""
    numbers = value if isinstance(value, list) else [value]
    try:
        return np.array([float(x) if type(x) in (int, float) else np.nan for x in numbers])
    except OverflowError:  # an integer larger than any float
        return np.zeros(0)


def _rows(path: FilePath, items: list[Any], what: str, name: str) -> np.ndarray:
    """Return poses as rows, (n, 7)."""
    T = _matrices(path, items, what, name, 4)
    R = T[:, :3, :3]
    with np.errstate(all="ignore"):
        off = np.abs(np.swapaxes(R, 1, 2) @ R - np.eye(3)).max(axis=(1, 2), initial=0)
        right = (
            (off < ROTATION_TOL)
            & (np.linalg.det(R) > 0)
            & (np.abs(T[:, 3] - [0, 0, 0, 1]).max(axis=1, initial=0) < ROTATION_TOL)
        )
    if not right.all():
        raise FileError(path, f"{what} {np.argmin(right)}: `{name}` is not a rigid motion")
    return poses.rows("SE3", T)

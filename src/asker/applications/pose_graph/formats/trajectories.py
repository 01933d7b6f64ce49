"""Trajectories in the text formats of TUM and KITTI, which `evo` and other programs read.

    .tum     id x y z qx qy qz qw        with the id of a pose in place of the timestamp
    .kitti   r11 r12 r13 x r21 … z       [R | t] row by row, in the order of ids

Poses in the plane have z = 0 and rotate about z.  The scale of similarities is dropped.  Empty lines and lines that
begin with # are skipped.
"""

from pathlib import Path

import numpy as np

from asker.applications.pose_graph.formats.g2o import read_g2o
from asker.applications.pose_graph.formats.tagged_lines import LARGEST_ID, Lines, parse
from asker.applications.pose_graph.graph import PoseGraph
from asker.geometry import poses
from asker.geometry.poses import Kind
from asker.io.files import FileError, FilePath, read_text_bytes, write_whole

TUM, KITTI = ".tum", ".kitti"


def write_trajectory(path: FilePath, graph: PoseGraph) -> None:
    """Write the poses of a graph in the order of ids; the format follows from the suffix, `.tum` or `.kitti`."""
    order = np.argsort(graph.ids)
    T = _in_space(graph.kind, graph.poses[order])
    if Path(path).suffix.lower() == TUM:
        rows = [
            [f"{k}", *map(repr, row)] for k, row in zip(graph.ids[order], poses.rows("SE3", T).tolist(), strict=True)
        ]
    else:
        rows = [list(map(repr, row)) for row in T[:, :3].reshape(-1, 12).tolist()]
    with write_whole(path) as file:
        file.writelines(" ".join(row).encode() + b"\n" for row in rows)


def read_trajectory(path: FilePath, kind: Kind, ids: np.ndarray | None = None) -> PoseGraph:
    """Read a trajectory as a pose graph without edges, from a g2o, TUM or KITTI file.

    Parameters
    ----------
    path
        File to read; `.tum` and `.kitti` select these formats, any other suffix g2o.
    kind
        Kind of the poses to return.
    ids
        Ids of the poses to match: a KITTI file has no ids, so the numbers of poses must agree, and timestamps of a TUM
        file must be ids.  By default, poses without ids are numbered 0, 1, …

    Raises
    ------
    FileError
        If the file cannot be read, or its poses do not match the ids.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (TUM, KITTI):
        return read_g2o(path, trajectory=True)
    lines = Lines()
    for number, line in enumerate(read_text_bytes(path).split(b"\n"), 1):
        if line.strip() and not line.lstrip().startswith(b"#"):
            lines.line.append(number)
            lines.text.append(line)
    if not lines.line:
        raise FileError(path, "there is no pose in this file")
    with np.errstate(all="ignore"):
        names, T = _tum(path, lines, ids) if suffix == TUM else _kitti(path, lines, ids)
    if len(np.unique(names)) < len(names):
        raise FileError(path, "two lines have the same time")
    d, no_ends, no_values = poses.N_DOF[kind], np.zeros(0, np.int32), np.zeros((0, poses.N_NUMBERS[kind]))
    fixed = np.zeros(len(T), np.bool_)
    return PoseGraph(kind, names, _from_space(kind, T), no_ends, no_ends, no_values, np.zeros((0, d, d)), fixed)


def _tum(path: FilePath, lines: Lines, ids: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return ids, and poses (n, 4, 4)."""
    parse(path, [("pose", lines, 8)])
    times, rows = lines.numbers[:, 0], lines.numbers[:, 1:]
    length = np.linalg.norm(rows[:, 3:], axis=1)
    _check_lines(path, lines, ~((length > 1e-6) & (length < 1e6)), "this quaternion is not a rotation")
    is_id = (times == np.floor(times)) & (times >= 0) & (times < LARGEST_ID)
    if ids is not None:
        hint = "if the trajectory was recorded at other times, use --truth-by length"
        _check_lines(path, lines, ~is_id, f"this time is not the id of a pose; {hint}")
    names = times.astype(np.int64) if is_id.all() else np.argsort(np.argsort(times, kind="stable"))
    return names, poses.matrices("SE3", rows)


def _kitti(path: FilePath, lines: Lines, ids: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return ids, and poses (n, 4, 4)."""
    parse(path, [("pose", lines, 12)])
    n = len(lines.line)
    T = np.concatenate([lines.numbers.reshape(-1, 3, 4), np.tile([[0.0, 0, 0, 1]], (n, 1, 1))], axis=1)
    R = T[:, :3, :3]
    off = np.abs(np.swapaxes(R, 1, 2) @ R - np.eye(3)).max(axis=(1, 2))
    _check_lines(path, lines, ~((off < 1e-3) & (np.linalg.det(R) > 0)), "the left 3×3 of this pose is not a rotation")
    if ids is not None and len(ids) != n:
        raise FileError(path, f"{n} poses, but the graph has {len(ids)}; a KITTI file has no ids to match them by")
    return (np.arange(n) if ids is None else np.sort(ids)), T


def _check_lines(path: FilePath, lines: Lines, bad: np.ndarray, what: str) -> None:
    """Raise a `FileError` for the first line of a mask."""
    if bad.any():
        raise FileError(path, what, lines.line[int(np.argmax(bad))])


def _in_space(kind: Kind, rows: np.ndarray) -> np.ndarray:
    """Return rigid poses in space, (n, 4, 4)."""
    if kind != "SE2":
        return poses.matrices("SE3", rows[:, :7])
    flat = poses.matrices("SE2", rows)
    T = np.tile(np.eye(4), (len(rows), 1, 1))
    T[:, :2, :2], T[:, :2, 3] = flat[:, :2, :2], flat[:, :2, 2]
    return T


def _from_space(kind: Kind, T: np.ndarray) -> np.ndarray:
    """Return poses in the row format of a kind; in the plane, the heading is that of the x axis."""
    if kind == "SE2":
        return np.column_stack([T[:, :2, 3], np.arctan2(T[:, 1, 0], T[:, 0, 0])])
    return poses.rows(kind, T)

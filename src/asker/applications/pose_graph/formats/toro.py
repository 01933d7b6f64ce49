"""Pose graphs in the text format of TORO (Grisetti, Stachniss, Grzonka, Burgard, RSS 2007).

    VERTEX2 id x y θ                       EDGE2 i j x y θ  Ω₁₁ Ω₁₂ Ω₂₂ Ω₃₃ Ω₁₃ Ω₂₃
    VERTEX3 id x y z roll pitch yaw        EDGE3 i j x y z roll pitch yaw  Ω

VERTEX and EDGE are synonyms of VERTEX2 and EDGE2.  R = Rz(yaw) Ry(pitch) Rx(roll).  Ω of EDGE3 is an upper triangle,
row by row.  Issues are repaired as in g2o files.
"""

import numpy as np

from asker.applications.pose_graph.formats.file_issues import FileIssues, Information
from asker.applications.pose_graph.formats.graph_builder import GraphBuilder
from asker.applications.pose_graph.formats.tagged_lines import Lines, drop_unknown_tags, lines_by_tag, parse
from asker.applications.pose_graph.graph import PoseGraph
from asker.geometry.rotations import matrix_from_angle_axis, quaternion_from_matrix
from asker.io.files import FilePath, read_text_bytes

TAGS = {
    "VERTEX2": ("VERTEX_SE2", 4), "EDGE2": ("EDGE_SE2", 11), "VERTEX": ("VERTEX_SE2", 4), "EDGE": ("EDGE_SE2", 11),
    "VERTEX3": ("VERTEX_SE3:QUAT", 7), "EDGE3": ("EDGE_SE3:QUAT", 29),
}  # fmt: skip
"""Equivalent tag of g2o, and the count of numbers after the tag, by tag."""
ROW_BY_ROW = [0, 1, 4, 2, 5, 3]
"""Positions in an EDGE2 line of the entries of Ω, in the order of g2o."""


def read_toro(path: FilePath, information: Information = "nearest", strict: bool = False) -> PoseGraph:
    """Read a TORO file.

    Parameters
    ----------
    path, information, strict
        As for `read_g2o`.
    """
    issues = FileIssues(path, strict)
    by_tag = drop_unknown_tags(lines_by_tag(read_text_bytes(path)), TAGS, issues)
    parse(path, [("vertex" if tag.startswith("V") else "edge", lines, TAGS[tag][1]) for tag, lines in by_tag.items()])
    as_g2o: dict[str, Lines] = {}
    for tag, lines in by_tag.items():
        lines.numbers = _numbers_of_g2o(tag, lines.numbers)
        other = as_g2o.setdefault(TAGS[tag][0], Lines([], [], lines.numbers[:0]))
        other.line += lines.line
        other.numbers = np.concatenate([other.numbers, lines.numbers])
    return GraphBuilder(path, as_g2o, issues, "strict" if strict else information).build(Lines(), trajectory=False)


def _numbers_of_g2o(tag: str, numbers: np.ndarray) -> np.ndarray:
    """Return the numbers of lines in the order of g2o."""
    n_ids = 1 if tag.startswith("V") else 2
    ids, rest = numbers[:, :n_ids], numbers[:, n_ids:]
    if tag.endswith("3"):
        return np.concatenate([ids, rest[:, :3], _quaternions(rest[:, 3:6]), rest[:, 6:]], axis=1)
    return np.concatenate([ids, rest[:, :3], rest[:, 3:][:, ROW_BY_ROW[: rest.shape[1] - 3]]], axis=1)


def _quaternions(angles: np.ndarray) -> np.ndarray:
    """Return the quaternions qx qy qz qw, (n, 4), of roll, pitch and yaw."""
    angles = angles % (2 * np.pi)
    X, Y, Z = (matrix_from_angle_axis(angles[:, k, None] * np.eye(3)[k]) for k in range(3))
    return np.roll(quaternion_from_matrix(Z @ Y @ X), -1, axis=1)

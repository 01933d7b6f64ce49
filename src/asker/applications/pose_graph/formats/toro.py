"""Pose graphs in the text format of TORO (Grisetti, Stachniss, Grzonka, Burgard, RSS 2007).

    VERTEX2 id x y θ                       EDGE2 i j x y θ  Ω₁₁ Ω₁₂ Ω₂₂ Ω₃₃ Ω₁₃ Ω₂₃
    VERTEX3 id x y z roll pitch yaw        EDGE3 i j x y z roll pitch yaw  Ω

The names VERTEX and EDGE stand for those with a 2.  R = Rz(yaw) Ry(pitch) Rx(roll).  Ω of EDGE3 is an upper triangle,
row by row.  What is done about dirt is as in g2o files.
"""

import numpy as np

from asker.applications.pose_graph.formats.file_issues import Dirt, Information
from asker.applications.pose_graph.formats.graph_builder import Assembly
from asker.applications.pose_graph.formats.tagged_lines import Lines, leave_out_strangers, parse, sorted_lines
from asker.applications.pose_graph.graph import PoseGraph
from asker.geometry.rotations import matrix_from_angle_axis, quaternion_from_matrix
from asker.io.files import FilePath, read_text_bytes

TAGS = {
    "VERTEX2": ("VERTEX_SE2", 4), "EDGE2": ("EDGE_SE2", 11), "VERTEX": ("VERTEX_SE2", 4), "EDGE": ("EDGE_SE2", 11),
    "VERTEX3": ("VERTEX_SE3:QUAT", 7), "EDGE3": ("EDGE_SE3:QUAT", 29),
}  # fmt: skip
"""Of each tag: that of g2o, and how many numbers stand after it."""
ROW_BY_ROW = [0, 1, 4, 2, 5, 3]
"""Where the entries of Ω stand in an EDGE2 line, in the order of g2o."""


def read_toro(path: FilePath, information: Information = "nearest", strict: bool = False) -> PoseGraph:
    """Read a TORO file; the arguments are those of `read_g2o`."""
    dirt = Dirt(path, strict)
    found = leave_out_strangers(sorted_lines(read_text_bytes(path)), TAGS, dirt)
    parse(path, [("vertex" if tag.startswith("V") else "edge", lines, TAGS[tag][1]) for tag, lines in found.items()])
    as_g2o: dict[str, Lines] = {}
    for tag, lines in found.items():
        lines.numbers = _numbers_of_g2o(tag, lines.numbers)
        other = as_g2o.setdefault(TAGS[tag][0], Lines([], [], lines.numbers[:0]))
        other.line += lines.line
        other.numbers = np.concatenate([other.numbers, lines.numbers])
    return Assembly(path, as_g2o, dirt, "strict" if strict else information).graph(Lines(), trajectory=False)


def _numbers_of_g2o(tag: str, numbers: np.ndarray) -> np.ndarray:
    """The numbers of lines as a g2o file has them."""
    n_ids = 1 if tag.startswith("V") else 2
    ids, rest = numbers[:, :n_ids], numbers[:, n_ids:]
    if tag.endswith("3"):
        return np.concatenate([ids, rest[:, :3], _quaternions(rest[:, 3:6]), rest[:, 6:]], axis=1)
    return np.concatenate([ids, rest[:, :3], rest[:, 3:][:, ROW_BY_ROW[: rest.shape[1] - 3]]], axis=1)


def _quaternions(angles: np.ndarray) -> np.ndarray:
    """qx qy qz qw of roll, pitch and yaw, (n, 4)."""
    angles = angles % (2 * np.pi)
    X, Y, Z = (matrix_from_angle_axis(angles[:, k, None] * np.eye(3)[k]) for k in range(3))
    return np.roll(quaternion_from_matrix(Z @ Y @ X), -1, axis=1)

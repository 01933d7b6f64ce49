"""Tags of g2o and the fields of their lines.

    VERTEX_SE2 id x y θ                            EDGE_SE2 i j x y θ  Ω
    VERTEX_SE3:QUAT id x y z qx qy qz qw           EDGE_SE3:QUAT i j x y z qx qy qz qw  Ω
    VERTEX_SIM3:QUAT id x y z qx qy qz qw s        EDGE_SIM3:QUAT i j x y z qx qy qz qw s  Ω
    VERTEX_XY id x y                               VERTEX_TRACKXYZ id x y z
    PARAMS_SE2OFFSET id x y θ                      PARAMS_SE3OFFSET id x y z qx qy qz qw

Ω is the upper triangle of an information matrix, row by row, in the order translation, rotation, log of the scale.
Measurements other than edges between poses, with p for a pose, l for a landmark and o for the id of an offset:

    EDGE_SE2_XY p l x y  Ω                         landmark relative to the pose
    EDGE_SE2_POINTXY_OFFSET p l o x y  Ω           landmark relative to a sensor with an offset
    EDGE_BEARING_SE2_XY p l β  Ω                   direction of the landmark
    EDGE_PRIOR_SE2 p x y θ  Ω                      prior of the pose
    EDGE_PRIOR_SE2_XY p x y  Ω                     prior of its position
    EDGE_PRIOR_XY l x y  Ω                         prior of the landmark
    EDGE_SE3_TRACKXYZ p l o x y z  Ω               landmark relative to a sensor with an offset
    EDGE_SE3_PRIOR p o x y z qx qy qz qw  Ω        prior of the sensor's pose
    EDGE_SE3_XYZ_PRIOR p o x y z  Ω                prior of the pose's position; g2o ignores the offset here
    EDGE_SE3_PRIORXYZ p x y z  Ω                   the same, as hdl_graph_slam writes it
    EDGE_POINTXYZ_PRIOR l x y z  Ω                 prior of the landmark

g2o has no tags of similarities as quaternions; those above extend its other tags by the scale at the end.  The tags
that g2o has, for logarithms of similarities, are read, too (`sim3_g2o`).
"""

from dataclasses import dataclass
from typing import Literal

from asker.geometry.poses import N_AXES, N_DOF, N_NUMBERS, Kind

End = Literal["pose", "landmark"]
SUFFIXES: dict[Kind, str] = {"SE2": "SE2", "SE3": "SE3:QUAT", "SIM3": "SIM3:QUAT"}


@dataclass(frozen=True)
class Tag:
    """Format of a line: the ids of its ends, an optional offset id, `n_values` numbers, and the upper triangle of Ω."""

    kind: Kind
    ends: tuple[End, ...]
    n_values: int
    n_dof: int
    """Number of rows of Ω; 0 for a line without Ω."""
    has_offset: bool = False
    is_pose: bool = False
    """True if the values are a pose."""

    @property
    def n_ids(self) -> int:
        return len(self.ends) + self.has_offset

    @property
    def n_numbers(self) -> int:
        return self.n_ids + self.n_values + self.n_dof * (self.n_dof + 1) // 2


def _pose(kind: Kind, *ends: End, has_offset: bool = False) -> Tag:
    return Tag(kind, ends, N_NUMBERS[kind], N_DOF[kind], has_offset, is_pose=True)


def _point(kind: Kind, *ends: End, has_offset: bool = False) -> Tag:
    return Tag(kind, ends, N_AXES[kind], N_AXES[kind], has_offset)


def _vertex(kind: Kind, end: End) -> Tag:
    is_pose = end == "pose"
    return Tag(kind, (end,), N_NUMBERS[kind] if is_pose else N_AXES[kind], 0, is_pose=is_pose)


POSE_TAGS = {f"VERTEX_{suffix}": _vertex(kind, "pose") for kind, suffix in SUFFIXES.items()}
LANDMARK_TAGS = {"VERTEX_XY": _vertex("SE2", "landmark"), "VERTEX_TRACKXYZ": _vertex("SE3", "landmark")}
EDGE_TAGS = {f"EDGE_{suffix}": _pose(kind, "pose", "pose") for kind, suffix in SUFFIXES.items()}
OFFSET_TAGS = {
    f"PARAMS_{kind}OFFSET": Tag(kind, (), N_NUMBERS[kind], 0, has_offset=True, is_pose=True) for kind in ("SE2", "SE3")
}
MEASUREMENT_TAGS = {
    "EDGE_SE2_XY": _point("SE2", "pose", "landmark"),
    "EDGE_SE2_POINTXY_OFFSET": _point("SE2", "pose", "landmark", has_offset=True),
    "EDGE_BEARING_SE2_XY": Tag("SE2", ("pose", "landmark"), 1, 1),
    "EDGE_PRIOR_SE2": _pose("SE2", "pose"),
    "EDGE_PRIOR_SE2_XY": _point("SE2", "pose"),
    "EDGE_PRIOR_XY": _point("SE2", "landmark"),
    "EDGE_SE3_TRACKXYZ": _point("SE3", "pose", "landmark", has_offset=True),
    "EDGE_SE3_PRIOR": _pose("SE3", "pose", has_offset=True),
    "EDGE_SE3_XYZ_PRIOR": _point("SE3", "pose", has_offset=True),
    "EDGE_SE3_PRIORXYZ": _point("SE3", "pose"),
    "EDGE_POINTXYZ_PRIOR": _point("SE3", "landmark"),
}
TAGS = POSE_TAGS | LANDMARK_TAGS | EDGE_TAGS | OFFSET_TAGS | MEASUREMENT_TAGS

"""Tags of g2o: what a line holds after its tag.

    VERTEX_SE2 id x y θ                            EDGE_SE2 i j x y θ  Ω
    VERTEX_SE3:QUAT id x y z qx qy qz qw           EDGE_SE3:QUAT i j x y z qx qy qz qw  Ω
    VERTEX_SIM3:QUAT id x y z qx qy qz qw s        EDGE_SIM3:QUAT i j x y z qx qy qz qw s  Ω
    VERTEX_XY id x y                               VERTEX_TRACKXYZ id x y z
    PARAMS_SE2OFFSET id x y θ                      PARAMS_SE3OFFSET id x y z qx qy qz qw

Ω is the upper triangle of an information matrix, row by row, in the order translation, rotation, log of the scale.
Beside edges between poses there are, with p for a pose, l for a landmark and o for the id of an offset:

    EDGE_SE2_XY p l x y  Ω                         the landmark, seen from the pose
    EDGE_SE2_POINTXY_OFFSET p l o x y  Ω           the same, from a sensor that is off the pose
    EDGE_BEARING_SE2_XY p l β  Ω                   the direction in which the landmark is
    EDGE_PRIOR_SE2 p x y θ  Ω                      the pose itself
    EDGE_PRIOR_SE2_XY p x y  Ω                     its position
    EDGE_PRIOR_XY l x y  Ω                         the landmark itself
    EDGE_SE3_TRACKXYZ p l o x y z  Ω               as in the plane
    EDGE_SE3_PRIOR p o x y z qx qy qz qw  Ω        the pose of the sensor
    EDGE_SE3_XYZ_PRIOR p o x y z  Ω                the position of the pose; g2o makes no use of the offset here
    EDGE_SE3_PRIORXYZ p x y z  Ω                   the same as hdl_graph_slam writes it
    EDGE_POINTXYZ_PRIOR l x y z  Ω                 the landmark itself

g2o has no tag of similarities in this form; those here are as its others, with the scale at the end.  Its own form is
read, too (`expmap`).
"""

from dataclasses import dataclass
from typing import Literal

from asker.geometry.poses import N_AXES, N_DOF, N_NUMBERS, Kind

End = Literal["pose", "landmark"]
SUFFIXES: dict[Kind, str] = {"SE2": "SE2", "SE3": "SE3:QUAT", "SIM3": "SIM3:QUAT"}


@dataclass(frozen=True)
class Tag:
    """The numbers of a line: those of its ends, perhaps that of an offset, `n_values`, and the upper triangle of Ω."""

    kind: Kind
    ends: tuple[End, ...]
    n_values: int
    n_dof: int
    """Ω has so many rows; 0 for a line without Ω."""
    has_offset: bool = False
    is_pose: bool = False
    """Whether the values are a pose."""

    @property
    def n_names(self) -> int:
        return len(self.ends) + self.has_offset

    @property
    def n_numbers(self) -> int:
        return self.n_names + self.n_values + self.n_dof * (self.n_dof + 1) // 2


def _pose(kind: Kind, *ends: End, has_offset: bool = False) -> Tag:
    return Tag(kind, ends, N_NUMBERS[kind], N_DOF[kind], has_offset, is_pose=True)


def _point(kind: Kind, *ends: End, has_offset: bool = False) -> Tag:
    return Tag(kind, ends, N_AXES[kind], N_AXES[kind], has_offset)


def _vertex(kind: Kind, end: End) -> Tag:
    is_pose = end == "pose"
    return Tag(kind, (end,), N_NUMBERS[kind] if is_pose else N_AXES[kind], 0, is_pose=is_pose)


POSES = {f"VERTEX_{suffix}": _vertex(kind, "pose") for kind, suffix in SUFFIXES.items()}
POINTS = {"VERTEX_XY": _vertex("SE2", "landmark"), "VERTEX_TRACKXYZ": _vertex("SE3", "landmark")}
EDGES = {f"EDGE_{suffix}": _pose(kind, "pose", "pose") for kind, suffix in SUFFIXES.items()}
OFFSETS = {
    f"PARAMS_{kind}OFFSET": Tag(kind, (), N_NUMBERS[kind], 0, has_offset=True, is_pose=True) for kind in ("SE2", "SE3")
}
MEASURED = {
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
TAGS = POSES | POINTS | EDGES | OFFSETS | MEASURED

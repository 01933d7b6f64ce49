"""Pose graphs: poses, landmarks, and what was measured.

A graph has measurements of one pose from another, its edges.  It may have others, in groups by their g2o tag (`tags`):
of a landmark from a pose, and priors, which are of one pose or one landmark alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.formats.g2o_tags import MEASURED
from asker.geometry.poses import Kind


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Points that poses see."""

    ids: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """(n,): their names; poses have others."""
    points: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3)))
    """(n, 2) or (n, 3)"""
    fixed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    """(n,): which of them stay."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Measurements:
    """Measurements of one tag, beside the edges."""

    ends: NDArray[np.int32]
    """(n, 1 or 2): the pose or the landmark, or both, as indices into `PoseGraph.ids` and `Landmarks.ids`."""
    values: NDArray[np.float64]
    """(n, k): as the tag says."""
    information: NDArray[np.float64]
    """(n, p, p)"""
    offsets: NDArray[np.int64]
    """(n,): the parameter that says where the sensor is; (0,) for a tag without one."""

    def __len__(self) -> int:
        return len(self.ends)

    def chosen(self, mask: NDArray[np.bool_]) -> "Measurements":
        """Those of a mask."""
        offsets = self.offsets[mask] if len(self.offsets) else self.offsets
        return Measurements(self.ends[mask], self.values[mask], self.information[mask], offsets)


@dataclass(frozen=True, eq=False)
class PoseGraph:
    """Poses, and measurements of one pose from another."""

    kind: Kind
    ids: NDArray[np.int64]
    """(n,): the names of the poses, in the file's order."""
    poses: NDArray[np.float64]
    """(n, 3) x y θ, (n, 7) x y z qx qy qz qw, or (n, 8) with a scale after it."""
    i: NDArray[np.int32]
    """(n_edges,): the pose, as an index into `ids`, from which an edge is measured."""
    j: NDArray[np.int32]
    """(n_edges,): the pose that is measured."""
    measurements: NDArray[np.float64]
    """(n_edges, 3, 7 or 8): pose j seen from pose i, as `poses`."""
    information: NDArray[np.float64]
    """(n_edges, d, d): symmetric, d = 3, 6 or 7; translation, rotation, scale."""
    fixed: NDArray[np.bool_]
    """(n,): which poses stay."""
    repairs: tuple[str, ...] = ()
    """What was done about dirt in the file."""
    landmarks: Landmarks = field(default_factory=Landmarks)
    measured: Mapping[str, Measurements] = field(default_factory=dict)
    """Measurements beside the edges, by tag."""
    offsets: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)
    """Where a sensor is on the robot, as a row of `poses`, by the id of the parameter."""

    @property
    def n_poses(self) -> int:
        return len(self.ids)

    @property
    def n_edges(self) -> int:
        return len(self.i)

    @property
    def n_measured(self) -> int:
        """How many measurements there are beside the edges."""
        return sum(map(len, self.measured.values()))

    @property
    def has_priors(self) -> bool:
        return any(len(MEASURED[tag].ends) == 1 for tag in self.measured)

    @property
    def is_odometry(self) -> NDArray[np.bool_]:
        """(n_edges,): whether an edge ties consecutive ids, those of landmarks not counted; all others are loops."""
        counted = self.ids - np.searchsorted(np.sort(self.landmarks.ids), self.ids)
        return np.abs(counted[self.i] - counted[self.j]) == 1

    @property
    def n_loops(self) -> int:
        return int(np.count_nonzero(~self.is_odometry))

    def named(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The ids of the ends of the edges of a mask, (n, 2)."""
        return np.stack([self.ids[self.i[chosen]], self.ids[self.j[chosen]]], axis=1)

    def named_measured(self, tag: str, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The ids of what the measurements of a tag are of, (n, 1 or 2), for those of a mask."""
        of = {"pose": self.ids, "landmark": self.landmarks.ids}
        ends = self.measured[tag].ends[chosen]
        return np.stack([of[end][ends[:, k]] for k, end in enumerate(MEASURED[tag].ends)], axis=1)

    def with_edges(self, chosen: NDArray[np.bool_]) -> "PoseGraph":
        """All poses, and the edges of a mask."""
        names = ("i", "j", "measurements", "information")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def with_measured(self, chosen: Mapping[str, NDArray[np.bool_]]) -> "PoseGraph":
        """The same, and of the measurements beside the edges those of masks; a tag without any is left out."""
        kept = {tag: self.measured[tag].chosen(mask) for tag, mask in chosen.items() if mask.any()}
        return replace(self, measured=kept)

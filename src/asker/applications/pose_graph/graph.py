"""Pose graphs: poses, landmarks and measurements.

The edges of a graph are measurements of one pose relative to another.  Other measurements are grouped by their g2o tag
(`g2o_tags`): landmarks observed from a pose, and priors, which concern a single pose or landmark.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.formats.g2o_tags import MEASUREMENT_TAGS
from asker.geometry.poses import Kind


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Points that are observed from poses."""

    ids: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """(n,): ids; disjoint from those of poses."""
    points: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3)))
    """(n, 2) or (n, 3)"""
    fixed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    """(n,): whether the landmark is constant."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Measurements:
    """Measurements of one tag, other than edges between poses."""

    ends: NDArray[np.int32]
    """(n, 1 or 2): the pose, the landmark, or both, as indices into `PoseGraph.ids` and `Landmarks.ids`."""
    values: NDArray[np.float64]
    """(n, k): measured values, in the order of the tag."""
    information: NDArray[np.float64]
    """(n, p, p): information matrices."""
    offsets: NDArray[np.int64]
    """(n,): id of the sensor offset; (0,) for a tag without one."""

    def __len__(self) -> int:
        return len(self.ends)

    def chosen(self, mask: NDArray[np.bool_]) -> "Measurements":
        """Return the measurements of a mask."""
        offsets = self.offsets[mask] if len(self.offsets) else self.offsets
        return Measurements(self.ends[mask], self.values[mask], self.information[mask], offsets)


@dataclass(frozen=True, eq=False)
class PoseGraph:
    """Poses and relative measurements between them."""

    kind: Kind
    ids: NDArray[np.int64]
    """(n,): ids of the poses, in the order of the file."""
    poses: NDArray[np.float64]
    """(n, 3) x y θ, (n, 7) x y z qx qy qz qw, or (n, 8) with a scale at the end."""
    i: NDArray[np.int32]
    """(n_edges,): reference pose of each edge, as an index into `ids`."""
    j: NDArray[np.int32]
    """(n_edges,): measured pose of each edge, as an index into `ids`."""
    measurements: NDArray[np.float64]
    """(n_edges, 3, 7 or 8): pose j relative to pose i, in the format of `poses`."""
    information: NDArray[np.float64]
    """(n_edges, d, d): symmetric information matrices, d = 3, 6 or 7, in the order translation, rotation, scale."""
    fixed: NDArray[np.bool_]
    """(n,): whether the pose is constant."""
    repairs: tuple[str, ...] = ()
    """Descriptions of the issues that were repaired when the file was read."""
    landmarks: Landmarks = field(default_factory=Landmarks)
    measured: Mapping[str, Measurements] = field(default_factory=dict)
    """Measurements other than edges, by tag."""
    offsets: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)
    """Poses of sensors relative to the robot, as rows of `poses`, by the id of the parameter."""

    @property
    def n_poses(self) -> int:
        return len(self.ids)

    @property
    def n_edges(self) -> int:
        return len(self.i)

    @property
    def n_measured(self) -> int:
        """Number of measurements other than edges."""
        return sum(map(len, self.measured.values()))

    @property
    def has_priors(self) -> bool:
        return any(len(MEASUREMENT_TAGS[tag].ends) == 1 for tag in self.measured)

    @property
    def is_odometry(self) -> NDArray[np.bool_]:
        """(n_edges,): whether an edge connects consecutive pose ids; all others are loop closures."""
        counted = self.ids - np.searchsorted(np.sort(self.landmarks.ids), self.ids)
        return np.abs(counted[self.i] - counted[self.j]) == 1

    @property
    def n_loops(self) -> int:
        """Number of loop closures."""
        return int(np.count_nonzero(~self.is_odometry))

    def named(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the ids of the two poses of each edge of a mask, (n, 2)."""
        return np.stack([self.ids[self.i[chosen]], self.ids[self.j[chosen]]], axis=1)

    def named_measured(self, tag: str, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the ids of the pose, the landmark, or both, for the measurements of a tag in a mask, (n, 1 or 2)."""
        ids = {"pose": self.ids, "landmark": self.landmarks.ids}
        ends = self.measured[tag].ends[chosen]
        return np.stack([ids[end][ends[:, k]] for k, end in enumerate(MEASUREMENT_TAGS[tag].ends)], axis=1)

    def with_edges(self, chosen: NDArray[np.bool_]) -> "PoseGraph":
        """Return the graph with all poses, but only the edges of a mask."""
        names = ("i", "j", "measurements", "information")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def with_measured(self, chosen: Mapping[str, NDArray[np.bool_]]) -> "PoseGraph":
        """Return the graph with the measurements of the masks, by tag; empty tags are dropped.  Edges are unchanged."""
        kept = {tag: self.measured[tag].chosen(mask) for tag, mask in chosen.items() if mask.any()}
        return replace(self, measured=kept)

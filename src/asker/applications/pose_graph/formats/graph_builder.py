"""Construction of a pose graph from parsed g2o lines."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.connectivity import check_connected
from asker.applications.pose_graph.formats.file_issues import Information, semidefinite
from asker.applications.pose_graph.formats.g2o_tags import (
    EDGE_TAGS,
    LANDMARK_TAGS,
    MEASUREMENT_TAGS,
    OFFSET_TAGS,
    POSE_TAGS,
    TAGS,
    Tag,
)
from asker.applications.pose_graph.formats.tagged_lines import Lines, id_list, integer_ids
from asker.applications.pose_graph.graph import Landmarks, Measurements, PoseGraph
from asker.applications.pose_graph.initial.landmark_init import initial_landmarks
from asker.applications.pose_graph.initial.spanning_tree_init import spanning_tree_poses
from asker.geometry.poses import Kind
from asker.io.file_issues import FileIssues
from asker.io.files import FileError, FilePath

QUATERNION_TOL = 1e-12
"""Deviation of a quaternion's length from 1 above which it is normalised."""
Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ParsedMeasurements:
    """Measurements of a tag with vertices as ids, before these are resolved to indices."""

    tag: Tag
    names: Ids
    """(n, ends): ids of the vertices."""
    offsets: Ids
    values: Floats
    information: Floats
    line: list[int]


@dataclass
class GraphBuilder:
    """Builder of a pose graph from g2o lines, sorted by tag and parsed."""

    path: FilePath
    lines: Mapping[str, Lines]
    issues: FileIssues
    information: Information
    id_uses: list[tuple[str, Ids, list[int]]] = field(default_factory=list)
    """Ids in the order of the file: "pose" or "landmark", the ids, and their line numbers."""

    def build(self, fixes: Lines, trajectory: bool) -> PoseGraph:
        """Return the graph.

        Parameters
        ----------
        fixes
            FIX lines.
        trajectory
            Whether the poses may be disconnected.
        """
        kind = self._kind()
        pose_ids, poses, pose_lines = self._vertices("pose", POSE_TAGS, kind)
        point_ids, points, _ = self._vertices("landmark", LANDMARK_TAGS, kind)
        edges = self._measurements(next(name for name, tag in EDGE_TAGS.items() if tag.kind == kind))
        others = {tag: self._measurements(tag) for tag in MEASUREMENT_TAGS if tag in self.lines}
        parsed = edges, *others.values()
        self._check_kinds_of_vertices()
        ids = _with_referenced(pose_ids, _ends(parsed, "pose"))
        landmark_ids = _with_referenced(point_ids, _ends(parsed, "landmark"))
        if not len(ids):
            raise FileError(self.path, _empty_file_message("there is no vertex and no edge in this file", self.issues))
        fixed = self._fixed(fixes, np.concatenate([ids, landmark_ids]))
        landmarks = Landmarks(landmark_ids, points, np.isin(landmark_ids, fixed)) if len(landmark_ids) else Landmarks()
        i, j = _indices(ids, edges.names).T.astype(np.int32)
        graph = PoseGraph(
            kind, ids, poses, i, j, edges.values, edges.information, np.isin(ids, fixed),
            landmarks=landmarks,
            measured={tag: _resolved(m, ids, landmark_ids) for tag, m in others.items()},
            offsets=self._offsets(kind, others),
        )  # fmt: skip
        if not trajectory:
            graph = self._without_unmeasured(graph)
        lines = {"vertices": pose_lines, "edges": edges.line} | {tag: m.line for tag, m in others.items()}
        check_connected(self.path, graph, lines, trajectory)
        self._report_missing_vertices(pose_ids, edges)
        graph = replace(graph, poses=self._complete_poses(graph), repairs=self.issues.descriptions)
        return replace(graph, landmarks=initial_landmarks(self.path, graph, lines))

    def _kind(self) -> Kind:
        first = {tag: lines.line[0] for tag, lines in self.lines.items()}
        kinds = {TAGS[tag].kind: first[tag] for tag in sorted(first, key=first.__getitem__, reverse=True)}
        if not kinds:
            raise FileError(self.path, _empty_file_message("there is no vertex and no edge in this file", self.issues))
        if len(kinds) > 1:
            raise FileError(self.path, f"{' and '.join(sorted(kinds))} in one file", max(kinds.values()))
        return next(iter(kinds))

    def _vertices(self, end: str, tags: Mapping[str, Tag], kind: Kind) -> tuple[Ids, Floats, list[int]]:
        """Return the vertices that have lines: ids, values, and line numbers."""
        name, tag = next(((name, tag) for name, tag in tags.items() if tag.kind == kind), ("", None))
        if name not in self.lines or tag is None:
            return np.zeros(0, np.int64), np.zeros((0, 3 if tag is None else tag.n_values)), []
        lines = self.lines[name]
        ids = self._unique_ids(lines, "vertex", "vertices")
        self.id_uses.append((end, ids, lines.line))
        rows = lines.numbers[:, 1:]
        return ids, self._normalised(kind, rows, lines.line) if tag.is_pose else rows.copy(), lines.line

    def _unique_ids(self, lines: Lines, one: str, many: str) -> Ids:
        """Return the ids of lines that define one object each; duplicate definitions are dropped and reported."""
        ids = integer_ids(self.path, lines.numbers[:, :1], lines.line)[:, 0]
        first, duplicate = _first_occurrence(ids)
        k = int(np.argmax(duplicate))
        error = f"{one} {ids[k]} was defined before, in line {lines.line[first[k]]}"
        self.issues.add(duplicate, f"{one} line{{s}} of {many} defined before dropped", error, lines.line[k])
        lines.keep(~duplicate)
        return ids[~duplicate]

    def _measurements(self, name: str) -> ParsedMeasurements:
        """Return the valid measurements of a tag."""
        tag, lines = TAGS[name], self.lines.get(name, Lines())
        d, n, start = tag.n_dof, tag.n_values, tag.n_ids
        if not lines.line:
            no_ids, no_values = np.zeros((0, len(tag.ends)), np.int64), np.zeros((0, n))
            return ParsedMeasurements(tag, no_ids, np.zeros(0, np.int64), no_values, np.zeros((0, d, d)), [])
        names = integer_ids(self.path, lines.numbers[:, :start], lines.line)
        self._drop_faulty_edges(tag, names, lines)
        matrices = np.zeros((len(lines.line), d, d))
        upper = np.triu_indices(d)
        matrices[:, *upper] = matrices[:, upper[1], upper[0]] = lines.numbers[:, start + n :]
        matrices, kept = semidefinite(matrices, lines.line, self.issues, self.information)
        lines.keep(kept)
        names = lines.numbers[:, :start].astype(np.int64)
        for k, end in enumerate(tag.ends):
            self.id_uses.append((end, names[:, k], lines.line))
        rows = lines.numbers[:, start : start + n]
        rows = self._normalised(tag.kind, rows, lines.line) if tag.is_pose else rows.copy()
        offsets = names[:, -1] if tag.has_offset else np.zeros(0, np.int64)
        return ParsedMeasurements(tag, names[:, : len(tag.ends)], offsets, rows, matrices, lines.line)

    def _drop_faulty_edges(self, tag: Tag, names: Ids, lines: Lines) -> None:
        """Drop edges from a vertex to itself and duplicate lines."""
        is_self_loop = (names[:, 0] == names[:, -1]) & (tag.ends == ("pose", "pose"))
        k = int(np.argmax(is_self_loop))
        error = f"an edge from vertex {names[k, 0]} to itself"
        self.issues.add(is_self_loop, "edge{s} from a vertex to itself dropped", error, lines.line[k])
        bytes_of_line = np.ascontiguousarray(lines.numbers).view(f"V{8 * lines.numbers.shape[1]}")[:, 0]
        first, duplicate = _first_occurrence(bytes_of_line)
        duplicate &= ~is_self_loop
        k = int(np.argmax(duplicate))
        error = f"duplicate of the edge in line {lines.line[first[k]]}"
        self.issues.add(duplicate, "duplicate edge{s} dropped", error, lines.line[k])
        lines.keep(~(is_self_loop | duplicate))
        if not lines.line:
            raise FileError(self.path, "no edge remains: all of them lead from a vertex to itself")

    def _offsets(self, kind: Kind, others: Mapping[str, ParsedMeasurements]) -> dict[int, Floats]:
        """Return the sensor offsets by id; undefined ones are the identity."""
        name = f"PARAMS_{kind}OFFSET"
        offsets: dict[int, Floats] = {}
        if name in self.lines:
            ids = self._unique_ids(self.lines[name], "offset", "offsets")
            rows = self._normalised(kind, self.lines[name].numbers[:, 1:], self.lines[name].line)
            offsets = dict(zip(ids.tolist(), rows, strict=True))
        for m in others.values():
            unknown = ~np.isin(m.offsets, list(offsets))
            if unknown.any():
                k = int(np.argmax(unknown))
                error = f"there is no {name} {m.offsets[k]}"
                repair = "measurement{s} with an undefined sensor offset: taken as the identity"
                self.issues.add(unknown, repair, error, m.line[k])
                identity = np.zeros(OFFSET_TAGS[name].n_values)
                identity[3:] = [0, 0, 0, 1][: len(identity) - 3]
                offsets |= dict.fromkeys(np.unique(m.offsets[unknown]).tolist(), identity)
        return offsets

    def _normalised(self, kind: Kind, rows: Floats, lines: list[int]) -> Floats:
        """Return poses with normalised quaternions."""
        rows = rows.copy()
        if kind == "SE2":
            return rows
        with np.errstate(over="ignore"):
            length = np.linalg.norm(rows[:, 3:7], axis=1)
        bad = np.flatnonzero(~((length > 1e-6) & (length < 1e6)))
        if bad.size:
            k = int(bad[0])
            raise FileError(self.path, f"a quaternion of length {length[k]:.3g} is not a rotation", lines[k])
        off = np.abs(length - 1) > QUATERNION_TOL
        rows[off, 3:7] /= length[off, None]
        bad = np.flatnonzero(~((rows[:, 7:] > 1e-9) & (rows[:, 7:] < 1e9)).all(axis=1))
        if bad.size:
            k = int(bad[0])
            raise FileError(self.path, f"a scale must be positive (1e-9 to 1e9), got {rows[k, 7]:.3g}", lines[k])
        return rows

    def _check_kinds_of_vertices(self) -> None:
        """Raise a `FileError` if a vertex is both a pose and a landmark."""
        pose_ids, landmark_ids = (
            _concatenated([ids for end, ids, _ in self.id_uses if end == kind]) for kind in ("pose", "landmark")
        )
        clash = np.intersect1d(pose_ids, landmark_ids)
        if clash.size:
            firsts: dict[str, int] = {}
            for end, ids, lines in self.id_uses:
                if clash[0] in ids:
                    line = lines[int(np.argmax(ids == clash[0]))]
                    firsts[end] = min(firsts.get(end, line), line)
            (_, one), (line, other) = sorted((line, end) for end, line in firsts.items())
            what = f"vertex {clash[0]} is a {other} here, and a {one} in line {firsts[one]}"
            raise FileError(self.path, what, line)

    def _report_missing_vertices(self, vertex_ids: Ids, edges: ParsedMeasurements) -> None:
        """Report poses without a vertex line, unless the file consists of edges alone."""
        names, first = np.unique(edges.names, return_index=True)
        missing = ~np.isin(names, vertex_ids)
        if len(vertex_ids) and missing.any():
            k = int(np.argmin(np.where(missing, first, edges.names.size)))
            error = f"vertex {names[k]} has no line"
            repair = "pose{s} without a line initialised from edges"
            self.issues.add(missing, repair, error, edges.line[first[k] // 2])

    def _fixed(self, fixes: Lines, ids: Ids) -> Ids:
        """Return the ids of FIX lines."""
        named, lines = id_list(self.path, "FIX", fixes)
        unknown = ~np.isin(named, ids)
        if unknown.any():
            k = int(np.argmax(unknown))
            error = f"FIX names vertex {named[k]}, which is not in the graph"
            self.issues.add(unknown, "FIX of a vertex that is not in the graph dropped", error, lines[k])
        return named

    def _without_unmeasured(self, graph: PoseGraph) -> PoseGraph:
        """Return the graph without landmarks that have no measurements."""
        landmarks, columns = graph.landmarks, [(m, MEASUREMENT_TAGS[tag].ends) for tag, m in graph.measured.items()]
        measured_index = _concatenated([m.ends[:, ends.index("landmark")] for m, ends in columns if "landmark" in ends])
        unmeasured = ~np.isin(np.arange(len(landmarks)), measured_index)
        if not unmeasured.any():
            return graph
        first = landmarks.ids[int(np.argmax(unmeasured))]  # has a vertex line
        line = next(lines[int(np.argmax(ids == first))] for end, ids, lines in self.id_uses if first in ids)
        error = f"landmark {first} has no measurements"
        self.issues.add(unmeasured, "landmark{s} without measurements dropped", error, line)
        rank = np.cumsum(~unmeasured) - 1
        measured = {}
        for tag, m in graph.measured.items():
            ends = m.ends.copy()
            if "landmark" in MEASUREMENT_TAGS[tag].ends:
                ends[:, -1] = rank[ends[:, -1]]
            measured[tag] = replace(m, ends=ends)
        points = landmarks.points[~unmeasured[: len(landmarks.points)]]
        landmarks = Landmarks(landmarks.ids[~unmeasured], points, landmarks.fixed[~unmeasured])
        return replace(graph, landmarks=landmarks, measured=measured)

    def _complete_poses(self, graph: PoseGraph) -> Floats:
        """Return the poses of the graph, with those that have no vertex line initialised from edges."""
        with np.errstate(all="ignore"):
            poses = spanning_tree_poses(graph)
        bad = np.flatnonzero(~np.isfinite(poses).all(axis=1))
        if bad.size:
            raise FileError(self.path, f"the pose of vertex {graph.ids[bad[0]]}, composed from edges, is not finite")
        return poses


def _empty_file_message(what: str, issues: FileIssues) -> str:
    """Return a message followed by the issues repaired before."""
    return what + (f" ({'; '.join(issues.descriptions)})" if issues.descriptions else "")


def _concatenated(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)


def _ends(parsed: tuple[ParsedMeasurements, ...], end: str) -> Ids:
    """Return the ids of the poses, or of the landmarks, that measurements refer to."""
    return _concatenated([m.names[:, k] for m in parsed for k, kind in enumerate(m.tag.ends) if kind == end])


def _with_referenced(ids: Ids, named: Ids) -> Ids:
    """Return the ids of the vertex lines, followed by those that only measurements refer to, sorted."""
    return np.concatenate([ids, np.setdiff1d(named, ids)])


def _indices(ids: Ids, named: Ids) -> NDArray[np.intp]:
    """Return the indices of ids in an array of ids."""
    order = np.argsort(ids)
    return order[np.searchsorted(ids[order], named)]


def _resolved(parsed: ParsedMeasurements, ids: Ids, landmark_ids: Ids) -> Measurements:
    """Return measurements with ids resolved to indices."""
    known = {"pose": ids, "landmark": landmark_ids}
    ends = [_indices(known[end], parsed.names[:, k]) for k, end in enumerate(parsed.tag.ends)]
    return Measurements(np.stack(ends, axis=1).astype(np.int32), parsed.values, parsed.information, parsed.offsets)


def _first_occurrence(values: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the index at which each value first occurs, and a mask of the values that occurred before."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    first = first[inverse]
    return first, first != np.arange(len(values))

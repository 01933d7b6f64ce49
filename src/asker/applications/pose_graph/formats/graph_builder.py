"""A pose graph from the numbers of its lines."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.connectivity import check_connected
from asker.applications.pose_graph.formats.file_issues import Information, semidefinite
from asker.applications.pose_graph.formats.g2o_tags import EDGES, MEASURED, OFFSETS, POINTS, POSES, TAGS, Tag
from asker.applications.pose_graph.formats.tagged_lines import Lines, listed, whole
from asker.applications.pose_graph.graph import Landmarks, Measurements, PoseGraph
from asker.applications.pose_graph.initial.landmark_init import placed_landmarks
from asker.applications.pose_graph.initial.spanning_tree_init import filled_poses
from asker.geometry.poses import Kind
from asker.io.file_issues import Dirt
from asker.io.files import FileError, FilePath

NORMALISED = 1e-12
"""A quaternion whose length is off by more is divided by it."""
Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Read:
    """The measurements of a tag, before it is known which vertices there are."""

    tag: Tag
    names: Ids
    """(n, ends): ids"""
    offsets: Ids
    values: Floats
    information: Floats
    line: list[int]


@dataclass
class Assembly:
    """A file whose lines are sorted by the tags of g2o, and parsed."""

    path: FilePath
    found: Mapping[str, Lines]
    dirt: Dirt
    information: Information
    uses: list[tuple[str, Ids, list[int]]] = field(default_factory=list)
    """Of ids: as "pose" or "landmark", and in which lines."""

    def graph(self, fixes: Lines, trajectory: bool) -> PoseGraph:
        """The graph; trajectory: poses need not be connected."""
        kind = self._kind()
        pose_ids, poses, pose_lines = self._vertices("pose", POSES, kind)
        point_ids, points, _ = self._vertices("landmark", POINTS, kind)
        edges = self._measurements(next(tag for tag, of in EDGES.items() if of.kind == kind))
        others = {tag: self._measurements(tag) for tag in MEASURED if tag in self.found}
        every = edges, *others.values()
        self._check_uses()
        ids = _with_others(pose_ids, _ends(every, "pose"))
        landmark_ids = _with_others(point_ids, _ends(every, "landmark"))
        if not len(ids):
            raise FileError(self.path, nothing_in("there is no vertex and no edge in this file", self.dirt))
        fixed = self._fixed(fixes, np.concatenate([ids, landmark_ids]))
        landmarks = Landmarks(landmark_ids, points, np.isin(landmark_ids, fixed)) if len(landmark_ids) else Landmarks()
        i, j = _places(ids, edges.names).T.astype(np.int32)
        graph = PoseGraph(
            kind, ids, poses, i, j, edges.values, edges.information, np.isin(ids, fixed),
            landmarks=landmarks,
            measured={tag: _measured(read, ids, landmark_ids) for tag, read in others.items()},
            offsets=self._offsets(kind, others),
        )  # fmt: skip
        if not trajectory:
            graph = self._without_unseen(graph)
        lines = {"vertices": pose_lines, "edges": edges.line} | {tag: read.line for tag, read in others.items()}
        check_connected(self.path, graph, lines, trajectory)
        self._tell_of_poses_without_lines(pose_ids, edges)
        graph = replace(graph, poses=self._filled_poses(graph), repairs=self.dirt.told)
        return replace(graph, landmarks=placed_landmarks(self.path, graph, lines))

    def _kind(self) -> Kind:
        first = {tag: lines.line[0] for tag, lines in self.found.items()}
        kinds = {TAGS[tag].kind: first[tag] for tag in sorted(first, key=first.__getitem__, reverse=True)}
        if not kinds:
            raise FileError(self.path, nothing_in("there is no vertex and no edge in this file", self.dirt))
        if len(kinds) > 1:
            raise FileError(self.path, f"{' and '.join(sorted(kinds))} in one file", max(kinds.values()))
        return next(iter(kinds))

    def _vertices(self, end: str, tags: Mapping[str, Tag], kind: Kind) -> tuple[Ids, Floats, list[int]]:
        """The vertices that have lines: ids, rows, and the lines."""
        name, tag = next(((name, tag) for name, tag in tags.items() if tag.kind == kind), ("", None))
        if name not in self.found or tag is None:
            return np.zeros(0, np.int64), np.zeros((0, 3 if tag is None else tag.n_values)), []
        lines = self.found[name]
        ids = self._once(lines, "vertex", "vertices")
        self.uses.append((end, ids, lines.line))
        rows = lines.numbers[:, 1:]
        return ids, self._unit(kind, rows, lines.line) if tag.is_pose else rows.copy(), lines.line

    def _once(self, lines: Lines, one: str, many: str) -> Ids:
        """The ids of lines that each give something; of what is given twice the first line is kept."""
        ids = whole(self.path, lines.numbers[:, :1], lines.line)[:, 0]
        first, again = _repeated(ids)
        k = int(np.argmax(again))
        error = f"{one} {ids[k]} was given before, in line {lines.line[first[k]]}"
        self.dirt.found(again, f"{one} line{{s}} of {many} given before left out", error, lines.line[k])
        lines.keep(~again)
        return ids[~again]

    def _measurements(self, name: str) -> Read:
        """The measurements of a tag without dirt."""
        tag, lines = TAGS[name], self.found.get(name, Lines())
        d, n, start = tag.n_dof, tag.n_values, tag.n_names
        if not lines.line:
            nothing = np.zeros(0, np.int64)
            return Read(tag, nothing.reshape(0, len(tag.ends)), nothing, np.zeros((0, n)), np.zeros((0, d, d)), [])
        names = whole(self.path, lines.numbers[:, :start], lines.line)
        self._leave_out_dirt(tag, names, lines)
        matrices = np.zeros((len(lines.line), d, d))
        upper = np.triu_indices(d)
        matrices[:, *upper] = matrices[:, upper[1], upper[0]] = lines.numbers[:, start + n :]
        matrices, kept = semidefinite(matrices, lines.line, self.dirt, self.information)
        lines.keep(kept)
        names = lines.numbers[:, :start].astype(np.int64)
        for k, end in enumerate(tag.ends):
            self.uses.append((end, names[:, k], lines.line))
        rows = lines.numbers[:, start : start + n]
        rows = self._unit(tag.kind, rows, lines.line) if tag.is_pose else rows.copy()
        offsets = names[:, -1] if tag.has_offset else np.zeros(0, np.int64)
        return Read(tag, names[:, : len(tag.ends)], offsets, rows, matrices, lines.line)

    def _leave_out_dirt(self, tag: Tag, names: Ids, lines: Lines) -> None:
        loose = (names[:, 0] == names[:, -1]) & (tag.ends == ("pose", "pose"))
        k = int(np.argmax(loose))
        error = f"an edge from vertex {names[k, 0]} to itself"
        self.dirt.found(loose, "edge{s} from a vertex to itself left out", error, lines.line[k])
        bytes_of_line = np.ascontiguousarray(lines.numbers).view(f"V{8 * lines.numbers.shape[1]}")[:, 0]
        first, again = _repeated(bytes_of_line)
        again &= ~loose
        k = int(np.argmax(again))
        error = f"the same edge was given before, in line {lines.line[first[k]]}"
        self.dirt.found(again, "edge{s} given before read once", error, lines.line[k])
        lines.keep(~(loose | again))
        if not lines.line:
            raise FileError(self.path, "no edge is left: all of them lead from a vertex to itself")

    def _offsets(self, kind: Kind, others: Mapping[str, Read]) -> dict[int, Floats]:
        """Where sensors are; one that is not given is at the pose."""
        name = f"PARAMS_{kind}OFFSET"
        found: dict[int, Floats] = {}
        if name in self.found:
            ids = self._once(self.found[name], "offset", "offsets")
            rows = self._unit(kind, self.found[name].numbers[:, 1:], self.found[name].line)
            found = dict(zip(ids.tolist(), rows, strict=True))
        for read in others.values():
            unknown = ~np.isin(read.offsets, list(found))
            if unknown.any():
                k = int(np.argmax(unknown))
                error = f"there is no {name} {read.offsets[k]}"
                told = "measurement{s} with an offset that no line gives: taken as none"
                self.dirt.found(unknown, told, error, read.line[k])
                nowhere = np.zeros(OFFSETS[name].n_values)
                nowhere[3:] = [0, 0, 0, 1][: len(nowhere) - 3]
                found |= dict.fromkeys(np.unique(read.offsets[unknown]).tolist(), nowhere)
        return found

    def _unit(self, kind: Kind, rows: Floats, lines: list[int]) -> Floats:
        """The same poses with quaternions of length 1."""
        rows = rows.copy()
        if kind == "SE2":
            return rows
        with np.errstate(over="ignore"):
            length = np.linalg.norm(rows[:, 3:7], axis=1)
        bad = np.flatnonzero(~((length > 1e-6) & (length < 1e6)))
        if bad.size:
            k = int(bad[0])
            raise FileError(self.path, f"a quaternion of length {length[k]:.3g} is no rotation", lines[k])
        off = np.abs(length - 1) > NORMALISED
        rows[off, 3:7] /= length[off, None]
        bad = np.flatnonzero(~((rows[:, 7:] > 1e-9) & (rows[:, 7:] < 1e9)).all(axis=1))
        if bad.size:
            k = int(bad[0])
            raise FileError(self.path, f"a scale must be positive (1e-9 to 1e9), found {rows[k, 7]:.3g}", lines[k])
        return rows

    def _check_uses(self) -> None:
        """No vertex is a pose and a landmark."""
        of = {which: _all([ids for end, ids, _ in self.uses if end == which]) for which in ("pose", "landmark")}
        clash = np.intersect1d(of["pose"], of["landmark"])
        if clash.size:
            firsts: dict[str, int] = {}
            for end, ids, lines in self.uses:
                if clash[0] in ids:
                    line = lines[int(np.argmax(ids == clash[0]))]
                    firsts[end] = min(firsts.get(end, line), line)
            (_, one), (line, other) = sorted((line, end) for end, line in firsts.items())
            what = f"vertex {clash[0]} is a {other} here, and a {one} in line {firsts[one]}"
            raise FileError(self.path, what, line)

    def _tell_of_poses_without_lines(self, given: Ids, edges: Read) -> None:
        """Where others have lines; a file of edges alone is none with dirt."""
        names, first = np.unique(edges.names, return_index=True)
        lacks = ~np.isin(names, given)
        if len(given) and lacks.any():
            k = int(np.argmin(np.where(lacks, first, edges.names.size)))
            error = f"no line gives vertex {names[k]}"
            told = "pose{s} that no line gives put where the edges lead"
            self.dirt.found(lacks, told, error, edges.line[first[k] // 2])

    def _fixed(self, fixes: Lines, ids: Ids) -> Ids:
        named, lines = listed(self.path, "FIX", fixes)
        unknown = ~np.isin(named, ids)
        if unknown.any():
            k = int(np.argmax(unknown))
            error = f"FIX names vertex {named[k]}, which is not in the graph"
            self.dirt.found(unknown, "FIX of a vertex that is not in the graph left out", error, lines[k])
        return named

    def _without_unseen(self, graph: PoseGraph) -> PoseGraph:
        """The graph without landmarks that nothing measures."""
        own, columns = graph.landmarks, [(m, MEASURED[tag].ends) for tag, m in graph.measured.items()]
        touched = _all([m.ends[:, ends.index("landmark")] for m, ends in columns if "landmark" in ends])
        unseen = ~np.isin(np.arange(len(own)), touched)
        if not unseen.any():
            return graph
        k = int(np.argmax(unseen))  # only those with a line can be unseen
        line = next(lines[int(np.argmax(ids == own.ids[k]))] for end, ids, lines in self.uses if own.ids[k] in ids)
        error = f"nothing measures landmark {own.ids[k]}"
        self.dirt.found(unseen, "landmark{s} that nothing measures left out", error, line)
        rank = np.cumsum(~unseen) - 1
        measured = {}
        for tag, m in graph.measured.items():
            ends = m.ends.copy()
            if "landmark" in MEASURED[tag].ends:
                ends[:, -1] = rank[ends[:, -1]]
            measured[tag] = replace(m, ends=ends)
        left = Landmarks(own.ids[~unseen], own.points[~unseen[: len(own.points)]], own.fixed[~unseen])
        return replace(graph, landmarks=left, measured=measured)

    def _filled_poses(self, graph: PoseGraph) -> Floats:
        with np.errstate(all="ignore"):
            found = filled_poses(graph)
        lost = np.flatnonzero(~np.isfinite(found).all(axis=1))
        if lost.size:
            raise FileError(self.path, f"the edges that lead to vertex {graph.ids[lost[0]]} are too long to follow")
        return found


def nothing_in(what: str, dirt: Dirt) -> str:
    """A message with what was repaired before."""
    return what + (f" ({'; '.join(dirt.told)})" if dirt.told else "")


def _all(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)


def _ends(every: tuple[Read, ...], end: str) -> Ids:
    """The ids that measurements name as poses, or as landmarks."""
    return _all([read.names[:, k] for read in every for k, own in enumerate(read.tag.ends) if own == end])


def _with_others(ids: Ids, named: Ids) -> Ids:
    """The ids of the vertices and then those that only edges name, sorted."""
    return np.concatenate([ids, np.setdiff1d(named, ids)])


def _places(ids: Ids, named: Ids) -> NDArray[np.intp]:
    """Where ids stand among others."""
    order = np.argsort(ids)
    return order[np.searchsorted(ids[order], named)]


def _measured(read: Read, ids: Ids, landmark_ids: Ids) -> Measurements:
    of = {"pose": ids, "landmark": landmark_ids}
    ends = [_places(of[end], read.names[:, k]) for k, end in enumerate(read.tag.ends)]
    return Measurements(np.stack(ends, axis=1).astype(np.int32), read.values, read.information, read.offsets)


def _repeated(values: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Where each value stands first, and which ones have stood before."""
    _, first, of = np.unique(values, return_index=True, return_inverse=True)
    first = first[of]
    return first, first != np.arange(len(values))

"""Pose graphs in the text format of g2o (Kümmerle, Grisetti, Strasdat, Konolige, Burgard, ICRA 2011).

    VERTEX_SE2 id x y θ
    EDGE_SE2 i j x y θ  Ω
    VERTEX_SE3:QUAT id x y z qx qy qz qw
    EDGE_SE3:QUAT i j x y z qx qy qz qw  Ω
    FIX id ...

An edge says where pose j is, seen from pose i.  Ω is the upper triangle of its information matrix, row by row:
6 numbers in the plane, 21 in space (translation first).  Empty lines and lines that begin with # are skipped.
Numbers are read and written exactly: reading a written graph gives the same bits.

A vertex that edges name but no line gives is put where the edges lead: along odometry (i to i + 1) where that reaches,
else along other edges.  Without any vertex the smallest id stands at the origin.

Files as they are in the wild are read, and told what was done: a line that stands there twice is read once; an edge
from a vertex to itself, a tag that is not known and a FIX of a vertex that is not there are left out; of a vertex that
is given twice the first one counts; an information matrix with negative eigenvalues is repaired.  Two measurements of
one pair are two measurements.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.repairs import Information, semidefinite
from asker.applications.pose_graph.spanning import filled_poses
from asker.geometry.poses import N_DOF, N_NUMBERS, Kind
from asker.geometry.spanning import connected_parts
from asker.io.dirt import Dirt
from asker.io.files import FileError, FilePath, read_text_bytes, write_whole

CHUNK_ROWS = 1 << 12
LARGEST_ID = 2**53  # a double holds every integer up to here
NORMALISED = 1e-12
"""A quaternion whose length is off by more is divided by it."""

TAGS: dict[bytes, tuple[Kind, str]] = {
    b"VERTEX_SE2": ("SE2", "vertex"),
    b"EDGE_SE2": ("SE2", "edge"),
    b"VERTEX_SE3:QUAT": ("SE3", "vertex"),
    b"EDGE_SE3:QUAT": ("SE3", "edge"),
}


@dataclass(frozen=True, eq=False)
class PoseGraph:
    """Poses, and measurements of one pose from another."""

    kind: Kind
    ids: NDArray[np.int64]
    """(n,): the names of the poses, in the file's order."""
    poses: NDArray[np.float64]
    """(n, 3) x y θ, or (n, 7) x y z qx qy qz qw."""
    i: NDArray[np.int32]
    """(n_edges,): the pose, as an index into `ids`, from which an edge is measured."""
    j: NDArray[np.int32]
    """(n_edges,): the pose that is measured."""
    measurements: NDArray[np.float64]
    """(n_edges, 3) or (n_edges, 7): pose j seen from pose i, as `poses`."""
    information: NDArray[np.float64]
    """(n_edges, d, d): symmetric, d = 3 or 6, translation first."""
    fixed: NDArray[np.bool_]
    """(n,): which poses stay."""
    repairs: tuple[str, ...] = ()
    """What was done about dirt in the file."""

    @property
    def n_poses(self) -> int:
        return len(self.ids)

    @property
    def n_edges(self) -> int:
        return len(self.i)

    @property
    def is_odometry(self) -> NDArray[np.bool_]:
        """(n_edges,): whether an edge ties consecutive ids; all others are loops."""
        return np.abs(self.ids[self.i] - self.ids[self.j]) == 1

    @property
    def n_loops(self) -> int:
        return int(np.count_nonzero(~self.is_odometry))

    def named(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The ids of the ends of the edges of a mask, (n, 2)."""
        return np.stack([self.ids[self.i[chosen]], self.ids[self.j[chosen]]], axis=1)

    def with_edges(self, chosen: NDArray[np.bool_]) -> "PoseGraph":
        """All poses, and the edges of a mask."""
        names = ("i", "j", "measurements", "information")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})


@dataclass
class _Lines:
    """The lines of one tag: their numbers in the file, and what stands after the tag."""

    line: list[int] = field(default_factory=list)
    text: list[bytes] = field(default_factory=list)
    numbers: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))

    def keep(self, chosen: NDArray[np.bool_]) -> None:
        """Those of a mask alone."""
        self.line = np.array(self.line)[chosen].tolist()
        self.numbers = self.numbers[chosen]


def read_g2o(
    path: FilePath, trajectory: bool = False, information: Information = "nearest", strict: bool = False
) -> PoseGraph:
    """Read a g2o file (`.g2o`, `.g2o.gz`, `.g2o.bz2`).  What cannot be read is a `FileError`.

    trajectory   poses need not be connected: a file of poses alone is fine
    information  of a matrix with negative eigenvalues: nearest sets them to 0, diagonal keeps the diagonal alone, skip
                 leaves the edge out, strict is an error
    strict       any dirt is an error
    """
    dirt = Dirt(path, strict)
    kind, vertices, edges, fixes = _sorted_lines(path, read_text_bytes(path), dirt)
    _parse(path, kind, vertices, edges)
    ids, given = _vertices(path, kind, vertices, dirt)
    ends, measurements, matrices = _edges(path, kind, edges, dirt, "strict" if strict else information)
    all_ids, ends = _named(ids, ends)
    i, j = ends[:, 0].astype(np.int32), ends[:, 1].astype(np.int32)
    fixed = np.isin(all_ids, _fixed(path, fixes, all_ids, dirt))
    graph = PoseGraph(kind, all_ids, given, i, j, measurements, matrices, fixed, tuple(dirt.told))
    _check_connected(path, graph, vertices.line, edges.line, trajectory)
    with np.errstate(all="ignore"):
        found = filled_poses(graph)
    lost = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if lost.size:
        raise FileError(path, f"the edges that lead to vertex {graph.ids[lost[0]]} are too long to follow")
    return replace(graph, poses=found)


def write_g2o(path: FilePath, graph: PoseGraph) -> None:
    """Write a g2o file, compressed by suffix.  A `ValueError` names an array that does not fit."""
    _check(graph)
    suffix = "SE2" if graph.kind == "SE2" else "SE3:QUAT"
    d = N_DOF[graph.kind]
    upper = graph.information[:, *np.triu_indices(d)]
    with write_whole(path) as file:
        file.writelines(_printed(f"VERTEX_{suffix}", graph.ids[:, None], graph.poses))
        file.writelines(_printed("FIX", graph.ids[graph.fixed, None], np.zeros((graph.fixed.sum(), 0))))
        ends = np.stack([graph.ids[graph.i], graph.ids[graph.j]], axis=1)
        file.writelines(_printed(f"EDGE_{suffix}", ends, np.concatenate([graph.measurements, upper], axis=1)))


def _printed(tag: str, names: NDArray[np.int64], numbers: NDArray[np.float64]) -> Iterator[bytes]:
    one = tag + " %d" * names.shape[1] + " %r" * numbers.shape[1] + "\n"
    for start in range(0, len(names), CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        rows = [[*a, *b] for a, b in zip(names[part].tolist(), numbers[part].tolist(), strict=True)]
        yield (one * len(rows) % tuple(chain.from_iterable(rows))).encode()


# ---- lines and numbers


def _sorted_lines(path: FilePath, text: bytes, dirt: Dirt) -> tuple[Kind, _Lines, _Lines, _Lines]:
    """The file's kind, and its lines: vertices, edges, fixes."""
    found: dict[bytes, _Lines] = {}
    for number, line in enumerate(text.split(b"\n"), 1):
        parts = line.split(None, 1)
        if parts and not parts[0].startswith(b"#"):
            lines = found.get(parts[0]) or found.setdefault(parts[0], _Lines())
            lines.line.append(number)
            lines.text.append(parts[1] if len(parts) > 1 else b"")
    fixes = found.pop(b"FIX", _Lines())
    first = {tag: lines.line[0] for tag, lines in found.items()}
    strange = sorted((tag for tag in found if tag not in TAGS), key=first.__getitem__)
    if strange:
        n = sum(len(found.pop(tag).line) for tag in strange)
        shown = ", ".join(_shown(tag) for tag in strange[:3]) + (", …" if len(strange) > 3 else "")
        error = f"unknown tag {_shown(strange[0])}; known are {', '.join(t.decode() for t in [*TAGS, b'FIX'])}"
        dirt.found(
            np.ones(n, dtype=np.bool_), f"line{{s}} with unknown tags left out: {shown}", error, first[strange[0]]
        )
    if not found:
        told = f" ({'; '.join(dirt.told)})" if dirt.told else ""
        raise FileError(path, f"there is no vertex and no edge in this file{told}")
    kinds = {TAGS[tag][0]: first[tag] for tag in sorted(found, key=first.__getitem__, reverse=True)}
    if len(kinds) > 1:
        raise FileError(path, "SE2 and SE3 in one file", max(kinds.values()))
    kind = next(iter(kinds))
    of = {TAGS[tag][1]: lines for tag, lines in found.items()}
    return kind, of.get("vertex", _Lines()), of.get("edge", _Lines()), fixes


def _parse(path: FilePath, kind: Kind, vertices: _Lines, edges: _Lines) -> None:
    d = N_DOF[kind]
    wanted = {"vertex": (vertices, 1 + N_NUMBERS[kind]), "edge": (edges, 2 + N_NUMBERS[kind] + d * (d + 1) // 2)}
    problems = []
    for name, (lines, n) in wanted.items():
        try:
            lines.numbers = _table(lines.text, n)
        except ValueError:
            problems.append(_first_problem(name, lines, n))
    if problems:
        line, what = min(problems)
        raise FileError(path, what, line)


def _table(lines: list[bytes], n: int) -> NDArray[np.float64]:
    """`n` finite numbers of each line; a `ValueError` when there is a line without them."""
    text = b" ; ".join(lines).decode("ascii")  # the sign is no number: it must stand after every n of them
    tokens = text.split()
    stride = n + 1
    if len(tokens) != max(0, stride * len(lines) - 1) or tokens[n::stride] != [";"] * (len(lines) - 1):
        raise ValueError
    del tokens[n::stride]
    values = np.fromiter(map(float, tokens), np.float64, len(tokens))
    if "_" in text or not np.isfinite(values).all():  # Python alone reads 1_000 as a number
        raise ValueError
    return values.reshape(-1, n)


def _first_problem(name: str, lines: _Lines, n: int) -> tuple[int, str]:
    for number, text in zip(lines.line, lines.text, strict=True):
        tokens = text.split()
        for token in tokens:
            try:
                _table([token], 1)
            except ValueError:
                return number, f"expected a finite number, found {_shown(token)}"
        if len(tokens) != n:
            return number, f"this {name} needs {n} numbers, found {len(tokens)}"
    raise AssertionError("every line is right, but the whole is not")


def _shown(token: bytes) -> str:
    return repr(token[:40])[1:]


# ---- vertices, edges, fixes


def _whole(path: FilePath, numbers: NDArray[np.float64], lines: list[int]) -> NDArray[np.int64]:
    """Ids from numbers, (n, columns)."""
    bad = (numbers < 0) | (numbers >= LARGEST_ID) | (numbers != np.floor(numbers))
    if bad.any():
        row, column = (int(k) for k in np.argwhere(bad)[0])
        raise FileError(path, f"an id must be an integer, 0 or more, found {numbers[row, column]:g}", lines[row])
    return numbers.astype(np.int64)


def _vertices(path: FilePath, kind: Kind, lines: _Lines, dirt: Dirt) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    if not lines.line:
        return np.zeros(0, np.int64), np.zeros((0, N_NUMBERS[kind]))
    ids = _whole(path, lines.numbers[:, :1], lines.line)[:, 0]
    first, again = _repeated(ids)
    if again.any():
        k = int(np.argmax(again))
        error = f"vertex {ids[k]} was given before, in line {lines.line[first[k]]}"
        dirt.found(again, "vertex line{s} of vertices given before left out", error, lines.line[k])
        lines.keep(~again)
        ids = ids[~again]
    return ids, _unit(path, kind, lines.numbers[:, 1:], lines.line)


def _edges(
    path: FilePath, kind: Kind, lines: _Lines, dirt: Dirt, information: Information
) -> tuple[NDArray[np.int64], Any, Any]:
    d, n = N_DOF[kind], N_NUMBERS[kind]
    if not lines.line:
        return np.zeros((0, 2), np.int64), np.zeros((0, n)), np.zeros((0, d, d))
    ends = _whole(path, lines.numbers[:, :2], lines.line)
    loose = ends[:, 0] == ends[:, 1]
    k = int(np.argmax(loose))
    error = f"an edge from vertex {ends[k, 0]} to itself"
    dirt.found(loose, "edge{s} from a vertex to itself left out", error, lines.line[k])
    whole = np.ascontiguousarray(lines.numbers).view(f"V{8 * lines.numbers.shape[1]}")[:, 0]  # bytes of a line
    first, again = _repeated(whole)
    again &= ~loose
    k = int(np.argmax(again))
    error = f"the same edge was given before, in line {lines.line[first[k]]}"
    dirt.found(again, "edge{s} given before read once", error, lines.line[k])
    lines.keep(~(loose | again))
    if not lines.line:
        raise FileError(path, "no edge is left: all of them lead from a vertex to itself")
    matrices = np.zeros((len(lines.line), d, d))
    upper = np.triu_indices(d)
    matrices[:, *upper] = matrices[:, upper[1], upper[0]] = lines.numbers[:, 2 + n :]
    matrices, kept = semidefinite(matrices, lines.line, dirt, information)
    lines.keep(kept)
    measurements = _unit(path, kind, lines.numbers[:, 2 : 2 + n], lines.line)
    return lines.numbers[:, :2].astype(np.int64), measurements, matrices


def _repeated(values: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Where each value stands first, and which ones have stood before."""
    _, first, of = np.unique(values, return_index=True, return_inverse=True)
    first = first[of]
    return first, first != np.arange(len(values))


def _unit(path: FilePath, kind: Kind, rows: NDArray[np.float64], lines: list[int]) -> NDArray[np.float64]:
    """The same poses with quaternions of length 1."""
    rows = rows.copy()
    if kind == "SE2":
        return rows
    with np.errstate(over="ignore"):
        length = np.linalg.norm(rows[:, 3:], axis=1)
    bad = np.flatnonzero(~((length > 1e-6) & (length < 1e6)))
    if bad.size:
        k = int(bad[0])
        raise FileError(path, f"a quaternion of length {length[k]:.3g} is no rotation", lines[k])
    off = np.abs(length - 1) > NORMALISED
    rows[off, 3:] /= length[off, None]
    return rows


def _named(ids: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ids of the vertices and then those that only edges name, sorted; and the edges' ends as indices."""
    ids = np.concatenate([ids, np.setdiff1d(ends, ids)])
    order = np.argsort(ids)
    return ids, order[np.searchsorted(ids[order], ends)]


def _fixed(path: FilePath, fixes: _Lines, ids: NDArray[np.int64], dirt: Dirt) -> NDArray[np.int64]:
    tokens = [text.split() for text in fixes.text]
    for number, of_line in zip(fixes.line, tokens, strict=True):
        if not of_line:
            raise FileError(path, "FIX needs the id of a vertex", number)
    every = list(chain.from_iterable(tokens))
    lines = [number for number, of_line in zip(fixes.line, tokens, strict=True) for _ in of_line]
    try:
        numbers = _table(every, 1)
    except ValueError:
        line, what = _first_problem("FIX", _Lines(lines, every), 1)
        raise FileError(path, what, line) from None
    named = _whole(path, numbers, lines)[:, 0]
    unknown = ~np.isin(named, ids)
    if unknown.any():
        k = int(np.argmax(unknown))
        error = f"FIX names vertex {named[k]}, which is not in the graph"
        dirt.found(unknown, "FIX of a vertex that is not in the graph left out", error, lines[k])
    return named


# ---- the graph


def _check_connected(
    path: FilePath, graph: PoseGraph, vertex_lines: list[int], edge_lines: list[int], trajectory: bool
) -> None:
    n_given = len(vertex_lines)
    n_parts, part = connected_parts(graph.i, graph.j, graph.n_poses)
    if n_parts == 1:
        return
    nowhere = np.setdiff1d(part, part[:n_given] if n_given else part[:1])
    if nowhere.size:
        k = int(np.argmax(np.isin(part[graph.i], nowhere)))
        name = graph.ids[graph.i[k]]
        raise FileError(path, f"an edge to nowhere: no vertex is connected with vertex {name}", edge_lines[k])
    if not trajectory:
        apart = int(np.argmax(part != part[0]))
        ends = f"vertex {graph.ids[0]} to vertex {graph.ids[apart]}"
        raise FileError(path, f"the graph has {n_parts} parts: no edges lead from {ends}", vertex_lines[apart])


def _check(graph: PoseGraph) -> None:
    """What `read_g2o` would refuse is not written."""
    if graph.kind not in N_NUMBERS:
        raise ValueError(f"kind must be 'SE2' or 'SE3', not {graph.kind!r}")
    n, m, d, size = len(graph.ids), len(graph.i), N_DOF[graph.kind], N_NUMBERS[graph.kind]
    shapes = {
        "ids": (n,), "poses": (n, size), "fixed": (n,),
        "i": (m,), "j": (m,), "measurements": (m, size), "information": (m, d, d),
    }  # fmt: skip
    for name, shape in shapes.items():
        array = np.asarray(getattr(graph, name))
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or infinity")
    for name in ("i", "j"):
        index = getattr(graph, name)
        if m and (index.min() < 0 or index.max() >= n):
            raise ValueError(f"{name} must hold integers from 0 to {n - 1}")
    if len(np.unique(graph.ids)) < n or (n and graph.ids.min() < 0):
        raise ValueError("ids must be different integers, 0 or more")
    if np.any(graph.i == graph.j):
        raise ValueError("an edge leads from a pose to itself")
    if not np.array_equal(graph.information, np.swapaxes(graph.information, 1, 2)):
        raise ValueError("information must be symmetric")
    try:
        semidefinite(graph.information, list(range(m)), Dirt("", strict=True), "strict")
    except FileError:
        raise ValueError("information must be positive semidefinite") from None

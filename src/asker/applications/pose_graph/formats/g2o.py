"""Pose graphs in the text format of g2o (Kümmerle, Grisetti, Strasdat, Konolige, Burgard, ICRA 2011).

    VERTEX_SE2 id x y θ
    EDGE_SE2 i j x y θ  Ω
    VERTEX_SE3:QUAT id x y z qx qy qz qw
    EDGE_SE3:QUAT i j x y z qx qy qz qw  Ω
    FIX id ...

An edge measures pose j relative to pose i.  Ω is the upper triangle of its information matrix, row by row: 6 numbers in
the plane, 21 in space (translation first).  Empty lines and lines that begin with # are skipped.  Numbers are read and
written exactly: reading a written graph returns the same bits.  The tags of landmarks, priors and similarities are
listed in `asker.applications.pose_graph.formats.g2o_tags`; logarithms of similarities, which are only read, are
described in `asker.applications.pose_graph.formats.sim3_g2o`.

A vertex without a line of its own is initialised by composing measurements: along odometry (i to i + 1) as far as
possible, else along other edges.  Without any vertex line, the smallest id is at the origin.  A landmark without a line
of its own is triangulated from its measurements.

Issues in files are repaired and reported: a duplicate line is read once; edges from a vertex to itself, unknown tags,
FIX lines for unknown vertices and landmarks without measurements are dropped; of several lines for one vertex the first
is used; information matrices with negative eigenvalues are repaired; an undefined sensor offset is taken as the
identity.  Two different measurements of one pair are both kept.
"""

import numpy as np

from asker.applications.pose_graph.formats.file_issues import Information, semidefinite
from asker.applications.pose_graph.formats.g2o_tags import (
    LANDMARK_TAGS,
    MEASUREMENT_TAGS,
    OFFSET_TAGS,
    POSE_TAGS,
    SUFFIXES,
    TAGS,
)
from asker.applications.pose_graph.formats.graph_builder import GraphBuilder
from asker.applications.pose_graph.formats.sim3_g2o import LOGARITHM_TAGS, convert_logarithms
from asker.applications.pose_graph.formats.tagged_lines import (
    Lines,
    drop_unknown_tags,
    formatted_lines,
    lines_by_tag,
    parse,
)
from asker.applications.pose_graph.graph import Measurements, PoseGraph
from asker.geometry.poses import N_AXES, N_DOF, N_NUMBERS
from asker.io.file_issues import FileIssues
from asker.io.files import FileError, FilePath, read_text_bytes, write_whole

FIX = "FIX"


def read_g2o(
    path: FilePath, trajectory: bool = False, information: Information = "nearest", strict: bool = False
) -> PoseGraph:
    """Read a g2o file (`.g2o`, `.g2o.gz`, `.g2o.bz2`).

    Parameters
    ----------
    path
        File to read.
    trajectory
        Whether the poses may be disconnected, as in a file of poses alone.
    information
        Treatment of information matrices with negative eigenvalues: "nearest" sets them to 0, "diagonal" keeps only the
        diagonal, "skip" drops the edge, "strict" raises an error.
    strict
        Whether any issue in the file is an error.

    Raises
    ------
    FileError
        If the file cannot be read.
    """
    issues = FileIssues(path, strict)
    lines = drop_unknown_tags(lines_by_tag(read_text_bytes(path)), [*TAGS, *LOGARITHM_TAGS, FIX], issues)
    fixes = lines.pop(FIX, Lines())
    names = dict.fromkeys(POSE_TAGS | LANDMARK_TAGS, "vertex") | dict.fromkeys(OFFSET_TAGS, "offset")
    parse(path, [(names.get(tag, "edge"), lines[tag], TAGS[tag].n_numbers) for tag in lines if tag in TAGS])
    lines = convert_logarithms(path, lines)
    return GraphBuilder(path, lines, issues, "strict" if strict else information).build(fixes, trajectory)


def write_g2o(path: FilePath, graph: PoseGraph) -> None:
    """Write a g2o file, compressed according to its suffix.

    Raises
    ------
    ValueError
        With the name of an array of the graph that is invalid.
    """
    _check(graph)
    points = next((name for name, tag in LANDMARK_TAGS.items() if tag.kind == graph.kind), "")
    landmarks = graph.landmarks
    fixed = np.concatenate([graph.ids[graph.fixed], landmarks.ids[landmarks.fixed]])
    with write_whole(path) as file:
        if graph.offsets:
            ids = np.array([*graph.offsets], np.int64)[:, None]
            file.writelines(formatted_lines(f"PARAMS_{graph.kind}OFFSET", ids, np.array([*graph.offsets.values()])))
        file.writelines(formatted_lines(f"VERTEX_{SUFFIXES[graph.kind]}", graph.ids[:, None], graph.poses))
        file.writelines(formatted_lines(points, landmarks.ids[:, None], landmarks.points))
        file.writelines(formatted_lines(FIX, fixed[:, None], np.zeros((len(fixed), 0))))
        ends = np.stack([graph.ids[graph.i], graph.ids[graph.j]], axis=1)
        values = [graph.measurements, _upper(graph.information)]
        file.writelines(formatted_lines(f"EDGE_{SUFFIXES[graph.kind]}", ends, np.concatenate(values, axis=1)))
        for tag, m in graph.measured.items():
            names = [graph.named_measured(tag, np.ones(len(m), np.bool_))]
            names += [m.offsets[:, None]] if len(m.offsets) else []
            numbers = np.concatenate([m.values, _upper(m.information)], axis=1)
            file.writelines(formatted_lines(tag, np.concatenate(names, axis=1), numbers))


def _upper(matrices: np.ndarray) -> np.ndarray:
    return matrices[:, *np.triu_indices(matrices.shape[1])]


def _check(graph: PoseGraph) -> None:
    """Raise a `ValueError` for a graph that `read_g2o` would reject."""
    if graph.kind not in N_NUMBERS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, N_NUMBERS))}, not {graph.kind!r}")
    n, m, d, size = len(graph.ids), len(graph.i), N_DOF[graph.kind], N_NUMBERS[graph.kind]
    n_landmarks = len(graph.landmarks)
    arrays: dict[str, tuple[np.ndarray, tuple[int, ...]]] = {
        "ids": (graph.ids, (n,)), "poses": (graph.poses, (n, size)), "fixed": (graph.fixed, (n,)),
        "i": (graph.i, (m,)), "j": (graph.j, (m,)), "measurements": (graph.measurements, (m, size)),
        "information": (graph.information, (m, d, d)),
    }  # fmt: skip
    if n_landmarks:
        arrays["landmarks.points"] = graph.landmarks.points, (n_landmarks, N_AXES[graph.kind])
        arrays["landmarks.fixed"] = graph.landmarks.fixed, (n_landmarks,)
    arrays |= {f"offsets[{k}]": (row, (size,)) for k, row in graph.offsets.items()}
    _check_arrays(arrays)
    ends, sizes = [("i", graph.i, n), ("j", graph.j, n)], {"pose": n, "landmark": n_landmarks}
    for tag, measured in graph.measured.items():
        _check_measured(graph, tag, measured)
        ends += [(f"{tag} ends", measured.ends[:, k], sizes[end]) for k, end in enumerate(MEASUREMENT_TAGS[tag].ends)]
    for name, index, size in ends:
        if len(index) and (index.min() < 0 or index.max() >= size):
            raise ValueError(f"{name} must be integers from 0 to {size - 1}")
    ids = np.concatenate([graph.ids, graph.landmarks.ids])
    if len(np.unique(ids)) < len(ids) or (n and ids.min() < 0):
        raise ValueError("ids must be unique non-negative integers")
    if np.any(graph.i == graph.j):
        raise ValueError("an edge connects a pose with itself")
    _check_information("information", graph.information)


def _check_arrays(arrays: dict[str, tuple[np.ndarray, tuple[int, ...]]]) -> None:
    for name, (values, shape) in arrays.items():
        array = np.asarray(values)
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} contains NaN or infinity")


def _check_measured(graph: PoseGraph, tag: str, measured: Measurements) -> None:
    fields = MEASUREMENT_TAGS.get(tag)
    if fields is None or fields.kind != graph.kind:
        raise ValueError(f"measured: {tag!r} is not a measurement tag of {graph.kind} graphs")
    n = len(measured)
    _check_arrays(
        {
            f"{tag} ends": (measured.ends, (n, len(fields.ends))),
            f"{tag} values": (measured.values, (n, fields.n_values)),
            f"{tag} information": (measured.information, (n, fields.n_dof, fields.n_dof)),
            f"{tag} offsets": (measured.offsets, (n if fields.has_offset else 0,)),
        }
    )
    if unknown := np.setdiff1d(measured.offsets, [*graph.offsets]).tolist():
        raise ValueError(f"{tag} refers to the offset {unknown[0]}, which is not in `offsets`")
    _check_information(f"{tag} information", measured.information)


def _check_information(name: str, matrices: np.ndarray) -> None:
    if not np.array_equal(matrices, np.swapaxes(matrices, 1, 2)):
        raise ValueError(f"{name} must be symmetric")
    try:
        semidefinite(matrices, list(range(len(matrices))), FileIssues("", strict=True), "strict")
    except FileError:
        raise ValueError(f"{name} must be positive semidefinite") from None

"""Pose graphs in the text format of g2o (Kümmerle, Grisetti, Strasdat, Konolige, Burgard, ICRA 2011).

    VERTEX_SE2 id x y θ
    EDGE_SE2 i j x y θ  Ω
    VERTEX_SE3:QUAT id x y z qx qy qz qw
    EDGE_SE3:QUAT i j x y z qx qy qz qw  Ω
    FIX id ...

An edge says where pose j is, seen from pose i.  Ω is the upper triangle of its information matrix, row by row:
6 numbers in the plane, 21 in space (translation first).  Empty lines and lines that begin with # are skipped.
Numbers are read and written exactly: reading a written graph gives the same bits.  The other tags, of landmarks,
priors and similarities, are in `asker.applications.pose_graph.formats.g2o_tags`, and those of similarities as
logarithms, which are read alone, in `asker.applications.pose_graph.formats.sim3_g2o`.

A vertex that edges name but no line gives is put where the edges lead: along odometry (i to i + 1) where that reaches,
else along other edges.  Without any vertex the smallest id stands at the origin.  A landmark that no line gives is put
where its measurements see it.

Files as they are in the wild are read, and told what was done: a line that stands there twice is read once; an edge
from a vertex to itself, a tag that is not known, a FIX of a vertex that is not there and a landmark that nothing
measures are left out; of a vertex that is given twice the first one counts; an information matrix with negative
eigenvalues is repaired; a sensor whose offset is not given is at the pose.  Two measurements of one pair are two
measurements.
"""

import numpy as np

from asker.applications.pose_graph.formats.file_issues import Information, semidefinite
from asker.applications.pose_graph.formats.g2o_tags import MEASURED, OFFSETS, POINTS, POSES, SUFFIXES, TAGS
from asker.applications.pose_graph.formats.graph_builder import Assembly
from asker.applications.pose_graph.formats.sim3_g2o import FORMS, without_logarithms
from asker.applications.pose_graph.formats.tagged_lines import Lines, leave_out_strangers, parse, printed, sorted_lines
from asker.applications.pose_graph.graph import Measurements, PoseGraph
from asker.geometry.poses import N_AXES, N_DOF, N_NUMBERS
from asker.io.file_issues import Dirt
from asker.io.files import FileError, FilePath, read_text_bytes, write_whole

FIX = "FIX"


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
    found = leave_out_strangers(sorted_lines(read_text_bytes(path)), [*TAGS, *FORMS, FIX], dirt)
    fixes = found.pop(FIX, Lines())
    names = dict.fromkeys(POSES | POINTS, "vertex") | dict.fromkeys(OFFSETS, "offset")
    parse(path, [(names.get(tag, "edge"), found[tag], TAGS[tag].n_numbers) for tag in found if tag in TAGS])
    found = without_logarithms(path, found)
    return Assembly(path, found, dirt, "strict" if strict else information).graph(fixes, trajectory)


def write_g2o(path: FilePath, graph: PoseGraph) -> None:
    """Write a g2o file, compressed by suffix.  A `ValueError` names an array that does not fit."""
    _check(graph)
    points = next((name for name, tag in POINTS.items() if tag.kind == graph.kind), "")
    landmarks = graph.landmarks
    fixed = np.concatenate([graph.ids[graph.fixed], landmarks.ids[landmarks.fixed]])
    with write_whole(path) as file:
        if graph.offsets:
            ids = np.array([*graph.offsets], np.int64)[:, None]
            file.writelines(printed(f"PARAMS_{graph.kind}OFFSET", ids, np.array([*graph.offsets.values()])))
        file.writelines(printed(f"VERTEX_{SUFFIXES[graph.kind]}", graph.ids[:, None], graph.poses))
        file.writelines(printed(points, landmarks.ids[:, None], landmarks.points))
        file.writelines(printed(FIX, fixed[:, None], np.zeros((len(fixed), 0))))
        ends = np.stack([graph.ids[graph.i], graph.ids[graph.j]], axis=1)
        values = [graph.measurements, _upper(graph.information)]
        file.writelines(printed(f"EDGE_{SUFFIXES[graph.kind]}", ends, np.concatenate(values, axis=1)))
        for tag, m in graph.measured.items():
            names = [graph.named_measured(tag, np.ones(len(m), np.bool_))]
            names += [m.offsets[:, None]] if len(m.offsets) else []
            numbers = np.concatenate([m.values, _upper(m.information)], axis=1)
            file.writelines(printed(tag, np.concatenate(names, axis=1), numbers))


def _upper(matrices: np.ndarray) -> np.ndarray:
    return matrices[:, *np.triu_indices(matrices.shape[1])]


def _check(graph: PoseGraph) -> None:
    """What `read_g2o` would refuse is not written."""
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
        ends += [(f"{tag} ends", measured.ends[:, k], sizes[end]) for k, end in enumerate(MEASURED[tag].ends)]
    for name, index, most in ends:
        if len(index) and (index.min() < 0 or index.max() >= most):
            raise ValueError(f"{name} must hold integers from 0 to {most - 1}")
    ids = np.concatenate([graph.ids, graph.landmarks.ids])
    if len(np.unique(ids)) < len(ids) or (n and ids.min() < 0):
        raise ValueError("ids must be different integers, 0 or more")
    if np.any(graph.i == graph.j):
        raise ValueError("an edge leads from a pose to itself")
    _check_information("information", graph.information)


def _check_arrays(arrays: dict[str, tuple[np.ndarray, tuple[int, ...]]]) -> None:
    for name, (given, shape) in arrays.items():
        array = np.asarray(given)
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or infinity")


def _check_measured(graph: PoseGraph, tag: str, measured: Measurements) -> None:
    of = MEASURED.get(tag)
    if of is None or of.kind != graph.kind:
        raise ValueError(f"measured: {tag!r} is no tag of measurements in a {graph.kind} graph")
    n = len(measured)
    _check_arrays(
        {
            f"{tag} ends": (measured.ends, (n, len(of.ends))),
            f"{tag} values": (measured.values, (n, of.n_values)),
            f"{tag} information": (measured.information, (n, of.n_dof, of.n_dof)),
            f"{tag} offsets": (measured.offsets, (n if of.has_offset else 0,)),
        }
    )
    if unknown := np.setdiff1d(measured.offsets, [*graph.offsets]).tolist():
        raise ValueError(f"{tag} names the offset {unknown[0]}, which `offsets` does not have")
    _check_information(f"{tag} information", measured.information)


def _check_information(name: str, matrices: np.ndarray) -> None:
    if not np.array_equal(matrices, np.swapaxes(matrices, 1, 2)):
        raise ValueError(f"{name} must be symmetric")
    try:
        semidefinite(matrices, list(range(len(matrices))), Dirt("", strict=True), "strict")
    except FileError:
        raise ValueError(f"{name} must be positive semidefinite") from None

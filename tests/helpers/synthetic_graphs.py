"""Synthetic pose graphs for the tests, and writers of formats that the package only reads."""

import json
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from scipy.linalg import expm, logm
from scipy.spatial.transform import Rotation

from asker.applications.pose_graph.formats.g2o_tags import MEASUREMENT_TAGS
from asker.applications.pose_graph.graph import Landmarks, Measurements, PoseGraph
from asker.geometry import poses
from asker.geometry.alignment import trajectory_error

KINDS = ("SE2", "SE3")
FILE_KINDS = (*KINDS, "SIM3")
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
EVERY_FILE_KIND = pytest.mark.parametrize("kind", FILE_KINDS)


def some_poses(kind, n, rng, turn=3.0):
    """Return n random poses with rotations of about `turn` radians."""
    t = rng.normal(size=(n, poses.N_AXES[kind]))
    if kind == "SE2":
        return np.column_stack([t, rng.uniform(-turn, turn, n)])
    rows = np.column_stack([t, Rotation.from_rotvec(turn / 4 * rng.normal(size=(n, 3))).as_quat()])
    return rows if kind == "SE3" else np.column_stack([rows, np.exp(rng.normal(size=n) / 3)])


def some_information(d, n, rng):
    """Return n random information matrices."""
    A = rng.normal(size=(n, d, d))
    return A @ np.swapaxes(A, 1, 2)


def some_graph(kind="SE2", n=6, seed=0) -> PoseGraph:
    """Return a small random graph with unordered ids and a fixed pose."""
    rng = np.random.default_rng(seed)
    ids = np.array([4, 0, 1, 2, 3, 9], np.int64)[:n]
    i, j = np.array([[1, 2], [2, 3], [3, 4], [4, 0], [0, 5], [5, 2], [4, 1]], np.int32).T
    return PoseGraph(
        kind, ids, some_poses(kind, n, rng), i, j, some_poses(kind, len(i), rng),
        information=_symmetric(some_information(poses.N_DOF[kind], len(i), rng)), fixed=ids == 2,
    )  # fmt: skip


def every_tag(kind, seed=0) -> PoseGraph:
    """Return a graph with three measurements of every tag of its kind."""
    rng, graph, d = np.random.default_rng(seed), some_graph(kind, seed=seed), poses.N_AXES[kind]
    landmarks = Landmarks(np.array([50, 20, 31]), rng.normal(size=(3, d)), np.array([False, True, False]))
    offsets = {k: some_poses(kind, 1, rng)[0] for k in (3, 0)}
    measured = {tag: some_measured(tag, rng) for tag, of in MEASUREMENT_TAGS.items() if of.kind == kind}
    return replace(graph, landmarks=landmarks, measured=measured, offsets=offsets)


def some_measured(tag, rng, n=3) -> Measurements:
    of = MEASUREMENT_TAGS[tag]
    ends = np.stack([rng.permutation(n) for _ in of.ends], axis=1).astype(np.int32)
    values = some_poses(of.kind, n, rng) if of.is_pose else rng.normal(size=(n, of.n_values))
    offsets = np.array([3, 0, 3])[:n] if of.has_offset else np.zeros(0, np.int64)
    return Measurements(ends, values, _symmetric(some_information(of.n_dof, n, rng)), offsets)


def with_landmarks(kind="SE2", n_false=8, seed=0, bearings=False) -> tuple[PoseGraph, PoseGraph, np.ndarray]:
    """Return the truth, a graph without loops whose poses observe landmarks, and the mask of false observations."""
    rng = np.random.default_rng(seed)
    truth, graph = circle(kind, n=90 if kind == "SE2" else 45, seed=seed)
    graph = graph.with_edges(graph.is_odometry)
    d, n = poses.N_AXES[kind], 12
    angle = 2 * np.pi * np.arange(n) / n
    points = np.column_stack([13 * np.cos(angle), 13 * np.sin(angle), 2 * np.cos(2 * angle)])[:, :d]
    T = poses.matrices(kind, truth.poses)
    points = points - points.mean(axis=0) + T[: len(T) // 3, :d, d].mean(axis=0)
    local = np.einsum("nji,nmj->nmi", T[:, :d, :d], points - T[:, None, :d, d])  # (poses, landmarks, d)
    at = np.argwhere(np.linalg.norm(local, axis=2) < 8)
    values = local[at[:, 0], at[:, 1]]
    is_false = np.zeros(len(at), bool)
    is_false[rng.choice(len(at), n_false, replace=False)] = True
    values[is_false] = rng.uniform(-8, 8, (n_false, d))
    values = values + 0.02 * rng.normal(size=values.shape)
    tag, size = ("EDGE_SE2_XY" if kind == "SE2" else "EDGE_SE3_TRACKXYZ"), 0.02
    if bearings:
        tag, values = "EDGE_BEARING_SE2_XY", np.arctan2(values[:, 1], values[:, 0])[:, None]
    p = values.shape[1]
    offsets = np.zeros(len(at) if kind == "SE3" else 0, np.int64)
    m = Measurements(at.astype(np.int32), values, np.tile(np.eye(p) / size**2, (len(at), 1, 1)), offsets)
    landmarks = Landmarks(100 + np.arange(n), points, np.zeros(n, bool))
    given = {0: np.array([0.0, 0, 0, 0, 0, 0, 1])} if kind == "SE3" else {}
    truth = replace(truth, landmarks=landmarks)
    off = replace(landmarks, points=points + rng.normal(size=points.shape))
    return truth, replace(graph, landmarks=off, measured={tag: m}, offsets=given), is_false


def _symmetric(A):
    return (A + np.swapaxes(A, 1, 2)) / 2


def assert_same_bits(a: PoseGraph, b: PoseGraph) -> None:
    _same(a, b, "graph")


def _same(a, b, name):
    assert type(a) is type(b), name
    if isinstance(a, np.ndarray):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), name
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), name
        for key in a:
            _same(a[key], b[key], f"{name}[{key}]")
    elif is_dataclass(a):
        for field in fields(a):
            if field.name != "repairs":
                _same(getattr(a, field.name), getattr(b, field.name), f"{name}.{field.name}")
    else:
        assert a == b, name


def with_stated_noise(graph: PoseGraph, factor: float) -> PoseGraph:
    """Return the graph with information matrices that state `factor` times the noise."""
    return replace(graph, information=graph.information / factor**2)


def circle(kind="SE2", n=90, laps=3, noise=0.01, drift=0.004, seed=0) -> tuple[PoseGraph, PoseGraph]:
    """Return the truth and a graph at its odometry: several laps around a circle with loop closures between laps."""
    rng = np.random.default_rng(seed)
    d = poses.N_AXES[kind]
    angle = 2 * np.pi * laps * np.arange(n) / n
    T = np.tile(np.eye(d + 1), (n, 1, 1))
    turn = Rotation.from_rotvec(np.outer(angle + np.pi / 2, [0, 0, 1])).as_matrix()
    T[:, :d, :d] = turn[:, :d, :d]
    T[:, 0, d], T[:, 1, d] = 10 * np.cos(angle), 10 * np.sin(angle)
    if d == 3:
        T[:, 2, 3] = np.sin(3 * angle)
    T = np.linalg.inv(T[0]) @ T
    lap = n // laps
    pairs = [(k, k + 1) for k in range(n - 1)] + [(k, k + lap) for k in range(0, n - lap, 3)]
    i, j = np.array(pairs, np.int32).T
    odometry = j - i == 1
    size = np.where(odometry, drift, noise)[:, None] * np.ones(poses.N_DOF[kind])
    steps = size * rng.normal(size=size.shape)
    M = np.linalg.inv(T[i]) @ T[j] @ np.array([exponential(kind, s) for s in steps])
    information = np.array([np.diag(1 / s**2) for s in size])
    measurements = poses.rows(kind, M)
    truth = PoseGraph(kind, np.arange(n), poses.rows(kind, T), i, j, measurements, information, np.zeros(n, bool))
    start = [T[0]]
    for step in M[: n - 1]:
        start.append(start[-1] @ step)
    return truth, replace(truth, poses=poses.rows(kind, np.array(start)))


def exponential(kind, s):
    """Return the matrix exponential of a tangent vector."""
    X = np.zeros((3, 3)) if kind == "SE2" else np.zeros((4, 4))
    if kind == "SE2":
        X[0, 1], X[1, 0] = -s[2], s[2]
    else:
        X[:3, :3] = np.cross(s[3:], np.eye(3)).T
    X[:-1, -1] = s[: len(X) - 1]
    return expm(X)


def error(graph: PoseGraph, truth: PoseGraph) -> float:
    """Return the RMSE of the positions after a rigid alignment."""
    return trajectory_error(poses.positions(graph.kind, graph.poses), poses.positions(truth.kind, truth.poses))


def write_toro(path, graph):
    """Write a graph in the format of TORO's documentation."""
    lines, d = [], poses.N_DOF[graph.kind]
    upper = graph.information[:, *np.triu_indices(d)]
    if d == 3:
        upper = upper[:, [0, 1, 3, 5, 2, 4]]

    def row(x):
        return x if d == 3 else [*x[:3], *Rotation.from_quat(x[3:]).as_euler("xyz")]

    for name, x in zip(graph.ids, graph.poses, strict=True):
        lines.append([f"VERTEX{2 if d == 3 else 3}", name, *row(x)])
    for i, j, x, omega in zip(graph.i, graph.j, graph.measurements, upper, strict=True):
        lines.append([f"EDGE{2 if d == 3 else 3}", graph.ids[i], graph.ids[j], *row(x), *omega])
    path.write_text("".join(" ".join(map(str, line)) + "\n" for line in lines))


def write_expmap(path, graph):
    """Write similarities in g2o's EXPMAP format, with a camera after each vertex."""
    rotation_first = [3, 4, 5, 0, 1, 2, 6]
    order = np.ix_(rotation_first, rotation_first)

    def log(row):
        X = np.real(logm(poses.matrices("SIM3", row[None])[0]))
        return [X[2, 1], X[0, 2], X[1, 0], *X[:3, 3], X[0, 0]]

    vertices = zip(graph.ids, graph.poses, strict=True)
    lines = [["VERTEX_SIM3:EXPMAP", name, *log(row), 500, 500, 320, 240] for name, row in vertices]
    lines += [["FIX", name] for name in graph.ids[graph.fixed]]
    for i, j, row, omega in zip(graph.i, graph.j, graph.measurements, graph.information, strict=True):
        upper = omega[order][np.triu_indices(7)]
        lines.append(["EDGE_SIM3:EXPMAP", graph.ids[i], graph.ids[j], *log(row), *upper])
    path.write_text("".join(" ".join(map(str, line)) + "\n" for line in lines))


def write_open3d(path, graph):
    """Write a graph in Open3D's format, with the ids replaced by 0, 1, …"""
    T, M = (poses.matrices("SE3", rows) for rows in (graph.poses[np.argsort(graph.ids)], graph.measurements))
    rank = np.argsort(np.argsort(graph.ids))
    first = [3, 4, 5, 0, 1, 2]
    edges = [
        {
            "class_name": "PoseGraphEdge", "confidence": 1.0,
            "information": omega[np.ix_(first, first)].T.ravel().tolist(),
            "source_node_id": int(rank[j]), "target_node_id": int(rank[i]), "transformation": m.T.ravel().tolist(),
            "uncertain": True, "version_major": 1, "version_minor": 0,
        }
        for i, j, m, omega in zip(graph.i, graph.j, M, graph.information, strict=True)
    ]  # fmt: skip
    nodes = [{"class_name": "PoseGraphNode", "pose": t.T.ravel().tolist()} for t in T]
    path.write_text(json.dumps({"class_name": "PoseGraph", "edges": edges, "nodes": nodes}))

"""Pose graphs: their files, their residuals, and what the methods make of false loop closures."""

import json
import re
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.linalg import expm, logm
from scipy.spatial.transform import Rotation
from scipy.stats import chi2

import asker
from asker import poses
from asker.groups import Groups
from asker.io.files import FileError
from asker.io.g2o import PoseGraph, read_g2o, write_g2o
from asker.io.spanning import odometry_poses
from asker.problem import ProblemError
from asker.problems.false_loops import add_false_loops
from asker.problems.graph_noise import noise_share, solve_with_estimated_noise
from asker.problems.pose_graph import default_tau, inlier_radius, pose_graph_problem, residual_norms, whitening
from asker.problems.trajectory import rigid, trajectory_error, true_positions
from asker.strategies.asker import start_scales

KINDS = ("SE2", "SE3")
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def some_poses(kind, n, rng, turn=3.0):
    t = rng.normal(size=(n, poses.N_AXES[kind]))
    if kind == "SE2":
        return np.column_stack([t, rng.uniform(-turn, turn, n)])
    return np.column_stack([t, Rotation.from_rotvec(turn / 4 * rng.normal(size=(n, 3))).as_quat()])


def some_information(d, n, rng):
    A = rng.normal(size=(n, d, d))
    return A @ np.swapaxes(A, 1, 2)


def some_graph(kind="SE2", n=6, seed=0) -> PoseGraph:
    rng = np.random.default_rng(seed)
    ids = np.array([4, 0, 1, 2, 3, 9], np.int64)[:n]
    i, j = np.array([[1, 2], [2, 3], [3, 4], [4, 0], [0, 5], [5, 2], [4, 1]], np.int32).T
    return PoseGraph(
        kind, ids, some_poses(kind, n, rng), i, j, some_poses(kind, len(i), rng),
        information=_symmetric(some_information(poses.N_DOF[kind], len(i), rng)), fixed=ids == 2,
    )  # fmt: skip


def _symmetric(A):
    return (A + np.swapaxes(A, 1, 2)) / 2


def assert_same_bits(a: PoseGraph, b: PoseGraph) -> None:
    assert a.kind == b.kind
    for field in fields(PoseGraph)[1:]:
        left, right = getattr(a, field.name), getattr(b, field.name)
        assert (left.dtype, left.shape) == (right.dtype, right.shape), field.name
        assert left.tobytes() == right.tobytes(), field.name


# ---- reading and writing


@EVERY_KIND
@pytest.mark.parametrize("suffix", [".g2o", ".g2o.gz", ".g2o.bz2"])
def test_a_written_graph_reads_back_bit_for_bit(tmp_path, kind, suffix):
    graph = some_graph(kind)
    graph.poses[0, :2] = -0.0, 5e-324
    graph.poses[1, :2] = 0.1, 1e308
    write_g2o(tmp_path / f"a{suffix}", graph)
    assert_same_bits(read_g2o(tmp_path / f"a{suffix}"), graph)


def test_fields_stand_where_the_format_says(tmp_path):
    (tmp_path / "a.g2o").write_text(
        "# a comment\n\nEDGE_SE3:QUAT 7 3  1 2 3  0 0 2 0 " + " ".join(map(str, range(100, 121))) + "\r\n"
        "VERTEX_SE3:QUAT 3  4 5 6  0 0 0 1\nFIX 7 \n  VERTEX_SE3:QUAT 7 7 8 9 1 0 0 0"
    )
    text = (tmp_path / "a.g2o").read_text().replace(" 100 101 102 103 104 105", " 900 0 0 0 0 0")
    (tmp_path / "a.g2o").write_text(re.sub(r"(?<= )1[01]\d(?= |$)", "0", text, flags=re.M))
    graph = read_g2o(tmp_path / "a.g2o")
    assert (graph.kind, graph.ids.tolist(), graph.fixed.tolist()) == ("SE3", [3, 7], [False, True])
    assert graph.poses.tolist() == [[4, 5, 6, 0, 0, 0, 1], [7, 8, 9, 1, 0, 0, 0]]
    assert (graph.i.tolist(), graph.j.tolist()) == ([1], [0])
    assert graph.measurements.tolist() == [[1, 2, 3, 0, 0, 1, 0]]  # the quaternion of length 2 became one of length 1
    assert graph.information[0, 0].tolist() == [900, 0, 0, 0, 0, 0]


def test_the_upper_triangle_is_read_row_by_row(tmp_path):
    (tmp_path / "a.g2o").write_text("EDGE_SE2 0 1 1 2 3  10 1 2 20 3 30\n")
    graph = read_g2o(tmp_path / "a.g2o")
    assert graph.information.tolist() == [[[10, 1, 2], [1, 20, 3], [2, 3, 30]]]


@EVERY_KIND
def test_missing_vertices_follow_odometry_and_then_loops(tmp_path, kind):
    """Measurements that agree put every pose where it was; one that does not shows which way was taken."""
    rng = np.random.default_rng(1)
    T = poses.matrices(kind, some_poses(kind, 8, rng))
    T[0] = np.eye(len(T[0]))
    pairs = np.array([(0, 1), (2, 1), (2, 3), (5, 1), (5, 6), (3, 7), (0, 3)])
    M = poses.inverses(T[pairs[:, 0]]) @ T[pairs[:, 1]]
    M[-1, 0, -1] += 100  # the loop 0-3 is wrong, but odometry reaches 3
    ids = np.array([10, 11, 12, 13, 14, 20, 21, 30])
    used = np.array([0, 1, 2, 3, 5, 6, 7])
    information = np.tile(np.eye(poses.N_DOF[kind]), (len(pairs), 1, 1))
    i, j = np.searchsorted(used, pairs.T).astype(np.int32)
    graph = PoseGraph(
        kind, ids[used], poses.rows(kind, T[used]), i, j, poses.rows(kind, M), information, np.zeros(7, bool)
    )
    write_g2o(tmp_path / "a.g2o", graph)
    lines = (tmp_path / "a.g2o").read_text().splitlines(keepends=True)
    for left_out in (7, 6, 3):  # all vertices; all but the first; the last three
        kept = lines[: 7 - left_out] + lines[7:]
        (tmp_path / "b.g2o").write_text("".join(kept))
        read = read_g2o(tmp_path / "b.g2o")
        assert read.ids.tolist() == ids[used].tolist()
        np.testing.assert_allclose(poses.matrices(kind, read.poses), T[used], atol=1e-12)


@EVERY_KIND
def test_a_start_along_odometry_keeps_the_order_of_the_poses(kind):
    _, graph = circle(kind, n=30)
    mixed = np.random.default_rng(0).permutation(30)
    back = np.argsort(mixed).astype(np.int32)
    other = replace(graph, ids=graph.ids[mixed], poses=graph.poses[mixed], i=back[graph.i], j=back[graph.j])
    np.testing.assert_allclose(odometry_poses(graph), graph.poses, atol=1e-12)
    np.testing.assert_allclose(odometry_poses(other), other.poses, atol=1e-12)


def test_information_that_rounding_made_negative_is_mended(tmp_path):
    v = np.array([1.0, 1 / 3, 1 / 7])
    upper = np.outer(v, v)[np.triu_indices(3)]
    text = "EDGE_SE2 0 1 1 0 0 " + " ".join(f"{x:.6f}" for x in upper)
    (tmp_path / "a.g2o").write_text(text)
    graph = read_g2o(tmp_path / "a.g2o")
    np.testing.assert_allclose(graph.information[0], np.outer(v, v), atol=1e-6)
    assert np.linalg.eigvalsh(graph.information[0])[0] > -1e-15
    write_g2o(tmp_path / "b.g2o", graph)
    assert_same_bits(read_g2o(tmp_path / "b.g2o"), graph)


def test_a_trajectory_needs_no_edges(tmp_path):
    (tmp_path / "a.g2o").write_text("VERTEX_SE2 0 1 2 3\nVERTEX_SE2 5 1 2 3\n")
    assert read_g2o(tmp_path / "a.g2o", trajectory=True).ids.tolist() == [0, 5]
    with pytest.raises(FileError, match=r":2: the graph has 2 parts"):
        read_g2o(tmp_path / "a.g2o")


# ---- bad files: the good one has vertices in lines 1-3, FIX in 4, edges in 5-7


GOOD = [
    "VERTEX_SE2 0 0 0 0", "VERTEX_SE2 1 1 0 0.5", "VERTEX_SE2 2 2 0 0", "FIX 0",
    "EDGE_SE2 0 1 1 0 0 5 0 0 5 0 9", "EDGE_SE2 1 2 1 0 0 5 0 0 5 0 9", "EDGE_SE2 0 2 2 0 0 5 0 0 5 0 9",
]  # fmt: skip


def put(line, new):
    return [*GOOD[: line - 1], new, *GOOD[line:]]


SE3_VERTEX = "VERTEX_SE3:QUAT 5 0 0 0 0 0 0 1"
BAD_FILES = [
    ("empty", [], r": there is no vertex and no edge"),
    ("only comments", ["# nothing", ""], r": there is no vertex and no edge"),
    ("only a fix", ["FIX 0"], r": there is no vertex and no edge"),
    ("unknown tag", put(3, "VERTEX_XY 7 1 2"), r":3: unknown tag 'VERTEX_XY'; known are VERTEX_SE2, .*FIX"),
    ("no text", put(3, "\xff\xfe 7"), r":3: unknown tag '\\xff\\xfe'"),
    ("two kinds", put(6, SE3_VERTEX), r":6: SE2 and SE3 in one file"),
    ("vertex too short", put(2, "VERTEX_SE2 1 1 0"), r":2: this vertex needs 4 numbers, found 3"),
    ("vertex too long", put(2, "VERTEX_SE2 1 1 0 0 0"), r":2: this vertex needs 4 numbers, found 5"),
    ("a bare tag", put(2, "VERTEX_SE2"), r":2: this vertex needs 4 numbers, found 0"),
    ("edge too short", put(6, "EDGE_SE2 1 2 1 0 0 5 0 0 5 0"), r":6: this edge needs 11 numbers, found 10"),
    (
        "a short line before a long one",
        [*GOOD[:4], "EDGE_SE2 0 1 1 0 0 5 0 0 5 0", GOOD[5] + " 1", GOOD[6]],
        r":5: this edge needs 11 numbers, found 10",
    ),
    ("a word", put(5, "EDGE_SE2 0 1 one 0 0 5 0 0 5 0 9"), r":5: expected a finite number, found 'one'"),
    ("a semicolon", put(5, "EDGE_SE2 0 1 ; 0 0 5 0 0 5 0 9"), r":5: expected a finite number, found ';'"),
    ("an underscore", put(5, "EDGE_SE2 0 1 1_0 0 0 5 0 0 5 0 9"), r":5: .*number, found '1_0'"),
    ("NaN", put(1, "VERTEX_SE2 0 nan 0 0"), r":1: expected a finite number, found 'nan'"),
    ("infinity", put(7, "EDGE_SE2 0 2 2 0 0 5 0 0 5 0 inf"), r":7: expected a finite number, found 'inf'"),
    ("overflow", put(7, "EDGE_SE2 0 2 2 0 0 5 0 0 5 0 1e999"), r":7: .*found '1e999'"),
    ("two bad lines", ["VERTEX_SE2 0 0 0", *GOOD[1:6], "EDGE_SE2 x"], r":1: this vertex needs 4"),
    ("negative id", put(2, "VERTEX_SE2 -1 1 0 0"), r":2: an id must be an integer, 0 or more, found -1"),
    ("fraction as id", put(6, "EDGE_SE2 1.5 2 1 0 0 5 0 0 5 0 9"), r":6: an id must be .* found 1.5"),
    ("id past all integers", put(6, "EDGE_SE2 1 1e300 1 0 0 5 0 0 5 0 9"), r":6: an id must be .* found 1e\+300"),
    ("vertex twice", put(3, "VERTEX_SE2 1 2 0 0"), r":3: vertex 1 was given before, in line 2"),
    ("edge twice", put(7, GOOD[4]), r":7: the same edge was given before, in line 5"),
    ("edge to itself", put(6, "EDGE_SE2 1 1 1 0 0 5 0 0 5 0 9"), r":6: an edge from vertex 1 to itself"),
    (
        "edge to nowhere",
        put(7, "EDGE_SE2 8 9 2 0 0 5 0 0 5 0 9"),
        r":7: an edge to nowhere: no vertex is connected with vertex 8",
    ),
    ("edges only, in two parts", [GOOD[4], "EDGE_SE2 8 9 2 0 0 5 0 0 5 0 9"], r":2: an edge to nowhere"),
    ("two parts", [*GOOD[:5]], r":3: the graph has 2 parts: no edges lead from vertex 0 to vertex 2"),
    ("too long", ["EDGE_SE2 0 1 1e308 0 0 1 0 0 1 0 1", "EDGE_SE2 1 2 1e308 0 0 1 0 0 1 0 1"], r": .*vertex 2 .*long"),
    ("fix of nothing", put(4, "FIX"), r":4: FIX needs the id"),
    ("fix of a stranger", put(4, "FIX 0 8"), r":4: FIX names vertex 8, which is not in the graph"),
    ("fix of a word", put(4, "FIX 0 x"), r":4: expected a finite number, found 'x'"),
    (
        "indefinite",
        put(6, "EDGE_SE2 1 2 1 0 0 5 9 0 5 0 9"),
        r":6: the information matrix has a negative eigenvalue, -4",
    ),
    ("negative", put(6, "EDGE_SE2 1 2 1 0 0 -5 0 0 -5 0 -9"), r":6: the information matrix .* -9"),
    (
        "no rotation",
        [SE3_VERTEX, "VERTEX_SE3:QUAT 6 0 0 0 0 0 0 0"],
        r":2: a quaternion of length 0 is no rotation",
    ),
]


@pytest.mark.parametrize(("lines", "message"), [row[1:] for row in BAD_FILES], ids=[row[0] for row in BAD_FILES])
def test_a_bad_file_is_refused_with_its_name_and_line(tmp_path, lines, message):
    path = tmp_path / "bad.g2o"
    path.write_bytes("\n".join(lines).encode("latin-1"))
    with pytest.raises(FileError, match=f"^{re.escape(str(path))}{message}") as caught:
        read_g2o(path)
    assert "\n" not in str(caught.value)


BAD_GRAPHS = [
    ("poses", np.zeros((6, 4)), r"poses must have shape \(6, 3\), got \(6, 4\)"),
    ("poses", np.full((6, 3), np.nan), "poses holds NaN"),
    ("j", np.full(7, 6), "j must hold integers from 0 to 5"),
    ("i", some_graph().j, "from a pose to itself"),
    ("ids", np.zeros(6, int), "ids must be different"),
    ("information", np.zeros((7, 6, 6)), r"information must have shape \(7, 3, 3\)"),
    ("information", np.tile(np.triu(np.ones((3, 3))), (7, 1, 1)), "symmetric"),
    ("information", np.tile(-np.eye(3), (7, 1, 1)), "semidefinite"),
    ("kind", "SE4", "kind must be"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD_GRAPHS)
def test_a_graph_that_could_not_be_read_is_not_written(tmp_path, name, value, message):
    with pytest.raises(ValueError, match=message):
        write_g2o(tmp_path / "a.g2o", replace(some_graph(), **{name: value}))
    assert list(tmp_path.iterdir()) == []


TOKENS = ["0", "1", "-1", "2.5", "nan", "1e308", "-1e308", "x", "", ";", "_", "9", "\n", "FIX", "EDGE_SE2", "#", "\0"]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(KINDS), vertices=st.booleans())
def test_a_damaged_file_is_refused_or_read_as_a_graph(tmp_path, data, kind, vertices):
    path = tmp_path / "a.g2o"
    write_g2o(path, some_graph(kind))
    tokens = path.read_text().replace("\n", " \n ").split(" ")
    if not vertices:
        tokens = tokens[tokens.index(f"EDGE_{kind}" + ":QUAT" * (kind == "SE3")) :]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(tokens) - 1))
        change = data.draw(st.sampled_from(["replace", "remove", "insert", "swap"]))
        if change == "swap":
            other = data.draw(st.integers(0, len(tokens) - 1))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        else:
            new = [] if change == "remove" else [data.draw(st.sampled_from(TOKENS))]
            tokens[at : at + (change != "insert")] = new
    path.write_text(" ".join(tokens))
    try:
        graph = read_g2o(path)
    except FileError:
        return
    assert np.isfinite(graph.poses).all()
    write_g2o(path, graph)
    assert_same_bits(read_g2o(path), graph)


# ---- residuals


@EVERY_KIND
def test_residuals_are_the_whitened_logarithm_of_the_relative_error(kind):
    graph = some_graph(kind)
    made = pose_graph_problem(graph, robust="none")
    assert list(made.edges) == ["odometry", "loops"]
    r = made.per_edge(asker.solve(made.problem, max_iterations=0).residuals)
    T, M = poses.matrices(kind, graph.poses), poses.matrices(kind, graph.measurements)
    for k in range(graph.n_edges):
        E = np.linalg.inv(M[k]) @ np.linalg.inv(T[graph.i[k]]) @ T[graph.j[k]]
        X = np.real(logm(E))
        e = [*X[:2, 2], X[1, 0]] if kind == "SE2" else [*X[:3, 3], X[2, 1], X[0, 2], X[1, 0]]
        np.testing.assert_allclose(r[k] @ r[k], e @ graph.information[k] @ e, rtol=1e-9)


def test_whitening_squares_to_the_information():
    information = some_information(6, 20, np.random.default_rng(3))
    W = whitening(information)
    assert np.array_equal(W, np.triu(W))
    np.testing.assert_allclose(np.swapaxes(W, 1, 2) @ W, information, rtol=1e-9, atol=1e-12)
    information[4, :, 2] = information[4, 2, :] = 0  # singular
    W = whitening(information)
    np.testing.assert_allclose(np.swapaxes(W, 1, 2) @ W, information, atol=1e-9)


@EVERY_KIND
def test_the_default_scale_keeps_99_of_100_right_measurements(kind):
    kernel = asker.SmoothTruncated(default_tau(kind))
    assert kernel.inlier_radius == pytest.approx(inlier_radius(kind))
    assert chi2.cdf(kernel.inlier_radius**2, poses.N_DOF[kind]) == pytest.approx(0.99)


def test_the_kernel_acts_where_it_is_asked_to():
    kernel = asker.Cauchy(2.0)
    for robust, expected in (("loops", (False, True)), ("all", (True, True)), ("none", (False, False))):
        factors = pose_graph_problem(some_graph(), kernel, robust).problem.factors
        assert tuple(f.kernel == kernel for f in factors) == expected
        assert [f.name for f in factors] == ["odometry", "loops"]
    with pytest.raises(ValueError, match="robust must be"):
        pose_graph_problem(some_graph(), robust="some")
    none = {name: getattr(some_graph(), name)[:0] for name in ("i", "j", "measurements", "information")}
    with pytest.raises(ProblemError, match="no edges"):
        pose_graph_problem(replace(some_graph(), **none))


def test_the_fixed_pose_stays():
    graph = some_graph()
    for given_fixed, stays in ((graph.fixed, 3), (np.zeros(6, bool), 0)):
        made = pose_graph_problem(replace(graph, fixed=given_fixed), robust="none")
        moved = np.any(made.refined(asker.solve(made.problem, max_iterations=5).values).poses != graph.poses, axis=1)
        assert moved.tolist() == [k != stays for k in range(6)]


def test_trusted_odometry_gets_no_scales():
    """ASKER and the surrogates leave residuals under a convex kernel alone."""
    u = np.array([0.0, 1.0, 1e6])
    assert start_scales(asker.Quadratic(), u, lowest=26.0, reach=2.0).tolist() == [0, 0, 0]
    assert np.all(start_scales(asker.SmoothTruncated(), u, lowest=26.0, reach=2.0) >= 5)
    made = pose_graph_problem(circle()[1], robust="none")
    first = {
        m: asker.solve(made.problem, asker.METHODS[m](), max_iterations=1).cost for m in ("irls", "gnc-gm", "gnc-tls")
    }
    assert first["gnc-gm"] == first["gnc-tls"] == pytest.approx(first["irls"], rel=1e-12)


# ---- false loops


def circle(kind="SE2", n=90, laps=3, noise=0.01, drift=0.004, seed=0) -> tuple[PoseGraph, PoseGraph]:
    """The truth, and a graph that starts at its odometry: some laps around a circle, loops from lap to lap."""
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
    X = np.zeros((3, 3)) if kind == "SE2" else np.zeros((4, 4))
    if kind == "SE2":
        X[0, 1], X[1, 0] = -s[2], s[2]
    else:
        X[:3, :3] = np.cross(s[3:], np.eye(3)).T
    X[:-1, -1] = s[: len(X) - 1]
    return expm(X)


def error(found: PoseGraph, truth: PoseGraph) -> float:
    return trajectory_error(poses.positions(found.kind, found.poses), poses.positions(truth.kind, truth.poses))


@pytest.mark.parametrize(
    ("kind", "false"), [("SE2", "random"), ("SE2", "local"), ("SE2", "grouped"), ("SE3", "random")]
)
def test_asker_refuses_false_loops_and_finds_the_truth(kind, false):
    truth, start = circle(kind, drift=0.02)
    graph, is_false = add_false_loops(start, 0.3, false, seed=1)
    made = pose_graph_problem(graph)
    errors, results = {}, {}
    for method in ("irls", "asker"):
        results[method] = asker.solve(made.problem, asker.METHODS[method]())
        errors[method] = error(made.refined(results[method].values), truth)
    clean = pose_graph_problem(start, robust="none")
    best = error(clean.refined(asker.solve(clean.problem).values), truth)  # what the right loops allow
    assert error(start, truth) > 3 * best
    assert errors["asker"] < 1.5 * best
    assert errors["irls"] > 0.99 * errors["asker"]
    kept = made.per_edge(results["asker"].inliers)
    assert not (kept & is_false).any()
    assert np.mean(kept[~is_false]) > 0.95


@EVERY_KIND
@pytest.mark.parametrize("false", ["random", "local", "grouped"])
def test_false_loops_are_new_and_known(kind, false):
    _, graph = circle(kind)
    made, is_false = add_false_loops(graph, 0.5, false, seed=3)
    assert is_false.sum() == round(0.5 * graph.n_loops)
    assert is_false.tolist() == [False] * graph.n_edges + [True] * int(is_false.sum())
    assert not made.is_odometry[is_false].any()
    pairs = {tuple(sorted(p)) for p in zip(made.i.tolist(), made.j.tolist(), strict=True)}
    assert len(pairs) == made.n_edges
    assert {m.tobytes() for m in made.measurements[is_false]} <= {m.tobytes() for m in graph.measurements}
    if false == "local":
        assert np.abs(made.i - made.j)[is_false].max() <= 20
    again, _ = add_false_loops(graph, 0.5, false, seed=3)
    assert_same_bits(made, again)
    other, _ = add_false_loops(graph, 0.5, false, seed=4)
    assert not np.array_equal(other.i, made.i)


def test_false_loops_that_cannot_be_made_are_refused():
    _, graph = circle()
    odometry = graph.is_odometry
    chain = {name: getattr(graph, name)[odometry] for name in ("i", "j", "measurements", "information")}
    with pytest.raises(ValueError, match="no loop closures"):
        add_false_loops(replace(graph, **chain), 0.5)
    with pytest.raises(ValueError, match="share"):
        add_false_loops(graph, -0.1)
    with pytest.raises(ValueError, match="no room"):
        add_false_loops(some_graph(), 50)
    with pytest.raises(ValueError, match="kind must be"):
        add_false_loops(graph, 0.5, "some")


# ---- trajectories


@pytest.mark.parametrize("d", [2, 3])
def test_a_moved_trajectory_has_no_error(d):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(30, d))
    R = Rotation.random(rng=rng).as_matrix() if d == 3 else Rotation.from_rotvec([0, 0, 2.0]).as_matrix()[:2, :2]
    y = x @ R.T + rng.normal(size=d)
    np.testing.assert_allclose(rigid(x, y)[0], R, atol=1e-12)
    assert trajectory_error(x, y) < 1e-12
    assert trajectory_error(x, y + 0.1 * rng.normal(size=y.shape)) == pytest.approx(0.1 * np.sqrt(d), rel=0.3)
    mirrored = x * np.array([-1.0] + [1.0] * (d - 1))
    assert trajectory_error(x, mirrored) > 0.1  # a mirror image is not the same


def test_a_truth_of_other_times_matches_by_the_way_travelled():
    truth, start = circle(noise=1e-9, drift=1e-9)
    sparse = replace(truth, ids=np.arange(45), poses=truth.poses[::2].copy(), fixed=truth.fixed[::2])
    sparse.poses[-1] = truth.poses[-1]
    index, where = true_positions(start, sparse, "length")
    assert trajectory_error(start.poses[index, :2], where) < 0.2  # chords of the circle
    index, where = true_positions(start, truth)
    assert trajectory_error(start.poses[index, :2], where) < 1e-6
    with pytest.raises(ValueError, match="0 ids in common"):
        true_positions(start, replace(truth, ids=truth.ids + 1000))
    with pytest.raises(ValueError, match="SE3"):
        true_positions(start, circle("SE3")[0])


# ---- noise that is not as announced


def announcing(graph: PoseGraph, factor: float) -> PoseGraph:
    """The same measurements, with information matrices for `factor` times the noise."""
    return replace(graph, information=graph.information / factor**2)


def run(problem, strategy, **limits):
    return asker.solve(problem, strategy, threads=1, **limits)


@EVERY_KIND
@pytest.mark.parametrize("factor", [1.0, 20.0])
def test_the_noise_of_a_solution_is_seen(kind, factor):
    made = pose_graph_problem(announcing(circle(kind, n=900)[1], factor), robust="none")
    assert noise_share(made, run(made.problem, asker.IRLS())) == pytest.approx(1 / factor, rel=0.3)


def test_without_a_loop_the_noise_is_not_seen():
    graph, _ = add_false_loops(circle()[1], 0.5, "random", seed=1)
    made = pose_graph_problem(graph, asker.SmoothTruncated(1e-9))
    result = run(made.problem, asker.IRLS())
    assert not result.inliers["loops"].any()
    assert noise_share(made, result) == 1.0


def test_false_loops_are_told_apart_by_the_noise_that_is_there():
    """With 50 times the noise announced, bent odometry costs little, and false loops are believed."""
    truth, start = circle(n=300)
    bad, is_false = add_false_loops(start, 0.5, "random", seed=1)
    graph = announcing(bad, 50.0)
    made = pose_graph_problem(graph)
    believing = run(made.problem, asker.ASKER())
    assert np.any(made.per_edge(believing.inliers) & is_false)
    found = solve_with_estimated_noise(graph, run, asker.ASKER())
    kept = found.best.made.per_edge(found.best.result.inliers)
    assert not np.any(kept & is_false)
    assert np.mean(kept[~is_false]) > 0.95
    assert 1 / 50 < found.best.share < 10 / 50
    assert error(found.best.refined, truth) < error(made.refined(believing.values), truth) / 3


def test_a_right_announcement_is_solved_once():
    graph, _ = add_false_loops(circle()[1], 0.3, "random", seed=1)
    found = solve_with_estimated_noise(graph, run, asker.ASKER())
    assert (found.best.share, len(found.rounds)) == (1.0, 1)
    assert found.best.result.cost == run(pose_graph_problem(graph).problem, asker.ASKER()).cost


def test_data_without_noise_leave_a_scale():
    truth, _ = circle(noise=1e-12, drift=1e-12)
    graph = announcing(truth, 1e10)
    found = solve_with_estimated_noise(graph, run, asker.ASKER())
    assert found.best.share == pytest.approx(0.01)  # ten times the least one that is believed
    assert error(found.best.refined, truth) < 1e-6


@pytest.mark.parametrize("unfit", [{"robust": "none"}, {"kernel": asker.Huber}])
def test_noise_is_not_estimated_where_nothing_is_refused(unfit):
    with pytest.raises(ValueError, match="a kernel that is not convex"):
        solve_with_estimated_noise(circle()[1], run, asker.IRLS(), **unfit)


class Scripted:
    """In place of `solve`: returns its start, the last pose of which it moves to x = the number of the call, with a
    share of noise, a cost and a status as told."""

    def __init__(self, graph, *script):
        self.graph, self.script, self.calls = graph, list(script), []

    def __call__(self, problem, strategy, time_limit):
        share, cost, status = self.script[len(self.calls)]
        result = asker.solve(problem, asker.IRLS(), max_iterations=0)
        poses = result.values["poses"].copy()
        tau = problem.factors[-1].kernel.tau
        self.calls.append((type(strategy), tau / default_tau("SE2"), time_limit, poses[-1, 0]))
        poses[-1, 0] = len(self.calls) - 1
        seen = share * np.sqrt(chi2.median(3) / 3)
        residuals = Groups([np.full_like(r, seen) for r in result.residuals], result.residuals.names)
        inliers = Groups([np.full(len(r), True) for r in residuals], residuals.names)
        values = Groups([poses], result.values.names)
        return replace(result, values=values, residuals=residuals, inliers=inliers, cost=cost, status=status)


DONE, CUT = asker.Status.CONVERGED, asker.Status.INTERRUPTED
START = 10.0
SCRIPTS = {  # share seen, cost and status of each round; the share that each is solved with; where it starts; the best
    "as announced": ([(0.3, 9, DONE)], [1], [START], 0),
    "once more": (
        [(0.1, 9, DONE), (0.08, 1, DONE), (0.02, 5, DONE), (0.07, 4, DONE), (0, 9, DONE)],
        [1, 0.1, 0.5, 0.5, 0.7],
        [START, 0, 0, 1, 3],
        4,
    ),
    "left for a worse one": (
        [(0.1, 9, DONE), (0.08, 1, DONE), (0.06, 4, DONE), (0.02, 5, DONE), (0, 9, DONE)],
        [1, 0.1, 0.5, 0.5, 0.6],
        [START, 0, 0, 1, 2],
        4,
    ),
    "in three": (
        [(0.1, 9, DONE), (0.02, 1, DONE), (0.015, 1, DONE), (0, 4, DONE), (0.02, 3, DONE), (0, 5, DONE), (0, 9, DONE)],
        [1, 0.1, 0.02, 0.1, 0.1, 0.1, 0.2],
        [START, 0, 1, 0, 1, 2, 4],
        6,
    ),
    "no wider than announced": (
        [(0.15, 9, DONE), (0.15, 1, DONE), (0.15, 4, DONE), (0, 5, DONE), (0, 9, DONE)],
        [1, 0.15, 0.75, 0.75, 1],
        [START, 0, 0, 1, 2],
        4,
    ),
    "nothing seen at the end": (
        [(0.05, 9, DONE), (0.04, 1, DONE), (1, 4, DONE), (0, 5, DONE), (0, 9, DONE)],
        [1, 0.05, 0.25, 0.25, 0.5],
        [START, 0, 0, 1, 2],
        4,
    ),
    "cut in the first": ([(0.1, 9, CUT)], [1], [START], 0),
    "cut in the second": ([(0.1, 9, DONE), (0.01, 1, CUT)], [1, 0.1], [START, 0], 1),
    "cut in a descent": ([(0.1, 9, DONE), (0.08, 1, DONE), (0, 5, CUT)], [1, 0.1, 0.5], [START, 0, 0], 2),
    "cut in the last": (
        [(0.1, 9, DONE), (0.08, 1, DONE), (0, 5, DONE), (0.07, 4, DONE), (0, 9, CUT)],
        [1, 0.1, 0.5, 0.5, 0.7],
        [START, 0, 0, 1, 3],
        4,
    ),
}


@pytest.mark.parametrize(("script", "shares", "starts", "best"), SCRIPTS.values(), ids=SCRIPTS)
def test_rounds_follow_what_was_seen(script, shares, starts, best):
    graph = circle()[0]
    graph.poses[-1, 0] = START
    solve = Scripted(graph, *script)
    found = solve_with_estimated_noise(graph, solve, asker.ASKER(), time_limit=60.0)
    methods, used, left, begun = zip(*solve.calls, strict=True)
    assert used == pytest.approx(shares)
    assert begun == pytest.approx(starts)
    assert [r.share for r in found.rounds] == pytest.approx(shares)
    assert found.best is found.rounds[best]
    assert left[0] <= 60.0
    assert all(a > b for a, b in pairwise(left))
    n = len(shares) if len(shares) < 3 else shares.index(min(shares)) + 1
    assert list(methods) == [asker.ASKER] * n + [asker.IRLS] * (len(shares) - n)


# ---- the command line


def test_a_corrupted_graph_is_solved_from_the_command_line(asks, tmp_path):
    truth, start = circle(drift=0.02)
    names = ("start.g2o", "truth.g2o", "bad.g2o.gz", "which.json", "run.json", "out.g2o.bz2", "way.png")
    file, true, bad, which, told, out, figure = (tmp_path / name for name in names)
    write_g2o(file, start)
    write_g2o(true, truth)
    code, text, _ = asks("corrupt", file, bad, "--outliers", 0.3, "--kind", "random", "--seed", 1, "--json", which)
    assert code == 0
    n_false = round(0.3 * start.n_loops)
    assert f"{start.n_loops} loops, and {n_false} false ones added" in text
    outputs = ("--json", told, "--output", out, "--figure", figure)
    code, text, err = asks("solve", bad, "--truth", true, "--false-loops", which, *outputs)
    assert (code, err) == (0, "")
    run = json.loads(told.read_text())
    assert (run["method"], run["n_false_loops"], run["false_loops_kept"]) == ("asker", n_false, [])
    assert run["tau"] == pytest.approx(default_tau("SE2"))
    refused = {tuple(p) for p in run["refused_loops"]}
    assert refused >= {tuple(p) for p in json.loads(which.read_text())["false_loops"]}
    assert run["trajectory_error"] == pytest.approx(error(read_g2o(out), truth))
    assert run["trajectory_error"] < run["initial_trajectory_error"] / 2
    for words in ("trajectory error", f"{n_false} loops are false: 0 of them kept", f"wrote {figure}"):
        assert words in text
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_the_noise_is_estimated_from_the_command_line(asks, tmp_path):
    truth, start = circle(n=300)
    bad, is_false = add_false_loops(start, 0.5, "random", seed=1)
    names = ("bad.g2o", "truth.g2o", "run.json", "out.g2o")
    file, true, told, out = (tmp_path / name for name in names)
    write_g2o(file, announcing(bad, 50.0))
    write_g2o(true, truth)
    code, text, _ = asks("solve", file, "--truth", true, "--json", told)
    assert code == 0
    assert "with --noise estimated, false loops are told apart better" in text
    once = json.loads(told.read_text())
    assert (once["noise"], once["noise_share"], "rounds" in once) == ("announced", 1.0, False)
    code, text, _ = asks("solve", file, "--truth", true, "--json", told, "--noise", "estimated", "--output", out)
    assert code == 0
    run = json.loads(told.read_text())
    assert "with --noise estimated" not in text
    assert f"for {run['noise_share']:.3g} of the announced noise, found in {len(run['rounds'])} rounds" in text
    assert run["tau"] == pytest.approx(run["noise_share"] * once["tau"])
    assert run["iterations"] == sum(r["iterations"] for r in run["rounds"])
    assert run["cost"] < run["initial_cost"] < once["initial_cost"]
    assert run["initial_trajectory_error"] == once["initial_trajectory_error"]
    assert run["trajectory_error"] == pytest.approx(error(read_g2o(out), truth))
    assert run["trajectory_error"] < once["trajectory_error"] / 3
    assert run["n_refused_loops"] >= is_false.sum()
    code, text, _ = asks("solve", out, "--noise", "estimated", "--iterations", 3)  # nothing left to gain
    assert (code, "told apart better" in text) == (0, False)


def test_least_squares_and_other_settings_can_be_asked_for(asks, tmp_path):
    write_g2o(tmp_path / "a.g2o", circle()[1])
    told = tmp_path / "run.json"
    assert asks("solve", tmp_path / "a.g2o", "--robust", "none", "--json", told)[0] == 0
    assert json.loads(told.read_text())["method"] == "irls"
    asked = ("--robust", "all", "--method", "gnc", "--tau", 3, "--iterations", 10)
    assert asks("solve", tmp_path / "a.g2o", *asked, "--json", told)[0] == 0
    run = json.loads(told.read_text())
    assert (run["robust"], run["method"], run["tau"]) == ("all", "gnc", 3)


def test_what_does_not_fit_a_graph_is_refused(asks, tmp_path):
    _, start = circle()
    names = ("a.g2o", "short.g2o", "which.json")
    file, short, which = (tmp_path / name for name in names)
    write_g2o(file, start)
    write_g2o(short, some_graph())
    which.write_text('{"false_edges": [0], "false_loops": [[5, 9]]}')
    (tmp_path / "b.txt").write_text("1 1 1")
    for arguments, said in (
        (("solve", file, "--ply", tmp_path / "a.ply"), "--ply, --camera and --dof are for BAL files"),
        (("solve", tmp_path / "b.txt", "--truth", file), "are for pose graphs"),
        (("solve", file, "--robust", "loop"), "did you mean loops?"),
        (("solve", file, "--noise", "estimate"), "did you mean estimated?"),
        (("solve", file, "--noise", "estimated", "--robust", "none"), "a kernel that is not convex"),
        (("solve", file, "--noise", "estimated", "--checkpoint", tmp_path / "c"), "goes without --checkpoint"),
        (("solve", file, "--truth", short), "has 6 of the graph's 90 ids"),
        (("solve", file, "--false-loops", which), "these false loops are not in this graph"),
        (("solve", file, "--false-loops", file), "this is not what `asker corrupt --json` writes"),
        (("solve", file, "--output", tmp_path / "b.txt"), "the name must end with .g2o"),
        (("solve", tmp_path / "none.g2o"), "there is no such file"),
        (("corrupt", file, tmp_path / "b.txt"), "the name must end with .g2o"),
        (("corrupt", file, tmp_path / "b.g2o", "--kind", "rand"), "did you mean random?"),
        (("corrupt", file, tmp_path / "b.g2o", "--outliers", -1), "--outliers must be 0 or more"),
    ):
        code, out, err = asks(*arguments)
        assert (code, out) == (2, "")
        assert said in err


def test_where_odometry_is_trusted_asker_descends_first():
    graph, _ = add_false_loops(circle()[1], 3.0, "random", seed=1)
    trusting, wary = (pose_graph_problem(graph, robust=robust).problem for robust in ("loops", "all"))

    def phases(problem, strategy):
        return [h.details["phase"] for h in asker.solve(problem, strategy, max_iterations=40, tol=0).history]

    found = phases(trusting, asker.ASKER())
    n = found.count("first")
    assert found == ["first"] * n + ["cooperative"] * found.count("cooperative") + ["last"] * found.count("last")
    assert 1 <= n <= 8
    assert "first" not in phases(trusting, asker.ASKER(first_share=0.0)) + phases(wary, asker.ASKER())
    both = [asker.solve(trusting, s, max_iterations=40, tol=0) for s in (asker.ASKER(), asker.IRLS())]
    own, plain = ([h.cost for h in result.history] for result in both)
    np.testing.assert_allclose(own[: n + 1], plain[: n + 1], rtol=1e-9)
    assert both[0].cost <= min(own[: n + 1])


# ---- real graphs

# Half the sum of squares before and after, both as GTSAM 4.3 has them: `LevenbergMarquardtOptimizer` on
# `BetweenFactorPose2/3` from the file's own start, the first pose held.  On torus3D that start leads GTSAM and asker to
# the same poor minimum; from GTSAM's chordal initialisation both reach a better one, 12117.63687941.
GTSAM = {
    "intel": (276.99789778, 22.50211654),
    "M3500": (1317356.27251191, 68.95743912),
    "parking-garage": (8363.60194812, 0.63419240),
    "sphere2500": (1305657.71180609, 675.70096293),
    "torus3D": (2400615.17444635, 29950.00596220),
}


@pytest.mark.data
@pytest.mark.parametrize("name", GTSAM)
def test_least_squares_ends_where_gtsam_ends(data_file, name):
    made = pose_graph_problem(read_g2o(data_file(f"g2o/{name}.g2o.bz2")), robust="none")
    result = asker.solve(made.problem, asker.IRLS(), max_iterations=80, tol=1e-9)
    assert result.initial_cost == pytest.approx(GTSAM[name][0], rel=1e-8)
    assert result.cost == pytest.approx(GTSAM[name][1], rel=1e-4)


@pytest.mark.data
@pytest.mark.parametrize("name", [*GTSAM, "bicocca25b-all-loops", "bicocca25b-truth"])
def test_real_files_survive_a_round_trip(data_file, tmp_path, name):
    graph = read_g2o(data_file(f"g2o/{name}.g2o.bz2"))
    write_g2o(tmp_path / "a.g2o", graph)
    assert_same_bits(read_g2o(tmp_path / "a.g2o"), graph)


@pytest.mark.data
def test_false_loops_do_not_bend_the_trajectory(data_file):
    """Relaxing all loops at once, asker-published believes some false ones."""
    graph = read_g2o(data_file("g2o/intel.g2o.bz2"))
    made = pose_graph_problem(graph, robust="none")
    truth = made.refined(asker.solve(made.problem).values).poses[:, :2]
    bad, is_false = add_false_loops(replace(graph, poses=odometry_poses(graph)), 0.3, "random", seed=1)
    made = pose_graph_problem(bad)
    errors = {}
    for method in ("irls", "gnc-tls", "asker-published", "asker"):
        result = asker.solve(made.problem, asker.METHODS[method]())
        errors[method] = trajectory_error(made.refined(result.values).poses[:, :2], truth)
    assert errors.pop("asker") <= 1.02 * min(errors.values()) + 1e-3  # metres
    assert not np.any(made.per_edge(result.inliers) & is_false)
    assert errors["asker-published"] > 0.5


@pytest.mark.data
def test_parking_garage_announces_far_too_much_noise(data_file):
    """With the noise as announced, 5 of 462 false loops are believed, and the error is 3 m."""
    graph = read_g2o(data_file("g2o/parking-garage.g2o.bz2"))
    made = pose_graph_problem(graph, robust="none")
    truth = made.refined(asker.solve(made.problem).values).poses[:, :3]
    bad, is_false = add_false_loops(replace(graph, poses=odometry_poses(graph)), 0.1, "random", seed=1)
    found = solve_with_estimated_noise(bad, run, asker.ASKER())
    assert not np.any(found.best.made.per_edge(found.best.result.inliers) & is_false)
    assert trajectory_error(found.best.refined.poses[:, :3], truth) < 0.02  # metres
    assert found.best.share < 0.1


@pytest.mark.data
def test_bicocca_is_found_in_spite_of_its_wrong_loops(data_file):
    graph = read_g2o(data_file("g2o/bicocca25b-all-loops.g2o.bz2"))
    truth = read_g2o(data_file("g2o/bicocca25b-truth.g2o.bz2"), trajectory=True)
    index, where = true_positions(graph, truth, "length")

    def error_of(method, robust):
        made = pose_graph_problem(graph, robust=robust)
        found = made.refined(asker.solve(made.problem, asker.METHODS[method]()).values)
        return trajectory_error(found.poses[index, :2], where)

    start = trajectory_error(graph.poses[index, :2], where)
    assert error_of("irls", "none") > 5 * start  # least squares believes the wrong loops
    assert error_of("asker", "loops") < start / 3
    assert error_of("irls", "loops") > 0.9 * start


@EVERY_KIND
def test_info_tells_counts_and_the_start_that_is_solved(asks, tmp_path, kind):
    graph = some_graph(kind)
    write_g2o(tmp_path / "a.g2o", graph)
    code, text, err = asks("info", tmp_path / "a.g2o")
    assert (code, err) == (0, "")
    result = asker.solve(pose_graph_problem(graph).problem, max_iterations=0)
    assert f"{kind}, 6 poses, 7 edges, 3 of them loops\nfixed: 1 poses\n" in text
    costs = []
    for name in ("odometry", "loops"):
        r = np.linalg.norm(result.residuals[name], axis=1)
        middle = re.escape(f"{np.median(r):.3g}")
        told = re.search(rf"{name} +{len(r)} +(\S+) +(\S+) %.* {middle} *$", text, re.MULTILINE)
        costs.append(float(told[1]))
        assert float(told[2]) == pytest.approx(100 * result.inliers[name].mean(), rel=1e-2)
    assert sum(costs) == pytest.approx(result.cost, rel=1e-6)
    np.testing.assert_allclose(
        residual_norms(graph),
        pose_graph_problem(graph).per_edge([np.linalg.norm(r, axis=1) for r in result.residuals]),
        rtol=1e-9,
    )
    assert "tau 2" in asks("info", tmp_path / "a.g2o", "--tau", 2)[1]
    assert asks("info", tmp_path / "a.g2o", "--tau", 0)[0] == 2
    code, _, err = asks("solve", tmp_path / "a.g2o", "--gauge", "fixed")
    assert code == 2
    assert "--gauge" in err

"""Files of pose graphs: reading, writing, repair and rejection."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asker.applications.pose_graph.formats.g2o import read_g2o, write_g2o
from asker.applications.pose_graph.formats.g2o_tags import SUFFIXES
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.initial.spanning_tree_init import odometry_poses
from asker.geometry import poses
from asker.io.files import FileError
from synthetic_graphs import EVERY_FILE_KIND, EVERY_KIND, FILE_KINDS, assert_same_bits, circle, some_graph, some_poses

# ---- reading and writing


@EVERY_FILE_KIND
@pytest.mark.parametrize("suffix", [".g2o", ".g2o.gz", ".g2o.bz2"])
def test_a_written_graph_reads_back_bit_for_bit(tmp_path, kind, suffix):
    graph = some_graph(kind)
    graph.poses[0, :2] = -0.0, 5e-324
    graph.poses[1, :2] = 0.1, 1e308
    write_g2o(tmp_path / f"a{suffix}", graph)
    assert_same_bits(read_g2o(tmp_path / f"a{suffix}"), graph)


def test_fields_have_the_order_of_the_format(tmp_path):
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


@EVERY_FILE_KIND
def test_missing_vertices_are_composed_along_odometry_then_loops(tmp_path, kind):
    """Measurements that agree put every pose where it was; one that does not shows which way was taken."""
    rng = np.random.default_rng(1)
    T = poses.matrices(kind, some_poses(kind, 8, rng))
    T[0] = np.eye(len(T[0]))
    pairs = np.array([(0, 1), (2, 1), (2, 3), (5, 1), (5, 6), (3, 7), (0, 3)])
    M = poses.inverses(kind, T[pairs[:, 0]]) @ T[pairs[:, 1]]
    M[-1, 0, -1] += 100  # the loop 0-3 is false, but odometry connects 3
    ids = np.array([10, 11, 12, 13, 14, 20, 21, 30])
    used = np.array([0, 1, 2, 3, 5, 6, 7])
    information = np.tile(np.eye(poses.N_DOF[kind]), (len(pairs), 1, 1))
    i, j = np.searchsorted(used, pairs.T).astype(np.int32)
    graph = PoseGraph(
        kind, ids[used], poses.rows(kind, T[used]), i, j, poses.rows(kind, M), information, np.zeros(7, bool)
    )
    write_g2o(tmp_path / "a.g2o", graph)
    lines = (tmp_path / "a.g2o").read_text().splitlines(keepends=True)
    for n_dropped in (7, 6, 3):  # drop all vertices; all but the first; the last three
        kept = lines[: 7 - n_dropped] + lines[7:]
        (tmp_path / "b.g2o").write_text("".join(kept))
        read = read_g2o(tmp_path / "b.g2o")
        assert read.ids.tolist() == ids[used].tolist()
        np.testing.assert_allclose(poses.matrices(kind, read.poses), T[used], atol=1e-12)


@EVERY_KIND
def test_odometry_poses_keep_the_order_of_the_poses(kind):
    _, graph = circle(kind, n=30)
    mixed = np.random.default_rng(0).permutation(30)
    back = np.argsort(mixed).astype(np.int32)
    other = replace(graph, ids=graph.ids[mixed], poses=graph.poses[mixed], i=back[graph.i], j=back[graph.j])
    np.testing.assert_allclose(odometry_poses(graph), graph.poses, atol=1e-12)
    np.testing.assert_allclose(odometry_poses(other), other.poses, atol=1e-12)


def test_information_with_negative_eigenvalues_by_rounding_is_repaired(tmp_path):
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
    with pytest.raises(FileError, match=r":2: the graph has 2 components"):
        read_g2o(tmp_path / "a.g2o")


# ---- invalid files: the valid one has vertices in lines 1-3, FIX in 4, edges in 5-7


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
    ("unknown tag", put(3, "EDGE_XX 7 1 2"), r":3: unknown tag 'EDGE_XX'; known tags are VERTEX_SE2, .*FIX"),
    ("no text", put(3, "\xff\xfe 7"), r":3: unknown tag '\\xff\\xfe'"),
    ("two kinds", put(6, SE3_VERTEX), r":6: SE2 and SE3 in one file"),
    ("vertex too short", put(2, "VERTEX_SE2 1 1 0"), r":2: this vertex needs 4 numbers, got 3"),
    ("vertex too long", put(2, "VERTEX_SE2 1 1 0 0 0"), r":2: this vertex needs 4 numbers, got 5"),
    ("a bare tag", put(2, "VERTEX_SE2"), r":2: this vertex needs 4 numbers, got 0"),
    ("edge too short", put(6, "EDGE_SE2 1 2 1 0 0 5 0 0 5 0"), r":6: this edge needs 11 numbers, got 10"),
    (
        "a short line before a long one",
        [*GOOD[:4], "EDGE_SE2 0 1 1 0 0 5 0 0 5 0", GOOD[5] + " 1", GOOD[6]],
        r":5: this edge needs 11 numbers, got 10",
    ),
    ("a word", put(5, "EDGE_SE2 0 1 one 0 0 5 0 0 5 0 9"), r":5: expected a finite number, got 'one'"),
    ("a semicolon", put(5, "EDGE_SE2 0 1 ; 0 0 5 0 0 5 0 9"), r":5: expected a finite number, got ';'"),
    ("an underscore", put(5, "EDGE_SE2 0 1 1_0 0 0 5 0 0 5 0 9"), r":5: .*number, got '1_0'"),
    ("NaN", put(1, "VERTEX_SE2 0 nan 0 0"), r":1: expected a finite number, got 'nan'"),
    ("infinity", put(7, "EDGE_SE2 0 2 2 0 0 5 0 0 5 0 inf"), r":7: expected a finite number, got 'inf'"),
    ("overflow", put(7, "EDGE_SE2 0 2 2 0 0 5 0 0 5 0 1e999"), r":7: .*got '1e999'"),
    ("two bad lines", ["VERTEX_SE2 0 0 0", *GOOD[1:6], "EDGE_SE2 x"], r":1: this vertex needs 4"),
    ("negative id", put(2, "VERTEX_SE2 -1 1 0 0"), r":2: an id must be a non-negative integer, got -1"),
    ("fraction as id", put(6, "EDGE_SE2 1.5 2 1 0 0 5 0 0 5 0 9"), r":6: an id must be .* got 1.5"),
    ("id past all integers", put(6, "EDGE_SE2 1 1e300 1 0 0 5 0 0 5 0 9"), r":6: an id must be .* got 1e\+300"),
    ("vertex twice", put(3, "VERTEX_SE2 1 2 0 0"), r":3: vertex 1 was defined before, in line 2"),
    ("edge twice", put(7, GOOD[4]), r":7: duplicate of the edge in line 5"),
    ("edge to itself", put(6, "EDGE_SE2 1 1 1 0 0 5 0 0 5 0 9"), r":6: an edge from vertex 1 to itself"),
    (
        "edge to nowhere",
        put(7, "EDGE_SE2 8 9 2 0 0 5 0 0 5 0 9"),
        r":7: no edges connect vertex 8",
    ),
    ("edges only, in two parts", [GOOD[4], "EDGE_SE2 8 9 2 0 0 5 0 0 5 0 9"], r":2: no edges connect vertex"),
    ("two parts", [*GOOD[:5]], r":3: the graph has 2 components: no edges lead from vertex 0 to vertex 2"),
    (
        "overflow of a composed pose",
        ["EDGE_SE2 0 1 1e308 0 0 1 0 0 1 0 1", "EDGE_SE2 1 2 1e308 0 0 1 0 0 1 0 1"],
        r": the pose of vertex 2, .* is not finite",
    ),
    ("fix of nothing", put(4, "FIX"), r":4: FIX needs the id"),
    ("fix of a stranger", put(4, "FIX 0 8"), r":4: FIX names vertex 8, which is not in the graph"),
    ("fix of a word", put(4, "FIX 0 x"), r":4: expected a finite number, got 'x'"),
    (
        "indefinite",
        put(6, "EDGE_SE2 1 2 1 0 0 5 9 0 5 0 9"),
        r":6: the information matrix has a negative eigenvalue, -4",
    ),
    ("negative", put(6, "EDGE_SE2 1 2 1 0 0 -5 0 0 -5 0 -9"), r":6: the information matrix .* -9"),
    (
        "no scale",
        ["VERTEX_SIM3:QUAT 5 0 0 0 0 0 0 1 1", "VERTEX_SIM3:QUAT 6 0 0 0 0 0 0 1 -2"],
        r":2: a scale must be positive \(1e-9 to 1e9\), got -2",
    ),
    (
        "no rotation",
        [SE3_VERTEX, "VERTEX_SE3:QUAT 6 0 0 0 0 0 0 0"],
        r":2: a quaternion of length 0 is not a rotation",
    ),
]


@pytest.mark.parametrize(("lines", "message"), [row[1:] for row in BAD_FILES], ids=[row[0] for row in BAD_FILES])
def test_an_invalid_file_is_rejected_with_its_name_and_line(tmp_path, lines, message):
    path = tmp_path / "bad.g2o"
    path.write_bytes("\n".join(lines).encode("latin-1"))
    with pytest.raises(FileError, match=f"^{re.escape(str(path))}{message}") as caught:
        read_g2o(path, strict=True)
    assert "\n" not in str(caught.value)


DIRTY_FILES = [
    (
        "unknown tags",
        [*GOOD, "EDGE_XX 7 1 2", "EDGE_XX 8 1 2"],
        "2 lines with unknown tags dropped: 'EDGE_XX'",
    ),
    ("vertex twice", [*GOOD, "VERTEX_SE2 1 2 0 0"], "1 vertex line of vertices defined before dropped"),
    ("edge twice", [*GOOD, GOOD[4], GOOD[4]], "2 duplicate edges dropped"),
    ("edge to itself", [*GOOD, "EDGE_SE2 1 1 1 0 0 5 0 0 5 0 9"], "1 edge from a vertex to itself dropped"),
    ("fix of a stranger", [*GOOD, "FIX 8"], "1 FIX of a vertex that is not in the graph dropped"),
]


@pytest.mark.parametrize(("lines", "repair"), [row[1:] for row in DIRTY_FILES], ids=[row[0] for row in DIRTY_FILES])
def test_file_issues_are_repaired_and_reported(tmp_path, lines, repair):
    clean, dirty = tmp_path / "clean.g2o", tmp_path / "dirty.g2o"
    clean.write_text("\n".join(GOOD))
    dirty.write_text("\n".join(lines))
    read = read_g2o(dirty)
    assert read.repairs == (repair,)
    assert_same_bits(read, read_g2o(clean))
    assert read_g2o(clean, strict=True).repairs == ()


def test_poses_without_a_line_are_reported(tmp_path):
    file = tmp_path / "a.g2o"
    lines = [line for line in GOOD if not line.startswith("VERTEX_SE2 2 ")]
    assert len(lines) == len(GOOD) - 1
    file.write_text("\n".join(lines))
    assert read_g2o(file).repairs == ("1 pose without a line initialised from edges",)
    line = 1 + next(k for k, text in enumerate(lines) if text.startswith("EDGE") and "2" in text.split()[1:3])
    with pytest.raises(FileError, match=f":{line}: vertex 2 has no line"):
        read_g2o(file, strict=True)
    file.write_text("\n".join(line for line in GOOD if line.startswith("EDGE")))
    assert read_g2o(file, strict=True).repairs == ()


def test_two_measurements_of_a_pair_are_both_kept(tmp_path):
    (tmp_path / "a.g2o").write_text("\n".join([*GOOD, "EDGE_SE2 0 1 1.1 0 0 5 0 0 5 0 9"]))
    read = read_g2o(tmp_path / "a.g2o")
    assert (read.n_edges, read.repairs) == (4, ())


@pytest.mark.parametrize(
    ("information", "expected"),
    [("nearest", [[7.0, 7.0], [7.0, 7.0]]), ("diagonal", [[5.0, 0.0], [0.0, 5.0]]), ("skip", None)],
)
def test_information_with_negative_eigenvalues(tmp_path, information, expected):
    file = tmp_path / "a.g2o"
    file.write_text("\n".join([*GOOD, "EDGE_SE2 1 2 1 0 0 5 9 0 5 0 9"]))
    read = read_g2o(file, information=information)
    assert read.repairs[0].startswith("1 edge with negative eigenvalues in the information matrix: ")
    assert read.n_edges == (3 if expected is None else 4)
    if expected is not None:
        np.testing.assert_allclose(read.information[-1][:2, :2], expected, atol=1e-12)
    with pytest.raises(FileError, match="negative eigenvalue, -4"):
        read_g2o(file, information="strict")


def test_a_file_without_valid_edges_is_rejected(tmp_path):
    file = tmp_path / "a.g2o"
    file.write_text("EDGE_SE2 1 1 1 0 0 5 0 0 5 0 9")
    with pytest.raises(FileError, match="no edge remains: all of them lead from a vertex to itself"):
        read_g2o(file)
    file.write_text("EDGE_SE2 0 1 1 0 0 -5 0 0 -5 0 -9")
    with pytest.raises(FileError, match="no edge remains: every information matrix has a negative eigenvalue"):
        read_g2o(file, information="skip")
    file.write_text("EDGE_XX 1 2 3")
    with pytest.raises(FileError, match=r"no vertex and no edge in this file \(1 line with unknown tags dropped"):
        read_g2o(file)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "repairs"),
    [
        ("CSAIL", ("1 duplicate edge dropped",)),
        ("kitti_00", ("1 duplicate edge dropped",)),
        ("cubicle", ("5021 edges with negative eigenvalues in the information matrix: set to 0",)),
        ("NewCollege", ("9 edges from a vertex to itself dropped",)),
        ("MIT", ()),
    ],
)
def test_public_graphs_are_read(data_file, name, repairs):
    from asker.applications import application_of

    file = data_file(f"g2o/{name}.g2o.bz2")
    assert application_of(file).name == "pose_graph"
    assert read_g2o(file).repairs == repairs


def test_the_command_reports_repairs(asks, tmp_path):
    file, repair = tmp_path / "a.g2o", tmp_path / "run.json"
    file.write_text("\n".join([*GOOD, "EDGE_SE2 1 1 1 0 0 5 0 0 5 0 9"]))
    for command in (("info", file), ("solve", file, "--json", repair)):
        assert "Repaired: 1 edge from a vertex to itself dropped." in asks(*command)[1]
    assert json.loads(repair.read_text())["repairs"] == ["1 edge from a vertex to itself dropped"]
    code, _, said = asks("solve", file, "--strict")
    assert code != 0
    assert "an edge from vertex 1 to itself" in said


def test_fix_lines_are_looked_up_all_at_once(tmp_path, monkeypatch):
    """A lookup for each line would take as many passes over all vertices as there are lines."""
    looks, isin = [], np.isin
    monkeypatch.setattr(np, "isin", lambda *arrays: looks.append(len(arrays[0])) or isin(*arrays))
    path = tmp_path / "a.g2o"
    path.write_text("\n".join(GOOD + ["FIX 2 1"] * 3000))
    assert read_g2o(path).fixed.all()
    assert len(looks) < 10
    path.write_text("\n".join(GOOD + ["FIX 1"] * 30 + ["FIX 1 1e400"] + ["FIX 5"]))
    with pytest.raises(FileError, match=r":38: expected a finite number, got '1e400'"):
        read_g2o(path)


BAD_GRAPHS = [
    ("poses", np.zeros((6, 4)), r"poses must have shape \(6, 3\), got \(6, 4\)"),
    ("poses", np.full((6, 3), np.nan), "poses contains NaN"),
    ("j", np.full(7, 6), "j must be integers from 0 to 5"),
    ("i", some_graph().j, "a pose with itself"),
    ("ids", np.zeros(6, int), "ids must be unique"),
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
@given(data=st.data(), kind=st.sampled_from(FILE_KINDS), vertices=st.booleans())
def test_a_damaged_file_is_rejected_or_read_as_a_graph(tmp_path, data, kind, vertices):
    path = tmp_path / "a.g2o"
    write_g2o(path, some_graph(kind))
    tokens = path.read_text().replace("\n", " \n ").split(" ")
    if not vertices:
        tokens = tokens[tokens.index(f"EDGE_{SUFFIXES[kind]}") :]
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


REAL = ("intel", "M3500", "parking-garage", "sphere2500", "torus3D", "bicocca25b-all-loops", "bicocca25b-truth")


@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_public_files_survive_a_round_trip(data_file, tmp_path, name):
    graph = read_g2o(data_file(f"g2o/{name}.g2o.bz2"))
    write_g2o(tmp_path / "a.g2o", graph)
    assert_same_bits(read_g2o(tmp_path / "a.g2o"), graph)

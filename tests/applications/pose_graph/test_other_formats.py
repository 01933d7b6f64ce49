"""Pose graphs in the formats of TORO and Open3D, and similarities as logarithms."""

import json
import re

import numpy as np
import pytest
from scipy.linalg import expm

from asker.applications.pose_graph.formats.detection import is_graph, read_graph
from asker.applications.pose_graph.formats.sim3_g2o import similarities
from asker.applications.pose_graph.formats.toro import read_toro
from asker.geometry import poses
from asker.io.files import FileError
from synthetic_graphs import EVERY_KIND, some_graph, write_expmap, write_open3d, write_toro


def assert_same(read, graph, order):
    back = np.argsort(order)
    np.testing.assert_array_equal(read.i, back[graph.i])
    np.testing.assert_array_equal(read.j, back[graph.j])
    for a, b in ((read.poses, graph.poses[order]), (read.measurements, graph.measurements)):
        np.testing.assert_allclose(poses.matrices(graph.kind, a), poses.matrices(graph.kind, b), atol=1e-12)
    np.testing.assert_allclose(read.information, graph.information, rtol=1e-12)


@EVERY_KIND
def test_toro_files_are_read_as_documented(tmp_path, kind):
    graph = some_graph(kind)
    write_toro(tmp_path / "a.graph", graph)
    assert is_graph(tmp_path / "a.graph")
    read = read_graph(tmp_path / "a.graph", strict=True)
    np.testing.assert_array_equal(read.ids, graph.ids)
    assert_same(read, graph, np.arange(graph.n_poses))


def test_toro_files_are_read_as_by_gtsam(tmp_path):
    gtsam = pytest.importorskip("gtsam")
    graph = some_graph("SE2")
    write_toro(tmp_path / "a.graph", graph)
    factors, values = gtsam.load2D(
        str(tmp_path / "a.graph"), noiseFormat=gtsam.NoiseFormat.NoiseFormatTORO, smart=False
    )
    read = read_toro(tmp_path / "a.graph")
    for name, row in zip(read.ids.tolist(), read.poses, strict=True):
        np.testing.assert_allclose(values.atPose2(name).matrix(), poses.matrices("SE2", row[None])[0], atol=1e-12)
    for k in range(read.n_edges):
        factor = factors.at(k)
        assert factor.keys() == read.ids[[read.i[k], read.j[k]]].tolist()
        np.testing.assert_allclose(factor.measured().matrix(), poses.matrices("SE2", read.measurements[k : k + 1])[0])
        np.testing.assert_allclose(factor.noiseModel().information(), read.information[k], rtol=1e-9)


def test_similarities_are_read_as_logarithms(tmp_path):
    graph = some_graph("SIM3")
    write_expmap(tmp_path / "a.g2o", graph)
    read = read_graph(tmp_path / "a.g2o", strict=True)
    np.testing.assert_array_equal(read.ids, graph.ids)
    np.testing.assert_array_equal(read.fixed, graph.fixed)
    assert_same(read, graph, np.arange(graph.n_poses))


@pytest.mark.parametrize("size", [0.0, 1e-300, 1e-9, 1e-4, 1.0, 3.0])
@pytest.mark.parametrize("sigma", [0.0, 1e-300, -1e-9, 1e-4, -0.7, 2.0])
def test_a_similarity_is_the_exponential_of_its_logarithm(size, sigma):
    omega, upsilon = size * np.array([2.0, -1.0, 2.0]) / 3, np.array([0.3, -1.2, 0.7])
    X = np.zeros((4, 4))
    X[:3, :3], X[:3, 3] = np.cross(omega, np.eye(3)).T + sigma * np.eye(3), upsilon
    T = poses.matrices("SIM3", similarities(np.array([[*omega, *upsilon, sigma]])))[0]
    np.testing.assert_allclose(T, expm(X), rtol=1e-12, atol=1e-14)


def test_a_vertex_needs_a_logarithm_and_may_have_any_camera(tmp_path):
    edge = " ".join(map(str, ["EDGE_SIM3:EXPMAP 0 1", *7 * [0], *np.eye(7, dtype=int)[np.triu_indices(7)]]))
    for camera in ("", "500 500 320 240", "1 2 3 4 5 6 7 8"):
        (tmp_path / "a.g2o").write_text(f"VERTEX_SIM3:EXPMAP 0 0 0 0 1 2 3 0 {camera}\n{edge}\n")
        np.testing.assert_array_equal(read_graph(tmp_path / "a.g2o").poses[0], [1, 2, 3, 0, 0, 0, 1, 1])
    for numbers, what in (
        ("0 0 0 0 1 2 3", "this vertex needs 8 numbers, got 7"),
        ("0 0 0 0 1 2 3 99", r"a scale must be positive \(1e-9 to 1e9\), got 9.89e\+42"),
        ("0 0 0 0 1e300 2 3 99", "the logarithm of a similarity has too large numbers"),
    ):
        (tmp_path / "a.g2o").write_text(f"{edge}\nVERTEX_SIM3:EXPMAP {numbers}\n")
        with pytest.raises(FileError, match=f":2: {what}"):
            read_graph(tmp_path / "a.g2o")


def test_open3d_files_are_read(tmp_path):
    graph = some_graph("SE3")
    write_open3d(tmp_path / "a.json", graph)
    assert is_graph(tmp_path / "a.json")
    read = read_graph(tmp_path / "a.json", strict=True)
    np.testing.assert_array_equal(read.ids, np.arange(graph.n_poses))
    assert_same(read, graph, np.argsort(graph.ids))


BAD = [
    (lambda r: r.update(class_name="Other", x="PoseGraph"), ": this is not a pose graph of Open3D: `class_name`"),
    (lambda r: r["nodes"][1]["pose"].__setitem__(3, "1_0"), ": node 1: `pose` must be 16 finite numbers"),
    (lambda r: r["edges"][1].update(source_node_id="1"), ": edge 1: `source_node_id` must be a finite number"),
    (lambda r: r.update(nodes=3), ": this is not a pose graph of Open3D: `nodes` must be a list"),
    (lambda r: r["nodes"][1]["pose"].pop(), ": node 1: `pose` must be 16 finite numbers"),
    (lambda r: r["nodes"][2].update(pose=[2.0] * 16), ": node 2: `pose` is not a rigid motion"),
    (lambda r: r["edges"][3].pop("information"), ": edge 3: `information` must be 36 finite numbers"),
    (lambda r: r["edges"][3].update(source_node_id="x"), ": edge 3: `source_node_id` must be a finite number"),
    (lambda r: r["edges"][3].update(source_node_id=77), ": edge 3 refers to a node that does not exist"),
]


@pytest.mark.parametrize(("spoil", "message"), BAD)
def test_an_invalid_node_or_edge_is_reported(tmp_path, spoil, message):
    path = tmp_path / "a.json"
    write_open3d(path, some_graph("SE3"))
    record = json.loads(path.read_text())
    spoil(record)
    path.write_text(json.dumps(record))
    with pytest.raises(FileError, match=f"^{re.escape(str(path))}{message}"):
        read_graph(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("EDGE2 0 1 1 0 0 5 0 5 9 0", r":2: this edge needs 11 numbers, got 10"),
        ("VERTEX2 0 1 0 0", r":2: vertex 0 was defined before, in line 1"),
        ("EQUIV 0 1", r":2: unknown tag 'EQUIV'"),
    ],
)
def test_an_invalid_line_of_toro_is_rejected_with_its_number(tmp_path, line, message):
    (tmp_path / "a.graph").write_text(f"VERTEX2 0 0 0 0\n{line}\n")
    with pytest.raises(FileError, match=message):
        read_graph(tmp_path / "a.graph", strict=True)

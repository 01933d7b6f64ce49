"""Landmarks and priors in pose graphs: files, residuals, and rejection of outliers."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import logm
from scipy.spatial.transform import Rotation

from asker.applications import pose_graph
from asker.applications.pose_graph.formats.g2o import read_g2o, write_g2o
from asker.applications.pose_graph.formats.g2o_tags import MEASUREMENT_TAGS
from asker.applications.pose_graph.graph import Landmarks, Measurements
from asker.applications.pose_graph.initial.landmark_init import offset_rows
from asker.applications.pose_graph.initial.prior_frame import aligned_with_priors
from asker.applications.pose_graph.problem import measured_norms, pose_graph_problem
from asker.cli import main
from asker.geometry import poses
from asker.io.files import FileError
from synthetic_graphs import EVERY_KIND, assert_same_bits, circle, error, every_tag, with_landmarks

# ---- files


@EVERY_KIND
def test_a_graph_with_every_tag_reads_back_bit_for_bit(tmp_path, kind):
    write_g2o(tmp_path / "a.g2o", every_tag(kind))
    read = read_g2o(tmp_path / "a.g2o", strict=True)
    assert_same_bits(read, every_tag(kind))
    assert set(read.measured) == {tag for tag, of in MEASUREMENT_TAGS.items() if of.kind == kind}


def test_fields_have_the_order_of_the_format(tmp_path):
    (tmp_path / "a.g2o").write_text(
        "PARAMS_SE3OFFSET 4 .1 .2 .3 0 0 0 1\nVERTEX_SE3:QUAT 3 4 5 6 0 0 0 1\nVERTEX_TRACKXYZ 8 7 8 9\nFIX 8\n"
        "EDGE_SE3_TRACKXYZ 3 8 4 1 2 3 10 1 2 20 3 30\nEDGE_SE3_XYZ_PRIOR 3 4 4 5 6 1 0 0 2 0 3\n"
    )
    graph = read_g2o(tmp_path / "a.g2o", strict=True)
    seen = graph.measured["EDGE_SE3_TRACKXYZ"]
    assert (graph.ids.tolist(), graph.landmarks.ids.tolist(), graph.landmarks.fixed.tolist()) == ([3], [8], [True])
    assert (graph.landmarks.points.tolist(), graph.offsets[4].tolist()) == ([[7, 8, 9]], [0.1, 0.2, 0.3, 0, 0, 0, 1])
    assert (seen.ends.tolist(), seen.offsets.tolist(), seen.values.tolist()) == ([[0, 0]], [4], [[1, 2, 3]])
    assert seen.information.tolist() == [[[10, 1, 2], [1, 20, 3], [2, 3, 30]]]
    assert graph.measured["EDGE_SE3_XYZ_PRIOR"].values.tolist() == [[4, 5, 6]]


@EVERY_KIND
@pytest.mark.parametrize("bearings", [False, True])
def test_landmarks_without_a_vertex_are_triangulated(tmp_path, kind, bearings):
    if kind == "SE3" and bearings:
        pytest.skip("directions are measured in the plane")
    truth, graph, _ = with_landmarks(kind, n_false=0, bearings=bearings)
    m = next(iter(graph.measured.values()))
    T = poses.inverses(kind, poses.matrices(kind, truth.poses))[m.ends[:, 0]]
    d = poses.N_AXES[kind]
    exact = np.einsum("nij,nj->ni", T[:, :d, :d], truth.landmarks.points[m.ends[:, 1]]) + T[:, :d, d]
    exact = np.arctan2(exact[:, 1], exact[:, 0])[:, None] if bearings else exact
    measured = {tag: replace(m, values=exact) for tag in graph.measured}
    write_g2o(tmp_path / "a.g2o", replace(truth, measured=measured, offsets=graph.offsets))
    lines = (tmp_path / "a.g2o").read_text().splitlines()
    (tmp_path / "b.g2o").write_text("\n".join(x for x in lines if not x.startswith(("VERTEX_XY", "VERTEX_TRACK"))))
    found = read_g2o(tmp_path / "b.g2o", strict=True).landmarks
    np.testing.assert_allclose(found.points[np.argsort(found.ids)], truth.landmarks.points, atol=1e-9)


def test_odometry_skips_the_ids_of_landmarks(tmp_path):
    (tmp_path / "a.g2o").write_text(
        "EDGE_SE2 0 3 1 0 0 1 0 0 1 0 1\nEDGE_SE2 3 5 1 0 0 1 0 0 1 0 1\n"
        "EDGE_SE2_XY 0 1 1 0 1 0 1\nEDGE_SE2_XY 0 2 1 0 1 0 1\n"
    )
    assert read_g2o(tmp_path / "a.g2o").is_odometry.tolist() == [True, False]  # there is no pose 4


GOOD = [
    "VERTEX_SE2 0 0 0 0", "VERTEX_SE2 1 1 0 0.5", "VERTEX_XY 7 2 0", "EDGE_SE2 0 1 1 0 0 5 0 0 5 0 9",
    "EDGE_SE2_XY 0 7 2 0 5 0 5", "EDGE_PRIOR_SE2_XY 1 1 0 5 0 5",
]  # fmt: skip
BAD = [
    ("EDGE_SE2 0 7 1 0 0 5 0 0 5 0 9", r":7: vertex 7 is a pose here, and a landmark in line 3"),
    ("EDGE_SE2_XY 0 1 1 0 5 0 5", r":7: vertex 1 is a landmark here, and a pose in line 2"),
    ("EDGE_SE2_XY 0 7 1 0 5 0", r":7: this edge needs 7 numbers, got 6"),
    ("VERTEX_XY 8 1", r":7: this vertex needs 3 numbers, got 2"),
    ("PARAMS_SE2OFFSET 0 1 1", r":7: this offset needs 4 numbers, got 3"),
    ("VERTEX_XY 8 1 1", r":7: landmark 8 has no measurements"),
    ("VERTEX_XY 7 1 1", r":7: vertex 7 was defined before, in line 3"),
    ("EDGE_SE2_XY 0 7 2 0 5 0 5", r":7: duplicate of the edge in line 5"),
    ("EDGE_SE2_XY 0 7 2 0 5 0 -5", r":7: the information matrix has a negative eigenvalue, -5"),
    ("EDGE_SE2_POINTXY_OFFSET 0 7 3 2 0 5 0 5", r":7: there is no PARAMS_SE2OFFSET 3"),
    ("EDGE_SE2_XY 3 7 2 0 5 0 5", r":7: no edges connect vertex 3"),
    ("EDGE_BEARING_SE2_XY 0 8 2 5", r":7: measurements do not determine landmark 8"),
    ("EDGE_SE3_PRIORXYZ 0 1 2 3 1 0 0 1 0 1", r":7: SE2 and SE3 in one file"),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=[line.replace(" ", "_") for line, _ in BAD])
def test_an_invalid_line_is_rejected_with_its_number(tmp_path, line, message):
    path = tmp_path / "bad.g2o"
    path.write_text("\n".join([*GOOD, line]))
    with pytest.raises(FileError, match=f"^{re.escape(str(path))}{message}"):
        read_g2o(path, strict=True)


DIRTY = [
    ("VERTEX_XY 8 1 1", "1 landmark without measurements dropped"),
    ("EDGE_SE2_XY 0 7 2 0 5 0 5", "1 duplicate edge dropped"),
]


@pytest.mark.parametrize(("line", "repair"), DIRTY)
def test_file_issues_are_repaired_and_reported(tmp_path, line, repair):
    (tmp_path / "clean.g2o").write_text("\n".join(GOOD))
    (tmp_path / "dirty.g2o").write_text("\n".join([*GOOD[:2], line, *GOOD[2:]]))
    found = read_g2o(tmp_path / "dirty.g2o")
    assert found.repairs == (repair,)
    assert_same_bits(found, read_g2o(tmp_path / "clean.g2o"))


def test_an_undefined_sensor_offset_is_the_identity(tmp_path):
    (tmp_path / "a.g2o").write_text("\n".join([*GOOD, "EDGE_SE2_POINTXY_OFFSET 0 7 3 2 0 5 0 5"]))
    found = read_g2o(tmp_path / "a.g2o")
    assert found.repairs == ("1 measurement with an undefined sensor offset: taken as the identity",)
    assert found.offsets[3].tolist() == [0, 0, 0]


def test_landmarks_or_priors_connect_components(tmp_path):
    two = "VERTEX_SE2 0 0 0 0\nVERTEX_SE2 5 1 0 0\n"
    (tmp_path / "a.g2o").write_text(two + "EDGE_SE2_XY 0 7 2 0 5 0 5\nEDGE_SE2_XY 5 7 1 0 5 0 5\n")
    assert read_g2o(tmp_path / "a.g2o").n_measured == 2
    (tmp_path / "b.g2o").write_text(two + "EDGE_PRIOR_SE2 0 0 0 0 1 0 0 1 0 1\nEDGE_PRIOR_SE2 5 0 0 0 1 0 0 1 0 1\n")
    assert read_g2o(tmp_path / "b.g2o").n_measured == 2
    (tmp_path / "c.g2o").write_text(two + "EDGE_SE2_XY 0 7 2 0 5 0 5\nEDGE_SE2_XY 5 8 1 0 5 0 5\n")
    with pytest.raises(FileError, match=r":2: the graph has 2 components: no edges lead from vertex 0 to vertex 5"):
        read_g2o(tmp_path / "c.g2o")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": np.zeros((3, 3))}, r"EDGE_SE2_XY values must have shape \(3, 2\)"),
        ({"ends": np.full((3, 2), 6, np.int32)}, "EDGE_SE2_XY ends must be integers from 0 to 5"),
        ({"information": np.tile(-np.eye(2), (3, 1, 1))}, "EDGE_SE2_XY information must be positive semidefinite"),
    ],
)
def test_invalid_measurements_are_not_written(tmp_path, change, message):
    graph = every_tag("SE2")
    broken = replace(graph.measured["EDGE_SE2_XY"], **change)
    with pytest.raises(ValueError, match=message):
        write_g2o(tmp_path / "a.g2o", replace(graph, measured=graph.measured | {"EDGE_SE2_XY": broken}))
    assert list(tmp_path.iterdir()) == []


# ---- residuals


def expected(graph, tag, k):
    """Return the residual before whitening, by homogeneous matrices."""
    of, m, d = MEASUREMENT_TAGS[tag], graph.measured[tag], poses.N_AXES[graph.kind]
    T = np.eye(d + 1)
    if of.ends[0] == "pose":
        T = poses.matrices(graph.kind, graph.poses)[m.ends[k, 0]]
    if of.has_offset and "XYZ_PRIOR" not in tag:
        T = T @ poses.matrices(graph.kind, offset_rows(graph, m))[k]
    if of.is_pose:
        X = np.real(logm(np.linalg.inv(poses.matrices(graph.kind, m.values)[k]) @ T))
        return [*X[:d, d], X[1, 0]] if d == 2 else [*X[:3, 3], X[2, 1], X[0, 2], X[1, 0]]
    if of.ends == ("pose",):
        return T[:d, d] - m.values[k]
    point = np.append(graph.landmarks.points[m.ends[k, -1]], 1.0)
    seen = (np.linalg.inv(T) @ point)[:d]
    if "BEARING" in tag:
        return [np.angle(np.exp(1j * (np.arctan2(seen[1], seen[0]) - m.values[k, 0])))]
    return seen - m.values[k]


@pytest.mark.parametrize("tag", MEASUREMENT_TAGS)
def test_residuals_agree_with_homogeneous_matrices(tag):
    graph = every_tag(MEASUREMENT_TAGS[tag].kind)
    graph = replace(graph, measured={tag: graph.measured[tag]})
    r = np.array([expected(graph, tag, k) for k in range(3)])
    squares = np.einsum("ni,nij,nj->n", r, graph.measured[tag].information, r)
    np.testing.assert_allclose(measured_norms(graph)[tag] ** 2, squares, rtol=1e-9)


def gtsam_error(gtsam, graph, tag, k):
    """Return ½‖r‖² by factors or poses of GTSAM."""
    of, m = MEASUREMENT_TAGS[tag], graph.measured[tag]
    noise = gtsam.noiseModel.Gaussian.Information(m.information[k])
    rows = [graph.poses[m.ends[k, 0]] if of.ends[0] == "pose" else None, m.values[k]]
    rows += [offset_rows(graph, m)[k]] if of.has_offset else []
    in_plane = of.kind == "SE2"

    def pose(x):
        if in_plane:
            return gtsam.Pose2(*x)
        return gtsam.Pose3(gtsam.Rot3(Rotation.from_quat(x[3:]).as_matrix()), x[:3])

    if of.ends == ("pose",) and not of.is_pose:
        prior = gtsam.PoseTranslationPrior2D if in_plane else gtsam.PoseTranslationPrior3D
        values = gtsam.Values()
        values.insert(0, pose(rows[0]))
        return prior(0, pose([*m.values[k], 0] if in_plane else [*m.values[k], 0, 0, 0, 1]), noise).error(values)
    if of.is_pose:
        X = pose(rows[0]) if len(rows) == 2 else pose(rows[0]).compose(pose(rows[2]))
        r = pose(rows[1]).logmap(X)
        return 0.5 * noise.squaredMahalanobisDistance(r if in_plane else np.roll(r, 3))
    point = graph.landmarks.points[m.ends[k, -1]]
    if of.ends == ("landmark",):
        return 0.5 * noise.squaredMahalanobisDistance(point - m.values[k])
    X = pose(rows[0]) if len(rows) == 2 else pose(rows[0]).compose(pose(rows[2]))
    if "BEARING" in tag:
        values = gtsam.Values()
        values.insert(0, X)
        values.insert(1, point)
        return gtsam.BearingFactor2D(0, 1, gtsam.Rot2(m.values[k, 0]), noise).error(values)
    return 0.5 * noise.squaredMahalanobisDistance(X.transformTo(point) - m.values[k])


@pytest.mark.parametrize("tag", MEASUREMENT_TAGS)
def test_costs_equal_those_of_gtsam(tag):
    gtsam = pytest.importorskip("gtsam")
    graph = every_tag(MEASUREMENT_TAGS[tag].kind)
    graph = replace(graph, measured={tag: graph.measured[tag]})
    other = [gtsam_error(gtsam, graph, tag, k) for k in range(3)]
    np.testing.assert_allclose(measured_norms(graph)[tag] ** 2 / 2, other, rtol=1e-9)


# ---- solving


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "bearings"), [("SE2", False), ("SE2", True), ("SE3", False)])
def test_false_landmark_measurements_are_rejected_and_listed(kind, bearings):
    truth, graph, is_false = with_landmarks(kind, bearings=bearings)
    outcome = pose_graph.refine(graph)
    (tag, rejected), found = *outcome.rejected_measurements.items(), outcome.refined
    np.testing.assert_array_equal(rejected, is_false)
    assert error(found, truth) < 0.1 * error(graph, truth)
    np.testing.assert_allclose(found.landmarks.points, truth.landmarks.points, atol=0.15)
    record = outcome.record["measured"][tag]
    assert (record["n"], record["n_refused"]) == (len(is_false), is_false.sum())
    ends = graph.measured[tag].ends[is_false]
    np.testing.assert_array_equal(record["refused"], np.column_stack([ends[:, 0], 100 + ends[:, 1]]))


def with_positions(n_false=8, turn=2.0):
    """Return the truth in a map frame, a graph with position priors, and the mask of the false ones."""
    truth, graph = circle("SE2")
    rng = np.random.default_rng(3)
    M = poses.matrices("SE2", np.array([[300.0, -200.0, turn]]))
    truth = replace(truth, poses=poses.rows("SE2", M @ poses.matrices("SE2", truth.poses)))
    at = np.arange(0, graph.n_poses, 3)
    values = truth.poses[at, :2] + 0.1 * rng.normal(size=(len(at), 2))
    is_false = np.isin(np.arange(len(at)), rng.choice(len(at), n_false, replace=False))
    values[is_false] += rng.uniform(3, 20, (n_false, 2))
    m = Measurements(at[:, None].astype(np.int32), values, np.tile(100 * np.eye(2), (len(at), 1, 1)), np.zeros(0, int))
    return truth, replace(graph, measured={"EDGE_PRIOR_SE2_XY": m}), is_false


@pytest.mark.slow
def test_position_priors_align_the_graph_and_false_ones_are_rejected():
    truth, graph, is_false = with_positions()
    outcome = pose_graph.refine(graph)
    np.testing.assert_array_equal(outcome.rejected_measurements["EDGE_PRIOR_SE2_XY"], is_false)
    assert np.abs(outcome.refined.poses[:, :2] - truth.poses[:, :2]).max() < 0.15
    assert not outcome.rejected.any()


def test_a_graph_is_aligned_with_its_priors():
    truth, graph, _ = with_positions()
    moved = aligned_with_priors(graph)
    assert np.linalg.norm(moved.poses[:, :2] - truth.poses[:, :2], axis=1).max() < 1.0  # the drift of odometry
    turns = np.diff(moved.poses[:, 2]) - np.diff(graph.poses[:, 2])
    np.testing.assert_allclose(turns, 0, atol=1e-12)
    constant = replace(graph, fixed=np.arange(graph.n_poses) == 4)
    assert aligned_with_priors(constant) is constant


@EVERY_KIND
def test_one_pose_prior_determines_the_frame(kind):
    graph = every_tag(kind)
    graph = replace(graph, fixed=np.zeros(graph.n_poses, bool), landmarks=Landmarks())
    tag = "EDGE_PRIOR_SE2" if kind == "SE2" else "EDGE_SE3_PRIOR"
    graph = replace(graph, measured={tag: graph.measured[tag].chosen(np.array([False, True, False]))})
    np.testing.assert_allclose(measured_norms(aligned_with_priors(graph))[tag], 0, atol=1e-9)


def test_with_priors_no_pose_is_constant():
    _, graph, _ = with_positions()
    assert not pose_graph_problem(graph).poses.fixed.any()
    assert pose_graph_problem(replace(graph, measured={})).poses.fixed.sum() == 1


def test_the_command_writes_covariances_of_poses_and_landmarks(tmp_path, capsys):
    _, graph, _ = with_landmarks("SE2")
    write_g2o(tmp_path / "a.g2o", graph)
    assert main(["solve", str(tmp_path / "a.g2o"), "--covariance", str(tmp_path / "c.npz")]) == 0, capsys.readouterr()
    with np.load(tmp_path / "c.npz", allow_pickle=False) as found:
        shapes = sorted(found[name].shape for name in found.files if found[name].ndim == 3)
    assert (len(graph.landmarks), 2, 2) in shapes
    assert (graph.n_poses, 3, 3) in shapes

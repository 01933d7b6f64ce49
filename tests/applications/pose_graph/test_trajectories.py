"""Trajectories as text: TUM and KITTI."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from asker.applications.pose_graph import draw, refine, true_positions, write_g2o
from asker.applications.pose_graph.formats.trajectories import read_trajectory, write_trajectory
from asker.cli import main
from asker.geometry import poses
from asker.geometry.alignment import trajectory_error
from asker.io.files import FileError
from synthetic_graphs import EVERY_FILE_KIND, circle, some_graph

EVERY_FORM = pytest.mark.parametrize("suffix", [".tum", ".kitti"])


@EVERY_FORM
@EVERY_FILE_KIND
def test_poses_read_back(tmp_path, kind, suffix):
    graph = some_graph(kind)
    write_trajectory(tmp_path / f"a{suffix}", graph)
    estimate = read_trajectory(tmp_path / f"a{suffix}", kind, graph.ids)
    order = np.argsort(graph.ids)
    np.testing.assert_array_equal(estimate.ids, graph.ids[order])
    rigid = graph.poses[order] if kind != "SIM3" else np.column_stack([graph.poses[order][:, :7], np.ones(6)])
    np.testing.assert_allclose(poses.matrices(kind, estimate.poses), poses.matrices(kind, rigid), atol=1e-14)


def test_fields_have_the_order_that_evo_expects(tmp_path):
    graph = some_graph("SE3")
    write_trajectory(tmp_path / "a.tum", graph)
    write_trajectory(tmp_path / "a.kitti", graph)
    order = np.argsort(graph.ids)
    tum, kitti = (np.loadtxt(tmp_path / name) for name in ("a.tum", "a.kitti"))
    np.testing.assert_array_equal(tum[:, :4], np.column_stack([graph.ids, graph.poses[:, :3]])[order])
    T = kitti.reshape(-1, 3, 4)
    np.testing.assert_array_equal(T[:, :, 3], tum[:, 1:4])
    np.testing.assert_allclose(Rotation.from_quat(tum[:, 4:]).as_matrix(), T[:, :, :3], atol=1e-14)
    np.testing.assert_allclose(Rotation.from_quat(graph.poses[order, 3:]).as_matrix(), T[:, :, :3], atol=1e-14)


@EVERY_FORM
@EVERY_FILE_KIND
def test_evo_reads_written_files_and_computes_the_same_error(tmp_path, kind, suffix):
    evo = pytest.importorskip("evo.tools.file_interface", reason="evo is not installed")
    from evo.core import metrics, sync

    truth = some_graph(kind)
    moved = 2.0 * truth.poses[:, :2] + np.random.default_rng(1).normal(size=(6, 2))
    estimate = replace(truth, poses=np.concatenate([moved, truth.poses[:, 2:]], axis=1))
    read = evo.read_tum_trajectory_file if suffix == ".tum" else evo.read_kitti_poses_file
    loaded = []
    for name, graph in (("truth", truth), ("found", estimate)):
        write_trajectory(tmp_path / f"{name}{suffix}", graph)
        loaded.append(read(tmp_path / f"{name}{suffix}"))
    if suffix == ".tum":
        loaded = list(sync.associate_trajectories(*loaded))
    at = [poses.positions(kind, graph.poses) for graph in (estimate, truth)]
    for scale in (False, True):
        aligned = deepcopy(loaded[1])
        aligned.align(loaded[0], correct_scale=scale)
        ape = metrics.APE(metrics.PoseRelation.translation_part)
        ape.process_data((loaded[0], aligned))
        assert ape.get_statistic(metrics.StatisticsType.rmse) == pytest.approx(trajectory_error(*at, scale), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tum", "", r": there is no pose"),
        ("a.tum", "# time\n0 1 2 3 0 0 0\n", r":2: this pose needs 8 numbers, got 7"),
        ("a.tum", "0 1 2 3 0 0 0 1\n1 1 2 3 0 0 0 0\n", r":2: this quaternion is not a rotation"),
        ("a.tum", "0 1 2 3 0 0 0 1\n0 1 2 3 0 0 0 1\n", r": two lines have the same time"),
        ("a.kitti", "1 0 0 0 0 1 0 0 0 0 x 0\n", r":1: expected a finite number, got 'x'"),
        ("a.kitti", "1 0 0 0 0 2 0 0 0 0 1 0\n", r":1: the left 3×3 of this pose is not a rotation"),
    ],
)
def test_an_invalid_file_is_rejected_with_its_name_and_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(FileError, match=message):
        read_trajectory(tmp_path / name, "SE3")


def test_times_that_are_not_ids_match_only_by_length(tmp_path):
    (tmp_path / "a.tum").write_text("1305031.5 1 2 3 0 0 0 1\n1305031.25 1 2 4 0 0 0 1\n")
    assert read_trajectory(tmp_path / "a.tum", "SE3").ids.tolist() == [1, 0]
    with pytest.raises(FileError, match=r":1: this time is not the id of a pose.*--truth-by length"):
        read_trajectory(tmp_path / "a.tum", "SE3", np.arange(2))


@EVERY_FORM
def test_the_truth_does_not_depend_on_the_file_format(tmp_path, suffix):
    truth, graph = circle("SE2", n=30)
    write_trajectory(tmp_path / f"t{suffix}", truth)
    estimate = true_positions(graph, read_trajectory(tmp_path / f"t{suffix}", "SE2", graph.ids))
    for a, b in zip(estimate, true_positions(graph, truth), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-14)


def test_a_kitti_file_of_another_length_does_not_match(tmp_path):
    truth, graph = circle("SE2", n=30)
    write_trajectory(tmp_path / "t.kitti", replace(truth, ids=truth.ids[:20], poses=truth.poses[:20]))
    with pytest.raises(FileError, match="20 poses, but the graph has 30"):
        read_trajectory(tmp_path / "t.kitti", "SE2", graph.ids)


def test_the_command_writes_a_trajectory_and_reads_a_truth(tmp_path, capsys):
    truth, graph = circle("SE2", n=30)
    write_g2o(tmp_path / "a.g2o", graph)
    write_trajectory(tmp_path / "t.tum", truth)
    files = {name: str(tmp_path / name) for name in ("a.g2o", "t.tum", "o.tum", "f.svg")}
    asked = ["--truth", files["t.tum"], "--output", files["o.tum"], "--figure", files["f.svg"], "--robust", "none"]
    assert main(["solve", files["a.g2o"], *asked]) == 0
    assert "trajectory error (m)" in capsys.readouterr().out
    assert len(np.loadtxt(tmp_path / "o.tum")) == 30
    assert main(["solve", files["a.g2o"], "--output", str(tmp_path / "o.txt")]) == 2
    capsys.readouterr()
    assert main(["solve", files["t.tum"]]) == 2
    assert "t.tum: a trajectory has no edges to solve" in capsys.readouterr().err


def test_the_initial_graph_of_a_figure_is_the_input():
    _, graph = circle("SE2", n=30)
    assert refine(graph).start is graph


def test_a_figure_is_aligned_with_the_truth(tmp_path):
    truth, _ = circle("SE2", n=30)
    T = poses.matrices("SE2", np.array([[5.0, 3, 1]])) @ poses.matrices("SE2", truth.poses)
    turned = replace(truth, poses=poses.rows("SE2", T))
    xyz, _ = draw._aligned(turned, true_positions(turned, truth))
    np.testing.assert_allclose(xyz, truth.poses[:, :2], atol=1e-12)
    rejected = np.zeros(truth.n_edges, bool)
    draw.draw_trajectories(
        tmp_path / "a.svg", {"before": turned, "after": truth}, rejected, true_positions(turned, truth)
    )
    text = (tmp_path / "a.svg").read_text()
    assert "truth" in text
    assert "x (m)" in text

"""Covariances of refined data in its frame and in files, and weakly determined variables."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import asker
from asker.applications import point_cloud_plots, pose_graph
from asker.applications.bundle.application import APPLICATION
from asker.applications.bundle.bal import write_bal
from asker.applications.bundle.problem import bundle_problem, camera_centres
from asker.applications.bundle.synthetic import make_scene
from asker.applications.bundle.uncertainty import data_covariances
from asker.applications.pose_graph.formats.g2o import write_g2o
from asker.applications.uncertainty import centre_covariances, weak_variables_report, with_values
from asker.geometry.gauge import centres
from asker.geometry.manifolds import SE3
from asker.io.npz import read_npz
from asker.kernels.kernels import SmoothTruncated
from asker.uncertainty import weak_variables
from asker.uncertainty.weak_variables import group_supports
from synthetic_graphs import circle


def test_the_covariance_of_a_centre_follows_from_that_of_its_pose():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(6, 6))
    poses = SE3.unpack(SE3.retract(SE3.pack(np.eye(4)[None, :3])[0], rng.normal(size=6))[None])
    G = np.empty((3, 6))
    for k in range(6):
        ends = [centres(SE3.unpack(SE3.retract(SE3.pack(poses)[0], s * 1e-6 * np.eye(6)[k])[None]))[0] for s in (1, -1)]
        G[:, k] = (ends[0] - ends[1]) / 2e-6
    assert np.allclose(centre_covariances(poses, (A @ A.T)[None])[0], G @ A @ A.T @ G.T, rtol=1e-6)


def test_covariances_are_in_the_frame_of_the_refined_data():
    """Errors do not depend on the scale of the solution before alignment."""
    scene = make_scene(4, 200, outlier_ratio=0.0, start_error=0.5, seed=0)
    made = bundle_problem(scene.start, SmoothTruncated(3.0))
    result = asker.solve(made.problem, asker.IRLS(), max_iterations=30)
    covariances = data_covariances(made, result)
    assert covariances.of.n_gauge == 7
    assert np.allclose(camera_centres(made.refined(result.values)), centres(covariances.result[made.cameras]))
    poses, points = result[made.cameras].copy(), 10 * result[made.points]
    poses[:, :, 3] *= 10
    moved = data_covariances(made, with_values(result, {made.cameras: poses, made.points: points}))
    assert np.allclose(moved.errors("point"), covariances.errors("point"), rtol=1e-4)
    assert np.allclose(moved.errors("centre"), covariances.errors("centre"), rtol=1e-4)


@pytest.fixture(scope="module")
def graph():
    truth, _ = circle("SE2", n=60, laps=3)
    return truth


def test_covariances_of_a_pose_graph(graph):
    outcome = pose_graph.refine(graph)
    C = outcome.covariances.arrays
    assert C["pose_covariances"].shape == (60, 3, 3)
    assert not C["pose_covariances"][0].any()  # the first pose is constant
    assert np.allclose(
        np.trace(C["position_covariances"], axis1=1, axis2=2), np.einsum("nqq->n", C["pose_covariances"][:, :2, :2])
    )
    assert outcome.covariances.errors("position")[1:].min() > 0


def test_the_command_writes_covariances(graph, asks, tmp_path):
    write_g2o(tmp_path / "a.g2o", graph)
    names = "--covariance", tmp_path / "c.npz", "--ellipses", tmp_path / "e.png", "--report", tmp_path / "r.json"
    code, _, err = asks("solve", tmp_path / "a.g2o", "--quiet", *names)
    assert code == 0, err
    tree, arrays = read_npz(tmp_path / "c.npz", "covariances")
    assert tree["kind"] == "covariances"
    assert tree["gauge"] == "all directions are determined, with 1 of 60 poses fixed"
    assert set(arrays) == {"ids", "pose_covariances", "position_covariances", "rotation_covariances"}
    report = json.loads((tmp_path / "r.json").read_text())
    traces = np.einsum("nqq->n", arrays["position_covariances"])
    assert np.allclose(report["standard_errors"]["poses"], np.sqrt(traces))
    assert np.allclose(report["standard_errors"]["rotations"], np.sqrt(arrays["pose_covariances"][:, 2, 2]))
    assert report["poses"]["id"] == graph.ids.tolist()
    assert sum(report["poses"]["n_edges"]) == 2 * graph.n_edges
    assert (tmp_path / "e.png").read_bytes()[:4] == b"\x89PNG"
    assert asks("solve", tmp_path / "a.g2o", "--covariance", tmp_path / "c.txt")[2].endswith("must end with .npz\n")


def test_a_report_has_the_error_of_every_camera_and_point(asks, tmp_path):
    scene = make_scene(4, 200, outlier_ratio=0.1, start_error=0.5, seed=0)
    write_bal(tmp_path / "a.txt", scene.start)
    asked = "--report", tmp_path / "r.json", "--covariance", tmp_path / "c.npz", "--quiet"
    code, _, err = asks("solve", tmp_path / "a.txt", *asked, "--method", "irls", "--tau", "2")
    assert code == 0, err
    report, (_, arrays) = json.loads((tmp_path / "r.json").read_text()), read_npz(tmp_path / "c.npz", "covariances")
    errors = report["standard_errors"]
    assert "7 directions" in errors["gauge"]
    assert np.allclose(errors["cameras"], np.sqrt(np.einsum("nqq->n", arrays["centre_covariances"])))
    known = np.isfinite(arrays["point_covariances"]).all(axis=(1, 2))
    assert [x is not None for x in errors["points"]] == known.tolist()
    assert np.allclose(errors["by_chance"]["points"], arrays["point_chances"])
    assert sum(report["points"]["n_observations"]) == sum(report["cameras"]["n_observations"]) == 200
    assert 0.8 * 200 < sum(report["points"]["inliers"]) <= 200


def test_a_page_has_standard_errors_of_points():
    scene = make_scene(4, 200, outlier_ratio=0.1, start_error=0.5, seed=0)
    made = APPLICATION.problem(scene, {"tau": 2.0})
    result = asker.solve(made.problem, asker.IRLS(), max_iterations=10)
    arrays = APPLICATION.plot_arrays(scene, made, result, {"tau": 2.0})
    assert np.nanmedian(arrays["errors"]) == pytest.approx(1)
    run = SimpleNamespace(method="asker", settings={}, arrays=lambda: arrays)
    (flat,), (before, after) = APPLICATION.page({"a": {"asker": run}}).values()
    assert before["errors"] is None
    assert len(flat["errors"]) == len(flat["points"])
    known = [x for x in after["errors"] if x is not None]
    assert np.median(known) == pytest.approx(0, abs=0.02)  # the logarithm of 1
    empty = point_cloud_plots.Cloud(np.zeros((3, 3)), np.zeros((2, 3)), np.zeros(0, bool))
    failing = SimpleNamespace(errors=_not_estimated)
    arrays = point_cloud_plots.plot_arrays(np.zeros(0, int), empty, empty, failing)
    assert np.isnan(arrays["errors"]).all()


def _not_estimated(name):
    raise asker.ProblemError("the noise cannot be estimated")


def test_weakly_determined_variables_are_listed_worst_first():
    scene = make_scene(4, 200, outlier_ratio=0.0, start_error=0.5, seed=0)
    made = bundle_problem(scene.start, SmoothTruncated(3.0))
    (f,) = made.problem.factors
    once = np.flatnonzero(f.slots[1].index == 4)[1:]
    few = asker.Problem(f.taken(~np.isin(np.arange(f.n), once)))
    result = asker.solve(few, asker.IRLS(), max_iterations=20)
    support = group_supports(result)[made.points]
    assert support.weakest(5)[0] == 4
    assert support.n_inliers[4] == 1
    assert np.isinf(support.uncertainty[4])
    table, *_ = weak_variables_report(result, {"points": range(len(made.points))})
    assert table.rows[0] == ["4", "1", "infinite"]
    known = np.isfinite(support.uncertainty)
    assert np.median(support.uncertainty[known]) == pytest.approx(1)


def test_a_block_with_nan_has_infinite_uncertainty():
    x = asker.Variables(np.zeros((3, 2)), fixed=np.array([False, False, True]))
    B = np.stack([np.eye(2), np.full((2, 2), np.nan), np.zeros((2, 2))])
    assert weak_variables._uncertainty(x, B).tolist() == [1, np.inf, 0]

"""Covariances equal those of GTSAM and pycolmap, with the same noise and the same gauge."""

from dataclasses import replace

import numpy as np
import pytest

import asker
from asker.applications.colmap.formats.folder import read_model
from asker.applications.colmap.problem import colmap_problem
from asker.applications.pose_graph.problem import pose_graph_problem
from asker.geometry import poses
from synthetic_graphs import EVERY_KIND, circle


@EVERY_KIND
def test_marginals_of_gtsam(kind):
    """All edges have their stated noise; in GTSAM the first pose is fixed by a prior with a tiny variance."""
    gtsam = pytest.importorskip("gtsam")
    graph, _ = circle(kind, n=30, laps=3)
    made = pose_graph_problem(graph, robust="none")
    result = asker.solve(made.problem, asker.IRLS(), max_iterations=50, tol=1e-14)
    graph = replace(graph, poses=made.refined(result.values).poses)
    T = poses.matrices(kind, graph.poses)
    of, between = (gtsam.Pose2, gtsam.BetweenFactorPose2) if kind == "SE2" else (gtsam.Pose3, gtsam.BetweenFactorPose3)
    d = poses.N_DOF[kind]
    swap = np.arange(d) if kind == "SE2" else np.r_[3:6, 0:3]  # gtsam has the rotation first

    def pose(M):
        return of(M[0, 2], M[1, 2], np.arctan2(M[1, 0], M[0, 0])) if kind == "SE2" else of(M)

    factors, values = gtsam.NonlinearFactorGraph(), gtsam.Values()
    for k, M in enumerate(T):
        values.insert(k, pose(M))
    for i, j, M, information in zip(
        graph.i, graph.j, poses.matrices(kind, graph.measurements), graph.information, strict=True
    ):
        noise = gtsam.noiseModel.Gaussian.Information(information[np.ix_(swap, swap)])
        factors.add(between(int(i), int(j), pose(M), noise))
    prior = gtsam.PriorFactorPose2 if kind == "SE2" else gtsam.PriorFactorPose3
    factors.add(prior(0, pose(T[0]), gtsam.noiseModel.Isotropic.Sigma(d, 1e-6)))
    marginals = gtsam.Marginals(factors, values)
    ours = result.covariance(made.poses, sigma=1.0).blocks
    for k in range(1, len(T)):
        theirs = marginals.marginalCovariance(k)[np.ix_(swap, swap)]
        # gtsam's steps are in the frame of the pose; ours in space: t + δt, exp(δω) R
        R = T[k][:3, :3]
        G = np.eye(3) if kind == "SE2" else np.kron(np.eye(2), R)
        assert np.allclose(ours[k], G @ theirs @ G.T, rtol=1e-4, atol=1e-4 * np.abs(ours[k]).max())


def test_poses_of_pycolmap(data_file):
    """Two images are constant.  pycolmap's damping of 1e-8 lowers variances slightly; its rotations are half angles.

    The covariances of its points assume known poses: they are the inverses of diagonal blocks.
    """
    pycolmap = pytest.importorskip("pycolmap")
    path = data_file("colmap/small-15")
    model, loaded = read_model(path), pycolmap.Reconstruction(str(path))
    ids = [int(k) for k in model.images.ids]
    made = colmap_problem(model, asker.Quadratic(1.0), gauge="fixed", hold=[ids[-1]])
    result = asker.solve(made.problem, asker.IRLS(), max_iterations=0)
    config, options = pycolmap.BundleAdjustmentConfig(), pycolmap.BundleAdjustmentOptions()
    for k in ids:
        config.add_image(k)
    for k in (ids[0], ids[-1]):
        config.set_constant_rig_from_world_pose(loaded.images[k].frame_id)
    for k in loaded.cameras:
        config.set_constant_cam_intrinsics(k)
    adjuster = pycolmap.create_default_ceres_bundle_adjuster(options, config, loaded)
    theirs = pycolmap.estimate_ba_covariance(pycolmap.BACovarianceOptions(), loaded, adjuster)
    ours = result.covariance(made.poses, sigma=1.0).blocks
    scale = np.repeat([1.0, 2.0], 3)
    for k in range(1, len(ids) - 1):
        C = np.asarray(theirs.get_cam_cov_from_world(ids[k]))[np.ix_(np.r_[3:6, 0:3], np.r_[3:6, 0:3])]
        size = np.sqrt(np.diag(ours[k]))
        assert np.abs((ours[k] - scale * C * scale[:, None]) / np.outer(size, size)).max() < 1e-3
    own = result.uncertainty(sigma=1.0).model.diagonal_blocks([np.ones(f.n) for f in made.problem.factors])[made.points]
    points = result.covariance(made.points, sigma=1.0).blocks
    for k, point in enumerate(model.points.ids):
        C = np.asarray(theirs.get_point_cov(int(point)))
        assert np.allclose(C @ own[k], np.eye(3), atol=1e-6)
        assert np.trace(points[k]) > np.trace(C)

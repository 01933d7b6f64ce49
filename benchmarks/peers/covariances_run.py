"""Covariances of poses by COLMAP, GTSAM and asker, for the same data and the same noise.

COLMAP's `estimate_ba_covariance` computes the poses only, with two images constant.  GTSAM's `Marginals` factorises and
then returns the covariances one by one; a prior fixes the first pose.  The time to import the data into a peer is not
included.  `agree to` is the largest relative difference of a variance.
"""

import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gtsam
import gtsam_graph
import numpy as np
import pycolmap
from common import TURN

import asker
from asker.applications.bundle.problem import camera_poses
from asker.applications.bundle.synthetic import make_scene
from asker.applications.colmap.formats.from_pycolmap import from_arrays, to_pycolmap
from asker.applications.colmap.model import ColmapModel
from asker.applications.colmap.problem import colmap_problem
from asker.applications.pose_graph.formats.g2o import write_g2o
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.problem import pose_graph_problem


def timed(call: Any) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = call()
    return time.perf_counter() - begin, found


def poses_timed(result: asker.Result, poses: asker.Variables) -> tuple[float, Any]:
    """Return the time and the covariances of a second computation without cached results; the first one compiles."""
    result.covariance(poses, sigma=1.0)
    return timed(partial(replace(result).covariance, poses, sigma=1.0))


# ------------------------------------------------------------------ bundles


def colmap_scene(n: int, n_observations: int, kind: str) -> ColmapModel:
    """Return a synthetic bundle at its truth, without outliers, since COLMAP's covariance assumes none."""
    truth = make_scene(n, n_observations, kind=kind, outlier_ratio=0.0, seed=0).truth
    focal = np.tile([0.0, 1000.0, 1000.0], (n, 1))
    focal[:, 0] = truth.cameras[:, 6]
    tracks = truth.camera_index, truth.point_index, truth.uv * [1, -1] + 1000.0
    return from_arrays(TURN @ camera_poses(truth), focal, truth.points, tracks, camera_model="SIMPLE_PINHOLE")


def bundle_times(model: ColmapModel) -> tuple[float, float, float]:
    """Return the seconds of asker and of COLMAP, and the largest relative difference of their variances."""
    ids = [int(k) for k in model.images.ids]
    made = colmap_problem(model, asker.Quadratic(1.0), gauge="fixed", hold=[ids[-1]])
    result = asker.solve(made.problem, asker.IRLS(), max_iterations=0)
    ours, C = poses_timed(result, made.poses)
    loaded = to_pycolmap(model)
    config = pycolmap.BundleAdjustmentConfig()
    for k in ids:
        config.add_image(k)
    for k in (ids[0], ids[-1]):
        config.set_constant_rig_from_world_pose(loaded.images[k].frame_id)
    for k in loaded.cameras:
        config.set_constant_cam_intrinsics(k)
    adjuster = pycolmap.create_default_ceres_bundle_adjuster(pycolmap.BundleAdjustmentOptions(), config, loaded)
    options = pycolmap.BACovarianceOptions(params=pycolmap.BACovarianceOptionsParams.POSES)
    theirs, found = timed(partial(pycolmap.estimate_ba_covariance, options, loaded, adjuster))
    variances = np.array([np.diag(found.get_cam_cov_from_world(k)) for k in ids[1:-1]])
    variances = variances[:, [3, 4, 5, 0, 1, 2]] * [1, 1, 1, 4, 4, 4]  # COLMAP's rotations come first, as half angles
    own = np.einsum("nqq->nq", C.blocks)[1:-1]
    return ours, theirs, float(np.abs(variances / own - 1).max())


# ------------------------------------------------------------------ graphs


def graph_times(graph: PoseGraph) -> tuple[float, float, float]:
    """Return the seconds of asker and of GTSAM, and the largest relative difference of the position variances."""
    made = pose_graph_problem(graph, robust="none")
    result = asker.solve(made.problem, asker.IRLS(), max_iterations=0)
    ours, C = poses_timed(result, made.poses)
    with tempfile.TemporaryDirectory() as folder:
        write_g2o(Path(folder) / "a.g2o", graph)
        factors, values, _ = gtsam_graph.read(Path(folder) / "a.g2o")

    def marginals() -> list[np.ndarray]:
        of = gtsam.Marginals(factors, values)
        return [of.marginalCovariance(int(k)) for k in graph.ids]

    theirs, found = timed(marginals)
    position = slice(0, 2) if graph.kind == "SE2" else slice(3, 6)
    size = 2 if graph.kind == "SE2" else 3
    traces = np.array([np.trace(M[position, position]) for M in found])[1:]
    own = np.einsum("nqq->n", C.blocks[:, :size, :size])[1:]
    return ours, theirs, float(np.abs(traces / own - 1).max())

"""Synthetic COLMAP models: rigs of two cameras, and models with GPS fixes.

Frames surround a ball of points, each camera observes a fifth of them, and outliers are uniform in the image.  Both
families are solved as `asker solve` does by default.

rig  The sensor poses in the rig are constant.  The error is that of the family `bundle`, over the frames. gps  The
cameras have no rig; some fixes are wrong by metres.  The error is the trimmed RMSE of the camera centres in the
     frame of the fixes, without alignment, relative to their mean distance from the centroid.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import asker
from asker.applications.bundle.truth_errors import extent
from asker.applications.colmap import Cameras, ColmapModel, Frames, Images, Points, Positions, Rigs, refine, to_pycolmap
from asker.applications.colmap.cameras import project
from asker.applications.colmap.georegistration.alignment import centre_error, in_frame
from asker.applications.colmap.model import NO_POINT, camera_poses
from asker.applications.colmap.problem import colmap_problem
from asker.applications.colmap.reprojection_error import camera_centres
from asker.applications.colmap.rigs import composed, frame_poses
from asker.geometry.alignment import robust_similarity
from asker.geometry.gauge import centres
from asker.geometry.rotations import matrix_from_angle_axis, quaternion_from_matrix
from families.bundle import adjusted, camera_error
from families.data_and_peers import peer
from families.factorial_design import balanced_cases
from families.family import Condition, Instance
from families.trimmed_error import trimmed

N_FRAMES, N_POINTS = 20, 300
OBSERVED_FRACTION = 0.2
"""Fraction of the points that a camera observes."""
PARAMS = np.array([900.0, 512.0, 384.0])
BASELINE = np.array([[0.1, -0.2, 0.05]]), np.array([[0.5, 0.1, -0.1]])
"""Pose of the second camera in the rig: angle-axis and translation."""
WORLD = 3.0, matrix_from_angle_axis(np.array([[0.3, -1.0, 0.5]]))[0], np.array([100.0, -50.0, 20.0])
"""Similarity from the model to the frame of the fixes: scale, rotation, translation."""
FIX_NOISE, MAX_FIX_ERROR = 0.1, 5.0
"""Standard deviation of a fix, and the largest error of a wrong one, in metres."""
CentreError = Callable[[np.ndarray], float]
"""Error as a function of camera centres (n, 3)."""
LEVELS: dict[str, tuple[Any, ...]] = {
    "noise": (0.3, 1.0, 2.0),
    "outliers": (0.1, 0.3, 0.5),
    "start": (0.01, 0.03, 0.1),
}


@dataclass(frozen=True, eq=False)
class SimulatedModel:
    """Synthetic model at the initial guess and at the truth, and the inlier mask of its observations."""

    start: ColmapModel
    truth: ColmapModel
    right: np.ndarray

    def of_inliers(self) -> ColmapModel:
        """Return the true model with the inlier observations only."""
        point_ids = self.truth.images.point_ids.copy()
        point_ids[self.truth.observations().feature[~self.right]] = NO_POINT
        return replace(self.truth, images=replace(self.truth.images, point_ids=point_ids))


def simulate(rng: np.random.Generator, condition: Condition, in_rig: bool) -> SimulatedModel:
    """Simulate frames of one camera or of a rig; the initial error is `start`, relative to the scene's size."""
    turn = 2 * np.pi * np.arange(N_FRAMES) / N_FRAMES
    R = matrix_from_angle_axis(np.stack([0.3 * np.sin(3 * turn), turn, 0.1 * np.cos(turn)], axis=1))
    frames = np.concatenate([R, np.tile([[[0.1], [-0.2], [5.0]]], (N_FRAMES, 1, 1))], axis=2)
    xyz = 0.6 * rng.normal(size=(N_POINTS, 3))
    off = frames.copy()
    off[:, :, 3] += condition["start"] * rng.normal(size=(N_FRAMES, 3))
    off[:, :, :3] = matrix_from_angle_axis(0.3 * condition["start"] * rng.normal(size=(N_FRAMES, 3))) @ R
    poses = on_rig(frames) if in_rig else frames
    image, point = np.nonzero(rng.random((len(poses), N_POINTS)) < OBSERVED_FRACTION)
    P = np.einsum("nij,nj->ni", poses[image, :, :3], xyz[point]) + poses[image, :, 3]
    uv = np.stack(project("SIMPLE_PINHOLE", PARAMS, *P.T), axis=1) + condition["noise"] * rng.normal(size=(len(P), 2))
    right = rng.random(len(P)) >= condition["outliers"]
    uv = np.where(right[:, None], uv, rng.uniform((0, 0), (1024, 768), uv.shape))
    truth = model_of(poses, xyz, image, point, uv, in_rig)
    moved = xyz + condition["start"] * rng.normal(size=xyz.shape)
    return SimulatedModel(model_of(on_rig(off) if in_rig else off, moved, image, point, uv, in_rig), truth, right)


def on_rig(frames: np.ndarray) -> np.ndarray:
    """Return the poses of both cameras, frame by frame."""
    sensor = np.concatenate([matrix_from_angle_axis(BASELINE[0]), BASELINE[1][:, :, None]], axis=2)
    second = composed(np.repeat(sensor, len(frames), axis=0), frames)
    return np.stack([frames, second], axis=1).reshape(-1, 3, 4)


def model_of(
    poses: np.ndarray, xyz: np.ndarray, image: np.ndarray, point: np.ndarray, uv: np.ndarray, in_rig: bool
) -> ColmapModel:
    """Return a COLMAP model with these poses, points and observations."""
    n, n_cameras = len(poses), 2 if in_rig else 1
    ids, camera_ids = np.arange(1, n + 1), np.arange(n) % n_cameras + 1
    images = Images(
        ids,
        quaternion_from_matrix(poses[:, :, :3]),
        poses[:, :, 3],
        camera_ids,
        tuple(f"{k:03}.jpg" for k in range(n)),
        np.concatenate([[0], np.cumsum(np.bincount(image, minlength=n))]),
        uv,
        point + 1,
    )
    models = ("SIMPLE_PINHOLE",) * n_cameras
    cameras = Cameras(np.arange(1, n_cameras + 1), models, np.full((n_cameras, 2), (1024, 768)), (PARAMS,) * n_cameras)
    points = Points(np.arange(1, len(xyz) + 1), xyz, np.full(xyz.shape, 128, np.uint8), np.zeros(len(xyz)))
    if not in_rig:
        return ColmapModel(cameras, images, points)
    frames = Frames(ids[: n // 2], np.ones(n // 2, int), 2 * np.arange(n // 2 + 1), np.zeros(n, int), camera_ids, ids)
    second = quaternion_from_matrix(matrix_from_angle_axis(BASELINE[0]))[0]
    qvecs, tvecs = np.stack([[1.0, 0, 0, 0], second]), np.concatenate([np.zeros((1, 3)), BASELINE[1]])
    one = np.array([1]), np.array([0, 2]), np.zeros(2, int), cameras.ids, np.ones(2, bool)
    return ColmapModel(cameras, images, points, Rigs(*one, qvecs, tvecs, frames))


def least_squares(problem: asker.Problem) -> asker.Result:
    return asker.solve(problem, asker.IRLS(), tol=1e-12)


class RigFamily:
    name = "rig"
    n_oracles = 8
    sweep = (1.0, 3.0, 10.0)
    methods = None

    def cases(self, quick: bool) -> list[tuple[Condition, int]]:
        return balanced_cases(LEVELS, 9, (0,), quick)

    def make(self, condition: Condition, seed: int) -> Instance:
        scene = simulate(np.random.default_rng(seed), condition, in_rig=True)
        truth = centres(frame_poses(scene.truth, camera_poses(scene.truth)))

        def error(result: asker.Result) -> float:
            return camera_error(centres(result["poses"]), truth)

        def frames_off(cameras: np.ndarray) -> float:
            return camera_error(cameras[::2], truth)  # the first camera is the reference sensor of the rig

        best = least_squares(colmap_problem(scene.of_inliers(), asker.Quadratic()).problem)
        peers = {
            f"COLMAP {loss.lower()}": partial(_adjusted, scene.start, frames_off, loss) for loss in colmap_losses()
        }
        return Instance(
            lambda kernel: colmap_problem(scene.start, kernel).problem,
            error,
            error(best),
            number=1.0,
            peers=peers,
            without_number=frozenset({"COLMAP trivial"}),
        )


class GpsFamily:
    name = "gps"
    n_oracles = 8
    sweep = (1.0, 3.0, 10.0)
    methods = ("irls-cauchy", "asker", "asker-cauchy", "gnc")

    def cases(self, quick: bool) -> list[tuple[Condition, int]]:
        return balanced_cases(LEVELS | {"wrong_fixes": (0.1, 0.2, 0.4)}, 9, (0,), quick)

    def make(self, condition: Condition, seed: int) -> Instance:
        rng = np.random.default_rng(seed)
        scene = simulate(rng, condition, in_rig=False)
        truth = camera_centres(in_frame(scene.truth, WORLD))
        wrong = rng.permutation(N_FRAMES) < condition["wrong_fixes"] * N_FRAMES
        xyz = truth + FIX_NOISE * rng.normal(size=truth.shape)
        xyz[wrong] += rng.uniform(-MAX_FIX_ERROR, MAX_FIX_ERROR, (wrong.sum(), 3))
        fixes = Positions(scene.start.images.names, xyz, np.full(xyz.shape, np.nan))
        near = in_frame(scene.start, robust_similarity(camera_centres(scene.start), xyz))

        def off(cameras: np.ndarray) -> float:
            return trimmed(np.linalg.norm(cameras - truth, axis=1)) / extent(truth)

        def problem(kernel: asker.Kernel | None) -> asker.Problem:
            return with_fixes(near, xyz, np.arange(N_FRAMES), condition["noise"], kernel)

        right = in_frame(scene.of_inliers(), WORLD)
        best = with_fixes(right, xyz, np.flatnonzero(~wrong), condition["noise"], asker.Quadratic())
        return Instance(
            problem,
            lambda result: off(centres(result["poses"])),
            off(centres(least_squares(best)["poses"])),
            number=1.0,
            default=lambda: off(camera_centres(refine(scene.start, priors=fixes).refined)),
            peers={
                f"COLMAP cauchy, fixes {loss.lower()}": partial(_adjusted_to, scene.start, xyz, off, loss)
                for loss in colmap_losses()
            },
        )


def with_fixes(
    model: ColmapModel, xyz: np.ndarray, chosen: np.ndarray, noise: float, kernel: asker.Kernel | None
) -> asker.Problem:
    """Return bundle adjustment with the chosen fixes, whitened such that both noises have the same scale."""
    problem = colmap_problem(model, kernel)
    data, weight = (xyz[chosen], np.full((len(chosen), 3), FIX_NOISE)), np.full(len(chosen), noise**2)
    fixes = asker.Factors(centre_error, problem.poses[chosen], data=data, kernel=kernel, weight=weight, name="fixes")
    return asker.Problem(*problem.problem.factors, fixes)


def colmap_losses() -> tuple[str, ...]:
    """Return the losses of COLMAP's bundle adjustment to run; empty if COLMAP is not installed."""
    return ("TRIVIAL", "CAUCHY") if peer("ceres") else ()


def _adjusted(model: ColmapModel, off: CentreError, loss: str, scale: float | None) -> float:
    from pycolmap import create_default_ceres_bundle_adjuster as adjuster

    return off(adjusted(to_pycolmap(model), loss, scale, adjuster))


def _adjusted_to(model: ColmapModel, xyz: np.ndarray, off: CentreError, loss: str, scale: float | None) -> float:
    """Return the error of COLMAP with the fixes as priors of known covariance and a Cauchy loss on the pixels."""
    import pycolmap

    def adjuster(options: Any, config: Any, reconstruction: Any) -> Any:
        for point in [id for id, point in reconstruction.points3D.items() if point.track.length() < 2]:
            reconstruction.delete_point3D(point)  # COLMAP rejects models with such points
        by_fixes = pycolmap.PosePriorBundleAdjustmentOptions()
        by_fixes.ceres.prior_position_loss_function_type = getattr(pycolmap.LossFunctionType, loss)
        fixes = [
            pycolmap.PosePrior(
                corr_data_id=reconstruction.images[i].data_id,
                position=xyz[i - 1],
                position_covariance=FIX_NOISE**2 * np.eye(3),
                coordinate_system=pycolmap.PosePriorCoordinateSystem.CARTESIAN,
            )
            for i in sorted(reconstruction.images)
        ]
        return pycolmap.create_pose_prior_ceres_bundle_adjuster(options, by_fixes, config, fixes, reconstruction)

    return off(adjusted(to_pycolmap(model), "CAUCHY", scale, adjuster))


FAMILIES = (RigFamily(), GpsFamily())

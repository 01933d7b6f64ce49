"""Covariances of a refined COLMAP model."""

import numpy as np

from asker.applications.colmap.constant_parameters import ConstantPositions, ConstantRotations
from asker.applications.colmap.model import ColmapModel
from asker.applications.colmap.problem import ColmapProblem
from asker.applications.colmap.reprojection_error import camera_poses
from asker.applications.colmap.rigs import frame_poses, members, rigs_of, sensor_poses
from asker.applications.uncertainty import DataCovariances, centre_covariances, with_values
from asker.geometry.manifolds import Manifold
from asker.solver.result import Result
from asker.uncertainty.covariance import Uncertainty


def data_covariances(made: ColmapProblem, result: Result, refined: ColmapModel) -> DataCovariances:
    """Return covariances of frame poses, image centres, points and free intrinsics.

    The centre of an image depends on the pose of its frame and on its sensor's pose in the rig.  Control points, which
    follow the points of the model, are excluded.
    """
    xyz = made.refined(result.values).points.xyz
    poses, (frame, sensor) = frame_poses(refined, camera_poses(refined)), members(refined)
    sensors = sensor_poses(rigs_of(refined))[sensor]
    places = -np.einsum("nji,nj->ni", sensors[:, :, :3], sensors[:, :, 3])

    def arrays(of: Uncertainty) -> dict[str, np.ndarray]:
        C = of.covariance(made.poses).blocks
        full = _full_covariances(made.poses.manifold, poses, C)
        blocks = {
            "image_ids": refined.images.ids,
            "pose_covariances": C,
            "centre_covariances": centre_covariances(poses[frame], full[frame], places),
            "point_ids": refined.points.ids,
            "point_covariances": of.covariance(made.points).blocks[: len(refined.points)],
            "point_chances": of.chance(made.points)[: len(refined.points)],
        }
        for name, part in made.intrinsics.items():
            if part.free_variables is not None:
                blocks[f"{name}_covariances"] = of.covariance(part.free_variables).blocks
        return blocks

    values = {made.poses: poses, made.points: xyz}
    if made.sensors is not None:
        values[made.sensors] = sensor_poses(rigs_of(refined))
    return DataCovariances(
        with_values(result, values), arrays, [made.poses, *([] if made.sensors is None else [made.sensors])]
    )


def _full_covariances(manifold: Manifold, poses: np.ndarray, C: np.ndarray) -> np.ndarray:
    """Return covariances of steps (δt, δω), (n, 6, 6), also if rotations or positions are constant."""
    G = np.zeros((len(poses), 6, C.shape[1]))
    if isinstance(manifold, ConstantPositions):  # δt = δω × t
        G[:, :3] = np.cross(np.eye(3)[None], poses[:, None, :, 3]).swapaxes(1, 2)
        G[:, 3:] = np.eye(3)
    elif isinstance(manifold, ConstantRotations):
        G[:, :3] = np.eye(3)
    else:
        return C
    return G @ C @ G.swapaxes(1, 2)

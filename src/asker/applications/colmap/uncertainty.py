"""How sure a refined model is."""

import numpy as np

from asker.applications.colmap.constant_parameters import HeldPositions, HeldRotations
from asker.applications.colmap.model import ColmapModel
from asker.applications.colmap.problem import ColmapProblem
from asker.applications.colmap.reprojection_error import camera_poses
from asker.applications.colmap.rigs import frame_poses, members, rigs_of, sensor_poses
from asker.applications.uncertainty import DataCovariances, centre_covariances, with_values
from asker.geometry.manifolds import Manifold
from asker.solver.result import Result
from asker.uncertainty.covariance import Uncertainty


def data_covariances(made: ColmapProblem, result: Result, refined: ColmapModel) -> DataCovariances:
    """Covariances of poses, of the centres of images, of points, and of intrinsics that moved.

    A pose is that of a frame, and the centre of an image lies where its sensor is in the rig.  Control points stand
    behind the points of the model, and are left out.
    """
    xyz = made.refined(result.values).points.xyz
    poses, (frame, sensor) = frame_poses(refined, camera_poses(refined)), members(refined)
    sensors = sensor_poses(rigs_of(refined))[sensor]
    places = -np.einsum("nji,nj->ni", sensors[:, :, :3], sensors[:, :, 3])

    def arrays(of: Uncertainty) -> dict[str, np.ndarray]:
        C = of.covariance(made.poses).blocks
        whole = _of_whole_steps(made.poses.manifold, poses, C)
        found = {
            "image_ids": refined.images.ids,
            "pose_covariances": C,
            "centre_covariances": centre_covariances(poses[frame], whole[frame], places),
            "point_ids": refined.points.ids,
            "point_covariances": of.covariance(made.points).blocks[: len(refined.points)],
            "point_chances": of.chance(made.points)[: len(refined.points)],
        }
        for name, part in made.intrinsics.items():
            if part.free_variables is not None:
                found[f"{name}_covariances"] = of.covariance(part.free_variables).blocks
        return found

    values = {made.poses: poses, made.points: xyz}
    if made.sensors is not None:
        values[made.sensors] = sensor_poses(rigs_of(refined))
    return DataCovariances(
        with_values(result, values), arrays, [made.poses, *([] if made.sensors is None else [made.sensors])]
    )


def _of_whole_steps(manifold: Manifold, poses: np.ndarray, C: np.ndarray) -> np.ndarray:
    """Covariances of steps (δt, δω), (n, 6, 6), where a part of the motion is held."""
    turned = np.zeros((len(poses), 6, C.shape[1]))
    if isinstance(manifold, HeldPositions):  # δt = δω × t
        turned[:, :3] = np.cross(np.eye(3)[None], poses[:, None, :, 3]).swapaxes(1, 2)
        turned[:, 3:] = np.eye(3)
    elif isinstance(manifold, HeldRotations):
        turned[:, :3] = np.eye(3)
    else:
        return C
    return turned @ C @ turned.swapaxes(1, 2)

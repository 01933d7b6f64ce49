"""How sure a refined model is."""

import numpy as np

from asker.applications.colmap.model import ColmapModel
from asker.applications.colmap.problem import ColmapProblem, camera_poses
from asker.applications.uncertainty import Sure, centre_covariances, placed
from asker.covariance import Uncertainty
from asker.result import Result


def how_sure(made: ColmapProblem, result: Result, refined: ColmapModel) -> Sure:
    """Covariances of poses, of the centres of images, of points, and of intrinsics that moved."""
    poses = camera_poses(refined)

    def arrays(of: Uncertainty) -> dict[str, np.ndarray]:
        C = of.covariance(made.poses).blocks
        found = {
            "image_ids": refined.images.ids,
            "pose_covariances": C,
            "centre_covariances": centre_covariances(poses, C),
            "point_ids": refined.points.ids,
            "point_covariances": of.covariance(made.points).blocks,
        }
        for name, part in made.intrinsics.items():
            if part.free_variables is not None:
                found[f"{name}_covariances"] = of.covariance(part.free_variables).blocks
        return found

    return Sure(placed(result, {made.poses: poses, made.points: refined.points.xyz}), arrays)

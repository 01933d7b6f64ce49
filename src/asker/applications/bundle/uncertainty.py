"""Covariances of a refined bundle."""

import numpy as np

from asker.applications.bundle.problem import BundleProblem, camera_poses
from asker.applications.uncertainty import DataCovariances, centre_covariances, with_values
from asker.solver.result import Result
from asker.uncertainty.covariance import Uncertainty


def data_covariances(made: BundleProblem, result: Result) -> DataCovariances:
    """Return covariances of cameras (pose steps and free intrinsics), of camera centres and of points."""
    refined = made.refined(result.values)
    poses = camera_poses(refined)
    cameras = poses if made.dof == 6 else (poses, refined.cameras[:, 6 : made.dof])

    def arrays(of: Uncertainty) -> dict[str, np.ndarray]:
        C = of.covariance(made.cameras).blocks
        points = of.covariance(made.points).blocks
        return {
            "camera_covariances": C,
            "centre_covariances": centre_covariances(poses, C),
            "point_covariances": points,
            "point_chances": of.chance(made.points),
        }

    return DataCovariances(
        with_values(result, {made.cameras: cameras, made.points: refined.points}), arrays, [made.cameras]
    )

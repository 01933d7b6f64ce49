"""Reprojection errors of a COLMAP model, and where its images were taken."""

import numpy as np

from asker.applications.colmap.cameras import depth, reprojection
from asker.applications.colmap.model import ColmapModel, camera_poses, positions
from asker.geometry.gauge import centres

BATCH = 1 << 18  # observations projected at a time: bounds the memory


def camera_centres(model: ColmapModel) -> np.ndarray:
    """Where the images were taken, −Rᵀt, (n, 3)."""
    return centres(camera_poses(model))


def reprojection_norms(model: ColmapModel) -> np.ndarray:
    """Residual norms (n_observations,) in pixels; infinite where a camera cannot see the point, as behind it."""
    seen, poses = model.observations(), camera_poses(model)
    norms = np.empty(len(seen.feature))
    model_of_camera = np.array(model.cameras.models)
    for name in sorted(set(model_of_camera[seen.camera].tolist())):
        cameras = np.flatnonzero(model_of_camera == name)
        params = np.stack([model.cameras.params[k] for k in cameras], axis=1)
        own = np.flatnonzero(model_of_camera[seen.camera] == name)
        for first in range(0, len(own), BATCH):
            k = own[first : first + BATCH]
            R, t = poses[seen.image[k], :, :3], poses[seen.image[k], :, 3]
            p = params[:, positions(cameras, seen.camera[k])]
            with np.errstate(all="ignore"):
                x, y, z = (np.einsum("nij,nj->ni", R, model.points.xyz[seen.point[k]]) + t).T
                r = np.hypot(*reprojection(name, p, model.images.xys[seen.feature[k]].T, x, y, z))
                norms[k] = np.where((depth(name, p, x, y, z) > 0) & np.isfinite(r), r, np.inf)
    return norms


def point_errors(model: ColmapModel) -> np.ndarray:
    """The mean residual of each point, over the observations that have one; −1 where none has."""
    r, point = reprojection_norms(model), model.observations().point
    good = np.isfinite(r)
    n = np.bincount(point[good], minlength=len(model.points))
    total = np.bincount(point[good], r[good], minlength=len(model.points))
    return np.where(n > 0, total / np.maximum(n, 1), -1.0)

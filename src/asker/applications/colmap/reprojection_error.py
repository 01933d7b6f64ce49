"""Reprojection errors and camera centres of a COLMAP model."""

import numpy as np

from asker.applications.colmap.cameras import depth, reprojection
from asker.applications.colmap.model import ColmapModel, camera_poses, positions
from asker.geometry.gauge import centres

BATCH = 1 << 18  # observations projected at a time, to limit the memory


def camera_centres(model: ColmapModel) -> np.ndarray:
    """Return the camera centres −Rᵀt of the images, (n, 3)."""
    return centres(camera_poses(model))


def reprojection_norms(model: ColmapModel) -> np.ndarray:
    """Return residual norms (n_observations,) in pixels; infinite if the point is not visible, as behind the camera."""
    o, poses = model.observations(), camera_poses(model)
    norms = np.empty(len(o.feature))
    model_of_camera = np.array(model.cameras.models)
    for name in sorted(set(model_of_camera[o.camera].tolist())):
        cameras = np.flatnonzero(model_of_camera == name)
        params = np.stack([model.cameras.params[k] for k in cameras], axis=1)
        index = np.flatnonzero(model_of_camera[o.camera] == name)
        for first in range(0, len(index), BATCH):
            k = index[first : first + BATCH]
            R, t = poses[o.image[k], :, :3], poses[o.image[k], :, 3]
            p = params[:, positions(cameras, o.camera[k])]
            with np.errstate(all="ignore"):
                x, y, z = (np.einsum("nij,nj->ni", R, model.points.xyz[o.point[k]]) + t).T
                r = np.hypot(*reprojection(name, p, model.images.xys[o.feature[k]].T, x, y, z))
                norms[k] = np.where((depth(name, p, x, y, z) > 0) & np.isfinite(r), r, np.inf)
    return norms


def point_errors(model: ColmapModel) -> np.ndarray:
    """Return the mean residual norm of each point over its finite ones; −1 if there are none."""
    r, point = reprojection_norms(model), model.observations().point
    is_finite = np.isfinite(r)
    n = np.bincount(point[is_finite], minlength=len(model.points))
    total = np.bincount(point[is_finite], r[is_finite], minlength=len(model.points))
    return np.where(n > 0, total / np.maximum(n, 1), -1.0)

"""COLMAP models for the tests."""

from dataclasses import replace

import numpy as np

from asker.applications.colmap.cameras import project
from asker.applications.colmap.model import NO_POINT, Cameras, ColmapModel, Images, Points
from asker.rotations import matrix_from_angle_axis, quaternion_from_matrix

PARAMS = {
    "SIMPLE_PINHOLE": [900, 512, 384],
    "PINHOLE": [900, 910, 512, 384],
    "SIMPLE_RADIAL": [900, 512, 384, 0.05],
    "RADIAL": [900, 512, 384, 0.05, -0.02],
    "OPENCV": [900, 910, 512, 384, 0.05, -0.02, 0.003, -0.004],
    "OPENCV_FISHEYE": [900, 910, 512, 384, 0.05, -0.02, 0.01, -0.003],
    "FULL_OPENCV": [900, 910, 512, 384, 0.05, -0.02, 0.003, -0.004, 0.01, 0.04, -0.01, 0.002],
}


def some_model(camera_models=tuple(PARAMS), n_images=4, n_points=25, noise=0.0, seed=0) -> ColmapModel:
    """A ring of images around a ball of points; image i has camera i modulo their number."""
    rng = np.random.default_rng(seed)
    n_cameras = len(camera_models)
    cameras = Cameras(
        ids=np.arange(n_cameras) * 3 + 2,
        models=tuple(camera_models),
        sizes=np.full((n_cameras, 2), (1024, 768)),
        params=tuple(np.array(PARAMS[name], float) for name in camera_models),
    )
    n_images = max(n_images, n_cameras)
    turn = 2 * np.pi * np.arange(n_images) / n_images
    R = matrix_from_angle_axis(np.stack([0.3 * np.sin(3 * turn), turn, 0.1 * np.cos(turn)], axis=1))
    xyz = rng.normal(size=(n_points, 3)) * 0.6
    camera = np.arange(n_images) % n_cameras
    tvecs = np.tile([0.1, -0.2, 5.0], (n_images, 1))
    P = np.einsum("nij,kj->nki", R, xyz) + tvecs[:, None]
    xys, point_ids = [], []
    for i in range(n_images):
        seen = rng.permutation(n_points)
        name = camera_models[camera[i]]
        uv = np.stack(project(name, cameras.params[camera[i]], *P[i, seen].T), axis=1)
        xys.append(np.concatenate([uv + noise * rng.normal(size=uv.shape), rng.uniform(0, 700, (3, 2))]))
        point_ids.append(np.concatenate([10 + 7 * seen, [NO_POINT] * 3]))
    images = Images(
        ids=np.arange(n_images) * 2 + 5,
        qvecs=quaternion_from_matrix(R),
        tvecs=tvecs,
        camera_ids=cameras.ids[camera],
        names=tuple(f"séq/{k:03}.jpg" for k in range(n_images)),
        starts=np.arange(n_images + 1) * (n_points + 3),
        xys=np.concatenate(xys),
        point_ids=np.concatenate(point_ids),
    )
    rgb = rng.integers(0, 256, (n_points, 3), np.uint8)
    return ColmapModel(cameras, images, Points(10 + 7 * np.arange(n_points), xyz, rgb, rng.uniform(size=n_points)))


def disturbed(model: ColmapModel, seed=1, size=0.02) -> ColmapModel:
    """Another start, with a tenth of the features far off."""
    rng = np.random.default_rng(seed)
    xys = model.images.xys.copy()
    xys[::10] += rng.uniform(-40, 40, xys[::10].shape)
    images = replace(model.images, tvecs=model.images.tvecs + size * rng.normal(size=model.images.tvecs.shape), xys=xys)
    return replace(
        model,
        images=images,
        points=replace(model.points, xyz=model.points.xyz + size * rng.normal(size=model.points.xyz.shape)),
    )

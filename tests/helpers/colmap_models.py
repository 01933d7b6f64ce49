"""Synthetic COLMAP models for the tests."""

from dataclasses import replace

import numpy as np

from asker.applications.colmap.cameras import project
from asker.applications.colmap.model import (
    NO_POINT,
    Cameras,
    ColmapModel,
    Frames,
    Images,
    Points,
    Rigs,
    camera_poses,
)
from asker.applications.colmap.rigs import composed, frame_poses, is_reference, members, sensor_poses
from asker.geometry.rotations import matrix_from_angle_axis, quaternion_from_matrix

PARAMS = {
    "SIMPLE_PINHOLE": [900, 512, 384],
    "PINHOLE": [900, 910, 512, 384],
    "SIMPLE_RADIAL": [900, 512, 384, 0.05],
    "RADIAL": [900, 512, 384, 0.05, -0.02],
    "OPENCV": [900, 910, 512, 384, 0.05, -0.02, 0.003, -0.004],
    "OPENCV_FISHEYE": [900, 910, 512, 384, 0.05, -0.02, 0.01, -0.003],
    "FOV": [900, 910, 512, 384, 0.6],
    "SIMPLE_RADIAL_FISHEYE": [900, 512, 384, 0.05],
    "RADIAL_FISHEYE": [900, 512, 384, 0.05, -0.02],
    "THIN_PRISM_FISHEYE": [900, 910, 512, 384, 0.05, -0.02, 0.003, -0.004, 0.01, -0.003, 0.002, -0.001],
    "RAD_TAN_THIN_PRISM_FISHEYE": [
        *(900, 910, 512, 384, 0.05, -0.02, 0.01, -0.003, 0.002, -0.001),
        *(0.003, -0.004, 0.002, -0.001, 0.003, -0.002),
    ],
    "SIMPLE_DIVISION": [900, 512, 384, -0.1],
    "DIVISION": [900, 910, 512, 384, -0.1],
    "SIMPLE_FISHEYE": [900, 512, 384],
    "FISHEYE": [900, 910, 512, 384],
    "EUCM": [900, 910, 512, 384, 0.6, 1.1],
    "EQUIRECTANGULAR": [1024, 512],
    "FULL_OPENCV": [900, 910, 512, 384, 0.05, -0.02, 0.003, -0.004, 0.01, 0.04, -0.01, 0.002],
}


def some_model(camera_models=tuple(PARAMS), n_images=4, n_points=25, noise=0.0, seed=0) -> ColmapModel:
    """Return a ring of images around a ball of points; the cameras are assigned to the images cyclically."""
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
        observed = rng.permutation(n_points)
        name = camera_models[camera[i]]
        uv = np.stack(project(name, cameras.params[camera[i]], *P[i, observed].T), axis=1)
        xys.append(np.concatenate([uv + noise * rng.normal(size=uv.shape), rng.uniform(0, 700, (3, 2))]))
        point_ids.append(np.concatenate([10 + 7 * observed, [NO_POINT] * 3]))
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


def rig_model(n_frames=6, n_points=40, noise=0.0, seed=0, camera_models=("SIMPLE_RADIAL", "OPENCV")) -> ColmapModel:
    """Return frames of a rig of two cameras around a ball of points; the last frame has one camera only.

    The ids of frames and rigs differ from those of images and cameras; the rig also has an IMU.
    """
    truth = some_model(camera_models[:1], n_frames, n_points, noise, seed)
    rng = np.random.default_rng(seed + 1)
    frames = camera_poses(truth)
    baseline = np.concatenate([matrix_from_angle_axis(np.array([[0.1, -0.2, 0.05]])), [[[0.5], [0.1], [-0.1]]]], axis=2)
    others = composed(np.repeat(baseline, n_frames - 1, axis=0), frames[:-1])
    second = some_model(camera_models[1:], n_frames - 1, n_points, 0.0, seed)
    params = (*truth.cameras.params, *second.cameras.params)
    P = np.einsum("nij,kj->nki", others[:, :, :3], truth.points.xyz) + others[:, None, :, 3]
    uv = np.stack(project(camera_models[1], params[1], *P.reshape(-1, 3).T), axis=1)
    a, n = truth.images, (n_frames - 1) * n_points
    images = Images(
        ids=np.concatenate([a.ids, 100 + np.arange(n_frames - 1)]),
        qvecs=np.concatenate([a.qvecs, quaternion_from_matrix(others[:, :, :3])]),
        tvecs=np.concatenate([a.tvecs, others[:, :, 3]]),
        camera_ids=np.concatenate([a.camera_ids, np.full(n_frames - 1, 9)]),
        names=(*a.names, *(f"right/{k:03}.jpg" for k in range(n_frames - 1))),
        starts=np.concatenate([a.starts, a.starts[-1] + n_points * np.arange(1, n_frames)]),
        xys=np.concatenate([a.xys, uv + noise * rng.normal(size=(n, 2))]),
        point_ids=np.concatenate([a.point_ids, np.tile(truth.points.ids, n_frames - 1)]),
    )
    cameras = Cameras(np.array([2, 9]), tuple(camera_models), np.full((2, 2), (1024, 768)), params)
    pairs = np.stack([a.ids[:-1], images.ids[n_frames:]], axis=1)
    last = len(pairs)
    in_frames = Frames(
        ids=200 + np.arange(n_frames),
        rig_ids=np.array([31] * last + [32]),
        starts=np.array([*2 * np.arange(last + 1), 2 * last + 1]),
        kinds=np.zeros(2 * last + 1, int),
        sensor_ids=np.array([2, 9] * last + [2]),
        data_ids=np.append(pairs.ravel(), a.ids[-1]),
    )
    poses = np.concatenate([quaternion_from_matrix(baseline[:, :, :3]), baseline[:, :, 3]], axis=1)[0]
    alone = np.array([1.0, 0, 0, 0, 0, 0, 0])
    numbers = np.stack([alone, poses, alone, alone])
    rigs = Rigs(
        ids=np.array([31, 32]),
        starts=np.array([0, 3, 4]),
        kinds=np.array([0, 0, 1, 0]),
        sensor_ids=np.array([2, 9, 5, 2]),
        has_pose=np.array([True, True, False, True]),
        qvecs=numbers[:, :4],
        tvecs=numbers[:, 4:],
        frames=in_frames,
    )
    return ColmapModel(cameras, images, truth.points, rigs)


def disturbed_frames(model: ColmapModel, seed=1, size=0.02, baseline=0.0) -> ColmapModel:
    """Return a rig model with noise added to frames and points, and of size `baseline` to the sensor poses."""
    rng = np.random.default_rng(seed)
    assert model.rigs is not None
    rigs, (frame, sensor) = model.rigs, members(model)
    frames = frame_poses(model, camera_poses(model))
    frames[:, :, 3] += size * rng.normal(size=(len(frames), 3))
    moving = (~is_reference(rigs) & rigs.has_pose)[:, None]
    rigs = replace(rigs, tvecs=rigs.tvecs + moving * baseline * rng.normal(size=rigs.tvecs.shape))
    poses = composed(sensor_poses(rigs)[sensor], frames[frame])
    xyz = model.points.xyz + size * rng.normal(size=model.points.xyz.shape)
    images = replace(model.images, qvecs=quaternion_from_matrix(poses[:, :, :3]), tvecs=poses[:, :, 3])
    return replace(model, images=images, points=replace(model.points, xyz=xyz), rigs=rigs)


def disturbed(model: ColmapModel, seed=1, size=0.02) -> ColmapModel:
    """Return a model with noise added to positions and points, and a tenth of the features as outliers."""
    rng = np.random.default_rng(seed)
    xys = model.images.xys.copy()
    xys[::10] += rng.uniform(-40, 40, xys[::10].shape)
    images = replace(model.images, tvecs=model.images.tvecs + size * rng.normal(size=model.images.tvecs.shape), xys=xys)
    return replace(
        model,
        images=images,
        points=replace(model.points, xyz=model.points.xyz + size * rng.normal(size=model.points.xyz.shape)),
    )

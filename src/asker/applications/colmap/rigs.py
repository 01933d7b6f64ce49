"""Rigs: sensors with constant relative poses (COLMAP 3.12 and later).

Every camera belongs to a rig and every image to a frame.  The pose of an image is

    cam_from_world = sensor_from_rig · rig_from_world

where sensor_from_rig is the identity for the reference sensor of a rig, and rig_from_world is the pose of the frame.
A rig with one camera, whose frames have one image each, adds no constraint.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from asker.applications.colmap.model import (
    CAMERA,
    SENSORS,
    ColmapModel,
    Fault,
    Floats,
    Frames,
    Ints,
    Rigs,
    id_faults,
    positions,
    starts_of,
)
from asker.geometry.rotations import matrix_from_quaternion

IDENTITY = (1.0, 0.0, 0.0, 0.0)
POSE_TOLERANCE = 1e-6
"""The largest difference between the numbers of two equal poses, relative to 1 plus their absolute values."""


@dataclass
class RigRecords:
    """Collects the rigs of a file one by one."""

    ids: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    sensors: list[tuple[int, int, bool]] = field(default_factory=list)
    poses: list[Any] = field(default_factory=list)

    def begin(self, id: int) -> None:
        """Begin a new rig."""
        self.ids.append(id)
        self.lengths.append(0)

    def add(self, kind: int, sensor: int, has_pose: bool, pose: Any) -> None:
        """Add a sensor to the last rig; `pose` is None for the reference sensor and for unknown poses."""
        self.lengths[-1] += 1
        self.sensors.append((kind, sensor, has_pose))
        self.poses.append((*IDENTITY, 0.0, 0.0, 0.0) if pose is None else pose)

    def rigs(self, frames: Frames) -> Rigs:
        """Return the collected rigs with their frames."""
        poses = np.array(self.poses, float).reshape(-1, 7)
        kinds, sensors, has_pose = np.array(self.sensors, np.int64).reshape(-1, 3).T
        return Rigs(
            ids=np.array(self.ids, np.int64),
            starts=starts_of(self.lengths),
            kinds=kinds.copy(),
            sensor_ids=sensors.copy(),
            has_pose=has_pose.astype(bool),
            qvecs=poses[:, :4].copy(),
            tvecs=poses[:, 4:].copy(),
            frames=frames,
        )


def numbers_of(rigs: Rigs) -> Floats:
    """Return sensor_from_rig as quaternions and translations, (n_sensors, 7)."""
    return np.concatenate([rigs.qvecs, rigs.tvecs], axis=1)


class Members(NamedTuple):
    """The frame and the sensor of each image."""

    frame: Ints
    """(n_images,): the index of the frame."""
    sensor: Ints
    """(n_images,): the index of the sensor among those of all rigs."""


def rigs_of(model: ColmapModel) -> Rigs:
    """Return the rigs of a model; by default one rig for each camera and one frame for each image, with their ids."""
    if model.rigs is not None:
        return model.rigs
    n_cameras, n_images = len(model.cameras), len(model.images)
    frames = Frames(
        ids=model.images.ids,
        rig_ids=model.images.camera_ids,
        starts=np.arange(n_images + 1),
        kinds=np.full(n_images, CAMERA),
        sensor_ids=model.images.camera_ids,
        data_ids=model.images.ids,
    )
    return Rigs(
        ids=model.cameras.ids,
        starts=np.arange(n_cameras + 1),
        kinds=np.full(n_cameras, CAMERA),
        sensor_ids=model.cameras.ids,
        has_pose=np.ones(n_cameras, dtype=bool),
        qvecs=np.tile(IDENTITY, (n_cameras, 1)),
        tvecs=np.zeros((n_cameras, 3)),
        frames=frames,
    )


def members(model: ColmapModel) -> Members:
    """Return the frame and the sensor of each image of a valid model."""
    rigs = rigs_of(model)
    entry = np.flatnonzero(rigs.frames.kinds == CAMERA)
    entry = entry[positions(rigs.frames.data_ids[entry], model.images.ids)]
    return Members(of_entries(rigs.frames.starts)[entry], _sensors_of(rigs)[entry])


def is_reference(rigs: Rigs) -> np.ndarray:
    """Return the mask of reference sensors, (n_sensors,)."""
    mask = np.zeros(len(rigs.kinds), dtype=bool)
    mask[rigs.starts[:-1][np.diff(rigs.starts) > 0]] = True
    return mask


def sensor_poses(rigs: Rigs) -> Floats:
    """Return sensor_from_rig as [R | t], (n_sensors, 3, 4); the identity if it is unknown."""
    qvecs = np.where(rigs.has_pose[:, None], rigs.qvecs, IDENTITY)
    tvecs = np.where(rigs.has_pose[:, None], rigs.tvecs, 0.0)
    return np.concatenate([matrix_from_quaternion(qvecs), tvecs[:, :, None]], axis=2)


def composed(a: Floats, b: Floats) -> Floats:
    """Return the products of poses a · b, (n, 3, 4)."""
    R = a[:, :, :3] @ b[:, :, :3]
    return np.concatenate([R, a[:, :, :3] @ b[:, :, 3:] + a[:, :, 3:]], axis=2)


def frame_poses(model: ColmapModel, poses: Floats) -> Floats:
    """Return rig_from_world of every frame, (n_frames, 3, 4), from the poses (n_images, 3, 4) of the images.

    It follows from the image of the reference sensor if the frame has one, else from its first image.
    """
    rigs, (frame, sensor) = rigs_of(model), members(model)
    reference = is_reference(rigs)[sensor]
    order = np.lexsort((~reference, frame))
    image = order[np.unique(frame[order], return_index=True)[1]]  # every frame has one
    poses, sensors = poses[image], sensor_poses(rigs)[sensor[image]]
    R_inverse = np.swapaxes(sensors[:, :, :3], 1, 2)
    rig_poses = np.concatenate([R_inverse @ poses[:, :, :3], R_inverse @ (poses[:, :, 3:] - sensors[:, :, 3:])], axis=2)
    return np.where(reference[image, None, None], poses, rig_poses)


def of_entries(starts: Ints) -> Ints:
    """Return the index of the record of each entry, from the starts of the records."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def _sensors_of(rigs: Rigs) -> Ints:
    """Return the index of the sensor of each frame entry; −1 if its rig has no such sensor."""
    frames = rigs.frames
    rig = positions(rigs.ids, frames.rig_ids)[of_entries(frames.starts)]
    known = np.stack([of_entries(rigs.starts), rigs.kinds, rigs.sensor_ids], axis=1)
    wanted = np.stack([rig, frames.kinds, frames.sensor_ids], axis=1)
    keys = np.unique(np.concatenate([known, wanted]), axis=0, return_inverse=True)[1].ravel()
    return positions(keys[: len(known)], keys[len(known) :])


# ---- validation


def rig_faults(model: ColmapModel) -> Iterator[Fault]:
    """Yield the errors in the rigs of a model whose arrays have correct shapes."""
    if model.rigs is None:
        return
    yield from id_faults("rigs", "rig", model.rigs.ids, 32)
    yield from id_faults("frames", "frame", model.rigs.frames.ids, 32)
    yield from _sensor_faults(model)
    yield from _frame_faults(model)


def _sensor_faults(model: ColmapModel) -> Iterator[Fault]:
    rigs = model.rigs
    assert rigs is not None
    of, reference = of_entries(rigs.starts), is_reference(rigs)
    missing = (rigs.kinds == CAMERA) & (positions(model.cameras.ids, rigs.sensor_ids) < 0)
    numbers = numbers_of(rigs)
    is_not_identity = (numbers != (*IDENTITY, 0.0, 0.0, 0.0)).any(axis=1) | ~rigs.has_pose
    keys = np.stack([of, rigs.kinds, rigs.sensor_ids], axis=1)
    first = np.unique(keys, axis=0, return_index=True)[1] if len(keys) else np.zeros(0, int)
    for bad, what in (
        ((rigs.kinds < 0) | (rigs.kinds >= len(SENSORS)), "a sensor has an unknown kind"),
        (missing, "there is no camera {id}"),
        (~np.isin(np.arange(len(keys)), first), "sensor {id} is repeated"),
        (rigs.has_pose & ~np.isfinite(numbers).all(axis=1), "the pose of sensor {id} is not finite"),
        (rigs.has_pose & ~rigs.qvecs.any(axis=1), "the rotation of sensor {id} is a quaternion of zeros"),
        (reference & is_not_identity, "the pose of the reference sensor {id} is not the identity"),
    ):
        for k in np.flatnonzero(bad)[:1].tolist():
            yield Fault("rigs", int(of[k]), what.format(id=rigs.sensor_ids[k]))


def _frame_faults(model: ColmapModel) -> Iterator[Fault]:
    rigs, images = model.rigs, model.images
    assert rigs is not None
    frames = rigs.frames
    of, of_camera, sensor = of_entries(frames.starts), frames.kinds == CAMERA, _sensors_of(rigs)
    image = np.where(of_camera, positions(images.ids, frames.data_ids), -1)
    has_image = image >= 0
    other = np.zeros(len(image), dtype=bool)
    other[has_image] = images.camera_ids[image[has_image]] != frames.sensor_ids[has_image]
    unknown = has_image & (sensor >= 0)
    unknown[unknown] = ~rigs.has_pose[sensor[unknown]]
    for k in np.flatnonzero(positions(rigs.ids, frames.rig_ids) < 0)[:1].tolist():
        yield Fault("frames", k, f"there is no rig {frames.rig_ids[k]}")
    for bad, what in (
        (of_camera & ~has_image, "there is no image {image}"),
        (other, "image {image} has another camera than its frame"),
        (sensor < 0, "rig {rig} has no sensor {sensor}"),
        (unknown, "image {image} belongs to sensor {sensor}, whose pose in rig {rig} is unknown"),
    ):
        for k in np.flatnonzero(bad)[:1].tolist():
            names = {"image": frames.data_ids[k], "sensor": frames.sensor_ids[k], "rig": frames.rig_ids[of[k]]}
            yield Fault("frames", int(of[k]), what.format(**names))
    n_frames = np.bincount(image[has_image], minlength=len(images))
    for k in np.flatnonzero(n_frames != 1)[:1].tolist():
        yield Fault("images", k, f"image {images.ids[k]} is in {n_frames[k]} frames, expected one")
    n_images = np.bincount(of[has_image], minlength=len(frames))
    for k in np.flatnonzero(n_images == 0)[:1].tolist():
        yield Fault("frames", k, f"frame {frames.ids[k]} has no image")


def pose_fault(model: ColmapModel, poses: Floats, rig_poses: Floats | None = None) -> Fault | None:
    """Return an error if the pose of an image disagrees with those of its frame and sensor.

    The model has no other errors.  `poses` are those of the images, (n_images, 3, 4).  `rig_poses` are those of the
    frames in a file, (n_frames, 3, 4); by default they are computed from the images.
    """
    if model.rigs is None:
        return None
    (frame, sensor), rigs = members(model), model.rigs
    expected = composed(
        sensor_poses(rigs)[sensor], (frame_poses(model, poses) if rig_poses is None else rig_poses)[frame]
    )
    with np.errstate(all="ignore"):
        other = ~(np.abs(poses - expected) <= POSE_TOLERANCE * (1 + np.abs(poses))).all(axis=(1, 2))  # also for NaN
    for k in np.flatnonzero(other)[:1].tolist():
        id, name = rigs.frames.ids[frame[k]], model.images.ids[k]
        return Fault(
            "frames", int(frame[k]), f"the pose of image {name} disagrees with those of frame {id} and its sensor"
        )
    return None

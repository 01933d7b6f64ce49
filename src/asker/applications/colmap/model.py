"""A COLMAP model as NumPy arrays, and its validation.

A model has cameras, images and points.  An image refers to its camera and has a list of features: pixels, each with the
id of a point, or −1.  Several images may share one camera.  A feature with a point is an *observation*.  Sensors with
constant relative poses are a *rig*; the images that a rig takes at one time are a *frame*.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.geometry.rotations import matrix_from_quaternion

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_POINT = -1

CAMERA_MODELS = {
    "SIMPLE_PINHOLE": "f cx cy",
    "PINHOLE": "fx fy cx cy",
    "SIMPLE_RADIAL": "f cx cy k",
    "RADIAL": "f cx cy k1 k2",
    "OPENCV": "fx fy cx cy k1 k2 p1 p2",
    "OPENCV_FISHEYE": "fx fy cx cy k1 k2 k3 k4",
    "FULL_OPENCV": "fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6",
    "FOV": "fx fy cx cy omega",
    "SIMPLE_RADIAL_FISHEYE": "f cx cy k",
    "RADIAL_FISHEYE": "f cx cy k1 k2",
    "THIN_PRISM_FISHEYE": "fx fy cx cy k1 k2 p1 p2 k3 k4 sx1 sy1",
    "RAD_TAN_THIN_PRISM_FISHEYE": "fx fy cx cy k0 k1 k2 k3 k4 k5 p0 p1 s0 s1 s2 s3",
    "SIMPLE_DIVISION": "f cx cy k",
    "DIVISION": "fx fy cx cy k",
    "SIMPLE_FISHEYE": "f cx cy",
    "FISHEYE": "fx fy cx cy",
    "EUCM": "fx fy cx cy alpha beta",
    "EQUIRECTANGULAR": "w h",
}
"""The parameters of each camera model, in the order of COLMAP's numbers for them."""
MODEL_NAMES = tuple(CAMERA_MODELS)
SENSORS = ("CAMERA", "IMU")
"""The kinds of sensors, in the order of COLMAP's numbers for them."""
CAMERA = 0


def n_params(camera_model: str) -> int:
    """Return the number of parameters of a camera model."""
    return len(CAMERA_MODELS[camera_model].split())


@dataclass(frozen=True, eq=False)
class Cameras:
    """The cameras of a model."""

    ids: Ints
    """(n_cameras,)"""
    models: tuple[str, ...]
    """(n_cameras,): camera models, keys of `CAMERA_MODELS`."""
    sizes: Ints
    """(n_cameras, 2): width and height in pixels."""
    params: tuple[Floats, ...]
    """(n_cameras,): the parameters of each camera."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Images:
    """The images of a model, with their poses and features."""

    ids: Ints
    """(n_images,)"""
    qvecs: Floats
    """(n_images, 4): the rotation from world to camera as a quaternion w x y z."""
    tvecs: Floats
    """(n_images, 3): the translation from world to camera."""
    camera_ids: Ints
    """(n_images,)"""
    names: tuple[str, ...]
    starts: Ints
    """(n_images + 1,): the features of image i are starts[i]:starts[i + 1]."""
    xys: Floats
    """(n_features, 2): pixels."""
    point_ids: Ints
    """(n_features,): the point of each feature, or −1."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def of_feature(self) -> Ints:
        """(n_features,): the index of the image of each feature."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))


@dataclass(frozen=True, eq=False)
class Points:
    """The points of a model."""

    ids: Ints
    """(n_points,)"""
    xyz: Floats
    """(n_points, 3): positions in the world."""
    rgb: NDArray[np.uint8]
    """(n_points, 3)"""
    errors: Floats
    """(n_points,): mean reprojection error in pixels, −1 if unknown."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Frames:
    """Frames: simultaneous data of the sensors of a rig.  The pose of a frame follows from those of its images."""

    ids: Ints
    """(n_frames,)"""
    rig_ids: Ints
    """(n_frames,)"""
    starts: Ints
    """(n_frames + 1,): the entries of frame f are starts[f]:starts[f + 1]."""
    kinds: Ints
    """(n_entries,): the kind of sensor, an index of `SENSORS`."""
    sensor_ids: Ints
    """(n_entries,)"""
    data_ids: Ints
    """(n_entries,): the id of the data; for a camera, of an image."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Rigs:
    """Rigs, which are sensors with constant relative poses, and their frames."""

    ids: Ints
    """(n_rigs,)"""
    starts: Ints
    """(n_rigs + 1,): the sensors of rig r are starts[r]:starts[r + 1]; the first is the reference."""
    kinds: Ints
    """(n_sensors,): the kind of sensor, an index of `SENSORS`."""
    sensor_ids: Ints
    """(n_sensors,): the id of the sensor; for a camera, of the camera."""
    has_pose: NDArray[np.bool_]
    """(n_sensors,): the mask of sensors with known sensor_from_rig."""
    qvecs: Floats
    """(n_sensors, 4): the rotation from rig to sensor; the identity for the reference sensor."""
    tvecs: Floats
    """(n_sensors, 3): the translation from rig to sensor."""
    frames: Frames

    def __len__(self) -> int:
        return len(self.ids)


class Observations(NamedTuple):
    """Observations as indices (not ids), in the order of the features."""

    feature: Ints
    image: Ints
    camera: Ints
    point: Ints


class Tracks(NamedTuple):
    """The observations of each point."""

    starts: Ints
    """(n_points + 1,): the entries of point j are starts[j]:starts[j + 1]."""
    image_ids: Ints
    features: Ints
    """The index of the feature within its image, from 0."""


@dataclass(frozen=True, eq=False)
class ColmapModel:
    """Cameras, images and points; the tracks of the points are the inverse of the images' point ids."""

    cameras: Cameras
    images: Images
    points: Points
    rigs: Rigs | None = None
    """None if every camera is a rig with a single sensor."""

    @property
    def n_observations(self) -> int:
        """The number of features with a point."""
        return int(np.count_nonzero(self.images.point_ids != NO_POINT))

    def observations(self) -> Observations:
        """Return feature, image, camera and point of every observation."""
        images = self.images
        feature = np.flatnonzero(images.point_ids != NO_POINT)
        image = images.of_feature[feature]
        camera = positions(self.cameras.ids, images.camera_ids)
        point = positions(self.points.ids, images.point_ids[feature])
        if (camera < 0).any() or (point < 0).any():
            raise ValueError("an image refers to a camera or a point that does not exist")
        return Observations(feature, image, camera[image], point)

    def tracks(self) -> Tracks:
        """Return the observations of each point."""
        o = self.observations()
        order = np.argsort(o.point, kind="stable")
        feature, image = o.feature[order], o.image[order]
        lengths = np.bincount(o.point, minlength=len(self.points))
        return Tracks(starts_of(lengths), self.images.ids[image], feature - self.images.starts[image])


def camera_poses(model: ColmapModel) -> np.ndarray:
    """Return the poses [R | t] of the images, (n, 3, 4)."""
    return np.concatenate([matrix_from_quaternion(model.images.qvecs), model.images.tvecs[:, :, None]], axis=2)


def starts_of(lengths: Any) -> Ints:
    """Return the start of each of several consecutive ranges of given lengths, followed by the end of the last one."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def positions(ids: Ints, wanted: Ints) -> Ints:
    """Return the index of each wanted id in `ids`; −1 for missing ones."""
    if not len(ids):
        return np.full(len(wanted), -1)
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
    index = order[at]
    return np.where(ids[index] == wanted, index, -1)


class Fault(NamedTuple):
    """An error in a record of a part (`cameras`, `images`, `points3D`, `rigs`, `frames`)."""

    part: str
    record: int
    what: str


def faults(model: ColmapModel) -> Iterator[Fault]:
    """Yield the errors in the values of a model whose arrays have correct shapes."""
    yield from _camera_faults(model.cameras)
    yield from _image_faults(model)
    yield from _point_faults(model.points)


def _camera_faults(cameras: Cameras) -> Iterator[Fault]:
    yield from id_faults("cameras", "camera", cameras.ids, 32)
    for record, (name, params) in enumerate(zip(cameras.models, cameras.params, strict=True)):
        if not np.isfinite(params).all():
            yield Fault("cameras", record, f"a parameter of this {name} camera is not finite")
    for record in np.flatnonzero((cameras.sizes < 0).any(axis=1)).tolist():
        yield Fault("cameras", record, "the width or height is out of range")


def _image_faults(model: ColmapModel) -> Iterator[Fault]:
    images = model.images
    yield from id_faults("images", "image", images.ids, 32)
    numbers = np.concatenate([images.qvecs, images.tvecs], axis=1)
    for record in np.flatnonzero(~np.isfinite(numbers).all(axis=1)).tolist():
        yield Fault("images", record, "the pose is not finite")
    for record in np.flatnonzero(~images.qvecs.any(axis=1)).tolist():
        yield Fault("images", record, "the rotation is a quaternion of zeros")
    for record in np.flatnonzero(positions(model.cameras.ids, images.camera_ids) < 0).tolist():
        yield Fault("images", record, f"there is no camera {images.camera_ids[record]}")
    missing = (positions(model.points.ids, images.point_ids) < 0) & (images.point_ids != NO_POINT)
    for bad, what in ((~np.isfinite(images.xys).all(axis=1), "is not finite"), (missing, "refers to point {}")):
        for feature in np.flatnonzero(bad)[:1].tolist():
            record = int(np.searchsorted(images.starts, feature, side="right")) - 1
            message = what.format(f"{images.point_ids[feature]}, which does not exist")
            yield Fault("images", record, f"feature {feature - images.starts[record]} {message}")


def _point_faults(points: Points) -> Iterator[Fault]:
    yield from id_faults("points3D", "point", points.ids, 63)
    numbers = np.concatenate([points.xyz, points.errors[:, None]], axis=1)
    for record in np.flatnonzero(~np.isfinite(numbers).all(axis=1)).tolist():
        yield Fault("points3D", record, "the position or the error is not finite")


def id_faults(part: str, name: str, ids: Ints, bits: int) -> Iterator[Fault]:
    """Yield errors of ids: repeated ones, or ones out of range; the largest number of `bits` bits means "none"."""
    for record in np.flatnonzero((ids < 0) | (ids >= 2**bits - 1)).tolist():
        yield Fault(part, record, f"the {name} id {ids[record]} is out of range")
    order = np.argsort(ids, kind="stable")
    repeated = order[1:][np.diff(ids[order]) == 0]
    if repeated.size:
        record = int(repeated.min())
        yield Fault(part, record, f"the {name} id {ids[record]} is repeated")


def track_fault(model: ColmapModel, tracks: Tracks) -> Fault | None:
    """Return an error if the tracks of a file do not agree with the point ids of its images."""
    images, points = model.images, model.points
    owner = np.repeat(np.arange(len(points)), np.diff(tracks.starts))
    image = positions(images.ids, tracks.image_ids)
    n_features = np.diff(images.starts)[image] if len(images) else np.zeros(len(image), int)
    outside = (image < 0) | (tracks.features < 0) | (tracks.features >= n_features)
    for k in np.flatnonzero(outside)[:1].tolist():
        where = f"feature {tracks.features[k]} of image {tracks.image_ids[k]}"
        return Fault("points3D", int(owner[k]), f"the track refers to {where}, which does not exist")
    feature = images.starts[image] + tracks.features
    for k in np.flatnonzero(images.point_ids[feature] != points.ids[owner])[:1].tolist():
        where = f"feature {tracks.features[k]} of image {tracks.image_ids[k]}"
        return Fault("points3D", int(owner[k]), f"the track refers to {where}, which has another point or none")
    n_entries = np.bincount(feature, minlength=len(images.point_ids))
    for k in np.flatnonzero(n_entries[feature] > 1)[:1].tolist():
        return Fault("points3D", int(owner[k]), "the track refers to a feature twice")
    if len(feature) < model.n_observations:
        return _short_track(model, owner)
    return None


def _short_track(model: ColmapModel, owner: Ints) -> Fault:
    n_observations = np.bincount(model.observations().point, minlength=len(model.points))
    n_entries = np.bincount(owner, minlength=len(model.points))
    j = int(np.argmax(n_observations > n_entries))
    return Fault(
        "points3D", j, f"the track has {n_entries[j]} entries, but {n_observations[j]} features refer to this point"
    )

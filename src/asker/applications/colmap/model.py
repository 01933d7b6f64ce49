"""A COLMAP model as NumPy arrays, and what makes one valid.

A model has cameras, images and points.  An image names its camera and lists its features: pixels, each with the id of
the point it shows, or −1.  Several images may share one camera.  A feature that shows a point is an *observation*.
Sensors that move together are a *rig*; the images that one took at a time are a *frame*.
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
"""The parameters of each camera model; the position in this list is COLMAP's number for it."""
MODEL_NAMES = tuple(CAMERA_MODELS)
SENSORS = ("CAMERA", "IMU")
"""The kinds of sensors; the position in this list is COLMAP's number for it."""
CAMERA = 0


def n_params(camera_model: str) -> int:
    return len(CAMERA_MODELS[camera_model].split())


@dataclass(frozen=True, eq=False)
class Cameras:
    ids: Ints
    """(n_cameras,)"""
    models: tuple[str, ...]
    """The camera model of each, a key of `CAMERA_MODELS`."""
    sizes: Ints
    """(n_cameras, 2): width and height in pixels."""
    params: tuple[Floats, ...]
    """The parameters of each, as many as its model has."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Images:
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
    """(n_features,): the point that a feature shows, or −1."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def of_feature(self) -> Ints:
        """(n_features,): the index of the image that a feature is in."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))


@dataclass(frozen=True, eq=False)
class Points:
    ids: Ints
    """(n_points,)"""
    xyz: Floats
    """(n_points, 3): positions in the world."""
    rgb: NDArray[np.uint8]
    """(n_points, 3)"""
    errors: Floats
    """(n_points,): mean reprojection error in pixels, −1 where unknown."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Frames:
    """What the sensors of a rig gave at a time.  The pose of a frame follows from those of its images."""

    ids: Ints
    """(n_frames,)"""
    rig_ids: Ints
    """(n_frames,)"""
    starts: Ints
    """(n_frames + 1,): the entries of frame f are starts[f]:starts[f + 1]."""
    kinds: Ints
    """(n_entries,): of the sensor, a position in `SENSORS`."""
    sensor_ids: Ints
    """(n_entries,)"""
    data_ids: Ints
    """(n_entries,): what it gave, of a camera the id of an image."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Rigs:
    """Sensors that move together, and their frames."""

    ids: Ints
    """(n_rigs,)"""
    starts: Ints
    """(n_rigs + 1,): the sensors of rig r are starts[r]:starts[r + 1]; the first is the reference."""
    kinds: Ints
    """(n_sensors,): a position in `SENSORS`."""
    sensor_ids: Ints
    """(n_sensors,): of a camera its id."""
    has_pose: NDArray[np.bool_]
    """(n_sensors,): whether sensor_from_rig is known."""
    qvecs: Floats
    """(n_sensors, 4): the rotation from rig to sensor, that of the reference is the identity."""
    tvecs: Floats
    """(n_sensors, 3): the translation from rig to sensor."""
    frames: Frames

    def __len__(self) -> int:
        return len(self.ids)


class Observations(NamedTuple):
    """Who sees whom, as indices (not ids), in the order of the features."""

    feature: Ints
    image: Ints
    camera: Ints
    point: Ints


class Tracks(NamedTuple):
    """For each point, where it is seen."""

    starts: Ints
    """(n_points + 1,): the entries of point j are starts[j]:starts[j + 1]."""
    image_ids: Ints
    features: Ints
    """Which feature of the image, counted from 0."""


@dataclass(frozen=True, eq=False)
class ColmapModel:
    """Cameras, images and points; the tracks of the points are the inverse of the images' point ids."""

    cameras: Cameras
    images: Images
    points: Points
    rigs: Rigs | None = None
    """None where every camera is a rig of its own."""

    @property
    def n_observations(self) -> int:
        return int(np.count_nonzero(self.images.point_ids != NO_POINT))

    def observations(self) -> Observations:
        images = self.images
        feature = np.flatnonzero(images.point_ids != NO_POINT)
        image = images.of_feature[feature]
        camera = positions(self.cameras.ids, images.camera_ids)
        point = positions(self.points.ids, images.point_ids[feature])
        if (camera < 0).any() or (point < 0).any():
            raise ValueError("an image names a camera or a point that the model does not have")
        return Observations(feature, image, camera[image], point)

    def tracks(self) -> Tracks:
        seen = self.observations()
        order = np.argsort(seen.point, kind="stable")
        feature, image = seen.feature[order], seen.image[order]
        lengths = np.bincount(seen.point, minlength=len(self.points))
        return Tracks(starts_of(lengths), self.images.ids[image], feature - self.images.starts[image])


def camera_poses(model: ColmapModel) -> np.ndarray:
    """[R | t] of every image, (n, 3, 4)."""
    return np.concatenate([matrix_from_quaternion(model.images.qvecs), model.images.tvecs[:, :, None]], axis=2)


def starts_of(lengths: Any) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def positions(ids: Ints, wanted: Ints) -> Ints:
    """Where each wanted id stands among `ids`; −1 where it does not."""
    if not len(ids):
        return np.full(len(wanted), -1)
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
    found = order[at]
    return np.where(ids[found] == wanted, found, -1)


class Fault(NamedTuple):
    """What is wrong with which record of which part (`cameras`, `images`, `points3D`, `rigs`, `frames`)."""

    part: str
    record: int
    what: str


def faults(model: ColmapModel) -> Iterator[Fault]:
    """What is wrong with the numbers of a model, as far as the shapes fit."""
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
    for bad, what in ((~np.isfinite(images.xys).all(axis=1), "is not finite"), (missing, "shows point {}")):
        for feature in np.flatnonzero(bad)[:1].tolist():
            record = int(np.searchsorted(images.starts, feature, side="right")) - 1
            told = what.format(f"{images.point_ids[feature]}, which does not exist")
            yield Fault("images", record, f"feature {feature - images.starts[record]} {told}")


def _point_faults(points: Points) -> Iterator[Fault]:
    yield from id_faults("points3D", "point", points.ids, 63)
    numbers = np.concatenate([points.xyz, points.errors[:, None]], axis=1)
    for record in np.flatnonzero(~np.isfinite(numbers).all(axis=1)).tolist():
        yield Fault("points3D", record, "the position or the error is not finite")


def id_faults(part: str, name: str, ids: Ints, bits: int) -> Iterator[Fault]:
    """Ids differ, and fit into the format; the largest number there means "none"."""
    for record in np.flatnonzero((ids < 0) | (ids >= 2**bits - 1)).tolist():
        yield Fault(part, record, f"the {name} id {ids[record]} is out of range")
    order = np.argsort(ids, kind="stable")
    again = order[1:][np.diff(ids[order]) == 0]
    if again.size:
        record = int(again.min())
        yield Fault(part, record, f"there are two of {name} id {ids[record]}")


def track_fault(model: ColmapModel, tracks: Tracks) -> Fault | None:
    """What is wrong if the tracks of a file are not the inverse of the images' point ids."""
    images, points = model.images, model.points
    owner = np.repeat(np.arange(len(points)), np.diff(tracks.starts))
    image = positions(images.ids, tracks.image_ids)
    n_features = np.diff(images.starts)[image] if len(images) else np.zeros(len(image), int)
    outside = (image < 0) | (tracks.features < 0) | (tracks.features >= n_features)
    for k in np.flatnonzero(outside)[:1].tolist():
        where = f"feature {tracks.features[k]} of image {tracks.image_ids[k]}"
        return Fault("points3D", int(owner[k]), f"the track names {where}, which does not exist")
    feature = images.starts[image] + tracks.features
    for k in np.flatnonzero(images.point_ids[feature] != points.ids[owner])[:1].tolist():
        where = f"feature {tracks.features[k]} of image {tracks.image_ids[k]}"
        return Fault("points3D", int(owner[k]), f"the track names {where}, which does not show this point")
    n_named = np.bincount(feature, minlength=len(images.point_ids))
    for k in np.flatnonzero(n_named[feature] > 1)[:1].tolist():
        return Fault("points3D", int(owner[k]), "the track names a feature twice")
    if len(feature) < model.n_observations:
        return _short_track(model, owner)
    return None


def _short_track(model: ColmapModel, owner: Ints) -> Fault:
    n_seen = np.bincount(model.observations().point, minlength=len(model.points))
    n_told = np.bincount(owner, minlength=len(model.points))
    j = int(np.argmax(n_seen > n_told))
    return Fault("points3D", j, f"the track has {n_told[j]} entries, but {n_seen[j]} features show this point")

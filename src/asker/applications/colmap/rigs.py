"""The rigs and frames of newer COLMAP models (3.12 and later), as far as they say nothing new.

There every camera belongs to a rig and every image to a frame, and the poses stand in the frames.  A rig of one
camera and a frame of one image add nothing, and only such are read.  Their records then have a fixed size.
"""

import numpy as np

from asker.applications.colmap.model import ColmapModel, Fault, positions

CAMERA = 0
"""The kind of a sensor that is a camera."""

RIG = np.dtype([("id", "<u4"), ("n", "<u4"), ("kind", "<i4"), ("camera", "<u4")])
FRAME = np.dtype(
    [
        ("id", "<u4"),
        ("rig", "<u4"),
        ("qvec", "<f8", 4),
        ("tvec", "<f8", 3),
        ("n", "<u4"),
        ("kind", "<i4"),
        ("camera", "<u4"),
        ("image", "<u8"),
    ]
)
WHAT = {"rigs": "rig", "frames": "frame"}


def not_trivial(part: str, records: np.ndarray) -> Fault | None:
    """The first rig or frame that has not one camera."""
    for k in np.flatnonzero((records["n"] != 1) | (records["kind"] != CAMERA))[:1].tolist():
        what = f"{WHAT[part]} {records['id'][k]} has {records['n'][k]} sensors"
        if records["n"][k] == 1:
            what = f"{WHAT[part]} {records['id'][k]} has a sensor that is not a camera"
        return Fault(part, k, f"{what}; only rigs of one camera each are read")
    return None


def rig_fault(model: ColmapModel, rigs: np.ndarray, frames: np.ndarray) -> Fault | None:
    """What is wrong if rigs and frames do not say the same as cameras and images."""
    images = model.images
    for k in np.flatnonzero(positions(model.cameras.ids, _ints(rigs["camera"])) < 0)[:1].tolist():
        return Fault("rigs", k, f"there is no camera {rigs['camera'][k]}")
    rig = positions(_ints(rigs["id"]), _ints(frames["rig"]))
    image = positions(images.ids, _ints(frames["image"]))
    other_camera = np.ones(len(frames), dtype=bool)
    known = (rig >= 0) & (image >= 0)
    camera = _ints(frames["camera"])[known]
    other_camera[known] = (camera != rigs["camera"][rig[known]]) | (camera != images.camera_ids[image[known]])
    for bad, what in (
        (rig < 0, "there is no rig {rig}"),
        (image < 0, "there is no image {image}"),
        (other_camera, "image {image} has another camera than its frame"),
        (_other_pose(model, frames, image), "image {image} has another pose than its frame"),
    ):
        for k in np.flatnonzero(bad)[:1].tolist():
            return Fault("frames", k, what.format(rig=frames["rig"][k], image=frames["image"][k]))
    n_frames = np.bincount(image, minlength=len(images))
    for k in np.flatnonzero(n_frames != 1)[:1].tolist():
        return Fault("images", k, f"image {images.ids[k]} is in {n_frames[k]} frames, expected one")
    return None


def _other_pose(model: ColmapModel, frames: np.ndarray, image: np.ndarray) -> np.ndarray:
    ours = np.concatenate([model.images.qvecs, model.images.tvecs], axis=1)
    theirs = np.concatenate([frames["qvec"], frames["tvec"]], axis=1)
    other = np.zeros(len(frames), dtype=bool)
    known = image >= 0
    a, b = ours[image[known]], theirs[known]
    with np.errstate(all="ignore"):
        other[known] = ~(np.abs(a - b) <= 1e-6 * (1 + np.abs(a))).all(axis=1)  # NaN is another pose
    return other


def trivial(model: ColmapModel) -> tuple[np.ndarray, np.ndarray]:
    """A rig for each camera and a frame for each image, with their ids."""
    rigs = np.zeros(len(model.cameras), RIG)
    rigs["id"] = rigs["camera"] = model.cameras.ids
    rigs["n"] = 1
    frames = np.zeros(len(model.images), FRAME)
    frames["id"] = frames["image"] = model.images.ids
    frames["rig"] = frames["camera"] = model.images.camera_ids
    frames["qvec"], frames["tvec"] = model.images.qvecs, model.images.tvecs
    frames["n"] = 1
    return rigs, frames


def _ints(array: np.ndarray) -> np.ndarray:
    return array.astype(np.int64)

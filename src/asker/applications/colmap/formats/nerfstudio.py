"""`transforms.json`, the cameras of a model as nerfstudio and its kin read them.

There a camera looks along −z with y up, and its matrix goes from camera to world.  The world is COLMAP's.
"""

from pathlib import Path
from typing import Any

import numpy as np

from asker.applications.colmap.model import CAMERA_MODELS, ColmapModel, camera_poses, positions
from asker.io.json import write_json

FORMS = {
    **dict.fromkeys(("SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV"), "OPENCV"),
    **dict.fromkeys(
        ("SIMPLE_FISHEYE", "FISHEYE", "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE", "OPENCV_FISHEYE"), "OPENCV_FISHEYE"
    ),
    "EQUIRECTANGULAR": "EQUIRECTANGULAR",
}
"""The camera models that can be said there, and how."""
NAMES = {"fx": "fl_x", "fy": "fl_y", "k": "k1"}
"""Of parameters; others have the same name."""


def check_transforms(model: ColmapModel) -> None:
    """Refuse a model with an image whose camera model cannot be said there."""
    for k in positions(model.cameras.ids, model.images.camera_ids).tolist():
        if model.cameras.models[k] not in FORMS:
            raise ValueError(f"transforms.json has no {model.cameras.models[k]} cameras; it has {', '.join(FORMS)}")


def transforms(model: ColmapModel) -> dict[str, Any]:
    """The record; a `ValueError` names a camera model that cannot be said in it."""
    check_transforms(model)
    of_image = positions(model.cameras.ids, model.images.camera_ids)
    cameras = {k: _camera(model, k) for k in set(of_image.tolist())}
    one = len(cameras) == 1
    to_world = _to_world(camera_poses(model))
    frames = [
        {"file_path": name, "transform_matrix": to_world[k]} | ({} if one else cameras[of_image[k]])
        for k, name in enumerate(model.images.names)
    ]
    return (cameras[of_image[0]] if one else {}) | {"frames": frames}


def write_transforms(path: Path, model: ColmapModel) -> None:
    """Write the record, whole or not at all."""
    write_json(path, transforms(model))


def _camera(model: ColmapModel, k: int) -> dict[str, Any]:
    name, (width, height) = model.cameras.models[k], model.cameras.sizes[k].tolist()
    told: dict[str, Any] = {"camera_model": FORMS[name]}
    for one, value in zip(CAMERA_MODELS[name].split(), model.cameras.params[k].tolist(), strict=True):
        told |= {"fl_x": value, "fl_y": value} if one == "f" else {NAMES.get(one, one): value}
    return told | {"w": width, "h": height}


def _to_world(poses: np.ndarray) -> np.ndarray:
    """(n, 4, 4), with the axes of a camera turned: y up, z back."""
    R = np.swapaxes(poses[:, :, :3], 1, 2)
    out = np.tile(np.eye(4), (len(poses), 1, 1))
    out[:, :3, :3] = R * [1.0, -1.0, -1.0]
    out[:, :3, 3] = -np.einsum("nij,nj->ni", R, poses[:, :, 3])
    return out

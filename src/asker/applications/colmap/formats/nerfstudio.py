"""`transforms.json`, the camera format of nerfstudio and instant-ngp.

In this format a camera looks along −z with y up, and its matrix maps camera to world coordinates.  The world frame is
that of COLMAP.
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
"""The supported camera models, with their names in the format."""
NAMES = {"fx": "fl_x", "fy": "fl_y", "k": "k1"}
"""Names of parameters that differ between the formats."""


def check_transforms(model: ColmapModel) -> None:
    """Raise a ValueError if the camera model of an image is not supported."""
    for k in positions(model.cameras.ids, model.images.camera_ids).tolist():
        if model.cameras.models[k] not in FORMS:
            raise ValueError(
                f"transforms.json does not support {model.cameras.models[k]} cameras, only {', '.join(FORMS)}"
            )


def transforms(model: ColmapModel) -> dict[str, Any]:
    """Return the content of `transforms.json`.

    Parameters
    ----------
    model
        A COLMAP model.

    Raises
    ------
    ValueError
        If the camera model of an image is not supported.
    """
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
    """Write `transforms.json`; the file appears only when it is complete."""
    write_json(path, transforms(model))


def _camera(model: ColmapModel, k: int) -> dict[str, Any]:
    name, (width, height) = model.cameras.models[k], model.cameras.sizes[k].tolist()
    record: dict[str, Any] = {"camera_model": FORMS[name]}
    for one, value in zip(CAMERA_MODELS[name].split(), model.cameras.params[k].tolist(), strict=True):
        record |= {"fl_x": value, "fl_y": value} if one == "f" else {NAMES.get(one, one): value}
    return record | {"w": width, "h": height}


def _to_world(poses: np.ndarray) -> np.ndarray:
    """Return camera-to-world matrices (n, 4, 4), with y up and z backwards in the camera frame."""
    R = np.swapaxes(poses[:, :, :3], 1, 2)
    out = np.tile(np.eye(4), (len(poses), 1, 1))
    out[:, :3, :3] = R * [1.0, -1.0, -1.0]
    out[:, :3, 3] = -np.einsum("nij,nj->ni", R, poses[:, :, 3])
    return out

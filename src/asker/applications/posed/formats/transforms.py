"""`transforms.json` of nerfstudio and instant-ngp as a source of poses.

A camera looks along −z with y up, and its matrix maps camera to world coordinates.  Intrinsics stand in the file for
all frames or in each frame.
"""

from pathlib import Path
from typing import Any

import numpy as np

from asker.applications.posed.posed_images import PosedImages, with_cameras
from asker.io.files import FileError
from asker.io.json import read_json

FLIP = np.array([1.0, -1.0, -1.0])
"""Axes of the camera frame relative to COLMAP's."""
CAMERA_KEYS = ("camera_model", "fl_x", "fl_y", "cx", "cy", "w", "h", "k1", "k2", "k3", "k4", "p1", "p2")
ANGLE_KEYS = ("camera_angle_x", "camera_angle_y")
ROTATION_TOL = 1e-3
"""Largest deviation of RᵀR from the identity."""


def read_transforms(path: Path) -> PosedImages:
    """Return the images of a `transforms.json`; raise a `FileError` that names the frame if it is invalid."""
    content = read_json(path, "a transforms.json")
    frames = content.get("frames") if isinstance(content, dict) else None
    if not isinstance(frames, list) or not frames:
        raise FileError(path, 'this is not a transforms.json: it has no list "frames"')
    names, poses, models, sizes, params = [], [], [], [], []
    for k, frame in enumerate(frames):
        if not isinstance(frame, dict) or not isinstance(frame.get("file_path"), str):
            raise FileError(path, f'frame {k} has no "file_path"')
        try:
            pose = pose_of(frame.get("transform_matrix"))
            model, size, p = camera_of({**content, **frame})
        except (ValueError, TypeError) as error:
            raise FileError(path, f"frame {k} ({frame['file_path']}): {error}") from None
        names.append(frame["file_path"])
        poses.append(pose)
        models.append(model)
        sizes.append(size)
        params.append(p)
    made = with_cameras(names, np.array(poses), models, np.array(sizes), params)
    kept = {key: value for key, value in content.items() if key not in ("frames", *CAMERA_KEYS, *ANGLE_KEYS)}
    made.other.update(kept)
    return made


def pose_of(matrix: Any) -> np.ndarray:
    """Return the pose [R | t] from world to camera of a `transform_matrix`; raise a ValueError if it is invalid."""
    M = np.array(matrix, dtype=float)
    if M.shape not in ((4, 4), (3, 4)):
        raise ValueError(f'"transform_matrix" has the shape {M.shape}, expected (4, 4)')
    if not np.isfinite(M).all():
        raise ValueError('"transform_matrix" is not finite')
    R = (M[:3, :3] * FLIP).T
    if np.abs(R @ R.T - np.eye(3)).max() > ROTATION_TOL or np.linalg.det(R) < 0:
        raise ValueError('"transform_matrix" is no rotation and translation')
    return np.concatenate([R, -R @ M[:3, 3:]], axis=1)


def camera_of(entry: dict[str, Any]) -> tuple[str, tuple[int, int], np.ndarray]:
    """Return camera model, size and parameters from the keys of a frame."""
    width, height = int(entry.get("w", 0)), int(entry.get("h", 0))
    fx = entry.get("fl_x")
    if fx is None:
        angle = entry.get("camera_angle_x")
        if angle is None or not width:
            raise ValueError('"fl_x" is missing, and so is "camera_angle_x" with "w"')
        fx = 0.5 * width / np.tan(0.5 * float(angle))
    fy = entry.get("fl_y", fx)
    cx, cy = entry.get("cx", width / 2), entry.get("cy", height / 2)
    if not width or not height:
        width, height = round(2 * cx), round(2 * cy)
    if not width > 0 or not height > 0:
        raise ValueError('"w" and "h" are missing, and so are "cx" and "cy"')
    name = str(entry.get("camera_model", "OPENCV"))
    if name not in ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE", "OPENCV_FISHEYE"):
        raise ValueError(f'"camera_model" is {name!r}, expected OPENCV, PINHOLE or OPENCV_FISHEYE')
    keys = ("k1", "k2", "k3", "k4") if name == "OPENCV_FISHEYE" else ("k1", "k2", "p1", "p2")
    distortion = [float(entry.get(key, 0.0)) for key in keys]
    focal = [float(fx), float(fy), float(cx), float(cy)]
    if not np.isfinite(focal + distortion).all() or min(focal[:2]) <= 0:
        raise ValueError("the intrinsics are not positive and finite")
    if name != "OPENCV_FISHEYE" and not any(distortion):
        return "PINHOLE", (width, height), np.array(focal)
    model = "OPENCV_FISHEYE" if name == "OPENCV_FISHEYE" else "OPENCV"
    return model, (width, height), np.array(focal + distortion)

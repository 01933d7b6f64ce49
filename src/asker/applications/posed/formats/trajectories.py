"""Trajectories of TUM and KITTI as a source of poses.

    TUM     timestamp x y z qx qy qz qw          from camera to world
    KITTI   r11 r12 r13 x r21 … z                from camera to world

TUM's timestamps are matched with the names of the images; KITTI's lines follow the sorted names.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from asker.applications.posed.posed_images import PosedImages, checked_params, with_cameras
from asker.geometry.rotations import matrix_from_quaternion
from asker.io.files import FileError, read_text_bytes

TUM_NUMBERS, KITTI_NUMBERS = 8, 12
ROTATION_TOL = 1e-2


class Intrinsics(NamedTuple):
    """The camera of all images."""

    model: str
    params: np.ndarray


def parse_intrinsics(text: str) -> Intrinsics:
    """Return the camera that a text describes: "fx,fy,cx,cy", "f,cx,cy", or "MODEL,params" with a COLMAP model."""
    parts = [part.strip() for part in text.split(",")]
    named = not parts[0].replace(".", "").replace("-", "").replace("e", "").replace("+", "").isdigit()
    model = parts.pop(0).upper() if named else {3: "SIMPLE_PINHOLE", 4: "PINHOLE", 8: "OPENCV"}.get(len(parts), "")
    if not model:
        raise ValueError(f"expected f,cx,cy or fx,fy,cx,cy or MODEL,parameters, got {text!r}")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        raise ValueError(f"expected numbers separated by commas, got {text!r}") from None
    return Intrinsics(model, checked_params(model, numbers))


def read_trajectory(path: Path, image_names: list[str], intrinsics: Intrinsics | None) -> PosedImages:
    """Return the images of a trajectory; raise a `FileError` that names the line if it is invalid."""
    rows = _rows(path)
    if intrinsics is None:
        raise FileError(path, "a trajectory has no intrinsics: give --camera fx,fy,cx,cy")
    tum = rows.shape[1] == TUM_NUMBERS
    if tum:
        q = np.roll(rows[:, 4:], 1, axis=1)
        R, centres = matrix_from_quaternion(q), rows[:, 1:4]
        names = _by_timestamp(path, rows[:, 0], image_names)
    else:
        M = rows.reshape(-1, 3, 4)
        R, centres, names = M[:, :, :3], M[:, :, 3], image_names
        if len(image_names) != len(rows):
            raise FileError(path, f"there are {len(rows)} poses, but {len(image_names)} images in the folder")
    wrong = ~(np.abs(R @ R.swapaxes(1, 2) - np.eye(3)).max(axis=(1, 2)) <= ROTATION_TOL)
    if wrong.any():
        raise FileError(path, f"pose {np.argmax(wrong)} is no rotation and translation")
    U, _, Vt = np.linalg.svd(R)
    Rt = (U @ Vt).swapaxes(1, 2)
    poses = np.concatenate([Rt, -np.einsum("nij,nj->ni", Rt, centres)[:, :, None]], axis=2)
    n = len(rows)
    return with_cameras(names, poses, [intrinsics.model] * n, np.zeros((n, 2), int), [intrinsics.params] * n)


def _rows(path: Path) -> np.ndarray:
    rows, width = [], 0
    for number, line in enumerate(read_text_bytes(path).decode(errors="replace").splitlines(), 1):
        parts = line.split("#")[0].replace(",", " ").split()
        if not parts:
            continue
        try:
            row = [float(part) for part in parts]
        except ValueError:
            raise FileError(path, f"expected numbers, got {line.strip()[:40]!r}", number) from None
        width = width or len(row)
        if len(row) not in (TUM_NUMBERS, KITTI_NUMBERS) or len(row) != width:
            raise FileError(
                path, f"a pose has {TUM_NUMBERS} (TUM) or {KITTI_NUMBERS} (KITTI) numbers, not {len(row)}", number
            )
        if not np.isfinite(row).all() or (width == TUM_NUMBERS and not any(row[4:])):
            raise FileError(path, "this pose is not finite, or its quaternion is zero", number)
        rows.append(row)
    if not rows:
        raise FileError(path, "this trajectory has no poses")
    return np.array(rows)


def _by_timestamp(path: Path, stamps: np.ndarray, image_names: list[str]) -> list[str]:
    """Return the name of the image of each timestamp; the order decides if names are no numbers."""
    try:
        of_name = np.array([float(Path(name).stem) for name in image_names])
    except ValueError:
        of_name = np.zeros(0)
    if of_name.size:
        nearest = np.abs(stamps[:, None] - of_name[None, :]).argmin(axis=1)
        spacing = np.median(np.diff(np.unique(of_name))) if len(set(of_name.tolist())) > 1 else 1.0
        close = np.abs(stamps - of_name[nearest]) <= spacing / 2
        if close.any() and len(set(nearest[close].tolist())) == close.sum():
            return [
                image_names[k] if ok else f"timestamp {t:g}" for k, ok, t in zip(nearest, close, stamps, strict=True)
            ]
    if len(image_names) != len(stamps):
        raise FileError(path, f"{len(stamps)} timestamps do not match the names of {len(image_names)} images")
    return image_names

"""Poses of images in any supported format, which is detected from the content."""

import shutil
from pathlib import Path
from tempfile import gettempdir

import numpy as np

from asker.applications.colmap.formats.folder import FORMS, read_model
from asker.applications.colmap.model import ColmapModel
from asker.applications.posed.formats.arrays import read_arrays
from asker.applications.posed.formats.trajectories import Intrinsics, read_trajectory
from asker.applications.posed.formats.transforms import read_transforms
from asker.applications.posed.posed_images import PosedImages, from_model
from asker.io.files import FileError, beginning
from asker.io.temporary import temporary_folder

TRANSFORMS = "transforms.json"
EXPECTED = "a COLMAP model, transforms.json, .npz arrays, or a TUM or KITTI trajectory"
NEEDED = ("cameras", "images")
"""The parts of a COLMAP model that are needed."""


def read_poses(path: Path, image_names: list[str], intrinsics: Intrinsics | None = None) -> PosedImages:
    """Return the poses and cameras of images.

    Parameters
    ----------
    path
        A COLMAP model with or without points, nerfstudio's `transforms.json` or its folder, arrays (`.npz`), or a TUM
        or KITTI trajectory.
    image_names
        The names of the images in their folder, sorted; formats without names refer to this order.
    intrinsics
        The camera of all images, which a trajectory requires.

    Raises
    ------
    FileError
        If the format is not recognised, or the content is invalid.
    """
    path = Path(path)
    if path.is_dir():
        if (path / TRANSFORMS).is_file():
            return read_transforms(path / TRANSFORMS)
        for folder in (path, path / "sparse" / "0", path / "sparse", path / "0"):
            if any(_has_model(folder, suffix) for suffix in FORMS):
                return from_model(_model(folder))
        raise FileError(path, f"this folder has no poses; expected {EXPECTED}")
    if path.suffix.lower() == ".json":
        return read_transforms(path)
    if path.suffix.lower() == ".npz":
        return read_arrays(path, image_names)
    if b"\0" in beginning(path, 4096):
        raise FileError(path, f"this is no file with poses; expected {EXPECTED}")
    return read_trajectory(path, image_names, intrinsics)


def _has_model(folder: Path, suffix: str) -> bool:
    return all((folder / f"{part}{suffix}").is_file() for part in NEEDED)


def _model(folder: Path) -> ColmapModel:
    """Return the COLMAP model of a folder, which may lack the points."""
    suffix = next(suffix for suffix in FORMS if _has_model(folder, suffix))
    if (folder / f"points3D{suffix}").is_file():
        return read_model(folder)
    with temporary_folder(Path(gettempdir()), mode=0o700) as copy:
        for part in NEEDED:
            shutil.copyfile(folder / f"{part}{suffix}", copy / f"{part}{suffix}")
        (copy / f"points3D{suffix}").write_bytes(np.uint64(0).tobytes() if suffix == ".bin" else b"")
        try:
            return read_model(copy)
        except FileError as error:
            raise FileError(folder / Path(error.path).name, error.what, error.line) from None

"""COLMAP models: a folder with `cameras`, `images` and `points3D`, all as `.bin` or all as `.txt`.

COLMAP 3.12 and later also stores `rigs` and `frames` there.  They are always written, since COLMAP reads them if they
exist.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from asker.applications.colmap.formats import binary as binary_files
from asker.applications.colmap.formats import text as text_files
from asker.applications.colmap.model import (
    CAMERA_MODELS,
    ColmapModel,
    Fault,
    camera_poses,
    faults,
    n_params,
    track_fault,
)
from asker.applications.colmap.rigs import frame_poses, members, pose_fault, rig_faults, rigs_of
from asker.geometry.rotations import matrix_from_quaternion, quaternion_from_matrix
from asker.io.files import FileError, FilePath
from asker.io.folders import check_folder, write_folder

PARTS = ("cameras", "images", "points3D")
RIG_PARTS = ("rigs", "frames")
FORMS: dict[str, Any] = {".bin": binary_files, ".txt": text_files}
FILES = tuple(part + suffix for part in (*PARTS, *RIG_PARTS) for suffix in FORMS)
"""The names of all files of a model."""


def read_model(folder: FilePath) -> ColmapModel:
    """Read a COLMAP model.

    Parameters
    ----------
    folder
        A folder with binary or text files; binary files are preferred.

    Returns
    -------
    ColmapModel
        The model.

    Raises
    ------
    FileError
        If a file is missing or invalid; the message has the line or byte.
    """
    folder = Path(folder)
    suffix = _form(folder)
    form = FORMS[suffix]
    sources: dict[str, Any] = {}
    cameras, sources["cameras"] = form.read_cameras(folder / f"cameras{suffix}")
    images, sources["images"] = form.read_images(folder / f"images{suffix}")
    points, tracks, sources["points3D"] = form.read_points(folder / f"points3D{suffix}")
    model = ColmapModel(cameras, images, points)
    fault = next(faults(model), None) or track_fault(model, tracks)
    if fault is None and any((folder / f"{part}{suffix}").exists() for part in RIG_PARTS):
        rigs, sources["rigs"] = form.read_rigs(folder / f"rigs{suffix}")
        frames, poses, sources["frames"] = form.read_frames(folder / f"frames{suffix}")
        model = replace(model, rigs=rigs.rigs(frames))
        fault = next(rig_faults(model), None) or _pose_fault(model, poses)
    if fault is not None:
        sources[fault.part].fault(fault.record, fault.what)
    return model


def write_model(folder: FilePath, model: ColmapModel, binary: bool = True) -> None:
    """Write a COLMAP model into a folder, which is created if necessary.

    All files of a model are replaced together or not at all; other files of the folder remain.

    Parameters
    ----------
    folder
        The folder.
    model
        The model.
    binary
        True for `.bin` files, False for `.txt` files.

    Raises
    ------
    ValueError
        If the model is invalid.
    FileError
        If the folder cannot be written, or has a model in the other format.
    """
    check_target(folder, binary)
    _check(model, binary)
    with write_folder(folder, FILES) as new:
        FORMS[".bin" if binary else ".txt"].write_files(new, model, rigs_of(model), _frame_numbers(model))


def _pose_fault(model: ColmapModel, numbers: np.ndarray) -> Fault | None:
    """Return an error if the poses of the frames in a file, (n_frames, 7), are invalid or disagree with the images."""
    for bad in (~np.isfinite(numbers).all(axis=1), ~numbers[:, :4].any(axis=1)):
        for k in np.flatnonzero(bad)[:1].tolist():
            return Fault("frames", k, "the pose is not finite, or its quaternion is zero")
    rig_poses = np.concatenate([matrix_from_quaternion(numbers[:, :4]), numbers[:, 4:, None]], axis=2)
    return pose_fault(model, camera_poses(model), rig_poses)


def _frame_numbers(model: ColmapModel) -> np.ndarray:
    """Return the poses of the frames as quaternions and translations, (n_frames, 7); copy those of reference images."""
    poses = camera_poses(model)
    frames = frame_poses(model, poses)
    numbers = np.concatenate([quaternion_from_matrix(frames[:, :, :3]), frames[:, :, 3]], axis=1)
    frame = members(model).frame
    same = np.flatnonzero((frames[frame] == poses).all(axis=(1, 2)))
    numbers[frame[same]] = np.concatenate([model.images.qvecs, model.images.tvecs], axis=1)[same]
    return numbers


def check_target(folder: FilePath, binary: bool = True) -> None:
    """Raise a `FileError` if a model cannot be written into a folder."""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise FileError(folder, "this is a file, but a model is a folder")
    check_folder(folder, FILES)
    for name in FILES:
        if not name.endswith(".bin" if binary else ".txt") and os.path.lexists(Path(folder) / name):
            raise FileError(folder, f"this folder contains {name}, from a model in the other format")


def _form(folder: Path) -> str:
    if not folder.is_dir():
        raise FileError(folder, "there is no such folder" if not folder.exists() else "this is a file, not a folder")
    missing = {}
    for suffix in FORMS:
        missing[suffix] = [part + suffix for part in PARTS if not (folder / (part + suffix)).exists()]
        if not missing[suffix]:
            return suffix
    shortest = min(missing.values(), key=len)
    raise FileError(folder, f"this folder contains no COLMAP model: missing {', '.join(shortest)}")


def _check(model: ColmapModel, binary: bool) -> None:
    """Raise a `ValueError` if `read_model` would reject the model."""
    _check_shapes(model)
    for fault in _all_faults(model):
        raise ValueError(f"{fault.part}, record {fault.record}: {fault.what}")
    for name in model.images.names:
        if "\0" in name or (not binary and name.split() != [name]):
            raise ValueError(f"the image name {name!r} cannot be written in this format")


def _all_faults(model: ColmapModel) -> Iterator[Fault]:
    yield from faults(model)
    yield from rig_faults(model)
    if fault := pose_fault(model, camera_poses(model)):
        yield fault


def _check_shapes(model: ColmapModel) -> None:
    cameras, images, points = model.cameras, model.images, model.points
    c, i, p, f = len(cameras.ids), len(images.ids), len(points.ids), len(images.point_ids)
    for name, array, shape, kinds in (
        ("cameras.ids", cameras.ids, (c,), "iu"),
        ("cameras.sizes", cameras.sizes, (c, 2), "iu"),
        ("images.ids", images.ids, (i,), "iu"),
        ("images.qvecs", images.qvecs, (i, 4), "f"),
        ("images.tvecs", images.tvecs, (i, 3), "f"),
        ("images.camera_ids", images.camera_ids, (i,), "iu"),
        ("images.starts", images.starts, (i + 1,), "iu"),
        ("images.xys", images.xys, (f, 2), "f"),
        ("images.point_ids", images.point_ids, (f,), "iu"),
        ("points.ids", points.ids, (p,), "iu"),
        ("points.xyz", points.xyz, (p, 3), "f"),
        ("points.rgb", points.rgb, (p, 3), "u"),
        ("points.errors", points.errors, (p,), "f"),
    ):
        actual = np.asarray(array)
        if actual.shape != shape or actual.dtype.kind not in kinds:
            raise ValueError(f"{name} is {actual.dtype} {actual.shape}, expected shape {shape}")
    if images.starts[0] != 0 or images.starts[-1] != f or (np.diff(images.starts) < 0).any():
        raise ValueError(f"images.starts must increase from 0 to the number of features, {f}")
    if (len(cameras.models), len(cameras.params), len(images.names)) != (c, c, i):
        raise ValueError("every camera needs a model and parameters, and every image a name")
    for name, params in zip(cameras.models, cameras.params, strict=True):
        if name not in CAMERA_MODELS or np.shape(params) != (n_params(name),):
            raise ValueError(f"a camera of model {name!r} has parameters of shape {np.shape(params)}")

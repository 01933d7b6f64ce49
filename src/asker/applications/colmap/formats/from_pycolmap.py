"""Models from `pycolmap.Reconstruction`, and from arrays as feed-forward networks and matchers return them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

from asker.applications.colmap.formats.folder import read_model, write_model
from asker.applications.colmap.model import CAMERA_MODELS, Cameras, ColmapModel, Images, Points, n_params, starts_of
from asker.applications.colmap.reprojection_error import point_errors
from asker.geometry.rotations import quaternion_from_matrix
from asker.io.temporary import temporary_folder


def is_reconstruction(data: Any) -> bool:
    """Return True for a `pycolmap.Reconstruction`; pycolmap need not be installed."""
    return type(data).__name__ == "Reconstruction" and hasattr(data, "write_binary")


def from_pycolmap(reconstruction: Any) -> ColmapModel:
    """Return the model of a `pycolmap.Reconstruction`, with its registered images."""
    with temporary_folder(Path(gettempdir()), mode=0o700) as folder:
        reconstruction.write_binary(str(folder))
        return read_model(folder)


def to_pycolmap(model: ColmapModel) -> Any:
    """Return the `pycolmap.Reconstruction` of a model."""
    import pycolmap

    with temporary_folder(Path(gettempdir()), mode=0o700) as folder:
        write_model(folder / "model", model)
        return pycolmap.Reconstruction(folder / "model")


def from_arrays(
    poses: Any,
    intrinsics: Any,
    points: Any,
    tracks: Any,
    *,
    sizes: Any = None,
    camera_model: str | None = None,
    names: Sequence[str] | None = None,
    rgb: Any = None,
) -> ColmapModel:
    """Return the model that arrays describe; ids start from 1.

    Parameters
    ----------
    poses
        (n_images, 3, 4) or (n_images, 4, 4): from world to camera, which looks along +z with y down.
    intrinsics
        Matrices K, (3, 3) for one camera of all images or (n_images, 3, 3); with `camera_model`, its parameters.
    points
        (n_points, 3): positions.
    tracks
        Pixels (n_images, n_points, 2), NaN for missing observations; or three arrays of equal length with indices of
        images, indices of points, and pixels (n, 2).
    sizes
        Width and height in pixels, (2,) or (n_images, 2); the default is twice the principal point.
    camera_model
        One of `CAMERA_MODELS`; by default, `intrinsics` are matrices.
    names
        The names of the images.
    rgb
        (n_points, 3): colours from 0 to 255.

    Returns
    -------
    ColmapModel
        The model.

    Raises
    ------
    ValueError
        If an array has a wrong shape, or values that are not finite or out of range.
    """
    T = _checked("poses", poses, (None, 3, 4), (None, 4, 4))[:, :3]
    xyz = _checked("points", points, (None, 3))
    image, point, uv = _observations(tracks, len(T), len(xyz))
    cameras, of_image = _cameras(intrinsics, camera_model, sizes, len(T))
    order = np.argsort(image, kind="stable")
    images = Images(
        ids=np.arange(1, len(T) + 1),
        qvecs=quaternion_from_matrix(T[:, :, :3]),
        tvecs=T[:, :, 3].copy(),
        camera_ids=cameras.ids[of_image],
        names=tuple(f"{k:06}.jpg" for k in range(len(T))) if names is None else tuple(map(str, names)),
        starts=starts_of(np.bincount(image, minlength=len(T))),
        xys=uv[order],
        point_ids=point[order] + 1,
    )
    if len(images.names) != len(T):
        raise ValueError(f"names has {len(images.names)} entries, expected {len(T)}")
    colours = np.full(xyz.shape, 128, np.uint8) if rgb is None else _checked("rgb", rgb, (len(xyz), 3)).astype(np.uint8)
    model = ColmapModel(cameras, images, Points(np.arange(1, len(xyz) + 1), xyz, colours, np.full(len(xyz), -1.0)))
    return replace(model, points=replace(model.points, errors=point_errors(model)))


def _checked(name: str, array: Any, *shapes: tuple[int | None, ...]) -> np.ndarray:
    """Return an array of finite numbers with one of the shapes; None stands for any length."""
    out = np.array(array, dtype=float)

    def fits(shape: tuple[int | None, ...]) -> bool:
        return out.ndim == len(shape) and all(b in (None, a) for a, b in zip(out.shape, shape, strict=True))

    if not any(map(fits, shapes)):
        expected = " or ".join(str(shape).replace("None", "n") for shape in dict.fromkeys(shapes))
        raise ValueError(f"{name} has shape {out.shape}, expected {expected}")
    if not np.isfinite(out).all():
        raise ValueError(f"{name} holds NaN or infinity at index {np.argwhere(~np.isfinite(out))[0].tolist()}")
    return out


def _observations(tracks: Any, n_images: int, n_points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indices of images, indices of points, and pixels."""
    if isinstance(tracks, tuple):
        image, point = (np.asarray(x) for x in tracks[:2])
        uv = _checked("tracks[2]", tracks[2], (None, 2))
        for k, (index, n) in enumerate(((image, n_images), (point, n_points))):
            if index.shape != (len(uv),) or index.dtype.kind not in "iu":
                raise ValueError(f"tracks[{k}] is {index.dtype} {index.shape}, expected indices of shape ({len(uv)},)")
            if len(index) and not (index.min() >= 0 and index.max() < n):
                raise ValueError(f"tracks[{k}] has indices from {index.min()} to {index.max()}, expected 0 to {n - 1}")
        return image.astype(np.int64), point.astype(np.int64), uv
    pixels = np.array(tracks, dtype=float)
    if pixels.shape != (n_images, n_points, 2):
        raise ValueError(f"tracks has shape {pixels.shape}, expected ({n_images}, {n_points}, 2)")
    image, point = np.nonzero(np.isfinite(pixels).all(axis=2))
    return image, point, pixels[image, point]


def _cameras(intrinsics: Any, camera_model: str | None, sizes: Any, n_images: int) -> tuple[Cameras, np.ndarray]:
    """Return the cameras, and the index of the camera of each image."""
    if camera_model is None:
        K = _checked("intrinsics", intrinsics, (3, 3), (1, 3, 3), (n_images, 3, 3)).reshape(-1, 3, 3)
        if (np.abs(K[:, 0, 1]) > 1e-9 * np.abs(K[:, 0, 0])).any():
            raise ValueError("intrinsics have a skew, K[0, 1], which no camera model of COLMAP supports")
        params, name = np.stack([K[:, 0, 0], K[:, 1, 1], K[:, 0, 2], K[:, 1, 2]], axis=1), "PINHOLE"
    else:
        if camera_model not in CAMERA_MODELS:
            raise ValueError(f"camera_model must be one of {', '.join(CAMERA_MODELS)}, not {camera_model!r}")
        name, k = camera_model, n_params(camera_model)
        params = _checked("intrinsics", intrinsics, (k,), (1, k), (n_images, k)).reshape(-1, k)
    n = len(params)
    if sizes is None:
        param_names = CAMERA_MODELS[name].split()
        at = param_names.index("cx") if "cx" in param_names else None
        sizes = params[:, :2] if at is None else 2 * params[:, at : at + 2]
    sizes = np.broadcast_to(_checked("sizes", np.rint(sizes), (2,), (1, 2), (n, 2)), (n, 2)).astype(np.int64)
    of_image = np.arange(n_images) if n == n_images else np.zeros(n_images, dtype=int)
    return Cameras(np.arange(1, n + 1), (name,) * n, sizes, tuple(params)), of_image

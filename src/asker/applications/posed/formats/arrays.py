"""Poses as arrays in an `.npz` file, as networks such as VGGT, DUSt3R and MASt3R give them.

    extrinsics, extrinsic      (n, 3, 4) or (n, 4, 4), from world to camera
    cam2world, c2w, im_poses   (n, 3, 4) or (n, 4, 4), from camera to world
    intrinsics, intrinsic, K   (n, 3, 3) or (3, 3)
    focals, pp                 (n,) and (n, 2) in place of the intrinsics; the default of pp is the centre
    sizes                      (n, 2) or (2,): width and height that the intrinsics refer to; by default those of the
                               depth maps, else those of the files
    names                      (n,): the names of the images; by default all images of the folder in sorted order
    depth                      (n, H, W): depths along the viewing direction
    confidence, depth_conf     (n, H, W): depths below the median confidence of their image are not used

Leading axes of length 1 are dropped.  Cameras look along +z with y down.
"""

from pathlib import Path

import numpy as np

from asker.applications.posed.posed_images import PosedImages, with_cameras
from asker.io.files import FileError

WORLD_TO_CAMERA = ("extrinsics", "extrinsic", "world2cam", "w2c")
CAMERA_TO_WORLD = ("cam2world", "c2w", "im_poses")
MATRICES = ("intrinsics", "intrinsic", "K")
SIZES = ("sizes", "image_sizes")
DEPTHS, CONFIDENCES = ("depth", "depths", "depth_map"), ("confidence", "conf", "depth_conf")
ROTATION_TOL = 1e-2
"""Largest deviation of RᵀR from the identity; networks compute in single or half precision."""


def read_arrays(path: Path, image_names: list[str]) -> PosedImages:
    """Return the images of an `.npz` file; raise a `FileError` that names the array if one is invalid."""
    arrays = _load(path)
    T = _poses(path, arrays)
    names = _names(path, arrays, image_names, len(T))
    depth = _first(arrays, DEPTHS)
    if depth is not None:
        depth = _stack_of(path, "depth", depth, len(T))
    params, sizes = _intrinsics(path, arrays, len(T), None if depth is None else depth.shape[2:0:-1])
    made = with_cameras(names, T, ["PINHOLE"] * len(T), sizes, list(params))
    if depth is not None:
        confidence = _first(arrays, CONFIDENCES)
        usable = np.isfinite(depth) & (depth > 0)
        if confidence is not None:
            confidence = _stack_of(path, "confidence", confidence, len(T))
            if confidence.shape != depth.shape:
                raise FileError(path, f"confidence has the shape {confidence.shape}, but depth {depth.shape}")
            usable &= confidence >= np.median(confidence, axis=(1, 2), keepdims=True)
        made.depths.update(zip(names, np.where(usable, depth, np.nan), strict=True))
    return made


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise FileError(path, "there is no such file") from None
    except Exception as error:  # zipfile and NumPy raise a dozen kinds for broken bytes
        raise FileError(path, f"this is not an .npz file of arrays: {error}") from None


def _first(arrays: dict[str, np.ndarray], keys: tuple[str, ...]) -> np.ndarray | None:
    return next((arrays[key] for key in keys if key in arrays), None)


def _poses(path: Path, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Return the poses from world to camera with exact rotations, (n, 3, 4)."""
    key = next((key for key in (*WORLD_TO_CAMERA, *CAMERA_TO_WORLD) if key in arrays), None)
    if key is None:
        known = ", ".join((*WORLD_TO_CAMERA, *CAMERA_TO_WORLD))
        raise FileError(path, f"there are no poses; expected an array named {known}; it has {', '.join(arrays)}")
    T = _dropped(np.asarray(arrays[key], dtype=float), 3)
    if T.ndim != 3 or T.shape[1:] not in ((3, 4), (4, 4)) or not len(T):
        raise FileError(path, f"{key} has the shape {arrays[key].shape}, expected (n, 3, 4) or (n, 4, 4)")
    T = T[:, :3]
    bad = ~np.isfinite(T).all(axis=(1, 2))
    if bad.any():
        raise FileError(path, f"{key}[{np.argmax(bad)}] is not finite")
    R = T[:, :, :3]
    bad = (np.abs(R @ R.swapaxes(1, 2) - np.eye(3)).max(axis=(1, 2)) > ROTATION_TOL) | (np.linalg.det(R) < 0)
    if bad.any():
        raise FileError(path, f"{key}[{np.argmax(bad)}] is no rotation and translation")
    U, _, Vt = np.linalg.svd(R)
    R = U @ Vt
    if key in CAMERA_TO_WORLD:
        R = R.swapaxes(1, 2)
        return np.concatenate([R, -R @ T[:, :, 3:]], axis=2)
    return np.concatenate([R, T[:, :, 3:]], axis=2)


def _dropped(array: np.ndarray, ndim: int) -> np.ndarray:
    while array.ndim > ndim and len(array) == 1:
        array = array[0]
    return array


def _names(path: Path, arrays: dict[str, np.ndarray], image_names: list[str], n: int) -> list[str]:
    if "names" in arrays:
        names = [str(name) for name in np.ravel(arrays["names"])]
        if len(names) != n:
            raise FileError(path, f"names has {len(names)} entries for {n} poses")
        return names
    if len(image_names) != n:
        raise FileError(path, f"there are {n} poses without names, but {len(image_names)} images in the folder")
    return image_names


def _stack_of(path: Path, name: str, array: np.ndarray, n: int) -> np.ndarray:
    maps = np.asarray(array, dtype=float)
    if maps.ndim > 3 and maps.shape[-1] == 1:
        maps = maps[..., 0]
    maps = _dropped(maps, 3)
    if maps.ndim != 3 or len(maps) != n:
        raise FileError(path, f"{name} has the shape {array.shape}, expected ({n}, H, W)")
    return maps


def _intrinsics(
    path: Path, arrays: dict[str, np.ndarray], n: int, of_depth: tuple[int, ...] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the parameters fx, fy, cx, cy (n, 4), and the sizes (n, 2) that they refer to."""
    given = _first(arrays, SIZES)
    sizes = None if given is None else np.broadcast_to(np.asarray(given, dtype=float), (n, 2))
    if sizes is None and of_depth is not None:
        sizes = np.broadcast_to(np.array(of_depth, dtype=float), (n, 2))
    matrices = _first(arrays, MATRICES)
    if matrices is not None:
        K = _dropped(np.asarray(matrices, dtype=float), 3)
        if K.shape not in ((3, 3), (n, 3, 3)):
            raise FileError(path, f"intrinsics have the shape {matrices.shape}, expected ({n}, 3, 3)")
        K = np.broadcast_to(K, (n, 3, 3))
        params = np.stack([K[:, 0, 0], K[:, 1, 1], K[:, 0, 2], K[:, 1, 2]], axis=1)
    elif "focals" in arrays:
        f = np.broadcast_to(np.ravel(arrays["focals"]).astype(float), (n,))
        if "pp" not in arrays and sizes is None:
            raise FileError(path, "focals need pp, the principal points, or sizes")
        pp = np.asarray(arrays["pp"], dtype=float) if "pp" in arrays else np.asarray(sizes) / 2
        params = np.concatenate([np.stack([f, f], axis=1), np.broadcast_to(_dropped(pp, 2), (n, 2))], axis=1)
    else:
        raise FileError(path, f"there are no intrinsics; expected an array named {', '.join(MATRICES)} or focals")
    bad = ~np.isfinite(params).all(axis=1) | (params[:, :2] <= 0).any(axis=1)
    if bad.any():
        raise FileError(path, f"the intrinsics of image {np.argmax(bad)} are not positive and finite")
    return params, np.zeros((n, 2), np.int64) if sizes is None else np.rint(sizes).astype(np.int64)

"""Images with approximate poses and intrinsics: the input and the output of `refine`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from asker.applications.colmap.model import CAMERA_MODELS, Cameras, ColmapModel, camera_poses, n_params, positions
from asker.applications.posed.rays import directions

CENTRAL = 0.25
"""Largest distance of the principal point from the centre, relative to the size, if intrinsics refer to the file."""
MAX_ASPECT_CHANGE = 0.06
"""Largest relative change of the aspect ratio by resizing; networks round sizes to multiples of 14 pixels."""


@dataclass(frozen=True, eq=False)
class PosedImages:
    """Names, poses and cameras of images."""

    names: tuple[str, ...]
    """(n_images,): file names relative to the folder of the images."""
    poses: np.ndarray
    """(n_images, 3, 4): [R | t] from world to camera, which looks along +z with y down."""
    cameras: Cameras
    of_image: np.ndarray
    """(n_images,): the index of the camera of each image."""
    points: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    """(n_points, 3): points of the scene if the source has some; they serve to choose pairs of images only."""
    depths: dict[str, np.ndarray] = field(default_factory=dict)
    """Depth maps (H, W) along the viewing direction by image name, NaN where they are unknown."""
    given_names: tuple[str, ...] = ()
    """(n_images,): the names in the source of the poses; empty if they are equal to `names`."""
    other: dict[str, Any] = field(default_factory=dict)
    """Entries of `transforms.json` that are no cameras, which are written again."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def centres(self) -> np.ndarray:
        """(n_images, 3): the camera centres."""
        return -np.einsum("nji,nj->ni", self.poses[:, :, :3], self.poses[:, :, 3])

    @property
    def sizes(self) -> np.ndarray:
        """(n_images, 2): width and height in pixels, 0 if unknown."""
        return self.cameras.sizes[self.of_image]

    def taken(self, index: Sequence[int] | np.ndarray) -> "PosedImages":
        """Return some of the images, with the cameras that they use."""
        index = np.asarray(index, dtype=int)
        used, of_image = np.unique(self.of_image[index], return_inverse=True)
        names = tuple(self.names[k] for k in index.tolist())
        kept = set(names)
        depths = {name: depth for name, depth in self.depths.items() if name in kept}
        cameras = cameras_taken(self.cameras, used)
        given = tuple(self.given_names[k] for k in index.tolist()) if self.given_names else ()
        new = replace(self, names=names, poses=self.poses[index], cameras=cameras, of_image=of_image)
        return replace(new, depths=depths, given_names=given)

    def rays(self, image: np.ndarray, xys: np.ndarray) -> np.ndarray:
        """Return unit vectors (n, 3) of pixels (n, 2) of images (n,), in the camera frames; NaN where there is none."""
        out = np.full((len(xys), 3), np.nan)
        camera = self.of_image[image]
        for k in np.unique(camera).tolist():
            of = camera == k
            out[of] = directions(self.cameras.models[k], self.cameras.params[k], xys[of])
        return out


def cameras_taken(cameras: Cameras, index: np.ndarray) -> Cameras:
    """Return some of the cameras."""
    return Cameras(
        cameras.ids[index],
        tuple(cameras.models[k] for k in index.tolist()),
        cameras.sizes[index],
        tuple(cameras.params[k] for k in index.tolist()),
    )


def from_model(model: ColmapModel) -> PosedImages:
    """Return the images of a COLMAP model; its tracks are not used."""
    of_image = positions(model.cameras.ids, model.images.camera_ids)
    return PosedImages(model.images.names, camera_poses(model), model.cameras, of_image, model.points.xyz)


def with_cameras(
    names: Sequence[str], poses: np.ndarray, models: Sequence[str], sizes: np.ndarray, params: Sequence[np.ndarray]
) -> PosedImages:
    """Return images with one set of intrinsics each; images with equal intrinsics share a camera."""
    key: dict[Any, int] = {}
    each = zip(models, np.asarray(sizes).tolist(), params, strict=True)
    of_image = [key.setdefault((model, tuple(size), tuple(map(float, p))), len(key)) for model, size, p in each]
    cameras = Cameras(
        np.arange(1, len(key) + 1),
        tuple(model for model, _, _ in key),
        np.array([size for _, size, _ in key], dtype=np.int64).reshape(-1, 2),
        tuple(np.array(p, dtype=float) for _, _, p in key),
    )
    return PosedImages(tuple(names), np.asarray(poses, float), cameras, np.array(of_image, dtype=int))


def rescaled(posed: PosedImages, actual: np.ndarray) -> tuple[PosedImages, np.ndarray]:
    """Return the images with intrinsics that refer to their actual sizes, and the mask of those that were scaled.

    The intrinsics of networks refer to resized copies.  If their size is unknown, they are scaled if the principal
    point is far from the centre.

    Parameters
    ----------
    posed
        Images.
    actual
        (n_images, 2): width and height of the files.

    Raises
    ------
    ValueError
        If the ratio of width and height differs, as after cropping.
    """
    stated = np.where(posed.sizes > 0, posed.sizes, actual)
    for k in np.flatnonzero(posed.sizes.min(axis=1) <= 0).tolist():
        centre = _principal_point(posed, k)
        if centre is not None and not (np.abs(centre / actual[k] - 0.5) < CENTRAL).all():
            stated[k] = np.maximum(np.rint(2 * centre), 1)
    changed = (stated != actual).any(axis=1)
    factors = actual / stated
    cropped = np.abs(np.log(factors[:, 0] / factors[:, 1])) > MAX_ASPECT_CHANGE
    if cropped.any():
        k = int(np.argmax(cropped))
        have, want = ("×".join(map(str, x[k].tolist())) for x in (actual, stated))
        raise ValueError(f"{posed.names[k]} has {have} pixels, but its intrinsics refer to {want}, another shape")
    index = [int(k) for k in posed.of_image]
    each = zip(index, factors.tolist(), strict=True)
    params = [scaled_params(posed.cameras.models[k], posed.cameras.params[k], *f) for k, f in each]
    new = with_cameras(posed.names, posed.poses, [posed.cameras.models[k] for k in index], actual, params)
    if not changed.any() and (posed.sizes == actual).all():
        return posed, changed
    return replace(posed, cameras=new.cameras, of_image=new.of_image), changed


def _principal_point(posed: PosedImages, image: int) -> np.ndarray | None:
    """Return the principal point of an image; None if its camera model has none."""
    camera = posed.of_image[image]
    names = CAMERA_MODELS[posed.cameras.models[camera]].split()
    at = names.index("cx") if "cx" in names else None
    return None if at is None else posed.cameras.params[camera][at : at + 2]


def scaled_params(model: str, params: np.ndarray, sx: float, sy: float) -> np.ndarray:
    """Return the parameters of a camera for an image resized by factors along x and y.

    One focal length for both axes is scaled by the geometric mean.
    """
    factors = {"f": np.sqrt(sx * sy), "fx": sx, "fy": sy, "cx": sx, "cy": sy, "w": sx, "h": sy}
    return np.array([p * factors.get(n, 1.0) for n, p in zip(CAMERA_MODELS[model].split(), params, strict=True)])


def checked_params(model: str, params: Sequence[float]) -> np.ndarray:
    """Return the parameters of a camera model; raise a ValueError if their number is wrong or one is not finite."""
    if model not in CAMERA_MODELS:
        raise ValueError(f"the camera model must be one of {', '.join(CAMERA_MODELS)}, not {model!r}")
    p = np.array(params, dtype=float)
    if p.shape != (n_params(model),) or not np.isfinite(p).all():
        raise ValueError(f"a {model} camera has the parameters {CAMERA_MODELS[model]}, got {p.size} numbers")
    return p

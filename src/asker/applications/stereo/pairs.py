"""Stereo pairs: folders in the Middlebury layout, and synthetic pairs with known disparities.

A synthetic pair shows slanted planes at several depths, with texture and noise.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asker.io.files import FileError
from asker.io.images import read_disparity, read_grey

MIDDLEBURY = {"left": "im2.png", "right": "im6.png", "truth": "disp2.png", "truth_right": "disp6.png"}
SCALE = 4.0
"""Scale of disparity images: a value divided by it is the disparity in pixels."""
TEXTURE_BLUR = 0.8
"""Standard deviation of the blur of synthetic textures in pixels, so that neighbouring pixels are correlated."""


@dataclass(frozen=True, eq=False)
class StereoPair:
    """Two rectified grey images, and their true disparities if known."""

    left: np.ndarray
    right: np.ndarray
    left_truth: np.ndarray | None = None
    right_truth: np.ndarray | None = None
    max_disparity: int | None = None


def read_pair(
    left: Path, right: Path, truth: Path | None = None, truth_right: Path | None = None, scale: float = SCALE
) -> StereoPair:
    """Read a pair from its images, with true disparities if their files are given."""
    images = read_grey(left), read_grey(right)
    left_truth, right_truth = (
        None if path is None else _read_truth(path, scale, images[0].shape) for path in (truth, truth_right)
    )
    return StereoPair(*images, left_truth, right_truth)


def read_folder(folder: Path, scale: float = SCALE) -> StereoPair:
    """Read a pair from a folder in the Middlebury layout, with true disparities if it has them."""
    paths = {key: folder / name for key, name in MIDDLEBURY.items()}
    truths = [paths[key] if paths[key].exists() else None for key in ("truth", "truth_right")]
    return read_pair(paths["left"], paths["right"], truths[0], truths[1] if truths[0] else None, scale)


def _read_truth(path: Path, scale: float, shape: tuple[int, ...]) -> np.ndarray:
    truth = read_disparity(path, scale)
    if truth.shape != shape:
        raise FileError(path, f"{truth.shape[1]}×{truth.shape[0]} pixels, but the images have {shape[1]}×{shape[0]}")
    return truth


def make_pair(
    height: int = 96,
    width: int = 128,
    *,
    max_disparity: int = 20,
    n_planes: int = 4,
    noise: float = 0.2,
    seed: int = 0,
) -> StereoPair:
    """Render rectangles on slanted planes in front of a slanted background, from far to near.

    Parameters
    ----------
    height, width
        Size of the images, in pixels.
    max_disparity
        Largest disparity, in pixels.
    n_planes
        Number of rectangles.
    noise
        Standard deviation of the noise of grey values; the texture has values around 0.5 with standard deviation 0.2.
    seed
        Seed of the random number generator.

    Raises
    ------
    ValueError
        If the images are too small for the disparities.
    """
    if height < 8 or width <= 2 * max_disparity or max_disparity < 4:
        raise ValueError(f"{width}×{height} is too small for disparities up to {max_disparity}")
    rng = np.random.default_rng(seed)
    images, truths = np.zeros((2, height, width)), np.full((2, height, width), -np.inf)
    y, x = np.mgrid[:height, :width].astype(float)
    for k in range(n_planes + 1):
        middle = max_disparity * (0.15 + 0.75 * k / max(n_planes, 1))
        slant = rng.uniform(-0.08, 0.08, 2) * max_disparity / [height, width]
        texture = _texture(rng, height, width + 2 * max_disparity)
        if k == 0:
            top, bottom, first, last = -np.inf, np.inf, -np.inf, np.inf
        else:
            top, first = rng.uniform(0.05, 0.5) * height, rng.uniform(0.1, 0.6) * width
            bottom, last = top + rng.uniform(0.25, 0.45) * height, first + rng.uniform(0.2, 0.35) * width
        # a plane is d = a + b·y + c·X over its left pixels X; right pixel x corresponds to X with X − d(X) = x
        a, (b, c) = middle - slant[0] * height / 2 - slant[1] * width / 2, slant
        for side in (0, 1):
            X = x if side == 0 else (x + a + b * y) / (1 - c)
            d = a + b * y + c * X
            visible = (top <= y) & (y < bottom) & (first <= X) & (last > X) & (d > truths[side])
            images[side][visible] = _interpolated(texture, y, X + max_disparity)[visible]
            truths[side][visible] = d[visible]
    images += rng.normal(0, noise, images.shape)
    return StereoPair(images[0], images[1], truths[0], truths[1], max_disparity)


def _texture(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    from scipy.ndimage import gaussian_filter

    grain = gaussian_filter(rng.normal(size=(height, width)), TEXTURE_BLUR, mode="wrap")
    return 0.5 + 0.2 * grain / grain.std()


def _interpolated(texture: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    from scipy.ndimage import map_coordinates

    return map_coordinates(texture, [y, x], order=3, mode="nearest")

"""Stereo pairs with a known truth: slanted planes at several depths, textured, noisy."""

from dataclasses import dataclass

import numpy as np

SMOOTH = 0.8  # pixels: blur of the texture, so that neighbouring pixels have something in common


@dataclass(frozen=True, eq=False)
class StereoPair:
    """Two rectified grey images, and the true disparities of both."""

    left: np.ndarray
    right: np.ndarray
    left_truth: np.ndarray
    right_truth: np.ndarray
    max_disparity: int


def make_pair(
    height: int = 96,
    width: int = 128,
    *,
    max_disparity: int = 20,
    n_planes: int = 4,
    noise: float = 0.2,
    seed: int = 0,
) -> StereoPair:
    """Rectangles on slanted planes before a slanted background, rendered from farthest to nearest.

    noise   standard deviation of a grey value; the texture lies between 0 and 1
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
        # a plane is d = a + b·y + c·X over its left pixels X; a right pixel x sees X with X − d(X) = x
        a, (b, c) = middle - slant[0] * height / 2 - slant[1] * width / 2, slant
        for side in (0, 1):
            X = x if side == 0 else (x + a + b * y) / (1 - c)
            d = a + b * y + c * X
            seen = (top <= y) & (y < bottom) & (first <= X) & (last > X) & (d > truths[side])
            images[side][seen] = _sampled(texture, y, X + max_disparity)[seen]
            truths[side][seen] = d[seen]
    images += rng.normal(0, noise, images.shape)
    return StereoPair(images[0], images[1], truths[0], truths[1], max_disparity)


def _texture(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    from scipy.ndimage import gaussian_filter

    grain = gaussian_filter(rng.normal(size=(height, width)), SMOOTH, mode="wrap")
    return 0.5 + 0.2 * grain / grain.std()


def _sampled(texture: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    from scipy.ndimage import map_coordinates

    return map_coordinates(texture, [y, x], order=3, mode="nearest")

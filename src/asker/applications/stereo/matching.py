"""Matching of two rectified images: a cost for each pixel and disparity, and its local minima."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import numpy as np

from asker.applications.stereo.options import Cost
from asker.problem.problem import ProblemError

MAX_VOLUME_SIZE = 1 << 22
"""Number of costs that `match` keeps in memory at a time."""
MIN_CONTRAST = 1e-6
"""Standard deviation of a window, relative to its mean, below which it counts as textureless."""


@dataclass(frozen=True)
class Matching:
    """Settings of the matching cost."""

    max_disparity: int
    cost: Cost = "zncc"
    """Cost of a window: "zncc" is 1 − zero-mean normalised cross-correlation; "census" the fraction of the pixels whose
    comparison with the centre differs, averaged over the window; "absolute" the mean absolute difference.
    """
    window: int = 7
    """Side of the square window, odd."""
    n_minima: int = 2
    """K: number of local minima per pixel that become data terms."""

    def __post_init__(self) -> None:
        if self.cost not in get_args(Cost):
            raise ProblemError(f"cost must be one of {', '.join(get_args(Cost))}, not {self.cost!r}")
        if self.window < 1 or self.window % 2 == 0:
            raise ProblemError(f"window must be a positive odd number, not {self.window}")
        if self.n_minima < 1:
            raise ProblemError(f"n_minima must be at least 1, not {self.n_minima}")
        if self.max_disparity < 2:
            raise ProblemError(f"max_disparity must be at least 2, not {self.max_disparity}")


def cost_volume(left: np.ndarray, right: np.ndarray, matching: Matching) -> np.ndarray:
    """Return the costs (D + 1, H, W) of matching left pixel (y, x) with right pixel (y, x − d), infinite outside."""
    left, right = _checked(left, right, matching)
    prepare, compare = COSTS[matching.cost]
    half = matching.window // 2
    a, b = (prepare(np.pad(image, ((0, 0), (half, half)), mode="reflect"), matching.window) for image in (left, right))
    volume = np.full((matching.max_disparity + 1, *left.shape), np.inf, dtype=np.float32)
    width = a[0].shape[-1]
    for d in range(len(volume)):
        cost = compare([x[..., d:] for x in a], [x[..., : width - d] for x in b], matching.window)
        volume[d, :, d:] = cost[:, half : width - d - half]  # windows inside both images
    return volume


@dataclass(frozen=True, eq=False)
class Minima:
    """Local minima of a cost volume."""

    disparity: np.ndarray
    """(H, W, K): disparities of the lowest local minima, in increasing order of cost; NaN if there are fewer."""
    winner: np.ndarray
    """(H, W): disparity of the lowest cost, with subpixel refinement if it is a local minimum."""


def local_minima(volume: np.ndarray, n: int) -> Minima:
    """Return the `n` lowest strict local minima along d of each pixel, refined by a parabola."""
    before, here, after = volume[:-2], volume[1:-1], volume[2:]
    with np.errstate(invalid="ignore", over="ignore"):
        strict = (here < before) & (here < after) & np.isfinite(before) & np.isfinite(after)
        shift = 0.5 * (before - after) / np.where(strict, before - 2 * here + after, 1.0)
    places = np.arange(1, len(volume) - 1, dtype=np.float32)[:, None, None]
    refined = places + np.where(strict, shift, 0.0)
    candidates = np.where(strict, here, np.inf)
    k = min(n, len(candidates))
    lowest = np.argpartition(candidates, k - 1, axis=0)[:k] if k < len(candidates) else np.argsort(candidates, axis=0)
    values = np.take_along_axis(candidates, lowest, axis=0)
    order = np.argsort(values, axis=0, kind="stable")
    lowest, values = np.take_along_axis(lowest, order, axis=0), np.take_along_axis(values, order, axis=0)
    disparity = np.where(np.isfinite(values), np.take_along_axis(refined, lowest, axis=0), np.nan)
    disparity = np.concatenate([disparity, np.full((n - k, *disparity.shape[1:]), np.nan)])
    best = np.argmin(volume, axis=0)
    inside = np.clip(best - 1, 0, len(here) - 1)
    at_best = np.take_along_axis(refined, inside[None], axis=0)[0]
    is_minimum = np.take_along_axis(strict, inside[None], axis=0)[0] & (best == inside + 1)
    return Minima(np.moveaxis(disparity, 0, -1).astype(float), np.where(is_minimum, at_best, best).astype(float))


def match(left: np.ndarray, right: np.ndarray, matching: Matching) -> Minima:
    """Return the minima of the cost volume, which is computed in bands of rows to limit memory."""
    left, right = _checked(left, right, matching)
    height, width = left.shape
    reach = matching.window - 1  # rows that a cost depends on; census averages windows over a window
    band = max(matching.window, MAX_VOLUME_SIZE // ((matching.max_disparity + 1) * width))
    bands = []
    for first in range(0, height, band):
        last = min(first + band, height)
        top, bottom = max(0, first - reach), min(height, last + reach)
        volume = cost_volume(left[top:bottom], right[top:bottom], matching)
        bands.append(local_minima(volume[:, first - top : last - top], matching.n_minima))
    return Minima(np.concatenate([m.disparity for m in bands]), np.concatenate([m.winner for m in bands]))


def _checked(left: np.ndarray, right: np.ndarray, matching: Matching) -> tuple[np.ndarray, np.ndarray]:
    left, right = np.asarray(left, dtype=float), np.asarray(right, dtype=float)
    for name, image in (("left", left), ("right", right)):
        if image.ndim != 2:
            raise ProblemError(f"the {name} image has shape {image.shape}, expected a grey image (H, W)")
        if not np.isfinite(image).all():
            raise ProblemError(f"the {name} image contains NaN or infinity")
    if left.shape != right.shape:
        raise ProblemError(f"the images differ in size: left {_size(left)}, right {_size(right)}")
    if min(left.shape) < matching.window:
        raise ProblemError(f"the images, {_size(left)}, are smaller than the window, {matching.window}")
    if matching.max_disparity >= left.shape[1]:
        raise ProblemError(
            f"max_disparity {matching.max_disparity} is not below the width of the images, {_size(left)}"
        )
    return left, right


def _size(image: np.ndarray) -> str:
    return f"{image.shape[1]}×{image.shape[0]}"


def _mean(image: np.ndarray, window: int) -> np.ndarray:
    """Return the mean over a square window, with reflection at the border."""
    from scipy.ndimage import uniform_filter

    return uniform_filter(image, window, mode="mirror")


def _prepare_zncc(image: np.ndarray, window: int) -> list[np.ndarray]:
    mean = _mean(image, window)
    deviation = np.sqrt(np.maximum(_mean(image**2, window) - mean**2, 0.0))
    return [image, mean, np.where(deviation > MIN_CONTRAST * np.abs(mean), deviation, np.inf)]


def _zncc(a: list[np.ndarray], b: list[np.ndarray], window: int) -> np.ndarray:
    (left, left_mean, left_deviation), (right, right_mean, right_deviation) = a, b
    return 1 - (_mean(left * right, window) - left_mean * right_mean) / (left_deviation * right_deviation)


def _prepare_census(image: np.ndarray, window: int) -> list[np.ndarray]:
    half = window // 2
    padded = np.pad(image, half, mode="symmetric")
    height, width = image.shape
    shifts = [(y, x) for y in range(window) for x in range(window) if (y, x) != (half, half)]
    bits = [padded[y : y + height, x : x + width] < image for y, x in shifts]
    return [np.packbits(np.stack(bits), axis=0)]


def _census(a: list[np.ndarray], b: list[np.ndarray], window: int) -> np.ndarray:
    return _mean(np.bitwise_count(a[0] ^ b[0]).sum(axis=0) / max(window**2 - 1, 1), window)


def _absolute(a: list[np.ndarray], b: list[np.ndarray], window: int) -> np.ndarray:
    return _mean(np.abs(a[0] - b[0]), window)


COSTS: dict[str, tuple[Callable, Callable]] = {
    "zncc": (_prepare_zncc, _zncc),
    "census": (_prepare_census, _census),
    "absolute": (lambda image, window: [image], _absolute),
}

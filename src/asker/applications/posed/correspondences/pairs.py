"""Pairs of images to match: all if there are few images, else those whose views overlap according to the poses."""

import numpy as np

from asker.applications.colmap.cameras import depth as visible_depth
from asker.applications.colmap.cameras import project
from asker.applications.posed.posed_images import PosedImages

MAX_EXHAUSTIVE = 60
"""The number of images up to which all pairs are matched."""
N_NEIGHBOURS = 20
"""The number of images with the largest overlap that each image is matched with."""
GRID = 4
"""Pixels sampled along each side of an image."""
DEPTHS = 2.0 ** np.arange(1, 7)
"""Depths of sampled points, relative to the median distance of neighbouring cameras."""
MAX_POINTS = 2000
"""The number of known points that are used in place of sampled ones."""


def select_pairs(posed: PosedImages, n_neighbours: int = N_NEIGHBOURS) -> np.ndarray:
    """Return the pairs of images to match, (n_pairs, 2), with the smaller index first, sorted.

    Parameters
    ----------
    posed
        Images with approximate poses.
    n_neighbours
        The number of partners of each image if there are more than `MAX_EXHAUSTIVE` images.
    """
    n = len(posed)
    if n <= MAX_EXHAUSTIVE:
        return np.stack(np.triu_indices(n, 1), axis=1)
    overlap = view_overlaps(posed)
    overlap = np.maximum(overlap, overlap.T)
    np.fill_diagonal(overlap, -1.0)
    k = min(n_neighbours, n - 1)
    best = np.argpartition(-overlap, k - 1, axis=1)[:, :k]
    chosen = np.stack([np.repeat(np.arange(n), k), best.ravel()], axis=1)
    chosen = chosen[overlap[chosen[:, 0], chosen[:, 1]] > 0]
    return np.unique(np.sort(chosen, axis=1), axis=0)


def view_overlaps(posed: PosedImages) -> np.ndarray:
    """Return the share of sampled points of image i that image j also shows, (n, n).

    Points of the scene are used if they are known, else points at several depths along the rays of image i.
    """
    n = len(posed)
    out = np.zeros((n, n))
    distance = np.linalg.norm(posed.centres[:, None] - posed.centres[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    unit = float(np.median(distance.min(axis=1))) or 1.0
    points = posed.points
    if len(points) > MAX_POINTS:
        points = points[np.linspace(0, len(points) - 1, MAX_POINTS).astype(int)]
    if len(points):
        shown = np.stack([_shown(posed, j, points) for j in range(n)])
        total = np.maximum(shown.sum(axis=1), 1)
        return (shown.astype(float) @ shown.T.astype(float)) / total[:, None]
    samples = [_samples(posed, i, unit) for i in range(n)]
    for j in range(n):
        mask = _shown(posed, j, np.concatenate(samples))
        first = np.concatenate([[0], np.cumsum([len(x) for x in samples])[:-1]])
        out[:, j] = np.add.reduceat(mask.astype(float), first) / [max(len(x), 1) for x in samples]
    return out


def _samples(posed: PosedImages, image: int, unit: float) -> np.ndarray:
    """Return points at several depths along the rays of a grid of pixels."""
    width, height = posed.sizes[image]
    at = (np.arange(GRID) + 0.5) / GRID
    uv = np.stack(np.meshgrid(at * width, at * height), axis=-1).reshape(-1, 2)
    d = posed.rays(np.full(len(uv), image), uv)
    d = np.where(np.isfinite(d), d, [0.0, 0.0, 1.0]) @ posed.poses[image, :, :3]
    return (posed.centres[image] + (unit * DEPTHS)[:, None, None] * d).reshape(-1, 3)


def _shown(posed: PosedImages, image: int, points: np.ndarray) -> np.ndarray:
    """Return the mask of the points that project into an image."""
    x, y, z = (points @ posed.poses[image, :, :3].T + posed.poses[image, :, 3]).T
    camera = posed.of_image[image]
    model, params = posed.cameras.models[camera], posed.cameras.params[camera]
    width, height = posed.sizes[image]
    with np.errstate(all="ignore"):
        u, v = project(model, params, x, y, z)
        return (visible_depth(model, params, x, y, z) > 0) & (u >= 0) & (v >= 0) & (u <= width) & (v <= height)

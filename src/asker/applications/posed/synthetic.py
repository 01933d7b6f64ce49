"""Synthetic posed images with a known truth: cameras on a ring around points, verified matches, errors of poses."""

from dataclasses import dataclass, replace

import numpy as np

from asker.applications.posed.correspondences.matches import Matches, matches_from
from asker.applications.posed.posed_images import PosedImages, with_cameras
from asker.geometry.alignment import similarity
from asker.geometry.rotations import matrix_from_angle_axis

WIDTH, HEIGHT, FOCAL = 640, 480, 600.0
"""Pixels."""
MIN_MATCHES = 5
"""The number of matches from which a pair counts as verified."""
RELATIVE_ROTATION_NOISE = np.radians(0.3)


@dataclass(frozen=True, eq=False)
class PosedScene:
    """A scene with known truth."""

    truth: PosedImages
    matches: Matches
    track: np.ndarray
    """(n_features,): the point of each feature."""
    is_wrong: np.ndarray
    """(n_features,): the mask of the features that are no projections of their point."""

    @property
    def right(self) -> Matches:
        """The matches without wrong features."""
        return self.matches.taken(~self.is_wrong[self.matches.features].any(axis=1))


def ring_poses(n: int, radius: float = 4.0) -> np.ndarray:
    """Return poses (n, 3, 4) on a ring, which look at the origin."""
    a = 2 * np.pi * np.arange(n) / n
    c = np.stack([radius * np.cos(a), 0.4 * np.sin(3 * a), radius * np.sin(a)], axis=1)
    z = -c / np.linalg.norm(c, axis=1, keepdims=True)
    x = np.cross([0.0, 1.0, 0.0], z)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return poses_from(np.stack([x, np.cross(z, x), z], axis=1), c)


def poses_from(R: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return poses [R | t] (n, 3, 4) from rotations and camera centres."""
    return np.concatenate([R, -np.einsum("nij,nj->ni", R, centres)[:, :, None]], axis=2)


def images_of(poses: np.ndarray, focal: np.ndarray | float = FOCAL) -> PosedImages:
    """Return images with given poses and focal lengths."""
    n = len(poses)
    params = [np.array([f, f, WIDTH / 2, HEIGHT / 2]) for f in np.broadcast_to(focal, n)]
    names = [f"{k:03}.png" for k in range(n)]
    return with_cameras(names, poses, ["PINHOLE"] * n, np.tile([WIDTH, HEIGHT], (n, 1)), params)


def make_scene(
    n: int = 8,
    n_points: int = 150,
    sigma: float = 0.3,
    wrong_features: float = 0.0,
    wrong_tracks: float = 0.0,
    seed: int = 0,
    poses: np.ndarray | None = None,
    span: int = 2,
) -> PosedScene:
    """Generate images on a ring, points that two to four neighbouring images see, and verified matches.

    Parameters
    ----------
    n
        The number of images.
    n_points
        The number of points.
    sigma
        The noise of a feature in pixels.
    wrong_features
        The fraction of the features that are displaced by up to 60 pixels.
    wrong_tracks
        The fraction of the tracks whose features are anywhere in their images.
    seed
        The seed of the random number generator.
    poses
        The true poses; by default a ring.
    span
        The largest distance of two matched images along the ring.
    """
    rng = np.random.default_rng(seed)
    poses = ring_poses(n) if poses is None else poses
    points = rng.uniform(-1, 1, size=(n_points, 3))
    length = rng.integers(2, 5, size=n_points)
    point = np.repeat(np.arange(n_points), length)
    offset = np.arange(len(point)) - np.repeat(np.cumsum(length) - length, length)
    image = (rng.integers(n, size=n_points)[point] + offset) % n
    once = np.unique(image * n_points + point, return_index=True)[1]  # sorted by image
    image, point = image[once], point[once]
    P = np.einsum("nij,nj->ni", poses[image, :, :3], points[point]) + poses[image, :, 3]
    uv = FOCAL * P[:, :2] / P[:, 2:] + [WIDTH / 2, HEIGHT / 2] + sigma * rng.normal(size=(len(P), 2))
    displaced, replaced = rng.random(len(P)) < wrong_features, (rng.random(n_points) < wrong_tracks)[point]
    uv[displaced] += rng.uniform(-60, 60, size=(int(displaced.sum()), 2))
    uv[replaced] = rng.uniform([0, 0], [WIDTH, HEIGHT], size=(int(replaced.sum()), 2))
    keypoints = [uv[image == k] for k in range(n)]
    matches = _matches(keypoints, [point[image == k] for k in range(n)], poses, span, rng)
    return PosedScene(images_of(poses), matches, point, displaced | replaced)


def _matches(
    keypoints: list[np.ndarray], owner: list[np.ndarray], poses: np.ndarray, span: int, rng: np.random.Generator
) -> Matches:
    """Return the matches of images close to each other on the ring, with relative poses."""
    n = len(poses)
    pairs, features, relative = [], [], []
    close = [(i, (i + d) % n) for i in range(n) for d in range(1, span + 1) if n > d]
    for i, j in sorted({(min(pair), max(pair)) for pair in close}):
        _, a, b = np.intersect1d(owner[i], owner[j], return_indices=True)
        if len(a) < MIN_MATCHES:
            continue
        R = poses[j, :, :3] @ poses[i, :, :3].T
        t = poses[j, :, 3] - R @ poses[i, :, 3]
        noise = matrix_from_angle_axis(RELATIVE_ROTATION_NOISE * rng.normal(size=(1, 3)))[0]
        pairs.append((i, j))
        features.append(np.stack([a, b], axis=1))
        relative.append(np.concatenate([noise @ R, (t / np.linalg.norm(t))[:, None]], axis=1))
    return matches_from(keypoints, pairs, features, relative)


def disturbed(posed: PosedImages, degrees: float = 3.0, percent: float = 5.0, seed: int = 0) -> PosedImages:
    """Return the images with independent errors of their poses.

    Parameters
    ----------
    posed
        Images.
    degrees
        The rms angle of the errors of rotations.
    percent
        The rms error of centres, in percent of their mean distance from the middle.
    seed
        The seed of the random number generator.
    """
    rng = np.random.default_rng(seed)
    n, c = len(posed), posed.centres
    turn = matrix_from_angle_axis(np.radians(degrees) * rng.normal(size=(n, 3)) / np.sqrt(3))
    c = c + 0.01 * percent * mean_radius(posed) * rng.normal(size=(n, 3)) / np.sqrt(3)
    return replace(posed, poses=poses_from(turn @ posed.poses[:, :, :3], c))


def drifting(posed: PosedImages, degrees: float = 8.0, scale: float = 0.15, seed: int = 0) -> PosedImages:
    """Return the images with errors that grow along the sequence: a rotation about a random axis, and the scale."""
    s = np.linspace(0, 1, len(posed))[:, None]
    axis = np.random.default_rng(seed).normal(size=3)
    turn = matrix_from_angle_axis(np.radians(degrees) * s * axis / np.linalg.norm(axis))
    return replace(posed, poses=poses_from(turn @ posed.poses[:, :, :3], posed.centres * (1 + scale * s)))


def mean_radius(posed: PosedImages) -> float:
    """Return the mean distance of the camera centres from their mean."""
    c = posed.centres
    return float(np.linalg.norm(c - c.mean(axis=0), axis=1).mean())


def centre_error(posed: PosedImages, truth: PosedImages) -> float:
    """Return the rms error of the centres in percent of `mean_radius`, after alignment by a similarity."""
    s, R, t = similarity(posed.centres, truth.centres)
    distance = s * posed.centres @ R.T + t - truth.centres
    return float(100 * np.sqrt((distance**2).sum(axis=1).mean()) / mean_radius(truth))

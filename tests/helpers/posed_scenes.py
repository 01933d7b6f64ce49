"""Synthetic posed images: cameras on a ring around a cloud of points, matches with noise and outliers."""

import sqlite3
from dataclasses import dataclass

import numpy as np

from asker.applications.posed import Matches, PosedImages, matches_from, with_cameras
from asker.geometry.alignment import similarity
from asker.geometry.rotations import matrix_from_angle_axis, quaternion_from_matrix

WIDTH, HEIGHT, FOCAL = 640, 480, 600.0
SIGMA = 0.3


@dataclass(frozen=True, eq=False)
class PosedScene:
    """A scene with known truth."""

    truth: PosedImages
    points: np.ndarray
    matches: Matches
    track: np.ndarray
    """(n_features,): the point of each feature, -1 for an outlier."""


def poses_from(R, centres):
    return np.concatenate([R, -np.einsum("nij,nj->ni", R, centres)[:, :, None]], axis=2)


def ring_poses(n, radius=4.0):
    """Poses on a ring, which look at the origin."""
    a = 2 * np.pi * np.arange(n) / n
    c = np.stack([radius * np.cos(a), 0.4 * np.sin(3 * a), radius * np.sin(a)], axis=1)
    z = -c / np.linalg.norm(c, axis=1, keepdims=True)
    x = np.cross([0.0, 1.0, 0.0], z)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return poses_from(np.stack([x, np.cross(z, x), z], axis=1), c)


def images_of(poses, focal=FOCAL, names=None):
    n = len(poses)
    params = [np.array([focal, focal, WIDTH / 2, HEIGHT / 2])] * n
    names = [f"{k:03}.png" for k in range(n)] if names is None else names
    return with_cameras(names, poses, ["PINHOLE"] * n, np.tile([WIDTH, HEIGHT], (n, 1)), params)


def relative_pose(a, b):
    R = b[:, :3] @ a[:, :3].T
    t = b[:, 3] - R @ a[:, 3]
    return np.concatenate([R, (t / np.linalg.norm(t))[:, None]], axis=1)


def scene(n=8, n_points=150, sigma=SIGMA, wrong=0.0, seed=0, reach=2, poses=None):
    """A scene in which each point is seen by a few neighbouring images.

    `wrong` is the fraction of the features of a track that are displaced along a random direction; matches join images
    up to `reach` apart on the ring.
    """
    rng = np.random.default_rng(seed)
    poses = ring_poses(n) if poses is None else poses
    points = rng.uniform(-1, 1, size=(n_points, 3))
    first, length = rng.integers(n, size=n_points), rng.integers(2, 5, size=n_points)
    keypoints, owner = [[] for _ in range(n)], [[] for _ in range(n)]
    for p in range(n_points):
        for k in range(length[p]):
            i = int(first[p] + k) % n
            x, y, z = poses[i, :, :3] @ points[p] + poses[i, :, 3]
            uv = np.array([FOCAL * x / z + WIDTH / 2, FOCAL * y / z + HEIGHT / 2]) + sigma * rng.normal(size=2)
            uv += (rng.random() < wrong) * rng.uniform(-60, 60, size=2)
            keypoints[i].append(uv)
            owner[i].append(p)
    pairs, features, relative = [], [], []
    for i in range(n):
        for j in range(i + 1, n):
            if min(j - i, n - j + i) > reach:
                continue
            _, a, b = np.intersect1d(owner[i], owner[j], return_indices=True)
            if len(a) >= 5:
                pairs.append((i, j))
                features.append(np.stack([a, b], axis=1))
                noise = matrix_from_angle_axis(np.radians(0.3) * rng.normal(size=(1, 3)))[0]
                T = relative_pose(poses[i], poses[j])
                relative.append(np.concatenate([noise @ T[:, :3], T[:, 3:]], axis=1))
    matches = matches_from([np.array(x).reshape(-1, 2) for x in keypoints], pairs, features, relative)
    return PosedScene(images_of(poses), points, matches, np.concatenate([np.array(x, int) for x in owner]))


def disturbed(posed, degrees=3.0, percent=5.0, seed=0):
    """The images with random errors of their poses."""
    rng = np.random.default_rng(seed)
    n, c = len(posed), posed.centres
    radius = np.linalg.norm(c - c.mean(axis=0), axis=1).mean()
    turn = matrix_from_angle_axis(np.radians(degrees) * rng.normal(size=(n, 3)) / np.sqrt(3))
    c = c + 0.01 * percent * radius * rng.normal(size=(n, 3)) / np.sqrt(3)
    return images_of(poses_from(turn @ posed.poses[:, :, :3], c), posed.cameras.params[0][0], posed.names)


def centre_error(posed, truth):
    """The rms error of the centres in percent of the radius, after alignment by a similarity."""
    source, target = posed.centres, truth.centres
    s, R, t = similarity(source, target)
    radius = np.linalg.norm(target - target.mean(axis=0), axis=1).mean()
    return 100 * np.sqrt(((s * source @ R.T + t - target) ** 2).sum(axis=1).mean()) / radius


def write_database(path, names, matches):
    """Write a COLMAP database with features and verified matches."""
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE images (image_id INTEGER, name TEXT, camera_id INTEGER)")
        db.execute("CREATE TABLE keypoints (image_id INTEGER, rows INTEGER, cols INTEGER, data BLOB)")
        db.execute("CREATE TABLE matches (pair_id INTEGER, rows INTEGER, cols INTEGER, data BLOB)")
        columns = "pair_id INTEGER, rows INTEGER, cols INTEGER, data BLOB, config INTEGER, qvec BLOB, tvec BLOB"
        db.execute(f"CREATE TABLE two_view_geometries ({columns})")
        for k, name in enumerate(names):
            xys = matches.xys[matches.starts[k] : matches.starts[k + 1]].astype(np.float32)
            db.execute("INSERT INTO images VALUES (?, ?, 1)", (k + 1, name))
            db.execute("INSERT INTO keypoints VALUES (?, ?, 2, ?)", (k + 1, len(xys), xys.tobytes()))
        for k, (i, j) in enumerate(matches.pairs.tolist()):
            each = matches.features[matches.pair_starts[k] : matches.pair_starts[k + 1]] - matches.starts[[i, j]]
            data, T = each.astype(np.uint32).tobytes(), matches.relative_poses[k]
            q = quaternion_from_matrix(T[None, :, :3])[0]
            row = 2147483647 * (i + 1) + j + 1, len(each), 2, data, 2, q.tobytes(), T[:, 3].copy().tobytes()
            db.execute("INSERT INTO two_view_geometries VALUES (?, ?, ?, ?, ?, ?, ?)", row)

"""Verified two-view matches of a set of images, and their readers: COLMAP's database and the HDF5 files of hloc."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from asker.geometry.rotations import matrix_from_quaternion
from asker.io.files import FileError, FilePath

MAX_IMAGES = 2147483647
"""COLMAP's factor in the id of a pair of images."""
SQLITE_BEGINNING = b"SQLite format 3\0"
WATERMARK = 8
"""COLMAP's number of the two-view configuration "watermark", whose matches are not of the scene."""


@dataclass(frozen=True, eq=False)
class Matches:
    """Features of images and matches between them."""

    starts: np.ndarray
    """(n_images + 1,): the features of image i are starts[i]:starts[i + 1]."""
    xys: np.ndarray
    """(n_features, 2): pixels."""
    pairs: np.ndarray
    """(n_pairs, 2): indices of images."""
    pair_starts: np.ndarray
    """(n_pairs + 1,): the matches of pair k are pair_starts[k]:pair_starts[k + 1]."""
    features: np.ndarray
    """(n_matches, 2): the matched features, as indices of `xys`."""
    relative_poses: np.ndarray
    """(n_pairs, 3, 4): poses [R | t] from the first to the second camera with ‖t‖ = 1; NaN if unknown."""

    @property
    def of_feature(self) -> np.ndarray:
        """(n_features,): the image of each feature."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @property
    def of_match(self) -> np.ndarray:
        """(n_matches,): the pair of each match."""
        return np.repeat(np.arange(len(self.pairs)), np.diff(self.pair_starts))

    @property
    def counts(self) -> np.ndarray:
        """(n_pairs,): the number of matches of each pair."""
        return np.diff(self.pair_starts)

    def taken(self, mask: np.ndarray) -> "Matches":
        """Return the same features and pairs with the matches of a mask."""
        n = np.bincount(self.of_match[mask], minlength=len(self.pairs))
        return replace(self, pair_starts=np.concatenate([[0], np.cumsum(n)]), features=self.features[mask])

    def of_images(self, index: np.ndarray) -> tuple["Matches", np.ndarray]:
        """Return the matches among some images, and the indices (n_features,) of their features in this object."""
        number = np.full(len(self.starts) - 1, -1)
        number[index] = np.arange(len(index))
        features = np.concatenate([np.arange(*self.starts[k : k + 2]) for k in index])
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[index])])
        of_feature = np.full(len(self.xys), -1)
        of_feature[features] = np.arange(len(features))
        kept = (number[self.pairs] >= 0).all(axis=1)
        n = self.counts[kept]
        return Matches(
            starts,
            self.xys[features],
            number[self.pairs[kept]],
            np.concatenate([[0], np.cumsum(n)]),
            of_feature[self.features[kept[self.of_match]]],
            self.relative_poses[kept],
        ), features


def matches_from(
    keypoints: Sequence[np.ndarray],
    pairs: Sequence[tuple[int, int]],
    features: Sequence[np.ndarray],
    relative_poses: Sequence[np.ndarray | None] | None = None,
) -> Matches:
    """Return the matches that lists describe.

    Parameters
    ----------
    keypoints
        The pixels (n, 2) of the features of each image.
    pairs
        The indices of the images of each pair.
    features
        The matches (n, 2) of each pair, as indices of the features within their images.
    relative_poses
        The pose [R | t] (3, 4) from the first to the second camera of each pair; None if it is unknown.
    """
    lengths = [len(x) for x in keypoints]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    xys = np.concatenate([np.asarray(x, float).reshape(-1, 2) for x in keypoints]) if lengths else np.zeros((0, 2))
    index = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    each = [np.asarray(f, np.int64).reshape(-1, 2) + starts[p] for f, p in zip(features, index, strict=True)]
    poses = np.full((len(index), 3, 4), np.nan)
    for k, pose in enumerate(relative_poses or ()):
        if pose is not None:
            poses[k] = pose
    n = np.concatenate([[0], np.cumsum([len(f) for f in each])]).astype(np.int64)
    joined = np.concatenate(each) if each else np.zeros((0, 2), np.int64)
    return Matches(starts, xys, index, n, joined, poses)


def is_database(path: FilePath) -> bool:
    """Return True if a file is an SQLite database."""
    try:
        with open(path, "rb") as file:
            return file.read(len(SQLITE_BEGINNING)) == SQLITE_BEGINNING
    except OSError:
        return False


def read_matches(path: FilePath, names: Sequence[str]) -> Matches:
    """Return the matches of a COLMAP database.

    The verified matches are read if there are any, else all matches.

    Parameters
    ----------
    path
        The database.
    names
        The names of the images; others in the database are ignored, and images without features have none.

    Raises
    ------
    FileError
        If the file is no COLMAP database, or has none of the images.
    """
    if not Path(path).is_file():
        raise FileError(path, "there is no such file")
    if not is_database(path):
        raise FileError(path, "this is not a COLMAP database")
    try:
        wal = Path(f"{path}-wal")
        how = "mode=ro" if wal.exists() and wal.stat().st_size else "immutable=1"  # so that no other file is created
        address = f"file:{quote(str(Path(path).absolute()))}?{how}"
        with closing(sqlite3.connect(address, uri=True)) as database:
            return _read(path, database, names)
    except sqlite3.Error as error:
        raise FileError(path, f"this COLMAP database cannot be read: {error}") from error


def _read(path: FilePath, database: sqlite3.Connection, names: Sequence[str]) -> Matches:
    index_of = {name: k for k, name in enumerate(names)}
    ids = {i: index_of[name] for i, name in database.execute("SELECT image_id, name FROM images") if name in index_of}
    if names and not ids:
        raise FileError(path, f"this database has none of the images, such as {names[0]}")
    keypoints = [np.zeros((0, 2))] * len(names)
    for image_id, rows, cols, data in database.execute("SELECT image_id, rows, cols, data FROM keypoints"):
        if image_id in ids:
            keypoints[ids[image_id]] = _array(path, data, np.float32, rows, cols)[:, :2].astype(float)
    records = _verified(path, database) or _unverified(path, database)
    pairs, features, poses = [], [], []
    for pair_id, each, pose in records:
        first, second = divmod(pair_id, MAX_IMAGES)
        if first in ids and second in ids and len(each):
            pair = ids[first], ids[second]
            if (each >= [len(keypoints[k]) for k in pair]).any():
                raise FileError(path, f"a match of {names[pair[0]]} and {names[pair[1]]} refers to no feature")
            pairs.append(pair)
            features.append(each)
            poses.append(pose)
    return matches_from(keypoints, pairs, features, poses)


def _verified(path: FilePath, database: sqlite3.Connection) -> list[tuple[int, np.ndarray, np.ndarray | None]]:
    """Return id, matches and relative pose of each pair with a two-view geometry."""
    columns = {row[1] for row in database.execute("PRAGMA table_info(two_view_geometries)")}
    pose = "qvec, tvec" if {"qvec", "tvec"} <= columns else "NULL, NULL"
    query = f"SELECT pair_id, rows, cols, data, config, {pose} FROM two_view_geometries WHERE rows > 0"
    out = []
    for pair_id, rows, cols, data, config, qvec, tvec in database.execute(query):
        if config != WATERMARK:
            each = _array(path, data, np.uint32, rows, cols).astype(np.int64)
            out.append((pair_id, each, _pose(qvec, tvec)))
    return out


def _unverified(path: FilePath, database: sqlite3.Connection) -> list[tuple[int, np.ndarray, np.ndarray | None]]:
    query = "SELECT pair_id, rows, cols, data FROM matches WHERE rows > 0"
    rows = database.execute(query)
    return [(i, _array(path, data, np.uint32, n, m).astype(np.int64), None) for i, n, m, data in rows]


def _array(path: FilePath, data: bytes | None, dtype: Any, rows: int, cols: int) -> np.ndarray:
    values = np.frombuffer(data or b"", dtype)
    if rows * cols != len(values) or cols < 2:
        raise FileError(path, f"an array of {len(values)} numbers should have the shape ({rows}, {cols})")
    return values.reshape(rows, cols)


def _pose(qvec: bytes | None, tvec: bytes | None) -> np.ndarray | None:
    """Return the pose [R | t] with ‖t‖ = 1; None if the database has none."""
    if not qvec or not tvec:
        return None
    q, t = np.frombuffer(qvec, float), np.frombuffer(tvec, float)
    if len(q) != 4 or len(t) != 3 or not q.any() or not t.any() or not np.isfinite(np.concatenate([q, t])).all():
        return None
    return np.concatenate([matrix_from_quaternion(q[None])[0], t[:, None] / np.linalg.norm(t)], axis=1)

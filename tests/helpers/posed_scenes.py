"""COLMAP databases of synthetic posed images."""

import sqlite3

import numpy as np

from asker.geometry.rotations import quaternion_from_matrix


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

"""Reference readers of bundles, COLMAP models and relative rotations."""

import os
import re
import struct
from pathlib import Path

import numpy as np

from reference_files import content_of, integer, need, number

# ---- Bundle Adjustment in the Large


def read_bal(path):
    words = content_of(path).split()
    need(len(words) >= 3 and all(re.fullmatch(rb"\d{1,18}", word) for word in words[:3]))
    n_cameras, n_points, n_observations = map(int, words[:3])
    need(min(n_cameras, n_points, n_observations) > 0)
    numbers = [number(word) for word in words[3:]]
    need(len(numbers) == 4 * n_observations + 9 * n_cameras + 3 * n_points)
    rows = [numbers[4 * k : 4 * k + 4] for k in range(n_observations)]
    for camera, point, _, _ in rows:
        need(camera in range(n_cameras) and point in range(n_points))
    rest = numbers[4 * n_observations :]
    return {
        "camera_index": [int(row[0]) for row in rows],
        "point_index": [int(row[1]) for row in rows],
        "uv": [row[2:] for row in rows],
        "cameras": [rest[9 * k : 9 * k + 9] for k in range(n_cameras)],
        "points": [rest[9 * n_cameras + 3 * k : 9 * n_cameras + 3 * k + 3] for k in range(n_points)],
    }


def numbers_of_bundle(bundle, _):
    return {name: getattr(bundle, name) for name in ("camera_index", "point_index", "uv", "cameras", "points")}


# ---- relative rotations


def read_rotations(path):
    names, i, j, matrices, weights = [], [], [], [], []
    for line in content_of(path).split(b"\n"):
        words = line.partition(b"#")[0].split()
        if not words:
            continue
        need(len(words) in (11, 12))
        for name in words[:2]:
            if os.fsdecode(name) not in names:
                names.append(os.fsdecode(name))
        i.append(names.index(os.fsdecode(words[0])))
        j.append(names.index(os.fsdecode(words[1])))
        U, _, Vt = np.linalg.svd(np.reshape([number(word) for word in words[2:11]], (3, 3)))
        matrices.append(U @ Vt)
        weights.append(number(words[11]) if len(words) == 12 else 1.0)
    return {"names": names, "i": i, "j": j, "matrices": matrices, "weights": weights}


def numbers_of_rotations(pairs, _):
    return {name: getattr(pairs, name) for name in ("names", "i", "j", "matrices", "weights")}


# ---- COLMAP

N_PARAMS = {
    "SIMPLE_PINHOLE": 3,
    "PINHOLE": 4,
    "SIMPLE_RADIAL": 4,
    "RADIAL": 5,
    "OPENCV": 8,
    "OPENCV_FISHEYE": 8,
    "FULL_OPENCV": 12,
    "FOV": 5,
    "SIMPLE_RADIAL_FISHEYE": 4,
    "RADIAL_FISHEYE": 5,
    "THIN_PRISM_FISHEYE": 12,
    "RAD_TAN_THIN_PRISM_FISHEYE": 16,
    "SIMPLE_DIVISION": 4,
    "DIVISION": 5,
    "SIMPLE_FISHEYE": 3,
    "FISHEYE": 4,
    "EUCM": 6,
    "EQUIRECTANGULAR": 2,
}
"""Camera models in the order of COLMAP's ids, and their numbers of parameters."""
MODELS = list(N_PARAMS)


class Bytes:
    """Sequential reader of little-endian numbers."""

    def __init__(self, path):
        self.data, self.at = Path(path).read_bytes(), 0

    def take(self, form):
        size = struct.calcsize("<" + form)
        need(self.at + size <= len(self.data))
        self.at += size
        return struct.unpack_from("<" + form, self.data, self.at - size)

    def name(self):
        end = self.data.find(b"\0", self.at)
        need(end >= 0)
        name, self.at = os.fsdecode(self.data[self.at : end]), end + 1
        return name

    def end(self):
        need(self.at == len(self.data))


def read_colmap(folder):
    """Return the cameras, images and points of a binary model."""
    return binary_cameras(Bytes(folder / "cameras.bin")) | {
        "images": binary_images(Bytes(folder / "images.bin")),
        "points": binary_points(Bytes(folder / "points3D.bin")),
    }


def binary_cameras(file):
    cameras = []
    for _ in range(file.take("Q")[0]):
        id, model, width, height = file.take("Iiqq")
        need(0 <= model < len(MODELS))
        cameras.append([id, model, width, height, *file.take(f"{N_PARAMS[MODELS[model]]}d")])
    file.end()
    return {"cameras": cameras}


def binary_images(file):
    images = []
    for _ in range(file.take("Q")[0]):
        id, *pose, camera = file.take("I7dI")
        name = file.name()
        features = [file.take("2dq") for _ in range(file.take("Q")[0])]
        images.append([id, pose, camera, name, [(x, y) for x, y, _ in features], [point for *_, point in features]])
    file.end()
    return images


def binary_points(file):
    points = []
    for _ in range(file.take("Q")[0]):
        id, x, y, z, red, green, blue, error, n = file.take("q3d3BdQ")
        for _ in range(n):
            file.take("II")
        points.append([id, (x, y, z), (red, green, blue), error])
    file.end()
    return points


def read_colmap_text(folder):
    """Return the cameras, images and points of a text model."""
    cameras, images, points = [], [], []
    for words, _ in text_records(folder / "cameras.txt"):
        need(words[1].decode("latin-1") in MODELS)
        model = MODELS.index(words[1].decode("latin-1"))
        need(len(words) == 4 + N_PARAMS[MODELS[model]])
        cameras.append([integer(words[0]), model, *map(integer, words[2:4]), *map(number, words[4:])])
    for line, features in text_records(folder / "images.txt", pairs=True):
        words, rest = line[:9], features.split()
        need(len(words) == 9 and len(rest) % 3 == 0)
        xys = [(number(x), number(y)) for x, y in zip(rest[0::3], rest[1::3], strict=True)]
        pose = [number(word) for word in words[1:8]]
        name = os.fsdecode(line[9].rstrip()) if len(line) > 9 else ""
        images.append([integer(words[0]), pose, integer(words[8]), name, xys, [integer(word) for word in rest[2::3]]])
    for words, _ in text_records(folder / "points3D.txt"):
        need(len(words) >= 8 and len(words) % 2 == 0)
        xyz, rgb = [number(word) for word in words[1:4]], [integer(word) for word in words[4:7]]
        need(all(0 <= c < 256 for c in rgb))
        points.append([integer(words[0]), xyz, rgb, number(words[7])])
    return {"cameras": cameras, "images": images, "points": points}


def text_records(path, pairs=False):
    """Yield the words of each record, and the following line if records are `pairs` of lines."""
    lines = iter(content_of(path).split(b"\n"))
    for line in lines:
        words = line.split(None, 9) if pairs else line.split()
        if words and not words[0].startswith(b"#"):
            following = next(lines, None) if pairs else b""
            need(following is not None and len(words) >= 4)
            yield words, following


def numbers_of_model(model, _):
    cameras, images, points = model.cameras, model.images, model.points
    models = [MODELS.index(name) for name in cameras.models]
    heads = zip(cameras.ids.tolist(), models, cameras.sizes.tolist(), cameras.params, strict=True)
    parts = [slice(*images.starts[k : k + 2]) for k in range(len(images))]
    poses = np.concatenate([images.qvecs, images.tvecs], axis=1)
    return {
        "cameras": [[id, model, *size, *params.tolist()] for id, model, size, params in heads],
        "images": [
            [*record, images.xys[own], images.point_ids[own]]
            for *record, own in zip(images.ids, poses, images.camera_ids, images.names, parts, strict=True)
        ],
        "points": [list(row) for row in zip(points.ids, points.xyz, points.rgb, points.errors, strict=True)],
    }

"""Reference readers of pose graphs and trajectories."""

import math
import struct
from pathlib import Path

import numpy as np

from reference_files import content_of, need, number

TAGS = {
    "VERTEX_SE2": ("p", 3, 0), "VERTEX_SE3:QUAT": ("p", 7, 0), "VERTEX_SIM3:QUAT": ("p", 8, 0),
    "VERTEX_XY": ("l", 2, 0), "VERTEX_TRACKXYZ": ("l", 3, 0),
    "PARAMS_SE2OFFSET": ("o", 3, 0), "PARAMS_SE3OFFSET": ("o", 7, 0),
    "EDGE_SE2": ("pp", 3, 3), "EDGE_SE3:QUAT": ("pp", 7, 6), "EDGE_SIM3:QUAT": ("pp", 8, 7),
    "EDGE_SE2_XY": ("pl", 2, 2), "EDGE_SE2_POINTXY_OFFSET": ("plo", 2, 2), "EDGE_BEARING_SE2_XY": ("pl", 1, 1),
    "EDGE_PRIOR_SE2": ("p", 3, 3), "EDGE_PRIOR_SE2_XY": ("p", 2, 2), "EDGE_PRIOR_XY": ("l", 2, 2),
    "EDGE_SE3_TRACKXYZ": ("plo", 3, 3), "EDGE_SE3_PRIOR": ("po", 7, 6), "EDGE_SE3_XYZ_PRIOR": ("po", 3, 3),
    "EDGE_SE3_PRIORXYZ": ("p", 3, 3), "EDGE_POINTXYZ_PRIOR": ("l", 3, 3),
}  # fmt: skip
"""Ids of each tag (p: pose, l: landmark, o: offset), its number of values, and the number of rows of Ω."""
EDGES = ("EDGE_SE2", "EDGE_SE3:QUAT", "EDGE_SIM3:QUAT")


def read_g2o(path, trajectory=False):
    """Return the numbers of a graph; poses and landmarks without a vertex line have no values."""
    lines, fixed = {tag: [] for tag in TAGS}, set()
    for line in content_of(path).split(b"\n"):
        tag, *words = line.split() or [b"#"]
        name = tag.decode("latin-1")
        if name == "FIX":
            need(words)
            fixed |= {identity(number(word)) for word in words}
        elif name in TAGS:
            lines[name].append(numbers_of_line(name, words))
    poses, landmarks, offsets = ({}, {}, {})
    for tag, (ends, _, d) in TAGS.items():
        table = {"p": poses, "l": landmarks, "o": offsets}[ends[0]]
        for ids, values, _ in lines[tag] if not d else []:
            table.setdefault(ids[0], unit(values))  # the first line of a duplicate vertex counts
    measured = {tag: without_repeats(tag, lines[tag]) for tag, (_, _, d) in TAGS.items() if d and lines[tag]}
    named = {
        end: {id for tag, rows in measured.items() for row in rows for id in ends_of(tag, row, end)} for end in "pl"
    }
    given = [id for id in landmarks if trajectory or id in named["l"]]
    ids = [*poses, *sorted(named["p"] - {*poses})]
    all_landmarks = [*given, *sorted(named["l"] - {*given})]
    edges = [row for tag in EDGES for row in measured.pop(tag, [])]
    return {
        "ids": ids,
        "poses": [*poses.values()],
        "edges": columns("edges", edges),
        "fixed": sorted(fixed & {*ids, *all_landmarks}),
        "landmarks": all_landmarks,
        "points": [landmarks[id] for id in given],
        "measured": {tag: columns(tag, rows) for tag, rows in sorted(measured.items())},
        "offsets": {str(id): row for id, row in sorted(offsets.items())},
    }


def numbers_of_line(tag, words):
    """Return the ids, the values, and the upper triangle of Ω."""
    ends, n, d = TAGS[tag]
    numbers = [number(word) for word in words]
    need(len(numbers) == len(ends) + n + d * (d + 1) // 2)
    ids = [identity(x) for x in numbers[: len(ends)]]
    return ids, numbers[len(ends) : len(ends) + n], numbers[len(ends) + n :]


def identity(x):
    need(x >= 0 and x == math.floor(x) and x < 2**53)
    return int(x)


def unit(row):
    """Return the pose with a normalised quaternion."""
    if len(row) < 7:
        return row
    length = math.sqrt(sum(x * x for x in row[3:7]))
    need(1e-6 < length < 1e6)
    return row if abs(length - 1) <= 1e-12 else [*row[:3], *(x / length for x in row[3:7]), *row[7:]]


def without_repeats(tag, rows):
    """Return the rows without edges from a vertex to itself and without duplicates."""
    known, kept = set(), []
    for ids, values, upper in rows:
        key = struct.pack(f"{len(values + upper)}d", *values, *upper), *ids
        if key not in known and not (TAGS[tag][0] == "pp" and ids[0] == ids[1]):
            kept.append((ids, unit(values) if len(values) > 6 else values, symmetric(upper, TAGS[tag][2])))
        known.add(key)
    return kept


def symmetric(upper, d):
    """Return the matrix of an upper triangle; significantly negative eigenvalues are set to 0."""
    omega, entries = np.zeros((d, d)), iter(upper)
    for row in range(d):
        for column in range(row, d):
            omega[row, column] = omega[column, row] = next(entries)
    size = np.abs(omega).max() or 1.0
    values, vectors = np.linalg.eigh(omega / size)
    return omega if values[0] >= -1e-12 else size * (vectors * np.maximum(values, 0)) @ vectors.T


def ends_of(tag, row, end):
    return [id for id, letter in zip(row[0], TAGS[tag][0], strict=True) if letter == end]


def columns(tag, rows):
    return {
        "ends": [ids for ids, _, _ in rows],
        "values": [values for _, values, _ in rows],
        "information": [omega for _, _, omega in rows],
    }


def numbers_of_graph(graph, expected):
    """Return the numbers of a graph for the poses and points of the reference; the package initialises the others."""

    def ends(tag, m):
        which = {"p": graph.ids, "l": graph.landmarks.ids}
        letters = [letter for letter in TAGS[tag][0] if letter != "o"]
        found = [which[letter][m.ends[:, k]] for k, letter in enumerate(letters)]
        return np.stack([*found, m.offsets] if len(m.offsets) else found, axis=1)

    def part(ends, values, information):
        return {"ends": ends, "values": values, "information": information}

    edges = np.stack([graph.ids[graph.i], graph.ids[graph.j]], axis=1)
    fixed = [*graph.ids[graph.fixed], *graph.landmarks.ids[graph.landmarks.fixed]]
    named = expected["offsets"]
    return {
        "ids": graph.ids,
        "poses": graph.poses[: len(expected["poses"])],
        "edges": part(edges, graph.measurements, graph.information),
        "fixed": sorted(fixed),
        "landmarks": graph.landmarks.ids,
        "points": graph.landmarks.points[: len(expected["points"])],
        "measured": {tag: part(ends(tag, m), m.values, m.information) for tag, m in sorted(graph.measured.items())},
        "offsets": {str(id): row for id, row in sorted(graph.offsets.items()) if str(id) in named},
    }


# ---- trajectories: poses as matrices


def read_trajectory(path):
    """Return the poses of a file; None if a matrix needs to be projected to a rotation, which the reference cannot."""
    is_tum, ids, matrices = Path(path).suffix == ".tum", [], []
    for line in content_of(path).split(b"\n"):
        words = line.split()
        if not words or words[0].startswith(b"#"):
            continue
        numbers = [number(word) for word in words]
        need(len(numbers) == (8 if is_tum else 12))
        ids.append(numbers[0] if is_tum else len(ids))
        rows = pose_matrix(numbers[1:]) if is_tum else np.reshape(numbers, (3, 4))
        matrices.append(rows)
    need(ids and len(set(ids)) == len(ids))
    if not all(x >= 0 and x == math.floor(x) and x < 2**53 for x in ids):
        ids = [sorted(ids).index(x) for x in ids]
    if any(np.abs(T[:, :3].T @ T[:, :3] - np.eye(3)).max() > 1e-9 for T in matrices):
        return None
    return {"ids": ids, "matrices": matrices}


def pose_matrix(row):
    """Return [R | t] of x y z qx qy qz qw."""
    length = math.sqrt(sum(x * x for x in row[3:7]))
    need(1e-6 < length < 1e6)
    x, y, z, w = (v / length for v in row[3:7])
    R = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.column_stack([R, row[:3]])


def numbers_of_trajectory(graph, _):
    return {"ids": graph.ids, "matrices": [pose_matrix(row) for row in graph.poses.tolist()]}

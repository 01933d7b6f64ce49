"""Public pose graphs as they are in the wild, made fit for `read_g2o`, until the reader does that itself.

(1) an edge from a vertex to itself is dropped
(2) of several edges between the same two vertices the first one stays: exact duplicates, and pairs measured twice
(3) an information matrix with negative eigenvalues becomes the nearest positive semidefinite one: they are set to 0
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asker.applications.pose_graph.g2o import PoseGraph, read_g2o
from asker.io.files import read_text_bytes

SIZE = {b"EDGE_SE2": 3, b"EDGE_SE3:QUAT": 6}
"""The side of an information matrix; it is the last thing in a line."""


@dataclass(frozen=True)
class Cleaned:
    """How many edges were changed."""

    to_itself: int
    repeated: int
    indefinite: int

    def __str__(self) -> str:
        return f"{self.to_itself} to itself, {self.repeated} repeated, {self.indefinite} indefinite"


def read_cleaned(path: Path) -> tuple[PoseGraph, Cleaned]:
    """The graph of a file, and what was changed in it."""
    text, cleaned = clean(read_text_bytes(path))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.g2o"
        file.write_bytes(text)
        return read_g2o(file), cleaned


def clean(text: bytes) -> tuple[bytes, Cleaned]:
    """The lines of a g2o file that stay, and how many edges were changed."""
    lines = text.split(b"\n")
    words = [line.split() for line in lines]
    edges = [k for k, w in enumerate(words) if w and w[0] in SIZE]
    if not edges:
        return text, Cleaned(0, 0, 0)
    ends = np.sort([[int(w) for w in words[k][1:3]] for k in edges], axis=1)
    to_itself = ends[:, 0] == ends[:, 1]  # (1)
    first = np.zeros(len(edges), bool)
    first[np.unique(ends, axis=0, return_index=True)[1]] = True  # (2)
    dropped = {edges[k] for k in np.flatnonzero(to_itself | ~first)}
    d = SIZE[words[edges[0]][0]]
    upper = np.triu_indices(d)
    information = np.zeros((len(edges), d, d))
    n = len(upper[0])
    information[:, *upper] = information[:, upper[1], upper[0]] = [[float(x) for x in words[k][-n:]] for k in edges]
    values, vectors = np.linalg.eigh(information)
    indefinite = values[:, 0] < -1e-12 * values[:, -1]
    nearest = np.einsum("nik,nk,njk->nij", vectors, np.maximum(values, 0), vectors)  # (3)
    for k in np.flatnonzero(indefinite & ~to_itself & first):
        numbers = [repr(x).encode() for x in nearest[k][upper].tolist()]
        lines[edges[k]] = b" ".join([*words[edges[k]][:-n], *numbers])
    kept = [line for k, line in enumerate(lines) if k not in dropped]
    counts = to_itself, ~first & ~to_itself, indefinite & first & ~to_itself
    return b"\n".join(kept), Cleaned(*(int(np.count_nonzero(c)) for c in counts))

"""Files of relative rotations.

    a b  r11 r12 r13 r21 r22 r23 r31 r32 r33  [weight]

A line has two names or numbers of frames, the entries of R row by row, and an optional weight, 1 by default.  R maps
from frame a to frame b: R_b ≈ R R_a.  Text after # is a comment.  Absolute rotations are written in the same format,
with one name per line.
"""

import os
from dataclasses import dataclass, replace

import numpy as np

from asker.geometry.spanning import connected_parts, spanning_tree
from asker.io.files import FileError, FilePath, read_text_bytes, write_whole
from asker.io.numbers import parse_number

MAX_PATHS = 50
"""Largest number of third frames that are considered for the consistency of a pair."""
ROTATION_TOL = 1e-3
"""Largest deviation of RᵀR from the identity; a matrix within it is replaced by the nearest rotation."""


@dataclass(frozen=True, eq=False)
class Rotations:
    """Absolute rotations (n, 3, 3) by name."""

    names: tuple[str, ...]
    matrices: np.ndarray


@dataclass(frozen=True, eq=False)
class RelativeRotations:
    """Relative rotations between named frames."""

    names: tuple[str, ...]
    i: np.ndarray
    """(n_pairs,): source frame, as an index into `names`."""
    j: np.ndarray
    """(n_pairs,): target frame, as an index into `names`."""
    matrices: np.ndarray
    """(n_pairs, 3, 3): R_j ≈ R R_i."""
    weights: np.ndarray
    """(n_pairs,)"""
    truth: np.ndarray | None = None
    """(n, 3, 3): true absolute rotations, if known."""
    outliers: np.ndarray | None = None
    """(n_pairs,): mask of the outliers, if known."""

    def with_pairs(self, chosen: np.ndarray) -> "RelativeRotations":
        """Return all frames, but only the pairs of a mask."""
        names = ("i", "j", "matrices", "weights", *(["outliers"] if self.outliers is not None else []))
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def start(self) -> np.ndarray:
        """Return initial rotations (n, 3, 3), composed along a spanning tree of consistent pairs."""
        R = np.tile(np.eye(3), (len(self.names), 1, 1))
        tree = spanning_tree(self.i, self.j, 2 + self.disagreement(), len(R), 1)
        for k, parent, edge in zip(*tree, strict=True):
            R[k] = (self.matrices[edge] if self.j[edge] == k else self.matrices[edge].T) @ R[parent]
        return R

    def disagreement(self) -> np.ndarray:
        """Return the error of each pair in cycles of length three, (n_pairs,).

        It is the lower quartile over the third frames of ‖R_kj R_ik − R_ij‖, or 3 (more than the maximum) without any.
        """
        n = len(self.names)
        key = np.concatenate([self.i * n + self.j, self.j * n + self.i])  # both directions
        order = np.argsort(key, kind="stable")
        key, matrices = key[order], np.concatenate([self.matrices, self.matrices.transpose(0, 2, 1)])[order]
        first, last = np.searchsorted(key, self.i * n), np.searchsorted(key, (self.i + 1) * n)
        last = np.minimum(last, first + MAX_PATHS)
        pair = np.repeat(np.arange(len(self.i)), last - first)
        step = np.arange(len(pair)) - np.repeat(np.cumsum(last - first) - last, last - first)  # from i to a third frame
        next_key = key[step] % n * n + self.j[pair]  # from the third frame to j
        index = np.minimum(np.searchsorted(key, next_key), len(key) - 1)
        closes = key[index] == next_key
        pair, paths = pair[closes], matrices[index[closes]] @ matrices[step[closes]]
        error = np.linalg.norm(paths - self.matrices[pair], axis=(1, 2))
        count = np.bincount(pair, minlength=len(self.i))
        error = np.append(error[np.lexsort((error, pair))], 3.0)
        quartile = np.cumsum(count) - count + np.maximum(count - 1, 0) // 4
        return np.where(count > 0, error[np.minimum(quartile, len(error) - 1)], 3.0)


def lines(text: bytes) -> list[tuple[int, list[str]]]:
    """Return the line number and the words of each line that is not empty."""
    words_of_lines = ([os.fsdecode(word) for word in line.partition(b"#")[0].split()] for line in text.split(b"\n"))
    return [(number, words) for number, words in enumerate(words_of_lines, 1) if words]


def is_a_pair(words: list[str]) -> bool:
    """Return whether a line has two names, nine numbers and an optional weight."""
    try:
        return len([parse_number(word) for word in words[2:]]) in (9, 10)
    except ValueError:
        return False


def read_rotations(path: FilePath) -> RelativeRotations:
    """Read relative rotations, also from `.gz` or `.bz2`.

    Raises
    ------
    FileError
        If the file is invalid or its pairs do not connect all frames.
    """
    pairs = lines(read_text_bytes(path))
    if not pairs:
        raise FileError(path, "there is no relative rotation in this file")
    for number, _ in (line for line in pairs if not is_a_pair(line[1])):
        raise FileError(path, "a pair needs two names, nine numbers and an optional weight", number)
    numbers = np.array([[*map(parse_number, words[2:]), 1.0][:10] for _, words in pairs])
    R, weights = numbers[:, :9].reshape(-1, 3, 3), numbers[:, 9]
    names = list(dict.fromkeys(name for _, words in pairs for name in words[:2]))
    index = {name: k for k, name in enumerate(names)}
    i, j = (np.array([index[words[k]] for _, words in pairs]) for k in (0, 1))
    with np.errstate(all="ignore"):
        error = np.abs(R.transpose(0, 2, 1) @ R - np.eye(3)).max(axis=(1, 2))
        bad = {"these nine numbers are not a rotation": ~(error < ROTATION_TOL) | ~(np.linalg.det(R) > 0)}
    bad["a rotation from a frame to itself"] = i == j
    bad["a weight must be positive and finite"] = ~((weights > 0) & (weights < np.inf))
    for message, mask in ((message, mask) for message, mask in bad.items() if mask.any()):
        raise FileError(path, message, pairs[int(np.argmax(mask))][0])
    n_parts, part = connected_parts(i, j, len(names))
    if n_parts > 1:
        ends = f"{names[0]!r} to {names[int(np.argmax(part != part[0]))]!r}"
        raise FileError(path, f"the pairs have {n_parts} connected components: none lead from {ends}")
    U, _, Vt = np.linalg.svd(R)
    return RelativeRotations(tuple(names), i, j, U @ Vt, weights)


def write_rotations(path: FilePath, rotations: Rotations) -> None:
    """Write absolute rotations, one name and nine numbers per line."""
    with write_whole(path) as file:
        for name, R in zip(rotations.names, rotations.matrices.reshape(-1, 9).tolist(), strict=True):
            file.write(os.fsencode(f"{name} {' '.join(map(repr, R))}\n"))

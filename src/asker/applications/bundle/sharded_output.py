"""Output of a distributed solve: each process writes its part, and `join` combines the parts into a BAL file.

A part is an .npz file with all cameras, the points of one process with their numbers, and the number of the part.
"""

from collections.abc import Iterator
from glob import escape
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from asker.applications.bundle.bal import BundlePortion, formatted, numbers_of_file
from asker.io.files import FileError, FilePath, write_whole
from asker.io.npz import Arrays, Tree, read_npz, write_npz

FORMAT = 1
ROWS = 1 << 14


def part_path(output: Path, part: int, n_parts: int) -> Path:
    """Return the path of a part."""
    return output.with_name(f"{output.name}.{part}of{n_parts}.npz")


def write_part(path: FilePath, refined: BundlePortion, part: int, n_parts: int) -> None:
    """Write one part; the file appears only when it is complete."""
    sizes = [refined.n_cameras, refined.n_points, refined.n_observations]
    tree = {"format": FORMAT, "part": part, "n_parts": n_parts, "sizes": sizes}
    arrays = {"cameras": refined.bundle.cameras, "points": refined.bundle.points, "numbers": refined.points}
    write_npz(path, tree, arrays)


def join(file: FilePath, output: Path) -> list[Path]:
    """Write the refined BAL file from the solved file and the parts, and return the paths of the parts.

    Cameras and points are held in memory; observations are copied chunk by chunk.
    """
    first_parts = sorted(output.parent.glob(f"{escape(output.name)}.0of*.npz"))
    if len(first_parts) != 1:
        raise FileError(output, f"{len(first_parts)} files {output.name}.0of….npz are in its folder, expected one")
    n = _read(first_parts[0])[0]["n_parts"]
    paths = [part_path(output, k, n) for k in range(n)]
    read = [_read(path) for path in paths]
    sizes, pieces = numbers_of_file(file)
    for k, (path, (tree, arrays)) in enumerate(zip(paths, read, strict=True)):
        if tree["part"] != k:
            raise FileError(path, f"this is part {tree['part']}, expected part {k}")
        if tree["sizes"] != sizes or tree["n_parts"] != n:
            raise FileError(path, f"this part belongs to another bundle than {file}")
        if arrays["cameras"].tobytes() != read[0][1]["cameras"].tobytes():
            raise FileError(path, f"this part and {paths[0].name} come from different solves")
    points = np.full((sizes[1], 3), np.nan)
    for _, arrays in read:
        points[arrays["numbers"]] = arrays["points"]
    if not np.isfinite(points).all() or sum(len(arrays["numbers"]) for _, arrays in read) != len(points):
        raise FileError(paths[0], "some points are missing from all parts or are in two parts")
    with write_whole(output) as target:
        target.write("{} {} {}\n".format(*sizes).encode())
        _write_observations(target, pieces, sizes[2])
        for array in (read[0][1]["cameras"], points):
            for numbers in (array.ravel()[k : k + ROWS] for k in range(0, array.size, ROWS)):
                target.write(formatted("%r\n", numbers.tolist()))
    return paths


def _read(path: Path) -> tuple[Tree, Arrays]:
    tree, arrays = read_npz(path, "part")
    shapes = {name: x.shape[1:] for name, x in arrays.items()}
    if tree.get("format") != FORMAT or shapes != {"cameras": (9,), "points": (3,), "numbers": ()}:
        raise FileError(path, "this is not a part of a refined bundle")
    n, numbers = len(arrays["points"]), arrays["numbers"]
    if len(numbers) != n or (n and not 0 <= numbers.min() <= numbers.max() < tree["sizes"][1]):
        raise FileError(path, "the numbers of its points are out of range")
    return tree, arrays


def _write_observations(target: IO[bytes], pieces: Iterator[tuple[int, NDArray[np.float64]]], n: int) -> None:
    """Copy the observations; the whole file is read, so that its errors are reported."""
    rest = np.zeros(0)
    for k, values in pieces:
        numbers = np.concatenate([rest, values[: max(4 * n - k, 0)]])
        rows, rest = numbers[: len(numbers) // 4 * 4].reshape(-1, 4), numbers[len(numbers) // 4 * 4 :]
        each = [(int(i), int(j), u, v) for i, j, u, v in rows.tolist()]
        target.write(formatted("%d %d %r %r\n", list(chain.from_iterable(each)), len(each)))

"""Point clouds for a viewer: binary little-endian PLY."""

import numpy as np
from numpy.typing import ArrayLike

from asker.io.files import FilePath, write_whole

GREY = (160, 160, 160)
RED = (255, 0, 0)
VERTEX = np.dtype([("xyz", "<f8", 3), ("rgb", "u1", 3)])

_HEADER = """\
ply
format binary_little_endian 1.0
element vertex {n}
property double x
property double y
property double z
property uchar red
property uchar green
property uchar blue
end_header
"""


def write_ply(
    path: FilePath,
    points: ArrayLike,
    colors: ArrayLike | None = None,
    camera_centres: ArrayLike | None = None,
) -> None:
    """Write points (n, 3) in grey, or in `colors` (n, 3) of uint8, then camera centres (m, 3) in red."""
    points = _rows_of_three("points", points)
    centres = _rows_of_three("camera_centres", np.empty((0, 3)) if camera_centres is None else camera_centres)
    rgb = np.array(GREY, np.uint8) if colors is None else np.asarray(colors)
    if rgb.dtype != np.uint8 or (colors is not None and rgb.shape != points.shape):
        raise ValueError(f"colors must be uint8 of shape {points.shape}, got {rgb.dtype} of shape {rgb.shape}")

    n = len(points)
    vertices = np.empty(n + len(centres), VERTEX)
    vertices["xyz"][:n], vertices["rgb"][:n] = points, rgb
    vertices["xyz"][n:], vertices["rgb"][n:] = centres, RED
    with write_whole(path) as file:
        file.write(_HEADER.format(n=len(vertices)).encode())
        file.write(vertices.view(np.uint8).data)


def _rows_of_three(name: str, array: ArrayLike) -> np.ndarray:
    array = np.asarray(array, np.float64)
    if array.ndim != 2 or array.shape[1] != 3:
        raise ValueError(f"{name} must have shape (n, 3), got {array.shape}")
    return array

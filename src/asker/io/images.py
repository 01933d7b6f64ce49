"""Readers and writers of images and disparity maps."""

import io
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from asker.io.files import FileError, FilePath, opened, read_bytes, write_whole

LUMINANCE = np.array([0.299, 0.587, 0.114])
AS_THEY_ARE = ("1", "L", "LA", "I", "F", "RGB", "RGBA")  # modes of Pillow; all others are converted to RGB
MOST_PIXELS = 8300
"""The largest accepted number of pixels per byte of a file: zlib compresses 1032 bytes, of 8 pixels each, into one."""
PNG_UNIT = 256.0  # a disparity is written to a PNG as this times its value, as KITTI does; 0 stands for unknown


def read_grey(path: FilePath) -> np.ndarray:
    """Return the grey values (H, W) of an image with any depth and number of channels."""
    pixels = _pixels(path)
    return pixels if pixels.ndim == 2 else pixels[:, :, :3] @ LUMINANCE


def check_image(path: FilePath) -> None:
    """Raise a `FileError` if an image cannot be read or has wrong checksums, which are ignored when a PNG is read."""
    from PIL import Image

    read_grey(path)
    try:
        with opened(path) as file, Image.open(file) as image:
            image.verify()
    except Exception as e:  # as in `_pixels`
        raise FileError(path, "the data of this image is broken") from e


def read_disparity(path: FilePath, scale: float = PNG_UNIT) -> np.ndarray:
    """Return a disparity map (H, W), with NaN for unknown disparities.

    The values of a PFM file are disparities, infinite if unknown; those of an image are divided by `scale`, and 0 means
    unknown.
    """
    if Path(path).suffix.lower() == ".pfm":
        values = _read_pfm(path)
        return np.where(np.isfinite(values), values, np.nan)
    pixels = _pixels(path)
    if pixels.ndim == 3:
        if (pixels[:, :, :3].max(axis=2) != pixels[:, :, :3].min(axis=2)).any():
            raise FileError(path, "this is a coloured image, not a disparity map")
        pixels = pixels[:, :, 0]
    return np.where(pixels > 0, pixels / scale, np.nan)


def write_disparity(path: FilePath, disparity: np.ndarray) -> None:
    """Write a disparity map as PFM, or as 16-bit PNG with 256 times the disparity, at least 1; 0 for unknown ones."""
    suffix = Path(path).suffix.lower()
    if suffix == ".pfm":
        height, width = disparity.shape
        values = np.where(np.isfinite(disparity), disparity, np.inf).astype("<f4")
        data = f"Pf\n{width} {height}\n-1.0\n".encode() + values[::-1].tobytes()
    elif suffix == ".png":
        known = np.isfinite(disparity)
        scaled = np.rint(PNG_UNIT * np.where(known, disparity, 0.0))
        if scaled.max(initial=0.0) > 2**16 - 1:
            raise FileError(path, f"disparities above {(2**16 - 1) / PNG_UNIT:.1f} do not fit into a PNG; write a .pfm")
        data = _encoded(np.where(known, np.maximum(scaled, 1), 0).astype(np.uint16))
    else:
        raise FileError(path, "a disparity map is written as .png or .pfm")
    with write_whole(path) as file:
        file.write(data)


def write_grey(path: FilePath, values: np.ndarray) -> None:
    """Write an 8-bit PNG, with values clipped to 0 … 255."""
    with write_whole(path) as file:
        file.write(_encoded(np.clip(np.rint(values), 0, 255).astype(np.uint8)))


def write_picture(path: FilePath, disparity: np.ndarray, largest: float) -> None:
    """Write a disparity map in colours from 0 (far) to `largest` (near), and black for unknown disparities."""
    with write_whole(path) as file:
        file.write(picture_bytes(disparity, largest))


def picture_bytes(disparity: np.ndarray, largest: float) -> bytes:
    """Return the PNG of a disparity map in colours, as `write_picture` writes it."""
    return _encoded(coloured(disparity, largest))


def coloured(disparity: np.ndarray, largest: float) -> np.ndarray:
    """Return the colours of a disparity map, (H, W, 3) of uint8."""
    from matplotlib import colormaps

    known = np.isfinite(disparity)
    rgb = colormaps["viridis"](np.where(known, disparity / largest, 0.0), bytes=True)[:, :, :3]
    return np.where(known[:, :, None], rgb, 0).astype(np.uint8)


def _encoded(pixels: np.ndarray) -> bytes:
    """Return an image as the bytes of a PNG file."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format="png")
    return out.getvalue()


def _pixels(path: FilePath) -> np.ndarray:
    """Return the pixels of an image, (H, W) or (H, W, channels)."""
    from PIL import Image

    content = read_bytes(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            opened = Image.open(io.BytesIO(content))
        with opened as image:
            _check_size(path, image.size, len(content))
            as_it_is = image.mode in AS_THEY_ARE or image.mode.startswith("I;16")
            plain: Any = image if as_it_is else image.convert("RGB")
            pixels = np.asarray(plain, dtype=float)
    except (FileError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as e:
        raise FileError(path, f"the image is too large: {e}") from e
    except Exception as e:  # Pillow's readers raise a dozen kinds for broken bytes
        raise FileError(path, "this is not an image that can be read, or it is cut short") from e
    if pixels.ndim == 3 and pixels.shape[2] == 2:  # grey with transparency
        pixels = pixels[:, :, 0]
    if pixels.ndim not in (2, 3) or not pixels.size:
        raise FileError(path, f"this image has an unexpected shape, {pixels.shape}")
    return pixels


def _check_size(path: FilePath, size: tuple[int, int], n_bytes: int) -> None:
    """Raise a `FileError` for a header with more pixels than the file can contain, before memory is allocated."""
    if size[0] * size[1] > MOST_PIXELS * max(n_bytes, 1000):
        raise FileError(path, f"the header states {size[0]}×{size[1]} pixels, too many for a file of {n_bytes} bytes")


def _read_pfm(path: FilePath) -> np.ndarray:
    content = read_bytes(path)
    head = re.match(rb"Pf\s+(\d{1,9})\s+(\d{1,9})\s+(-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s", content)
    if not head:
        raise FileError(path, "this is not a grey PFM file")
    width, height = int(head[1]), int(head[2])
    data = content[head.end() :]
    if not width or not height or len(data) != 4 * width * height:
        raise FileError(path, f"{len(data)} bytes of data, expected {4 * width * height} for {width}×{height}")
    scale = float(head[3])
    if not 0 < abs(scale) < np.inf:
        raise FileError(path, f"the scale of a PFM file must be finite and not 0, not {head[3][:40].decode()}")
    order = "<" if scale < 0 else ">"
    with np.errstate(invalid="ignore"):  # one of the kinds of NaN
        return np.frombuffer(data, dtype=f"{order}f4").reshape(height, width)[::-1].astype(float)

"""Files with arrays and a table of metadata, in the `.npz` format: checkpoints and results.

The table is JSON, stored as bytes in the array `tree`.  Nothing is compressed or pickled, so that reading a file never
takes more memory than its size, even if its headers are damaged.
"""

import hashlib
import io
import json
import math
import zipfile
from typing import Any

import numpy as np

from asker.io.files import FileError, FilePath, read_bytes, write_whole

KINDS = "fiub"  # floats, integers, masks

Tree = dict[str, Any]
Arrays = dict[str, np.ndarray]


def write_npz(path: FilePath, tree: Tree, arrays: Arrays) -> None:
    """Write a table and arrays atomically."""
    text = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
    with write_whole(path) as file:
        np.savez(file, **{"tree": text, **arrays})  # type: ignore[arg-type]


def read_npz(path: FilePath, what: str) -> tuple[Tree, Arrays]:
    """Return the table and the arrays of a file; raise a `FileError` if it is not a valid `what`."""
    return parse_npz(path, read_bytes(path), what)


def signed(tree: Tree, arrays: Arrays) -> Tree:
    """Return the table with a digest of the whole content."""
    return tree | {"digest": digest(tree, arrays)}


def digest(tree: Tree, arrays: Arrays) -> str:
    """Return a digest of the arrays and of the table, without its own entry."""
    content = {name: item for name, item in tree.items() if name != "digest"}
    sha256 = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name in sorted(arrays):
        sha256.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        sha256.update(np.ascontiguousarray(arrays[name]).data)
    return sha256.hexdigest()


def parse_npz(path: FilePath, content: bytes, what: str) -> tuple[Tree, Arrays]:
    """Return the table and the arrays from the bytes of a file, as `read_npz` does."""
    try:
        arrays = _members(content)
        tree = json.loads(arrays.pop("tree").tobytes())
        if not isinstance(tree, dict):
            raise ValueError("its table is no table")
    except MemoryError:
        raise
    except Exception as error:  # zipfile, NumPy and JSON raise a dozen kinds for broken bytes
        raise FileError(path, f"this is no {what} of asker, or a broken one ({error})") from error
    return tree, arrays


def _members(content: bytes) -> Arrays:
    """Return the arrays of an uncompressed archive."""
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        if sum(m.file_size for m in members) > len(content):
            raise ValueError("its parts are compressed, or overlap")
        for member in members:
            arrays[member.filename.removesuffix(".npy")] = _array(archive.read(member))
    return arrays


def _array(data: bytes) -> np.ndarray:
    """Return the array of a .npy file, or raise a ValueError if its size or type is wrong."""
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array in another format")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    start = file.tell()
    if dtype.kind not in KINDS or min(shape, default=0) < 0:
        raise ValueError(f"an array of {dtype} {shape}")
    if math.prod(shape) * dtype.itemsize != len(data) - start:
        raise ValueError(f"{len(data) - start} bytes for an array of {dtype} {shape}")
    return np.ndarray(shape, dtype, data, start, order="F" if fortran_order else "C").copy()

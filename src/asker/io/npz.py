"""Arrays with a table that says what they are, in one `.npz` file: checkpoints and results.

The table is JSON and stands as bytes in the array `tree`.  Nothing in such a file is compressed and nothing is
pickled, so that reading one takes no more memory than the file is large, whatever its headers say.
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
    """Whole or not at all."""
    text = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
    with write_whole(path) as file:
        np.savez(file, **{"tree": text, **arrays})  # type: ignore[arg-type]


def read_npz(path: FilePath, what: str) -> tuple[Tree, Arrays]:
    """The table and the arrays; anything wrong is a `FileError` that says it is no `what`."""
    return parse_npz(path, read_bytes(path), what)


def signed(tree: Tree, arrays: Arrays) -> Tree:
    """The table with a digest of the whole content."""
    return tree | {"digest": digest(tree, arrays)}


def digest(tree: Tree, arrays: Arrays) -> str:
    """A digest of the table, but for a digest in it, and of the arrays."""
    content = {name: item for name, item in tree.items() if name != "digest"}
    found = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        found.update(np.ascontiguousarray(arrays[name]).data)
    return found.hexdigest()


def parse_npz(path: FilePath, content: bytes, what: str) -> tuple[Tree, Arrays]:
    """The same of bytes that were read before."""
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
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        if sum(m.file_size for m in members) > len(content):
            raise ValueError("its parts are compressed, or overlap")
        for member in members:
            arrays[member.filename.removesuffix(".npy")] = _array(archive.read(member))
    return arrays


def _array(data: bytes) -> np.ndarray:
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

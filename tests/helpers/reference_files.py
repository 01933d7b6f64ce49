"""Utilities of the reference readers: decompression, parsing of numbers, and comparison of the results.

A reference reader is slow and simple, and shares no code with the package.  It returns the numbers of a file as a
dictionary, or raises `Rejected` if the format is violated.  A reader of the package may reject more files than its
reference; for the files that it accepts, the numbers must agree.
"""

import bz2
import gzip
import math
import re
import zlib
from pathlib import Path

import numpy as np

FLOAT = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
INTEGER = re.compile(rb"[+-]?\d+")


class Rejected(Exception):
    """The file violates its format."""


def need(condition):
    """Raise `Rejected` unless the condition is true."""
    if not condition:
        raise Rejected


def content_of(path):
    """Return the decompressed content of a file, without a byte order mark."""
    data = Path(path).read_bytes()
    unpack = {".gz": gzip.decompress, ".bz2": bz2.decompress}.get(Path(path).suffix, bytes)
    try:
        data = unpack(data)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise Rejected from error
    return data.removeprefix(b"\xef\xbb\xbf")


def number(word):
    """Return the finite number of a word."""
    need(FLOAT.fullmatch(word))
    need(math.isfinite(float(word)))
    return float(word)


def integer(word):
    """Return the 64-bit integer of a word."""
    need(INTEGER.fullmatch(word) and len(word) < 20)
    need(-(2**63) <= int(word) < 2**63)
    return int(word)


def difference(actual, expected, where="", tolerance=1e-14):
    """Return a description of the first difference of two structures of numbers and texts; empty if they agree."""
    if isinstance(expected, dict):
        if sorted(actual) != sorted(expected):
            return f"{where}: {sorted(actual)}, not {sorted(expected)}"
        return next(
            (
                fault
                for key in expected
                if (fault := difference(actual[key], expected[key], f"{where}.{key}", tolerance))
            ),
            "",
        )
    if isinstance(expected, str):
        return "" if actual == expected else f"{where}: {actual!r}, not {expected!r}"
    try:
        a, b = np.asarray(actual, dtype=float), np.asarray(expected, dtype=float)
    except (TypeError, ValueError):  # a list of items of several types
        if len(actual) != len(expected):
            return f"{where}: {len(actual)} items, not {len(expected)}"
        pairs = enumerate(zip(actual, expected, strict=True))
        return next((fault for k, (x, y) in pairs if (fault := difference(x, y, f"{where}[{k}]", tolerance))), "")
    if a.size == b.size == 0:
        return ""
    if a.shape != b.shape:
        return f"{where}: shape {a.shape}, not {b.shape}"
    computed = where.endswith(("information", "matrices"))  # by an eigenvalue or singular value decomposition
    size = 1e-9 * np.abs(b).max(axis=(-2, -1), keepdims=True) if computed else tolerance * np.abs(b)
    close = (np.abs(a - b) <= size) | (a == b) | (np.isnan(a) & np.isnan(b))
    return "" if close.all() else f"{where}: {a[~close][0]!r}, not {b[~close][0]!r}, and {np.sum(~close)} in all"

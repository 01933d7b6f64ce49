"""What the reference readers of the tests have in common: bytes, words, and the comparison of what was read.

A reference reader is slow and simple, and shares no code with the package.  It returns the numbers of a file as a
dictionary, or raises `Refused` where the format is violated.  A reader of the package may refuse more than its
reference does; what it accepts must have these numbers.
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


class Refused(Exception):
    """The file violates its format."""


def need(condition):
    if not condition:
        raise Refused


def content_of(path):
    data = Path(path).read_bytes()
    unpack = {".gz": gzip.decompress, ".bz2": bz2.decompress}.get(Path(path).suffix, bytes)
    try:
        data = unpack(data)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise Refused from error
    return data.removeprefix(b"\xef\xbb\xbf")


def number(word):
    need(FLOAT.fullmatch(word))
    need(math.isfinite(float(word)))
    return float(word)


def integer(word):
    need(INTEGER.fullmatch(word) and len(word) < 20)
    need(-(2**63) <= int(word) < 2**63)
    return int(word)


def difference(found, expected, where="", tolerance=1e-14):
    """Where two structures of numbers and texts differ; nothing where they are the same."""
    if isinstance(expected, dict):
        if sorted(found) != sorted(expected):
            return f"{where}: {sorted(found)}, not {sorted(expected)}"
        return next(
            (told for key in expected if (told := difference(found[key], expected[key], f"{where}.{key}", tolerance))),
            "",
        )
    if isinstance(expected, str):
        return "" if found == expected else f"{where}: {found!r}, not {expected!r}"
    try:
        a, b = np.asarray(found, dtype=float), np.asarray(expected, dtype=float)
    except (TypeError, ValueError):  # a list of things of several kinds
        if len(found) != len(expected):
            return f"{where}: {len(found)} items, not {len(expected)}"
        pairs = enumerate(zip(found, expected, strict=True))
        return next((told for k, (x, y) in pairs if (told := difference(x, y, f"{where}[{k}]", tolerance))), "")
    if a.size == b.size == 0:
        return ""
    if a.shape != b.shape:
        return f"{where}: shape {a.shape}, not {b.shape}"
    computed = where.endswith(("information", "matrices"))  # by an eigenvalue or a singular value decomposition
    size = 1e-9 * np.abs(b).max(axis=(-2, -1), keepdims=True) if computed else tolerance * np.abs(b)
    close = (np.abs(a - b) <= size) | (a == b) | (np.isnan(a) & np.isnan(b))
    return "" if close.all() else f"{where}: {a[~close][0]!r}, not {b[~close][0]!r}, and {np.sum(~close)} in all"

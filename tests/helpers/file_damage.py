"""Random damage to the content of files, drawn by Hypothesis or by a NumPy generator."""

import bz2
import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

NUMBERS = [
    b"nan",
    b"-inf",
    b"1e999",
    b"-1",
    b"0",
    b"1000000000000",
    b"9" * 25,
    b"9" * 5000,
    b"1_0",
    b"0x10",
    b"1.5",
    "٣".encode(),
]
BYTES = [b"\0", b"\xff\xfe", b"\xc3\x28", "٣".encode(), b"#", b"\r", b"\n", b";", b'"', b"[", b"{", b"=", b",", b" "]
BINARY = [struct.pack("<Q", n) for n in (2**64 - 1, 10**12, 2**31, 2**40)] + [struct.pack("<d", float("nan"))]


def around(content: bytes, at: int) -> tuple[int, int]:
    """Return the begin and end of the word at a position."""
    begin = max(content.rfind(c, 0, at) for c in (b" ", b"\n")) + 1
    ends = [k for c in (b" ", b"\n") if (k := content.find(c, at)) >= 0]
    return begin, min(ends, default=len(content))


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """Draw content with one to three changes of any kind."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        end = min(len(content), at + draw(st.sampled_from([0, 1, 2, 8, 64, 10**6])))
        kind = draw(st.sampled_from(["flip", "cut", "insert", "number", "twice", "overwrite", "swap"]))
        if kind == "flip" and at < len(content):
            content = content[:at] + bytes([content[at] ^ 1 << draw(st.integers(0, 7))]) + content[at + 1 :]
        elif kind == "cut":
            content = content[:at] + content[end:]
        elif kind == "insert":
            content = content[:at] + draw(st.sampled_from(BYTES + BINARY) | st.binary(max_size=9)) + content[at:]
        elif kind == "number":
            begin, end = around(content, at)
            content = content[:begin] + draw(st.sampled_from(NUMBERS)) + content[end:]
        elif kind == "twice":
            content = content[:end] + content[at:end] + content[end:]
        elif kind == "overwrite":
            new = draw(st.sampled_from(BINARY))
            content = content[:at] + new + content[at + len(new) :]
        elif kind == "swap":
            lines = content.split(b"\n")
            a, b = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
            lines[a], lines[b] = lines[b], lines[a]
            content = b"\n".join(lines)
    return content


def edits(value, path=()):
    """Yield paths in a JSON value with a replacement, for each of its parts in turn."""
    for other in (None, "x", [], {}, [1], -1, 1e308, "../x", "\ud800", "a" * 300):
        yield path, other
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(min(len(value), 3)):
            yield from edits(value[key], (*path, key))


def replaced(value, path, other):
    """Return a copy of a JSON value with the part at a path replaced."""
    if not path:
        return other
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], other)
    return copy


def repacked(path: Path, content: bytes, change: Any) -> bytes:
    """Apply a change to the decompressed content of a file and compress it again."""
    pack, unpack = {".gz": (gzip.compress, gzip.decompress), ".bz2": (bz2.compress, bz2.decompress)}[path.suffix]
    return pack(change(unpack(content)))


def spoiled(rng: np.random.Generator, content: bytes) -> bytes:
    """Return content with one to three random changes of any kind."""

    def one_of(things: list[bytes]) -> bytes:
        return things[rng.integers(len(things))]

    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(0, len(content) + 1))
        end = min(len(content), at + int(rng.choice([0, 1, 2, 8, 64, 10**6])))
        kind = rng.choice(["flip", "cut", "insert", "number", "twice", "overwrite", "swap", "mark"])
        if kind == "mark":
            content = b"\xef\xbb\xbf" + content  # the byte order mark of UTF-8
        elif kind == "flip" and at < len(content):
            content = content[:at] + bytes([content[at] ^ 1 << int(rng.integers(8))]) + content[at + 1 :]
        elif kind == "cut":
            content = content[:at] + content[end:]
        elif kind == "insert":
            content = content[:at] + one_of([*BYTES, *BINARY, rng.bytes(5)]) + content[at:]
        elif kind == "number":
            begin, end = around(content, at)
            content = content[:begin] + one_of(NUMBERS) + content[end:]
        elif kind == "twice":
            content = content[:end] + content[at:end] + content[end:]
        elif kind == "overwrite":
            new = one_of(BINARY)
            content = content[:at] + new + content[at + len(new) :]
        elif kind == "swap":
            lines = content.split(b"\n")
            a, b = rng.integers(len(lines), size=2)
            lines[a], lines[b] = lines[b], lines[a]
            content = b"\n".join(lines)
    return content

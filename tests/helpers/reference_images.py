"""Reference readers of images, disparity maps and results."""

import json
import math
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from reference_files import need, number

# ---- images


def read_pfm(path):
    data, at, words = Path(path).read_bytes(), 0, []
    for _ in range(4):
        while data[at : at + 1].isspace():
            at += 1
        begin = at
        while at < len(data) and not data[at : at + 1].isspace():
            at += 1
        words.append(data[begin:at])
    need(words[0] == b"Pf" and words[1].isdigit() and words[2].isdigit())
    width, height, order = int(words[1]), int(words[2]), "<" if number(words[3]) < 0 else ">"
    need(len(data) == at + 1 + 4 * width * height)
    values = struct.unpack_from(f"{order}{width * height}f", data, at + 1)
    rows = [values[k * width : (k + 1) * width] for k in range(height)][::-1]  # from the bottom to the top
    return {"values": [[x if math.isfinite(x) else math.nan for x in row] for row in rows]}


def read_png(path):
    """Return grey values of 8 or 16 bits; None for another kind of image, or if the compressed data are damaged."""
    chunks = list(png_chunks(Path(path).read_bytes()))
    need(chunks and chunks[0][0] == b"IHDR" and len(chunks[0][1]) == 13)
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    if depth not in (8, 16) or colour != 0 or interlaced or not all(whole for *_, whole in chunks):
        return None
    n = depth // 8
    try:
        data = zlib.decompress(b"".join(body for kind, body, _ in chunks if kind == b"IDAT"))
    except zlib.error:
        return None
    if len(data) != height * (1 + n * width):
        return None
    before, rows = bytes(n * width), []
    for y in range(height):
        kind, line = data[y * (1 + n * width)], data[y * (1 + n * width) + 1 : (y + 1) * (1 + n * width)]
        if kind > 4:
            return None
        before = unfiltered(kind, line, before, n)
        rows.append([float(int.from_bytes(before[k : k + n], "big")) for k in range(0, n * width, n)])
    return {"values": rows}


def png_chunks(data):
    """Yield the kind of each chunk, its content, and whether its checksum is correct."""
    need(data[:8] == b"\x89PNG\r\n\x1a\n")
    at = 8
    while at + 12 <= len(data):
        (n,) = struct.unpack_from(">I", data, at)
        kind, body, told = data[at + 4 : at + 8], data[at + 8 : at + 8 + n], data[at + 8 + n : at + 12 + n]
        yield kind, body, told == struct.pack(">I", zlib.crc32(kind + body))
        at += 12 + n


def unfiltered(kind, line, above, n):
    """Return a row of a PNG image from its filtered bytes and the row above it."""
    out = bytearray()
    for k, byte in enumerate(line):
        a, b, c = (out[k - n] if k >= n else 0), above[k], (above[k - n] if k >= n else 0)
        nearest = min((a, b, c), key=lambda x: abs(a + b - c - x))
        out.append((byte + (0, a, b, (a + b) // 2, nearest)[kind]) & 255)
    return bytes(out)


def read_disparity_png(path):
    found = read_png(path)
    return found and {"values": [[x / 256 if x > 0 else math.nan for x in row] for row in found["values"]]}


# ---- results


def read_result(path):
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        file = {name: np.lib.format.read_array(archive.open(f"{name}.npy")) for name in names}
    tree = json.loads(file["tree"].tobytes())
    parts = [[file[name] for name in names] for _, *names in tree["factors"]]
    values = [values_of(item, file) for _, item in tree["variables"]]
    return {"values": values, "factors": parts, "cost": tree["cost"], "costs": [x["cost"] for x in tree["history"]]}


def values_of(item, file):
    return [values_of(part, file) for part in item] if isinstance(item, list) else file[item]


def numbers_of_result(result, _):
    parts = zip(result.residuals, result.weights, result.inliers, result.informative, strict=True)
    return {
        "values": [list(x) if isinstance(x, tuple) else x for x in result.values],
        "factors": [list(part) for part in parts],
        "cost": result.cost,
        "costs": [line.cost for line in result.history],
    }

"""The text files of a COLMAP model: one line per record, two per image; comments begin with #."""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from asker.applications.colmap.model import (
    CAMERA_MODELS,
    SENSORS,
    Cameras,
    ColmapModel,
    Frames,
    Images,
    Points,
    Rigs,
    Tracks,
    n_params,
    starts_of,
)
from asker.applications.colmap.rigs import RigRecords, numbers_of
from asker.io.files import FileError, read_text_bytes, write_whole

Tokens = list[bytes]


class Text:
    """Reader of a text file, line by line."""

    def __init__(self, path: Path):
        self.path = path
        self.lines = read_text_bytes(path).split(b"\n")
        self.at = 0
        """The number of the last line read, from 1."""
        self.places: list[int] = []
        """The line number of each record."""

    def fail(self, what: str, at: int | None = None) -> NoReturn:
        """Raise a `FileError` at a line, by default the last one read."""
        raise FileError(self.path, what, self.at if at is None else at)

    def fault(self, record: int, what: str) -> NoReturn:
        """Raise a `FileError` about a record."""
        self.fail(what, self.places[record])

    def records(self, smallest: int, what: str, n_words: int = -1) -> Iterator[Tokens]:
        """Yield the words of each line that is neither empty nor a comment.

        `what` names the record in an error about fewer than `smallest` words.
        """
        while self.at < len(self.lines):
            words = self.next_line().split(None, n_words)
            if not words or words[0].startswith(b"#"):
                continue
            if len(words) < smallest:
                self.fail(f"{what} has {len(words)} words, expected {smallest} or more")
            self.places.append(self.at)
            yield words

    def next_line(self) -> bytes:
        """Read and return the next line."""
        if self.at == len(self.lines):
            self.fail("the file ends too early: the features of the image are missing")
        self.at += 1
        return self.lines[self.at - 1]

    def floats(self, words: Tokens) -> np.ndarray:
        """Return words as finite numbers."""
        out = self._numbers(float, words, np.float64)
        if not np.isfinite(out).all():
            self.fail(f"expected a finite number, got {quoted(words[int(np.argmin(np.isfinite(out)))])}")
        return out

    def ints(self, words: Tokens) -> np.ndarray:
        """Return words as integers."""
        return self._numbers(int, words, np.int64)

    def ids(self, words: Tokens) -> list[int]:
        """Return words as unsigned 32-bit integers."""
        out = self.ints(words).tolist()
        if min(out) < 0 or max(out) >= 2**32:
            self.fail("an id is out of range")
        return out

    def _numbers(self, kind: Callable[[bytes], Any], words: Tokens, dtype: Any) -> np.ndarray:
        try:
            if b"_" in b" ".join(words):  # Python accepts 1_000, COLMAP does not
                raise ValueError
            return np.fromiter(map(kind, words), dtype, len(words))
        except (ValueError, OverflowError):
            self._raise_bad_word(kind, words)

    def _raise_bad_word(self, kind: Callable[[bytes], Any], words: Tokens) -> NoReturn:
        expected = "a finite number" if kind is float else "an integer"
        for word in words:
            try:
                is_valid = b"_" not in word and -(2**63) <= kind(word) < 2**63
            except (ValueError, OverflowError):
                is_valid = False
            if not is_valid:
                self.fail(f"expected {expected}, got {quoted(word)}")
        raise AssertionError("every word is a number, but parsing all of them failed")


def quoted(word: bytes) -> str:
    """Return the beginning of a word in quotation marks."""
    return repr(word[:40])[1:]


def read_cameras(path: Path) -> tuple[Cameras, Text]:
    """Read `cameras.txt`; the reader is returned to locate errors."""
    file = Text(path)
    ids, models, sizes, params = [], [], [], []
    for words in file.records(4, "a camera"):
        name = words[1].decode(errors="replace")
        if name not in CAMERA_MODELS:
            file.fail(f"there is no camera model {quoted(words[1])}")
        if len(words) != 4 + n_params(name):
            file.fail(f"a {name} camera has {n_params(name)} parameters, got {len(words) - 4}")
        ids.append(file.ints(words[:1])[0])
        models.append(name)
        sizes.append(file.ints(words[2:4]))
        params.append(file.floats(words[4:]))
    return Cameras(_ints(ids), tuple(models), _ints(sizes).reshape(-1, 2), tuple(params)), file


def read_images(path: Path) -> tuple[Images, Text]:
    """Read `images.txt`; the reader is returned to locate errors."""
    file = Text(path)
    ids, poses, names = [], [], []
    xys, point_ids = [np.empty((0, 2))], [np.empty(0, np.int64)]
    for words in file.records(9, "an image", 9):
        ids.append(file.ints([words[0], words[8]]))
        poses.append(file.floats(words[1:8]))
        names.append(os.fsdecode(words[9].rstrip() if len(words) > 9 else b""))
        features = file.next_line().split()
        if len(features) % 3:
            file.fail(f"features have three words each (x, y, point id), got {len(features)} words")
        xys.append(np.stack([file.floats(features[0::3]), file.floats(features[1::3])], axis=1))
        point_ids.append(file.ints(features[2::3]))
    pose, both = np.array(poses).reshape(-1, 7), _ints(ids).reshape(-1, 2)
    images = Images(
        ids=both[:, 0].copy(),
        qvecs=pose[:, :4].copy(),
        tvecs=pose[:, 4:].copy(),
        camera_ids=both[:, 1].copy(),
        names=tuple(names),
        starts=starts_of([len(xy) for xy in xys[1:]]),
        xys=np.concatenate(xys),
        point_ids=np.concatenate(point_ids),
    )
    return images, file


def read_points(path: Path) -> tuple[Points, Tracks, Text]:
    """Read `points3D.txt`; the reader is returned to locate errors."""
    file = Text(path)
    ids, numbers, rgb, entries = [], [], [], [np.empty((0, 2), np.int64)]
    for words in file.records(8, "a point"):
        if len(words) % 2:
            file.fail(f"a track has two words for each entry (image, feature), got {len(words) - 8} words")
        ids.append(file.ints(words[:1])[0])
        numbers.append(file.floats([*words[1:4], words[7]]))
        rgb.append(file.ints(words[4:7]))
        if not ((rgb[-1] >= 0) & (rgb[-1] <= 255)).all():
            file.fail("a colour must be an integer from 0 to 255")
        entries.append(file.ints(words[8:]).reshape(-1, 2))
    number, entry = np.array(numbers).reshape(-1, 4), np.concatenate(entries)
    colour = _ints(rgb).reshape(-1, 3).astype(np.uint8)
    points = Points(_ints(ids), number[:, :3].copy(), colour, number[:, 3].copy())
    return points, Tracks(starts_of([len(e) for e in entries[1:]]), entry[:, 0], entry[:, 1]), file


def read_rigs(path: Path) -> tuple[RigRecords, Text]:
    """Read `rigs.txt`; the reader is returned to locate errors."""
    file, out = Text(path), RigRecords()
    for words in file.records(2, "a rig"):
        id, n = file.ids(words[:2])
        out.begin(id)
        rest = words[2:]
        for k in range(n):
            has_pose = k == 0 or rest[2:3] == [b"1"]
            size = 2 if k == 0 else 10 if has_pose else 3
            if len(rest) < size:
                file.fail(f"rig {id} has {n} sensors, but the line ends before sensor {k + 1}")
            kind, sensor = _sensor(file, rest)
            out.add(kind, sensor, has_pose, file.floats(rest[3:10]) if size == 10 else None)
            rest = rest[size:]
        if rest:
            file.fail(f"rig {id} has {n} sensors, but {len(rest)} words follow")
    return out, file


def read_frames(path: Path) -> tuple[Frames, np.ndarray, Text]:
    """Read `frames.txt`: frames and their poses (n_frames, 7); the reader is returned to locate errors."""
    file = Text(path)
    heads, poses, entries = [], [], []
    for words in file.records(10, "a frame"):
        id, rig, n = file.ids([*words[:2], words[9]])
        if len(words) != 10 + 3 * n:
            file.fail(f"a frame with {n} entries has {len(words)} words, expected {10 + 3 * n}")
        heads.append((id, rig, n))
        poses.append(file.floats(words[2:9]))
        entries += [(*_sensor(file, words[k:]), *file.ids([words[k + 2]])) for k in range(10, len(words), 3)]
    ids, rigs, lengths = _ints(heads).reshape(-1, 3).T
    kinds, sensors, data = _ints(entries).reshape(-1, 3).T
    frames = Frames(ids.copy(), rigs.copy(), starts_of(lengths), kinds.copy(), sensors.copy(), data.copy())
    return frames, np.array(poses).reshape(-1, 7), file


def _sensor(file: Text, words: Tokens) -> tuple[int, int]:
    """Return the kind and the id of a sensor."""
    kind = words[0].decode(errors="replace")
    if kind not in SENSORS:
        file.fail(f"there is no kind of sensor {quoted(words[0])}")
    return SENSORS.index(kind), file.ids([words[1]])[0]


def _ints(values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def write_files(folder: Path, model: ColmapModel, rigs: Rigs, poses: np.ndarray) -> None:
    """Write all files of a model; `poses` are those of the frames, (n_frames, 7)."""
    for name, lines in (
        ("rigs.txt", _rig_lines(rigs)),
        ("cameras.txt", _camera_lines(model.cameras)),
        ("frames.txt", _frame_lines(rigs.frames, poses)),
        ("images.txt", _image_lines(model.images)),
        ("points3D.txt", _point_lines(model)),
    ):
        with write_whole(folder / name) as file:
            _write_lines(file, lines)


def _write_lines(file: IO[bytes], lines: Iterable[str]) -> None:
    for line in lines:
        file.write(os.fsencode(line) + b"\n")


def _words(*arrays: Any) -> str:
    """Return numbers as text that reads back as the same bits."""
    return " ".join(chain.from_iterable(map(repr, np.asarray(a).ravel().tolist()) for a in arrays))


def _rig_lines(rigs: Rigs) -> Iterator[str]:
    yield "# RIG_ID, NUM_SENSORS, REF_SENSOR_TYPE, REF_SENSOR_ID, SENSORS[] as (TYPE, ID, HAS_POSE, [QW, ..., TZ])"
    numbers = numbers_of(rigs)
    for r, id in enumerate(rigs.ids.tolist()):
        entries = range(*rigs.starts[r : r + 2])
        words = [f"{id} {len(entries)}"]
        for k in entries:
            words.append(f"{SENSORS[rigs.kinds[k]]} {rigs.sensor_ids[k]}")
            if k > entries[0]:
                words.append(f"1 {_words(numbers[k])}" if rigs.has_pose[k] else "0")
        yield " ".join(words)


def _frame_lines(frames: Frames, poses: np.ndarray) -> Iterator[str]:
    yield "# FRAME_ID, RIG_ID, QW, QX, QY, QZ, TX, TY, TZ, NUM_DATA_IDS, DATA[] as (TYPE, SENSOR_ID, DATA_ID)"
    for f, id in enumerate(frames.ids.tolist()):
        entries = range(*frames.starts[f : f + 2])
        data = "".join(f" {SENSORS[frames.kinds[k]]} {frames.sensor_ids[k]} {frames.data_ids[k]}" for k in entries)
        yield f"{id} {frames.rig_ids[f]} {_words(poses[f])} {len(entries)}{data}"


def _camera_lines(cameras: Cameras) -> Iterator[str]:
    yield "# CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]"
    for id, name, size, params in zip(cameras.ids, cameras.models, cameras.sizes, cameras.params, strict=True):
        yield f"{id} {name} {_words(size, params)}"


def _image_lines(images: Images) -> Iterator[str]:
    yield "# IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME"
    yield "# POINTS2D[] as (X, Y, POINT3D_ID)"
    for k, name in enumerate(images.names):
        features = slice(*images.starts[k : k + 2])
        yield f"{images.ids[k]} {_words(images.qvecs[k], images.tvecs[k])} {images.camera_ids[k]} {name}"
        columns = (*images.xys[features].T.tolist(), images.point_ids[features].tolist())
        yield " ".join(map(repr, chain.from_iterable(zip(*columns, strict=True))))


def _point_lines(model: ColmapModel) -> Iterator[str]:
    yield "# POINT3D_ID, X, Y, Z, R, G, B, ERROR, TRACK[] as (IMAGE_ID, POINT2D_IDX)"
    points, tracks = model.points, model.tracks()
    entries = np.stack([tracks.image_ids, tracks.features], axis=1)
    for k, id in enumerate(points.ids.tolist()):
        track = entries[tracks.starts[k] : tracks.starts[k + 1]]
        yield f"{id} {_words(points.xyz[k], points.rgb[k], points.errors[k], track)}"

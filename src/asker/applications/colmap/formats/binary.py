"""The binary files of a COLMAP model: little-endian, a count followed by the records."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from asker.applications.colmap.model import (
    MODEL_NAMES,
    Cameras,
    ColmapModel,
    Floats,
    Frames,
    Images,
    Points,
    Rigs,
    Tracks,
    n_params,
    starts_of,
)
from asker.applications.colmap.rigs import RigRecords, numbers_of
from asker.io.files import FileError, read_bytes, write_whole

COUNT = np.dtype("<u8")
CAMERA = np.dtype([("id", "<u4"), ("model", "<i4"), ("size", "<i8", 2)])
IMAGE = np.dtype([("id", "<u4"), ("qvec", "<f8", 4), ("tvec", "<f8", 3), ("camera", "<u4")])
FEATURE = np.dtype([("xy", "<f8", 2), ("point", "<i8")])
POINT = np.dtype([("id", "<i8"), ("xyz", "<f8", 3), ("rgb", "u1", 3), ("error", "<f8"), ("n", "<u8")])
ENTRY = np.dtype([("image", "<u4"), ("feature", "<u4")])
RECORD = np.dtype([("id", "<u4"), ("n", "<u4")])
SENSOR = np.dtype([("kind", "<i4"), ("sensor", "<u4")])
FRAME = np.dtype([("id", "<u4"), ("rig", "<u4"), ("pose", "<f8", 7), ("n", "<u4")])
DATUM = np.dtype([("kind", "<i4"), ("sensor", "<u4"), ("data", "<u8")])


class Binary:
    """Sequential reader of a binary file."""

    def __init__(self, path: Path):
        self.path = path
        self.data = read_bytes(path)
        self.at = 0
        self.places: list[int] = []
        """The offset of each record."""

    def fail(self, what: str, at: int | None = None) -> NoReturn:
        """Raise a `FileError` at an offset, by default the current one."""
        raise FileError(self.path, f"at byte {self.at if at is None else at}: {what}")

    def fault(self, record: int, what: str) -> NoReturn:
        """Raise a `FileError` about a record."""
        self.fail(what, self.places[record])

    @property
    def remaining(self) -> int:
        """The number of bytes that have not been read."""
        return len(self.data) - self.at

    def take(self, dtype: np.dtype, count: int, what: str) -> np.ndarray:
        """Read and return the next `count` numbers or records."""
        if count * dtype.itemsize > self.remaining:
            self.fail(
                f"the file ends too early: {what}: {count * dtype.itemsize} bytes expected, {self.remaining} remain"
            )
        out = np.frombuffer(self.data, dtype, count, self.at)
        self.at += count * dtype.itemsize
        return out

    def count(self, smallest: int, what: str) -> int:
        """Read and return the number of items of at least `smallest` bytes; raise a `FileError` if they do not fit."""
        n = int(self.take(COUNT, 1, f"the number of {what}")[0])
        if n * smallest > self.remaining:
            self.fail(
                f"the file ends too early: {n} {what} announced, {self.remaining} bytes remain",
                self.at - COUNT.itemsize,
            )
        return n

    def records(self, smallest: int, what: str) -> Iterator[None]:
        """Iterate over the records of the file, then check that it ends."""
        for _ in range(self.count(smallest, what)):
            self.places.append(self.at)
            yield
        self.end()

    def end(self) -> None:
        """Raise a `FileError` if the file does not end here."""
        if self.remaining:
            self.fail(f"expected the end of the file, {self.remaining} bytes follow")

    def name(self) -> str:
        """Read and return a name, which ends with a null byte."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            self.fail("the name of the image has no null byte at its end")
        name = self.data[self.at : end]
        self.at = end + 1
        return os.fsdecode(name)


def read_cameras(path: Path) -> tuple[Cameras, Binary]:
    """Read `cameras.bin`; the reader is returned to locate errors."""
    file = Binary(path)
    heads, params = [], []
    for _ in file.records(CAMERA.itemsize, "cameras"):
        head = file.take(CAMERA, 1, "a camera")[0]
        if not 0 <= head["model"] < len(MODEL_NAMES):
            file.fault(-1, f"there is no camera model {head['model']}")
        heads.append(head)
        params.append(file.take(np.dtype("<f8"), n_params(MODEL_NAMES[head["model"]]), "the parameters").copy())
    head = np.array(heads, CAMERA)
    models = tuple(MODEL_NAMES[k] for k in head["model"].tolist())
    return Cameras(head["id"].astype(np.int64), models, head["size"].copy(), tuple(params)), file


def read_images(path: Path) -> tuple[Images, Binary]:
    """Read `images.bin`; the reader is returned to locate errors."""
    file = Binary(path)
    heads, names, features = [], [], [np.empty(0, FEATURE)]
    for _ in file.records(IMAGE.itemsize + 1 + COUNT.itemsize, "images"):
        heads.append(file.take(IMAGE, 1, "an image")[0])
        names.append(file.name())
        features.append(file.take(FEATURE, file.count(FEATURE.itemsize, "features"), "features"))
    head, feature = np.array(heads, IMAGE), np.concatenate(features)
    images = Images(
        ids=head["id"].astype(np.int64),
        qvecs=head["qvec"].copy(),
        tvecs=head["tvec"].copy(),
        camera_ids=head["camera"].astype(np.int64),
        names=tuple(names),
        starts=starts_of([len(f) for f in features[1:]]),
        xys=feature["xy"].copy(),
        point_ids=feature["point"].copy(),
    )
    return images, file


def read_points(path: Path) -> tuple[Points, Tracks, Binary]:
    """Read `points3D.bin`; the reader is returned to locate errors."""
    file = Binary(path)
    lengths = _read_lengths(file)
    offsets = np.array(file.places, np.int64)
    head = _gather(file.data, offsets, POINT)
    starts = starts_of(lengths)
    entry = _gather(file.data, _entry_offsets(offsets, starts), ENTRY)
    points = Points(head["id"].copy(), head["xyz"].copy(), head["rgb"].copy(), head["error"].copy())
    return points, Tracks(starts, entry["image"].astype(np.int64), entry["feature"].astype(np.int64)), file


def _read_lengths(file: Binary) -> list[int]:
    """Return the length of each track; the offset of a record depends on the lengths of those before it."""
    data, n_at = file.data, POINT.itemsize - COUNT.itemsize
    lengths = []
    for _ in file.records(POINT.itemsize, "points"):
        n = int.from_bytes(data[file.at + n_at : file.at + POINT.itemsize], "little")
        size = POINT.itemsize + n * ENTRY.itemsize
        if size > file.remaining:
            file.fail(f"the file ends too early: a point with a track of {n} announced, {file.remaining} bytes remain")
        lengths.append(n)
        file.at += size
    return lengths


def _entry_offsets(offsets: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the offset of each entry of each track."""
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], np.diff(starts))
    return np.repeat(offsets + POINT.itemsize, np.diff(starts)) + within * ENTRY.itemsize


def _gather(data: bytes, offsets: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the records at the given offsets."""
    if not len(offsets):
        return np.empty(0, dtype)
    windows = sliding_window_view(np.frombuffer(data, np.uint8), dtype.itemsize)
    return windows[offsets].view(dtype)[:, 0]


def read_rigs(path: Path) -> tuple[RigRecords, Binary]:
    """Read `rigs.bin`; the reader is returned to locate errors."""
    file, out = Binary(path), RigRecords()
    for _ in file.records(RECORD.itemsize, "rigs"):
        id, n = file.take(RECORD, 1, "a rig")[0].tolist()
        if n * SENSOR.itemsize > file.remaining:
            file.fail(f"the file ends too early: {n} sensors announced, {file.remaining} bytes remain")
        out.begin(id)
        for k in range(n):
            kind, sensor = file.take(SENSOR, 1, "a sensor")[0].tolist()
            has_pose = k == 0 or bool(file.take(np.dtype("u1"), 1, "a sensor")[0])
            pose = file.take(np.dtype("<f8"), 7, "the pose of a sensor") if k and has_pose else None
            out.add(kind, sensor, has_pose, pose)
    return out, file


def read_frames(path: Path) -> tuple[Frames, Floats, Binary]:
    """Read `frames.bin`: frames and their poses (n_frames, 7); the reader is returned to locate errors."""
    file = Binary(path)
    heads, entries = [], [np.empty(0, DATUM)]
    for _ in file.records(FRAME.itemsize, "frames"):
        heads.append(file.take(FRAME, 1, "a frame")[0])
        n = int(heads[-1]["n"])
        if n * DATUM.itemsize > file.remaining:
            file.fail(f"the file ends too early: a frame of {n} announced, {file.remaining} bytes remain")
        entries.append(file.take(DATUM, n, "a frame"))
    head, entry = np.array(heads, FRAME), np.concatenate(entries)
    kinds, sensors = entry["kind"].astype(np.int64), entry["sensor"].astype(np.int64)
    starts = starts_of(head["n"])
    ids, rigs = head["id"].astype(np.int64), head["rig"].astype(np.int64)
    frames = Frames(ids, rigs, starts, kinds, sensors, entry["data"].astype(np.int64))
    return frames, head["pose"].copy(), file


def write_files(folder: Path, model: ColmapModel, rigs: Rigs, poses: Floats) -> None:
    """Write all files of a model; `poses` are those of the frames, (n_frames, 7)."""
    for name, write in (
        ("rigs.bin", partial(_write_rigs, rigs=rigs)),
        ("cameras.bin", partial(_write_cameras, cameras=model.cameras)),
        ("frames.bin", partial(_write_frames, frames=rigs.frames, poses=poses)),
        ("images.bin", partial(_write_images, images=model.images)),
        ("points3D.bin", partial(_write_points, model=model)),
    ):
        with write_whole(folder / name) as file:
            write(file)


def _count(n: int) -> bytes:
    return n.to_bytes(COUNT.itemsize, "little")


def _write_rigs(file: IO[bytes], rigs: Rigs) -> None:
    sensor = np.empty(len(rigs.kinds), SENSOR)
    sensor["kind"], sensor["sensor"] = rigs.kinds, rigs.sensor_ids
    numbers = numbers_of(rigs).astype("<f8")
    file.write(_count(len(rigs)))
    for r, id in enumerate(rigs.ids.tolist()):
        entries = range(*rigs.starts[r : r + 2])
        file.write(np.array([(id, len(entries))], RECORD).tobytes())
        for k in entries:
            file.write(sensor[k].tobytes())
            if k > entries[0]:
                file.write(b"\1" + numbers[k].tobytes() if rigs.has_pose[k] else b"\0")


def _write_frames(file: IO[bytes], frames: Frames, poses: Floats) -> None:
    head = np.empty(len(frames), FRAME)
    head["id"], head["rig"], head["pose"], head["n"] = frames.ids, frames.rig_ids, poses, np.diff(frames.starts)
    datum = np.empty(len(frames.kinds), DATUM)
    datum["kind"], datum["sensor"], datum["data"] = frames.kinds, frames.sensor_ids, frames.data_ids
    file.write(_count(len(frames)))
    for k in range(len(frames)):
        file.write(head[k].tobytes() + datum[frames.starts[k] : frames.starts[k + 1]].tobytes())


def _write_cameras(file: IO[bytes], cameras: Cameras) -> None:
    head = np.empty(len(cameras), CAMERA)
    head["id"], head["size"] = cameras.ids, cameras.sizes
    head["model"] = [MODEL_NAMES.index(name) for name in cameras.models]
    file.write(_count(len(cameras)))
    for k, params in enumerate(cameras.params):
        file.write(head[k].tobytes() + np.asarray(params, "<f8").tobytes())


def _write_images(file: IO[bytes], images: Images) -> None:
    head = np.empty(len(images), IMAGE)
    head["id"], head["camera"] = images.ids, images.camera_ids
    head["qvec"], head["tvec"] = images.qvecs, images.tvecs
    feature = np.empty(len(images.xys), FEATURE)
    feature["xy"], feature["point"] = images.xys, images.point_ids
    file.write(_count(len(images)))
    for k, name in enumerate(images.names):
        features = feature[images.starts[k] : images.starts[k + 1]]
        file.write(head[k].tobytes() + os.fsencode(name) + b"\0" + _count(len(features)) + features.tobytes())


def _write_points(file: IO[bytes], model: ColmapModel) -> None:
    points, tracks = model.points, model.tracks()
    head = np.empty(len(points), POINT)
    head["id"], head["xyz"], head["rgb"], head["error"] = points.ids, points.xyz, points.rgb, points.errors
    head["n"] = np.diff(tracks.starts)
    entry = np.empty(len(tracks.features), ENTRY)
    entry["image"], entry["feature"] = tracks.image_ids, tracks.features
    offsets = np.arange(len(points)) * POINT.itemsize + tracks.starts[:-1] * ENTRY.itemsize
    out = np.empty(head.nbytes + entry.nbytes, np.uint8)
    _scatter(out, offsets, head)
    _scatter(out, _entry_offsets(offsets, tracks.starts), entry)
    file.write(_count(len(points)))
    file.write(out.data)


def _scatter(out: np.ndarray, offsets: np.ndarray, records: Any) -> None:
    if len(records):
        windows = sliding_window_view(out, records.dtype.itemsize, writeable=True)
        windows[offsets] = records.view(np.uint8).reshape(len(records), -1)

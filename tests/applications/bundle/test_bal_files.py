"""BAL files and point clouds: exact and atomic writing, and rejection of invalid files with name and line."""

import errno
import os
import pickle
import re
import resource
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from asker.applications.bundle import bal
from asker.applications.bundle.bal import Bundle, read_bal, read_bal_portion, write_bal
from asker.applications.bundle.synthetic import make_scene
from asker.io.files import FileError, read_text_bytes, write_whole
from asker.io.ply import VERTEX, write_ply
from random_bundles import some_bundle

SUFFIXES = (".txt", ".txt.gz", ".txt.bz2")
FIELDS = ("cameras", "points", "camera_index", "point_index", "uv")


def assert_same_bits(a: Bundle, b: Bundle) -> None:
    for name in FIELDS:
        left, right = getattr(a, name), getattr(b, name)
        assert (left.dtype, left.shape) == (right.dtype, right.shape), name
        assert left.tobytes() == right.tobytes(), name


# ---- reading and writing BAL files


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_written_bundle_reads_back_bit_for_bit(tmp_path, suffix):
    bundle = some_bundle()
    bundle.uv[0] = -0.0, 5e-324
    bundle.uv[1] = 0.1, np.finfo(float).max
    write_bal(tmp_path / f"a{suffix}", bundle)
    assert_same_bits(read_bal(tmp_path / f"a{suffix}"), bundle)


def test_results_do_not_depend_on_the_chunk_size(tmp_path, monkeypatch):
    bundle = some_bundle(4, 30, 100)
    write_bal(tmp_path / "a.txt", bundle)
    monkeypatch.setattr(bal, "CHUNK_BYTES", 50)
    monkeypatch.setattr(bal, "CHUNK_ROWS", 7)
    write_bal(tmp_path / "b.txt", bundle)
    assert (tmp_path / "a.txt").read_bytes() == (tmp_path / "b.txt").read_bytes()
    assert_same_bits(read_bal(tmp_path / "b.txt"), bundle)


@pytest.mark.parametrize("space", [b" ", b"\t", b"\r\n", b"\n\n  "], ids=repr)
def test_any_white_space_separates_numbers(tmp_path, space):
    write_bal(tmp_path / "a.txt", some_bundle())
    numbers = (tmp_path / "a.txt").read_bytes().split()
    (tmp_path / "b.txt").write_bytes(space + space.join(numbers) + space)
    assert_same_bits(read_bal(tmp_path / "b.txt"), some_bundle())


def test_fields_are_in_the_order_of_the_format(tmp_path):
    (tmp_path / "a.txt").write_text("1 2 1\n0 1   -3.5e+00 4\n" + "\n".join(map(str, range(15))))
    bundle = read_bal(tmp_path / "a.txt")
    assert (bundle.n_cameras, bundle.n_points, bundle.n_observations) == (1, 2, 1)
    assert (bundle.camera_index.tolist(), bundle.point_index.tolist()) == ([0], [1])
    assert bundle.uv.tolist() == [[-3.5, 4.0]]
    assert bundle.cameras.tolist() == [list(range(9))]
    assert bundle.points.tolist() == [[9, 10, 11], [12, 13, 14]]


@pytest.mark.data
@pytest.mark.parametrize("counts", [(21, 11315, 36455), (49, 7776, 31843), (16, 22106, 83718)], ids=str)
def test_real_files_are_preserved_by_a_round_trip(data_file, tmp_path, counts):
    bundle = read_bal(data_file(f"bal/problem-{counts[0]}-{counts[1]}-pre.txt.bz2"))
    assert (bundle.n_cameras, bundle.n_points, bundle.n_observations) == counts
    assert set(bundle.point_index) == set(range(counts[1]))
    write_bal(tmp_path / "a.txt", bundle)
    assert_same_bits(read_bal(tmp_path / "a.txt"), bundle)


def test_the_parts_of_a_file_make_up_the_bundle(tmp_path):
    bundle = make_scene(5, 400).start
    write_bal(tmp_path / "a.txt", bundle)
    parts = [read_bal_portion(tmp_path / "a.txt", k, 3) for k in range(3)]
    points, uv = np.empty_like(bundle.points), np.empty_like(bundle.uv)
    for part in parts:
        local = part.bundle
        np.testing.assert_array_equal(local.cameras, bundle.cameras)
        points[part.points] = local.points
        uv[part.observations] = local.uv
        np.testing.assert_array_equal(part.points[local.point_index], bundle.point_index[part.observations])
        np.testing.assert_array_equal(local.camera_index, bundle.camera_index[part.observations])
        assert (part.n_points, part.n_observations) == (bundle.n_points, bundle.n_observations)
    np.testing.assert_array_equal(points, bundle.points)
    np.testing.assert_array_equal(uv, bundle.uv)
    assert sum(part.bundle.n_observations for part in parts) == bundle.n_observations
    assert len({part.checksum for part in parts}) == 1


@pytest.mark.parametrize("blanks", [65531, 65533, 65536, 200_000])
def test_white_space_before_the_header(tmp_path, blanks):
    write_bal(tmp_path / "a.txt", some_bundle(n_observations=40))
    content = (tmp_path / "a.txt").read_bytes()
    (tmp_path / "b.txt").write_bytes(b"\n" * blanks + content)
    assert_same_bits(read_bal(tmp_path / "b.txt"), some_bundle(n_observations=40))


def test_a_very_long_word_is_rejected_before_its_end(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"2 3 5\n" + b"y" * (8 << 20))
    with open(path, "rb") as file:
        text = bal._Text(path, file)
        n, _, _ = text.header()
        with pytest.raises(FileError, match=r":2: expected a finite number, got 'y{40}'$"):
            list(text.numbers(n))
        assert file.tell() < 3 << 20


def test_more_processes_than_points(tmp_path):
    write_bal(tmp_path / "a.txt", some_bundle())
    with pytest.raises(FileError, match="3 points cannot be distributed to 4 processes"):
        read_bal_portion(tmp_path / "a.txt", 0, 4)


# ---- invalid BAL files: the valid one has a header, 5 observations and 18 + 9 numbers in 33 lines


def put(line: int, new: str):
    """Return a function that replaces a line, counted from 1."""
    return lambda lines: [*lines[: line - 1], new, *lines[line:]]


HEADER = "three positive integers"
BAD_FILES = [
    ("empty", lambda lines: [], r": the file is empty"),
    ("only white space", lambda lines: ["", "  \t", ""], r": the file is empty"),
    ("header of words", put(1, "two three five"), rf":1: .*{HEADER}.*'two three five'"),
    ("header of fractions", put(1, "2.0 3 5"), rf":1: .*{HEADER}.*'2.0 3 5'"),
    ("header too short", lambda lines: ["2 3"], rf":1: .*{HEADER}.*'2 3'"),
    ("header glued to a word", put(1, "2 3 5x"), rf":1: .*{HEADER}.*'2 3 5x'"),
    ("negative count", put(1, "2 -3 5"), rf":1: .*{HEADER}"),
    ("no cameras", put(1, "0 3 5"), rf":1: .*{HEADER}.*'0 3 5'"),
    ("no points", put(1, "2 0 5"), rf":1: .*{HEADER}"),
    ("no observations", put(1, "2 3 0"), rf":1: .*{HEADER}"),
    ("header after blank lines", lambda lines: ["", "", "x"], rf":3: .*{HEADER}.*'x'"),
    ("absurd counts", put(1, " ".join(["9" * 18] * 3)), r":33: .*too early.*got 47$"),
    ("absurd count", put(1, "2 3 99999999999999999"), r":33: .*too early.* 400000000000000023 .*got 47$"),
    ("count past all integers", put(1, "2 3 " + "9" * 5000), rf":1: .*{HEADER}"),
    ("one camera too many in the header", put(1, "3 3 5"), r":33: .*too early.* implies 56 .*got 47$"),
    ("truncated", lambda lines: lines[:20], r":20: .*too early.* implies 47 .*got 34$"),
    ("one number short", lambda lines: lines[:-1], r":32: .*too early.* implies 47 .*got 46$"),
    ("only a header", lambda lines: lines[:1], r":1: .*too early.* implies 47 .*got 0$"),
    ("extra numbers", lambda lines: [*lines, "1.5", "2"], r":34: .*from '1.5'.* implies 47 .*got 49$"),
    ("a word", put(9, "spam"), r":9: expected a finite number, got 'spam'"),
    ("a word in an observation", put(3, "0 0 1.0 x"), r":3: .*number, got 'x'"),
    ("a comment at the end", lambda lines: [*lines, "# end"], r":34: .*number, got '#'"),
    ("two numbers glued", put(9, "1.2.3"), r":9: .*number, got '1.2.3'"),
    ("a decimal comma", put(9, "1,5"), r":9: .*number, got '1,5'"),
    ("an underscore", put(9, "1_000"), r":9: .*number, got '1_000'"),
    ("a null byte", put(9, "1\0"), r":9: .*number, got '1\\x00'"),
    ("not a text", put(9, "\xff\xfe"), r":9: .*number, got '\\x"),
    ("a long word", put(9, "y" * 10_000), r":9: .*number, got 'y{40}'$"),
    ("NaN in a camera", put(7, "nan"), r":7: .*finite number, got 'nan'"),
    ("infinity in a point", put(33, "-inf"), r":33: .*finite number, got '-inf'"),
    ("NaN in an observation", put(2, "0 0 NaN 1"), r":2: .*finite number, got 'NaN'"),
    ("NaN as an index", put(2, "nan 0 1 1"), r":2: .*finite number, got 'nan'"),
    ("overflow", put(33, "1e999"), r":33: .*finite number, got '1e999'"),
    ("camera too large", put(4, "2 0 1 1"), r":4: the camera index .* from 0 to 1, got '2'"),
    ("camera negative", put(4, "-1 0 1 1"), r":4: the camera index .* from 0 to 1, got '-1'"),
    ("camera not an integer", put(6, "0.5 0 1 1"), r":6: the camera index .* from 0 to 1, got '0.5'"),
    ("point too large", put(2, "0 3 1 1"), r":2: the point index .* from 0 to 2, got '3'"),
    ("point negative", put(2, "0 -7 1 1"), r":2: the point index .* from 0 to 2, got '-7'"),
    ("point not an integer", put(2, "0 1.25 1 1"), r":2: the point index .* from 0 to 2, got '1.25'"),
    ("index past all integers", put(2, "0 1e300 1 1"), r":2: the point index .* got '1e300'"),
]


@pytest.mark.parametrize("chunk", [bal.CHUNK_BYTES, 10], ids=["one chunk", "many chunks"])
@pytest.mark.parametrize(("mutate", "message"), [row[1:] for row in BAD_FILES], ids=[row[0] for row in BAD_FILES])
def test_an_invalid_file_is_rejected_with_its_name_and_line(tmp_path, monkeypatch, mutate, message, chunk):
    path = tmp_path / "bad.txt"
    write_bal(path, some_bundle())
    lines = path.read_text().splitlines()
    assert len(lines) == 33
    path.write_bytes("".join(line + "\n" for line in mutate(lines)).encode("latin-1"))
    monkeypatch.setattr(bal, "CHUNK_BYTES", chunk)
    with pytest.raises(FileError, match=f"^{re.escape(str(path))}{message}") as caught:
        read_bal(path)
    assert "\n" not in str(caught.value)


BAD_BUNDLES = [
    ("cameras", np.zeros((2, 6)), r"cameras must have shape \(n, 9\) .*\(2, 6\)"),
    ("cameras", np.zeros(18), r"cameras must have shape .*\(18,\)"),
    ("cameras", np.zeros((0, 9)), r"cameras must .* n > 0.*\(0, 9\)"),
    ("points", np.zeros((3, 4)), r"points must have shape \(n, 3\) .*\(3, 4\)"),
    ("points", np.full((3, 3), np.nan), r"points holds NaN or infinity"),
    ("uv", np.zeros((5, 3)), r"uv must have shape \(n, 2\) .*\(5, 3\)"),
    ("camera_index", np.zeros(4, int), r"camera_index must have shape \(5,\).*\(4,\)"),
    ("point_index", np.zeros((5, 1), int), r"point_index must have shape \(5,\).*\(5, 1\)"),
    ("camera_index", np.full(5, 2), r"camera_index must hold integers from 0 to 1"),
    ("point_index", np.full(5, -1), r"point_index must hold integers from 0 to 2"),
    ("point_index", np.zeros(5), r"point_index must hold integers"),
]


@pytest.mark.parametrize(("name", "array", "message"), BAD_BUNDLES)
def test_an_invalid_bundle_is_not_written(tmp_path, name, array, message):
    with pytest.raises(ValueError, match=message):
        write_bal(tmp_path / "a.txt", replace(some_bundle(), **{name: array}))
    assert list(tmp_path.iterdir()) == []


# ---- opening files


def rejected(path, message):
    return pytest.raises(FileError, match=f"^{re.escape(str(path))}: .*{message}")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_file_and_a_folder_are_rejected(tmp_path, suffix):
    with rejected(tmp_path / f"none{suffix}", "no such file"):
        read_text_bytes(tmp_path / f"none{suffix}")
    (tmp_path / f"folder{suffix}").mkdir()
    with rejected(tmp_path / f"folder{suffix}", "folder"):
        read_text_bytes(tmp_path / f"folder{suffix}")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(errno.EACCES, "x"), "permission"),
        (OSError(errno.EIO, "Input/output error"), "Input/output"),
    ],
)
def test_a_file_that_cannot_be_opened_is_rejected(tmp_path, monkeypatch, error, message):
    def fail_to_open(*_, **__):
        raise error

    monkeypatch.setattr("asker.io.files.open", fail_to_open, raising=False)
    with rejected(tmp_path / "a.txt", message):
        read_text_bytes(tmp_path / "a.txt")


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
@pytest.mark.parametrize(
    "damage",
    [lambda b: b[: len(b) // 2], lambda b: b"no" + b, lambda b: b[:40] + bytes(60) + b[100:]],
    ids=["cut short", "not compressed", "bytes changed"],
)
def test_a_damaged_compressed_file_is_rejected(tmp_path, suffix, damage):
    path = tmp_path / f"a{suffix}"
    write_bal(path, some_bundle(3, 20, 100))
    path.write_bytes(damage(path.read_bytes()))
    with rejected(path, "compressed data is broken"):
        read_bal(path)


def test_a_file_error_can_be_pickled():
    error = pickle.loads(pickle.dumps(FileError("a.txt", "is wrong", 7)))
    assert str(error) == "a.txt:7: is wrong"
    assert (error.path, error.what, error.line) == ("a.txt", "is wrong", 7)


# ---- atomic writing


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_equal_content_gives_equal_bytes(tmp_path, monkeypatch, suffix):
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    for path, now in ((first, 1e9), (second, 1.5e9)):
        monkeypatch.setattr("time.time", lambda now=now: now)
        write_bal(path, some_bundle())
    assert first.read_bytes() == second.read_bytes()
    assert b"tmp" not in first.read_bytes()


def test_a_new_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "usual").touch()
    with write_whole(tmp_path / "a"):
        pass
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt()], ids=repr)
def test_an_exception_while_writing_leaves_the_target_untouched(tmp_path, suffix, error):
    target = tmp_path / f"a{suffix}"
    target.write_bytes(b"old")

    def write():
        with write_whole(target) as file:
            file.write(b"new" * 100_000)
            raise error

    with pytest.raises(type(error)):
        write()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch, call, exists):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = tmp_path / "a.txt"
    if exists:
        target.write_bytes(b"old")
    monkeypatch.setattr(os, call, full)
    with rejected(target, "cannot be written: No space left"):
        write_bal(target, some_bundle())
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"] * exists


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_write_that_fails_halfway_leaves_nothing(tmp_path, suffix):
    target = tmp_path / f"a{suffix}"
    target.write_bytes(b"old")
    bundle = some_bundle(2, 3, 50_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # the operating system limits the size of a file
    try:
        with rejected(target, "cannot be written: File too large"):
            write_bal(target, bundle)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_target_in_a_missing_folder_is_rejected(tmp_path):
    with rejected(tmp_path / "none" / "a.txt", "cannot be written: No such file"):
        write_bal(tmp_path / "none" / "a.txt", some_bundle())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_only_a_regular_file_is_replaced(tmp_path, make):
    make(tmp_path / "a.txt")
    with rejected(tmp_path / "a.txt", "not a regular file"):
        write_bal(tmp_path / "a.txt", some_bundle())
    assert not (tmp_path / "a.txt").is_file()


# ---- point clouds


def read_ply(path):
    """Return the vertices of a PLY file whose header describes them correctly."""
    header, _, body = read_text_bytes(path).partition(b"end_header\n")
    lines = header.decode().splitlines()
    assert lines[:2] == ["ply", "format binary_little_endian 1.0"]
    assert lines[3:] == [f"property {kind}" for kind in ("double x", "double y", "double z")] + [
        f"property uchar {name}" for name in ("red", "green", "blue")
    ]
    vertices = np.frombuffer(body, VERTEX)
    assert lines[2] == f"element vertex {len(vertices)}"
    assert VERTEX.itemsize == 3 * 8 + 3
    return vertices


@pytest.mark.parametrize("suffix", [".ply", ".ply.gz"])
def test_a_point_cloud_holds_points_then_red_camera_centres(tmp_path, suffix):
    rng = np.random.default_rng(0)
    points, centres = rng.normal(size=(7, 3)), rng.normal(size=(2, 3))
    colors = rng.integers(0, 256, (7, 3), np.uint8)
    write_ply(tmp_path / f"a{suffix}", points, colors, centres)
    vertices = read_ply(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(vertices["xyz"], np.vstack([points, centres]))
    np.testing.assert_array_equal(vertices["rgb"], np.vstack([colors, [[255, 0, 0]] * 2]))


def test_points_without_colors_are_grey(tmp_path):
    write_ply(tmp_path / "a.ply", np.ones((4, 3)))
    rgb = read_ply(tmp_path / "a.ply")["rgb"]
    assert len(rgb) == 4
    assert (rgb == rgb[0, 0]).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"points": np.zeros((4, 2))}, r"points must have shape \(n, 3\), got \(4, 2\)"),
        ({"points": np.zeros((4, 3)), "camera_centres": np.zeros(3)}, r"camera_centres .* got \(3,\)"),
        ({"points": np.zeros((4, 3)), "colors": np.zeros((4, 3))}, r"colors must be uint8 .* got float64"),
        (
            {"points": np.zeros((4, 3)), "colors": np.zeros((1, 3), np.uint8)},
            r"colors .* got uint8 of shape \(1, 3\)",
        ),
    ],
)
def test_a_point_cloud_of_wrong_shape_is_rejected(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        write_ply(tmp_path / "a.ply", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_reading_files_imports_numpy_only():
    code = "import sys, asker.applications.bundle.bal, asker.io.ply; print(*sys.modules)"
    modules = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert "asker.applications.bundle.bal" in modules
    assert {"jax", "llvmlite", "matplotlib", "scipy"}.isdisjoint(modules)

"""Fuzz tests of every reader: damaged files give an error that names the file or a valid value, with limited memory."""

import bz2
import gzip
import io
import re
import struct
import sys
import zipfile
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asker.applications.bundle.bal import read_bal
from asker.applications.pose_graph.formats.g2o import read_g2o, write_g2o
from asker.cli import main
from asker.io.images import read_grey
from file_damage import around, damaged, repacked
from reader_cases import CASES, MAX_BYTES, Case, limits
from synthetic_graphs import some_graph

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory limits are Linux-specific"),
    pytest.mark.filterwarnings("ignore::UserWarning:PIL.*"),
]


EVERY_CASE = pytest.mark.parametrize("name", CASES)


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    cache = {}

    def case(name):
        if name not in cache:
            folder = tmp_path_factory.mktemp("fuzz") / "a"
            folder.mkdir()
            cache[name] = CASES[name](folder)
        return cache[name]

    return case


@EVERY_CASE
def test_the_valid_file_is_read(cases, name):
    case = cases(name)
    for path, content in case.good.items():
        assert case.try_on(path, content) is None


FUZZ = settings(
    max_examples=40,  # `make faults` has many more
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@EVERY_CASE
def test_a_damaged_file_is_rejected_by_name_or_read(cases, name):
    case = cases(name)
    refusals = []

    @FUZZ
    @given(data=st.data())
    def run(data):
        path = data.draw(st.sampled_from(case.files))
        good = case.good[path]
        if path.suffix in (".gz", ".bz2") and data.draw(st.booleans()):
            content = repacked(path, good, lambda inner: data.draw(damaged(inner)))
        else:
            content = data.draw(damaged(good))
        refusals.append(case.try_on(path, content))

    run()
    assert any(refusals)


@EVERY_CASE
def test_a_truncated_file_is_rejected_or_read(cases, name):
    case = cases(name)
    for path, good in case.good.items():
        for n in sorted({0, 1, 2, len(good) // 3, len(good) // 2, len(good) - 9, len(good) - 1}):
            case.try_on(path, good[: max(n, 0)])


TEXTS = ["BAL", "COLMAP text", "g2o SE2", "false loops", "plan"]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-be", "utf-8-sig"])
def test_another_encoding_is_rejected_or_read(cases, name, encoding):
    case = cases(name)
    path = case.files[0]
    refusal = case.try_on(path, case.good[path].decode().encode(encoding))
    assert refusal or encoding == "utf-8-sig" or path.suffix == ".json"


@pytest.mark.parametrize("name", ["false loops", "plan", "recorded runs", "result", "checkpoint"])
def test_deep_nesting_is_rejected(cases, name):
    case = cases(name)
    path = case.files[-1] if name == "recorded runs" else case.files[0]
    deep = b"[" * 100_000
    if path.suffix == ".npz":
        out = io.BytesIO()
        np.savez(out, tree=np.frombuffer(deep, np.uint8))
        deep = out.getvalue()
    assert case.try_on(path, b"a = " + deep if path.suffix == ".toml" else deep)


# ------------------------------------------------------------------ headers that announce more than the file has


def png_of(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


def npz_of(shape):
    header = str({"descr": "<f8", "fortran_order": False, "shape": shape}).encode()
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n"
    out = io.BytesIO()

    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("tree.npy", npy + bytes(80))
    return out.getvalue()


HUGE = 10**12  # an announced number; compressed zeros expand to twice the memory limit
FORGED_HEADERS = {
    "BAL": [f"{HUGE} {HUGE} {HUGE}\n1 2 3\n".encode(), f"1 1 {HUGE}\n0 0 1 2\n".encode(), b"-1 1 1\n0 0 1 2\n"],
    "BAL gz": [gzip.compress(f"1 1 {HUGE}\n".encode()), 64 * gzip.compress(bytes(MAX_BYTES >> 5))],
    "BAL bz2": [bz2.compress(f"1 1 {HUGE}\n".encode()), 64 * bz2.compress(bytes(MAX_BYTES >> 5))],
    "COLMAP binary": [struct.pack("<Q", n) + bytes(64) for n in (HUGE, 2**63, 2**64 - 1)],
    "g2o SE2": [b"VERTEX_SE2 9007199254740991 0 0 0\nVERTEX_SE2 1 0 0 0\n", b"VERTEX_SE2 -1 0 0 0\n"],
    "PNG": [png_of(2**31 - 1, 2**31 - 1), png_of(12_000, 7_000), png_of(0, 5)],
    "PGM": [b"P5\n12000 7000\n255\nabc", b"P5\n-3 4\n255\nabc", b"P5\n1000000000000 4\n255\nabc"],
    "disparity PFM": [b"Pf\n999999999 999999999\n-1.0\nabcd", b"Pf\n-1 4\n-1.0\nabcd"],
    "result": [npz_of((HUGE,)), npz_of((-5, -2)), npz_of((2**40, 0)), npz_of((10**10, 10**10))],
    "checkpoint": [npz_of((HUGE,)), npz_of((-1,))],
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED_HEADERS)
def test_a_forged_header_is_rejected(cases, name):
    case = cases(name)
    for path in case.files:
        for content in FORGED_HEADERS[name]:
            assert case.try_on(path, content), content[:60]


def test_the_limit_of_memory_works():
    with pytest.raises(MemoryError), limits():
        np.ones(MAX_BYTES)


# ------------------------------------------------------------------ real files


@pytest.mark.data
@pytest.mark.parametrize("name", ["bal/problem-49-7776-pre.txt.bz2", "g2o/intel.g2o.bz2", "g2o/parking-garage.g2o.bz2"])
def test_damaged_real_files_are_rejected_or_read(data_file, tmp_path, name):
    good = data_file(name).read_bytes()
    path = tmp_path / Path(name).name
    path.write_bytes(good)
    is_graph = ".g2o" in name
    case = Case(tmp_path, partial(read_g2o if is_graph else read_bal, path))
    rng = np.random.default_rng(0)
    for n in (0, 3, 4, 100, len(good) // 2, len(good) - 1):  # truncated archives
        assert case.try_on(path, good[:n])
    for at in rng.integers(10, len(good), 3):
        assert case.try_on(path, good[:at] + bytes([good[at] ^ 64]) + good[at + 1 :])
    text = bz2.decompress(good)[: 1 << 17]  # the content
    plain = tmp_path / ("cut.g2o" if is_graph else "cut.txt")
    plain.write_bytes(text)
    case = Case(tmp_path, partial(read_g2o if is_graph else read_bal, plain), files=[plain])
    for at in rng.integers(0, len(text), 8):
        for new in (b"nan", b"x", b"-7"):
            begin, end = around(text, int(at))
            case.try_on(plain, text[:begin] + new + text[end:])


@pytest.mark.data
def test_damaged_real_images_are_rejected_or_read(data_file, tmp_path):
    good = data_file("stereo/teddy/im2.png").read_bytes()
    path = tmp_path / "a.png"
    path.write_bytes(good)
    case = Case(tmp_path, partial(read_grey, path))
    for at in np.random.default_rng(0).integers(8, len(good), 12):
        case.try_on(path, good[:at] + bytes([good[at] ^ 16]) + good[at + 1 :])
        case.try_on(path, good[:at])


# ------------------------------------------------------------------ through the command line

COMMANDS = {
    "BAL": lambda folder: ["info", folder / "a.txt"],
    "BAL gz": lambda folder: ["info", folder / "a.txt.gz"],
    "COLMAP binary": lambda folder: ["info", folder],
    "COLMAP text": lambda folder: ["info", folder],
    "g2o SE2": lambda folder: ["corrupt", folder / "a.g2o", folder / "out.g2o"],
    "g2o trajectory": lambda folder: ["solve", folder.parent / "graph.g2o", "--truth", folder / "a.g2o"],
    "false loops": lambda folder: ["solve", folder.parent / "graph.g2o", "--false-loops", folder / "false.json"],
    "PNG": lambda folder: ["stereo", folder / "a.png", folder / "a.png", "--max-disparity", 4],
    "plan": lambda folder: ["reproduce", "--plan", folder / "plan.toml", "--output", folder / "out"],
    "recorded runs": lambda folder: ["report", folder],
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_a_damaged_file_ends_a_command_with_one_line(cases, capsys, name):
    case = cases(name)
    write_g2o(case.folder.parent / "graph.g2o", some_graph())
    command = [str(a) for a in COMMANDS[name](case.folder)]
    for path, good in case.good.items():
        for bad in (b"\xff\0[[[" * 5, good[: len(good) // 2] + b"\n?? nan 1e999\n" + good[len(good) // 2 :]):
            path.write_bytes(bad)
            try:
                code = main(command)
            finally:
                path.write_bytes(good)
            out, err = capsys.readouterr()
            assert code == 2, (path, bad[:80], out, err)
            assert err.count("\n") == 1
            assert err.startswith(f"asker: {case.folder}")
            if name in TEXTS and b"??" in bad:
                assert re.match(rf"asker: {re.escape(str(path))}:\d+: ", err), err

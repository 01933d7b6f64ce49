"""Every reader on damaged files: an error that names the file, or a valid value; nothing else, and no more memory."""

import bz2
import gzip
import io
import json
import resource
import signal
import struct
import sys
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import asker
from asker import cli
from asker.checkpoint import Checkpoint
from asker.commands.pose_graph import _read_false
from asker.engines.cpu.engine import CpuEngine
from asker.io.bal import read_bal, write_bal
from asker.io.colmap import read_model, write_model
from asker.io.files import FileError
from asker.io.g2o import read_g2o, write_g2o
from asker.io.images import check_image, read_disparity, read_grey, write_disparity, write_grey
from asker.study.plan import read_plan
from asker.study.runs import execute
from asker.study.summary import read_book, write_index
from test_bal_files import some_bundle
from test_colmap import some_model
from test_pose_graphs import some_graph

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process as Linux does"),
    pytest.mark.filterwarnings("ignore::UserWarning:PIL.*"),
]
MEMORY = 1 << 29
"""What reading a file of some kilobytes may take."""
SECONDS = 20


class Hang(BaseException):
    """Not an error that a reader could catch."""


@contextmanager
def limits():
    """Less memory than a believed header would take, and an end."""

    def ring(*_):
        raise Hang

    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, ring)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)


# ------------------------------------------------------------------ the readers and a good file of each


@dataclass
class Case:
    """Files in a folder that a reader reads, and what holds of the value."""

    folder: Path
    read: Any
    holds: Any = lambda value: True
    files: Any = None

    def __post_init__(self):
        if self.files is None:
            self.files = sorted(p for p in self.folder.rglob("*") if p.is_file())
        self.good = {path: path.read_bytes() for path in self.files}

    def try_on(self, path: Path, content: bytes) -> str | None:
        """The refusal, or None when the file is read as valid."""
        path.write_bytes(content)
        refusal = None
        try:
            with limits():
                value = self.read()
        except FileError as error:
            refusal = str(error)
        finally:
            path.write_bytes(self.good[path])
        assert self.holds(value) if refusal is None else refusal.startswith(str(self.folder)), refusal
        return refusal


def finite(*arrays):
    return all(np.isfinite(a).all() for a in arrays)


def bal_case(folder, suffix):
    bundle = some_bundle()
    path = folder / f"a{suffix}"
    write_bal(path, bundle)
    return Case(folder, partial(read_bal, path), lambda b: finite(b.cameras, b.points, b.uv))


def colmap_case(folder, binary):
    write_model(folder, some_model(("SIMPLE_RADIAL", "OPENCV"), n_images=3, n_points=4), binary)
    return Case(folder, partial(read_model, folder), lambda m: m.n_observations == len(m.tracks().features))


def g2o_case(folder, kind, suffix=".g2o", trajectory=False):
    path = folder / f"a{suffix}"
    write_g2o(path, some_graph(kind))
    return Case(folder, partial(read_g2o, path, trajectory), lambda g: finite(g.poses, g.measurements, g.information))


def image_case(folder, name, reader):
    path = folder / name
    values = np.arange(12 * 9).reshape(12, 9) % 251.0
    if name.endswith(".pfm") or reader is read_disparity:
        write_disparity(path, values / 8)
    elif name.endswith(".png"):
        write_grey(path, values)
    else:
        mode = {".ppm": "RGB", ".pgm": "L", ".jpg": "L", ".tif": "I;16"}[path.suffix]
        pixels = values.astype(np.uint16 if mode == "I;16" else np.uint8)
        Image.fromarray(pixels).convert(mode).save(path)
    shaped = lambda x: x is None or (x.ndim == 2 and x.size > 0)  # noqa: E731
    return Case(folder, partial(reader, path), shaped)


def toward(x, d):
    return x - d


def small_problem():
    x = asker.Variables(np.zeros((3, 2)), name="x")
    return asker.Problem(asker.Factors(toward, x[np.arange(3)], data=np.arange(6.0).reshape(3, 2), name="data"))


def checkpoint_case(folder):
    problem, strategy, path = small_problem(), asker.ASKER(), folder / "run.npz"
    asker.solve(problem, strategy, max_iterations=2, checkpoint=path, engine="cpu")
    engine = CpuEngine(problem, "auto", True, False)
    template = strategy.init(engine, engine.start(), 2)
    return Case(folder, lambda: Checkpoint(path, 1, engine, strategy).read(template), lambda p: p is None or p.history)


def result_case(folder):
    path = folder / "result.npz"
    asker.solve(small_problem(), max_iterations=2).save(path)
    return Case(folder, partial(asker.Result.load, path), lambda r: str(r) and repr(r) and r._repr_html_())


def false_loops_case(folder):
    graph, path = some_graph(), folder / "false.json"
    ends = [[int(graph.ids[graph.i[k]]), int(graph.ids[graph.j[k]])] for k in (4, 6)]
    path.write_text(json.dumps({"false_edges": [4, 6], "false_loops": ends}, indent=1))
    return Case(folder, partial(_read_false, path, graph), lambda mask: mask.shape == (graph.n_edges,))


PLAN = """\
title = "Two methods"

[instances.mine]
kind = "mean"
start = -8.0

[[groups]]
title = "Methods"
instances = ["mine"]
methods = ["irls", { name = "asker", s0 = 3.0, label = "asker, s0 = 3" }]
iterations = 2
"""


def plan_case(folder):
    path = folder / "plan.toml"
    path.write_text(PLAN)
    return Case(folder, partial(read_plan, path), lambda plan: plan.runs())


def book_case(folder):
    (folder.parent / "plan.toml").write_text(PLAN)
    plan = read_plan(folder.parent / "plan.toml")
    write_index(plan, folder)
    for run in plan.runs():
        execute(run, folder / "runs")
    files = [p for p in folder.rglob("*") if p.suffix in (".json", ".jsonl")]
    return Case(folder, partial(read_book, folder), lambda book: book.groups, sorted(files))


CASES = {
    "BAL": partial(bal_case, suffix=".txt"),
    "BAL gz": partial(bal_case, suffix=".txt.gz"),
    "BAL bz2": partial(bal_case, suffix=".txt.bz2"),
    "COLMAP binary": partial(colmap_case, binary=True),
    "COLMAP text": partial(colmap_case, binary=False),
    "g2o SE2": partial(g2o_case, kind="SE2"),
    "g2o SE3": partial(g2o_case, kind="SE3"),
    "g2o gz": partial(g2o_case, kind="SE2", suffix=".g2o.gz"),
    "g2o trajectory": partial(g2o_case, kind="SE3", trajectory=True),
    "PNG": partial(image_case, name="a.png", reader=read_grey),
    "PNG checked": partial(image_case, name="a.png", reader=check_image),
    "PGM": partial(image_case, name="a.pgm", reader=read_grey),
    "PPM": partial(image_case, name="a.ppm", reader=read_grey),
    "JPEG": partial(image_case, name="a.jpg", reader=check_image),
    "TIFF": partial(image_case, name="a.tif", reader=read_grey),
    "disparity PNG": partial(image_case, name="a.png", reader=read_disparity),
    "disparity PFM": partial(image_case, name="a.pfm", reader=read_disparity),
    "checkpoint": checkpoint_case,
    "result": result_case,
    "false loops": false_loops_case,
    "plan": plan_case,
    "recorded runs": book_case,
}
EVERY_CASE = pytest.mark.parametrize("name", CASES)


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    made = {}

    def case(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("fuzz") / "a"
            folder.mkdir()
            made[name] = CASES[name](folder)
        return made[name]

    return case


@EVERY_CASE
def test_the_good_file_is_read(cases, name):
    case = cases(name)
    for path, content in case.good.items():
        assert case.try_on(path, content) is None


# ------------------------------------------------------------------ damage

NUMBERS = [b"nan", b"-inf", b"1e999", b"-1", b"0", b"1000000000000", b"9" * 25, b"9" * 5000, b"1_0", b"0x10", b"1.5"]
BYTES = [b"\0", b"\xff\xfe", b"\xc3\x28", "٣".encode(), b"#", b"\r", b"\n", b";", b'"', b"[", b"{", b"=", b",", b" "]
BINARY = [struct.pack("<Q", n) for n in (2**64 - 1, 10**12, 2**31, 2**40)] + [struct.pack("<d", float("nan"))]


def around(content: bytes, at: int) -> tuple[int, int]:
    """The word at a place."""
    begin = max(content.rfind(c, 0, at) for c in (b" ", b"\n")) + 1
    ends = [k for c in (b" ", b"\n") if (k := content.find(c, at)) >= 0]
    return begin, min(ends, default=len(content))


@st.composite
def damaged(draw, content: bytes) -> bytes:
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


def repacked(path: Path, content: bytes, change: Any) -> bytes:
    """Damage to what is inside of a compressed file."""
    pack, unpack = {".gz": (gzip.compress, gzip.decompress), ".bz2": (bz2.compress, bz2.decompress)}[path.suffix]
    return pack(change(unpack(content)))


FUZZ = settings(
    max_examples=100,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@EVERY_CASE
def test_a_damaged_file_is_refused_by_name_or_read(cases, name):
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
def test_a_file_that_is_cut_short_is_refused_or_read(cases, name):
    case = cases(name)
    for path, good in case.good.items():
        for n in sorted({0, 1, 2, len(good) // 3, len(good) // 2, len(good) - 9, len(good) - 1}):
            case.try_on(path, good[: max(n, 0)])


TEXTS = ["BAL", "COLMAP text", "g2o SE2", "false loops", "plan", "recorded runs"]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-be", "utf-8-sig"])
def test_another_encoding_is_refused_or_read(cases, name, encoding):
    case = cases(name)
    path = case.files[0]
    refusal = case.try_on(path, case.good[path].decode().encode(encoding))
    assert refusal or encoding == "utf-8-sig" or path.suffix == ".json"


@pytest.mark.parametrize("name", ["false loops", "plan", "recorded runs", "result", "checkpoint"])
def test_nesting_without_end_is_refused(cases, name):
    case = cases(name)
    path = case.files[-1] if name == "recorded runs" else case.files[0]
    deep = b"[" * 100_000
    if path.suffix == ".npz":
        out = io.BytesIO()
        np.savez(out, tree=np.frombuffer(deep, np.uint8))
        deep = out.getvalue()
    assert case.try_on(path, b"a = " + deep if path.suffix == ".toml" else deep)


# ------------------------------------------------------------------ promises that are not kept


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


HUGE = 10**12  # and twice the memory in compressed zeros
PROMISES = {
    "BAL": [f"{HUGE} {HUGE} {HUGE}\n1 2 3\n".encode(), f"1 1 {HUGE}\n0 0 1 2\n".encode(), b"-1 1 1\n0 0 1 2\n"],
    "BAL gz": [gzip.compress(f"1 1 {HUGE}\n".encode()), 64 * gzip.compress(bytes(MEMORY >> 5))],
    "BAL bz2": [bz2.compress(f"1 1 {HUGE}\n".encode()), 64 * bz2.compress(bytes(MEMORY >> 5))],
    "COLMAP binary": [struct.pack("<Q", n) + bytes(64) for n in (HUGE, 2**63, 2**64 - 1)],
    "g2o SE2": [b"VERTEX_SE2 9007199254740991 0 0 0\nVERTEX_SE2 1 0 0 0\n", b"VERTEX_SE2 -1 0 0 0\n"],
    "PNG": [png_of(2**31 - 1, 2**31 - 1), png_of(12_000, 7_000), png_of(0, 5)],
    "PGM": [b"P5\n12000 7000\n255\nabc", b"P5\n-3 4\n255\nabc", b"P5\n1000000000000 4\n255\nabc"],
    "disparity PFM": [b"Pf\n999999999 999999999\n-1.0\nabcd", b"Pf\n-1 4\n-1.0\nabcd"],
    "result": [npz_of((HUGE,)), npz_of((-5, -2)), npz_of((2**40, 0)), npz_of((10**10, 10**10))],
    "checkpoint": [npz_of((HUGE,)), npz_of((-1,))],
}  # fmt: skip


@pytest.mark.parametrize("name", PROMISES)
def test_a_promise_is_not_believed(cases, name):
    case = cases(name)
    for path in case.files:
        for content in PROMISES[name]:
            assert case.try_on(path, content), content[:60]


def test_the_limit_of_memory_works():
    with pytest.raises(MemoryError), limits():
        np.ones(MEMORY)


# ------------------------------------------------------------------ real files


@pytest.mark.data
@pytest.mark.parametrize("name", ["bal/problem-49-7776-pre.txt.bz2", "g2o/intel.g2o.bz2", "g2o/parking-garage.g2o.bz2"])
def test_damaged_real_files_are_refused_or_read(data_file, tmp_path, name):
    good = data_file(name).read_bytes()
    path = tmp_path / Path(name).name
    path.write_bytes(good)
    is_graph = ".g2o" in name
    case = Case(tmp_path, partial(read_g2o if is_graph else read_bal, path))
    rng = np.random.default_rng(0)
    for n in (0, 3, 4, 100, len(good) // 2, len(good) - 1):  # the archive
        assert case.try_on(path, good[:n])
    for at in rng.integers(10, len(good), 3):
        assert case.try_on(path, good[:at] + bytes([good[at] ^ 64]) + good[at + 1 :])
    text = bz2.decompress(good)[: 1 << 17]  # and what is in it
    plain = tmp_path / ("cut.g2o" if is_graph else "cut.txt")
    plain.write_bytes(text)
    case = Case(tmp_path, partial(read_g2o if is_graph else read_bal, plain), files=[plain])
    for at in rng.integers(0, len(text), 8):
        for new in (b"nan", b"x", b"-7"):
            begin, end = around(text, int(at))
            case.try_on(plain, text[:begin] + new + text[end:])


@pytest.mark.data
def test_damaged_real_images_are_refused_or_read(data_file, tmp_path):
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
                code = cli.main(command)
            finally:
                path.write_bytes(good)
            out, err = capsys.readouterr()
            assert code == 2, (path, bad[:80], out, err)
            assert err.count("\n") == 1
            assert err.startswith(f"asker: {case.folder}")

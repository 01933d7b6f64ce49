"""Readers under test with a valid file of each, and limits of memory and time for reading."""

import json
import resource
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import asker
import reference_graphs
import reference_images as images
import reference_models as models
from asker.applications.bundle.bal import read_bal, write_bal
from asker.applications.colmap.formats.folder import read_model, write_model
from asker.applications.colmap.georegistration.position_priors import read_control, read_positions
from asker.applications.pose_graph.formats.g2o import read_g2o, write_g2o
from asker.applications.pose_graph.formats.open3d import read_open3d
from asker.applications.pose_graph.formats.toro import read_toro
from asker.applications.pose_graph.formats.trajectories import read_trajectory, write_trajectory
from asker.applications.pose_graph.loops.false_loops import read_false_loops
from asker.applications.rotation_averaging.files import read_rotations
from asker.applications.rotation_averaging.problem import make_rotations
from asker.applications.stereo.pairs import MIDDLEBURY, read_folder
from asker.engines.cpu.engine import CpuEngine
from asker.experiments.html_report import page_data, rounded
from asker.experiments.plan_reader import read_plan
from asker.experiments.records import read_record
from asker.experiments.runs import execute
from asker.experiments.summary import read_book, telling_damage, write_index
from asker.io.files import FileError
from asker.io.images import check_image, read_disparity, read_grey, write_disparity, write_grey
from asker.solver.checkpoint import Checkpoint
from colmap_models import rig_model
from random_bundles import some_bundle
from reference_files import Rejected, difference
from synthetic_graphs import every_tag, some_graph, write_expmap, write_open3d, write_toro

MAX_BYTES = 1 << 29
"""Memory limit for reading a file of some kilobytes."""
MAX_CPU_SECONDS = 20
"""Limit of the processor time."""
MAX_WALL_SECONDS = 300
"""Limit of the wall time; it allows for a busy machine."""


class Hang(BaseException):
    """Time limit reached; not an `Exception`, so that readers cannot catch it."""


@contextmanager
def limits():
    """Context manager that limits memory, to less than a forged header would allocate, and time."""

    def ring(*_):
        raise Hang

    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    timers = {
        signal.SIGVTALRM: (signal.ITIMER_VIRTUAL, MAX_CPU_SECONDS),
        signal.SIGALRM: (signal.ITIMER_REAL, MAX_WALL_SECONDS),
    }
    before = {number: signal.signal(number, ring) for number in timers}
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES, hard))
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for number, handler in before.items():
            signal.signal(number, handler)


# ------------------------------------------------------------------ readers and a valid file of each


@dataclass
class Case:
    """Files in a folder, their reader, and an invariant of the value that it returns."""

    folder: Path
    read: Any
    is_valid: Any = lambda value: True
    files: Any = None
    reference: Any = None
    """Reference reader of the same files (see `reference_files`); it may return None for undecided cases."""
    numbers: Any = None
    """Extraction of the numbers that the reference reader returns from a value that `read` returned."""

    def __post_init__(self):
        if self.files is None:
            self.files = sorted(p for p in self.folder.rglob("*") if p.is_file())
        self.good = {path: path.read_bytes() for path in self.files}

    def try_on(self, path: Path, content: bytes) -> str | None:
        """Read the case with changed content; return the error message, or None if it is read as valid."""
        path.write_bytes(content)
        refusal = None
        try:
            with limits():
                value = self.read()
            assert self.is_valid(value), "the value violates its invariant"
            wrong = self._wrong_numbers(value) if self.reference else ""
            assert not wrong, wrong
        except FileError as error:
            refusal = str(error)
            assert refusal.startswith(str(self.folder)), f"{refusal} does not name the file"
        finally:
            path.write_bytes(self.good[path])
        return refusal

    def _wrong_numbers(self, value: Any) -> str:
        """Return the first difference to the reference reader's numbers; empty if there is none."""
        try:
            expected = self.reference()
        except Rejected:
            return "a file that violates its format is read"
        return "" if expected is None else difference(self.numbers(value, expected), expected)


def finite(*arrays):
    return all(np.isfinite(a).all() for a in arrays)


def bal_case(folder, suffix):
    bundle = some_bundle()
    path = folder / f"a{suffix}"
    write_bal(path, bundle)
    is_valid = lambda b: finite(b.cameras, b.points, b.uv)  # noqa: E731
    return Case(
        folder, partial(read_bal, path), is_valid, None, partial(models.read_bal, path), models.numbers_of_bundle
    )


def colmap_case(folder, binary):
    write_model(folder, rig_model(n_frames=3, n_points=4), binary)
    is_valid = lambda m: m.n_observations == len(m.tracks().features)  # noqa: E731
    reference = partial(models.read_colmap if binary else models.read_colmap_text, folder)
    return Case(folder, partial(read_model, folder), is_valid, None, reference, models.numbers_of_model)


def positions_case(folder):
    path = folder / "a.csv"
    path.write_text("name,latitude,longitude,height,sd\na,47.1,8.2,400,2\nb,47.2,8.1,401,2\nc,47.3,8.3,402\n")
    return Case(folder, partial(read_positions, path), lambda p: finite(p.xyz) and len(p.names) == len(p.sds))


def control_case(folder):
    path = folder / "a.csv"
    path.write_text("A,1,2,3,0.1\nB,4,5,6\ni.jpg,A,10,20\nj.jpg,B,30,40\ni.jpg,B,7,8\n")
    return Case(folder, partial(read_control, path, ("i.jpg", "j.jpg")), lambda c: finite(c.points.xyz, c.uv))


def g2o_case(folder, kind, suffix=".g2o", trajectory=False, make=some_graph):
    path = folder / f"a{suffix}"
    write_g2o(path, make(kind))
    reference = partial(reference_graphs.read_g2o, path, trajectory)
    return Case(
        folder, partial(read_g2o, path, trajectory), is_graph, None, reference, reference_graphs.numbers_of_graph
    )


def trajectory_case(folder, suffix):
    path = folder / f"a{suffix}"
    write_trajectory(path, some_graph("SE3"))
    reference = partial(reference_graphs.read_trajectory, path)
    numbers = reference_graphs.numbers_of_trajectory
    return Case(folder, partial(read_trajectory, path, "SE3"), is_graph, None, reference, numbers)


def toro_case(folder, kind):
    write_toro(folder / "a.graph", some_graph(kind))
    return Case(folder, partial(read_toro, folder / "a.graph"), is_graph)


def expmap_case(folder):
    write_expmap(folder / "a.g2o", some_graph("SIM3"))
    return Case(folder, partial(read_g2o, folder / "a.g2o"), is_graph)


def open3d_case(folder):
    write_open3d(folder / "a.json", some_graph("SE3"))
    return Case(folder, partial(read_open3d, folder / "a.json"), is_graph)


def is_graph(graph):
    others = [array for m in graph.measured.values() for array in (m.values, m.information)]
    return finite(graph.poses, graph.measurements, graph.information, graph.landmarks.points, *others)


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
    readers = {(read_disparity, ".pfm"): images.read_pfm, (read_disparity, ".png"): images.read_disparity_png}
    reference = (readers | {(read_grey, ".png"): images.read_png}).get((reader, path.suffix))
    numbers = lambda x, _: {"values": x}  # noqa: E731
    return Case(folder, partial(reader, path), shaped, None, reference and partial(reference, path), numbers)


def toward(x, d):
    return x - d


def small_problem():
    x = asker.Variables(np.zeros((3, 2)), name="x")
    return asker.Problem(asker.Factors(toward, x[np.arange(3)], data=np.arange(6.0).reshape(3, 2), name="data"))


def checkpoint_case(folder):
    """Checkpoint of a small solve: a damaged one that is read must equal the one written, or be empty."""
    problem, strategy, path = small_problem(), asker.ASKER(), folder / "run.npz"
    asker.solve(problem, strategy, max_iterations=2, checkpoint=path, engine="cpu")
    engine = CpuEngine(problem, "auto", True, False)
    template = strategy.init(engine, engine.start(), 2)

    def read() -> Any:
        return Checkpoint(path, 1, engine, strategy).read(template, lambda p: strategy.init(engine, p, 0).cost)

    def numbers(snapshot: Any, expected: Any) -> Any:
        if snapshot is None and expected is not None:
            return expected
        costs = [[line.iteration, line.cost, line.best_cost, line.damping] for line in snapshot.history]
        rows = [engine.rows(state.point)[0] for state in (snapshot.state, snapshot.best)]
        return {"costs": costs, "rows": rows, "damping": snapshot.state.damping}

    written = numbers(read(), None)
    return Case(folder, read, lambda p: p is None or p.history, None, lambda: written, numbers)


def result_case(folder):
    path = folder / "result.npz"
    asker.solve(small_problem(), max_iterations=2).save(path)
    is_valid = lambda r: str(r) and repr(r) and r._repr_html_()  # noqa: E731
    reference = partial(images.read_result, path)
    return Case(folder, partial(asker.Result.load, path), is_valid, None, reference, images.numbers_of_result)


def false_loops_case(folder):
    graph, path = some_graph(), folder / "false.json"
    ends = [[int(graph.ids[graph.i[k]]), int(graph.ids[graph.j[k]])] for k in (4, 6)]
    path.write_text(json.dumps({"false_edges": [4, 6], "false_loops": ends}, indent=1))
    return Case(folder, partial(read_false_loops, path, graph), lambda mask: mask.shape == (graph.n_edges,))


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


SCENE = 'kind = "scene"\ncameras = 4\nobservations = 200'
"""Instance of a plan whose runs have drawings."""


def book_case(folder, plan=PLAN, sums=True):
    """Folder that `asker report` reads; without checksums each file must be validated by its content."""
    (folder.parent / "plan.toml").write_text(plan)
    made = read_plan(folder.parent / "plan.toml")
    write_index(made, folder)
    for run in made.runs():
        done = execute(run, folder / "runs")
        if not sums:
            (done / "SHA256SUMS").unlink()

    def read():
        book = read_book(folder)
        with telling_damage(book):
            assert rounded(page_data(book))["groups"]
        return book

    def numbers(_, expected):
        return {name: _recorded(folder / "runs" / name) or known for name, known in expected.items()}

    written = {home.name: _recorded(home) for home in (folder / "runs").iterdir()}
    return Case(folder, read, lambda book: book.groups, None, (lambda: written) if sums else None, numbers)


def _recorded(folder):
    """Return the numbers of a run; None if the folder is not that of a finished run."""
    try:
        record = read_record(folder)
    except FileError:
        return None
    return {"cost": record.cost, "costs": [line["cost"] for line in record.history], **record.arrays()}


def rotations_case(folder):
    pairs, path = make_rotations(5, 8), folder / "pairs.txt"
    rows = zip(pairs.i, pairs.j, pairs.matrices.reshape(-1, 9).tolist(), strict=True)
    path.write_text("".join(f"{i} {j} {' '.join(map(repr, R))} 1\n" for i, j, R in rows))
    is_valid = lambda r: finite(r.matrices, r.weights)  # noqa: E731
    reference = partial(models.read_rotations, path)
    return Case(folder, partial(read_rotations, path), is_valid, None, reference, models.numbers_of_rotations)


def pair_case(folder):
    rng = np.random.default_rng(0)
    for name in MIDDLEBURY.values():
        write_grey(folder / name, rng.uniform(1, 255, (9, 12)))
    return Case(folder, partial(read_folder, folder), lambda pair: pair.left.ndim == 2)


CASES = {
    "BAL": partial(bal_case, suffix=".txt"),
    "BAL gz": partial(bal_case, suffix=".txt.gz"),
    "BAL bz2": partial(bal_case, suffix=".txt.bz2"),
    "COLMAP binary": partial(colmap_case, binary=True),
    "COLMAP text": partial(colmap_case, binary=False),
    "positions": positions_case,
    "control points": control_case,
    "g2o SE2": partial(g2o_case, kind="SE2"),
    "g2o SE3": partial(g2o_case, kind="SE3"),
    "g2o SIM3": partial(g2o_case, kind="SIM3"),
    "g2o landmarks SE2": partial(g2o_case, kind="SE2", make=every_tag),
    "g2o landmarks SE3": partial(g2o_case, kind="SE3", make=every_tag),
    "TUM": partial(trajectory_case, suffix=".tum"),
    "KITTI": partial(trajectory_case, suffix=".kitti"),
    "TORO SE2": partial(toro_case, kind="SE2"),
    "TORO SE3": partial(toro_case, kind="SE3"),
    "g2o SIM3 as logarithms": expmap_case,
    "Open3D": open3d_case,
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
    "recorded runs, no sums": partial(book_case, sums=False),
    "recorded scenes, no sums": partial(
        book_case, plan=PLAN.replace('kind = "mean"', SCENE).replace("start = -8.0", ""), sums=False
    ),
    "rotations": rotations_case,
    "stereo pair": pair_case,
}

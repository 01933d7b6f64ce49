"""Trials of processes: killed, terminated, interrupted, two at a time; what they leave is right, or is made right."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from asker.applications.bundle.bal import write_bal
from asker.applications.bundle.scenes import make_scene
from asker.study.records import read_record

Trial = tuple[str, str, str]
MOST = 600  # seconds: a busy machine is no fault
PROGRAM = """
import sys
try:
    from asker.shell import main
except KeyboardInterrupt:  # before there is a program
    sys.exit(130)
sys.exit(main())
"""
SIGNALS = {"terminate": signal.SIGTERM, "kill": signal.SIGKILL, "Ctrl-C": signal.SIGINT, "kill all": signal.SIGKILL}
"""`kill all` and Ctrl-C are for the workers too."""
ENDS = {"terminate": 130, "Ctrl-C": 130}


def numbers(out: Path) -> dict[str, Any]:
    """What the runs of a folder say, without the seconds."""
    told = {}
    for folder in sorted((out / "runs").iterdir()):
        record = read_record(folder)
        told[folder.name] = record.cost, [(h["iteration"], h["cost"], h["best_cost"]) for h in record.history]
    return told


class Comparison:
    """A comparison, each time in a process of its own: how long it takes, and what it finds if nobody disturbs it."""

    def __init__(self, folder: Path, processes: int):
        folder.mkdir(parents=True)
        self.folder, self.data, self.processes = folder, folder / "data.txt", processes
        write_bal(self.data, make_scene(6, 300, start_error=5.0).start)
        assert self.start(folder / "first").wait(MOST) == 0  # compiles
        begin = time.monotonic()
        assert self.start(folder / "alone").wait(MOST) == 0
        self.seconds = time.monotonic() - begin
        self.right = numbers(folder / "alone")

    def start(self, out: Path) -> "subprocess.Popen[str]":
        asked = ["--methods", "irls,gnc,asker", "--iterations", "15", "--processes", str(self.processes), "--quiet"]
        command = [sys.executable, "-c", PROGRAM, "compare", self.data, *asked, "--output", out]
        with open(out.parent / "err.txt", "w", encoding="utf-8") as err:
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err, text=True, start_new_session=True)


def kill_comparisons(like: Comparison, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Comparisons that are ended at any time and begun again at once, up to four times in one folder."""
    for k in range(n):
        out = like.folder / f"out{k // 4}"
        kind = list(SIGNALS)[k % 4]
        process = like.start(out)
        time.sleep(rng.uniform(0, 0.7 * like.seconds))
        if process.poll() is None:
            yield f"compare, {kind}", *_ended(process, kind, like.folder)
        if k % 4 == 3 or k == n - 1:
            yield "compare, begun again", *_finished(like.start(out), out, like.right)


def _ended(process: "subprocess.Popen[str]", kind: str, folder: Path) -> tuple[str, str]:
    (os.killpg if kind in ("kill all", "Ctrl-C") else os.kill)(process.pid, SIGNALS[kind])
    try:
        code = process.wait(MOST)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return "hang", kind
    told = (folder / "err.txt").read_text(encoding="utf-8", errors="replace")
    if kind in ENDS and "Traceback" in told:
        return "traceback", told
    if kind in ENDS and code not in (0, ENDS[kind], -SIGNALS[kind]):
        return "wrong", f"exit code {code}: {told}"
    return ("right" if code == 0 else "refused"), ""


def _finished(process: "subprocess.Popen[str]", out: Path, right: dict[str, Any]) -> tuple[str, str]:
    try:
        code = process.wait(MOST)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return "hang", "begun again"
    told = (out.parent / "err.txt").read_text(encoding="utf-8", errors="replace")
    if code != 0:
        return ("traceback" if "Traceback" in told else "wrong"), told
    left = [path.name for path in (out / "runs").iterdir() if path.name.endswith(".partial")]
    if left or not _all_gone(process.pid):
        return "left over", " ".join(left)
    try:
        return ("right", "") if numbers(out) == right else ("wrong", "other numbers")
    except ValueError as error:
        return "wrong", str(error)


def _all_gone(session: int) -> bool:
    """Whether no process of a session is left, after a while."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not any(_session(path) == session for path in Path("/proc").glob("[0-9]*/stat")):
            return True
        time.sleep(0.05)
    return False


def _session(path: Path) -> int:
    try:
        state, *rest = path.read_text().rpartition(")")[2].split()
        return -1 if state == "Z" else int(rest[2])
    except OSError:
        return -1


def two_at_a_time(like: Comparison, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Two comparisons in one folder: one does the work, the other one says who is at it, or finds all done."""
    for k in range(n):
        out = like.folder / f"two{k}" / "out"
        out.parent.mkdir()
        first = like.start(out)
        time.sleep(rng.uniform(0, like.seconds))
        second = like.start(out)
        for process in (first, second):
            code = process.wait(MOST)
            told = (out.parent / "err.txt").read_text(encoding="utf-8", errors="replace")
            if code == 2 and "is at work here" in told:
                yield "two at a time", "refused", ""
            elif code:
                yield "two at a time", "traceback" if "Traceback" in told else "wrong", told
            else:
                yield "two at a time", "right", ""
        yield "two at a time, in the end", *_finished(like.start(out), out, like.right)


# ---- writers

WRITERS = '''
import json, os, random, resource, signal, sys, time
from dataclasses import replace
from pathlib import Path
from asker.applications.colmap.files import read_model, write_model
from asker.io.files import FileError
from colmap_models import some_model

folder, n, rng = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
models = [some_model(("PINHOLE",), n_images=20, n_points=400, seed=seed) for seed in (0, 1)]
write_model(folder / "m", models[0])
(folder / "m" / "project.ini").write_text("mine")

def kill(pid):
    time.sleep(rng.uniform(0, 0.05))
    os.kill(pid, signal.SIGKILL)

def which():
    """Which of the two models is there, whole."""
    read = read_model(folder / "m")
    same = [k for k, model in enumerate(models) if (read.points.xyz == model.points.xyz).all()
            and (read.images.xys == model.images.xys).all()]
    return same and (folder / "m" / "project.ini").read_text() == "mine"

for k in range(n):
    what = "model, killed" if k % 2 else "model, no room"
    size = rng.randrange(200_000)
    pid = os.fork()
    if not pid:
        if k % 2 == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        try:
            for model in (models[1], models[0]) * (50 if k % 2 else 1):
                write_model(folder / "m", model)
        except FileError:
            os._exit(2)
        except BaseException:
            os._exit(3)
        os._exit(0)
    if k % 2:
        kill(pid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        end = "traceback" if code == 3 else "wrong" if not which() else "right" if code == 0 else "refused"
        told = ""
    except Exception as error:
        end, told = "wrong", str(error)
    print(json.dumps([what, end, told]), flush=True)
'''


def kill_writers(folder: Path, n: int, seed: int) -> Iterator[Trial]:
    """COLMAP models written one over the other by a process that is killed, or may write no more than some bytes."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-c", WRITERS, str(folder), str(n), str(seed)]
    paths = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | paths, timeout=MOST)
    for line in done.stdout.splitlines():
        what, end, told = json.loads(line)
        yield what, end, told
    if done.returncode:
        yield "model, killed", "traceback", done.stderr

"""Trials of solves: a broken cache or no room for one, kills with a checkpoint, forks, threads; costs are the same."""

import json
import os
import resource
import shutil
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
from fault_processes import MOST, PROGRAM, Trial

LITTLE = 20_000  # bytes: less than machine code, more than what a solve writes


class Solves:
    """Solves of one file, each in a process of its own; how long one takes, and what it finds."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True)
        self.folder, self.data, self.cache = folder, folder / "data.txt", folder / "cache"
        write_bal(self.data, make_scene(6, 300, start_error=5.0).start)
        assert self.start(self.cache).wait(MOST) == 0  # compiles
        begin = time.monotonic()
        assert self.start(self.cache).wait(MOST) == 0
        self.seconds = time.monotonic() - begin
        self.right = self.found()

    def start(self, cache: Path, *more: Any, **how: Any) -> "subprocess.Popen[str]":
        (self.folder / "run.json").unlink(missing_ok=True)
        command = [sys.executable, "-c", PROGRAM, "solve", self.data, "--tau", "1", "--iterations", "20", "--quiet"]
        command += ["--json", self.folder / "run.json", *more]
        settings = os.environ | {"ASKER_CACHE": str(cache)}
        with open(self.folder / "err.txt", "w", encoding="utf-8") as err:
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err, text=True, env=settings, **how)

    def found(self) -> list[float]:
        return [line["cost"] for line in json.loads((self.folder / "run.json").read_text())["history"]]

    def ended(self, process: "subprocess.Popen[str]") -> tuple[str, str]:
        """How a solve ended that must find the same as the first one."""
        try:
            code = process.wait(MOST)
        except subprocess.TimeoutExpired:
            process.kill()
            return "hang", ""
        told = (self.folder / "err.txt").read_text(encoding="utf-8", errors="replace")
        if "Traceback" in told:
            return "traceback", told
        if code:
            return "wrong", f"exit code {code}: {told}"
        return ("right", "") if self.found() == self.right else ("wrong", "other costs")


def solve_anyway(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """`n` solves with a broken cache, as many without room for one, and as many that are killed and go on."""
    solves = Solves(folder)
    for k in range(n):
        cache = folder / f"cache{k}"
        shutil.copytree(solves.cache, cache)
        files = sorted(path for path in cache.rglob("*") if path.is_file())
        for path in (files[at] for at in rng.integers(len(files), size=3)):
            content = path.read_bytes()
            at = int(rng.integers(len(content) + 1))
            path.write_bytes(
                [b"", content[:at], content[:at] + b"\0" + content[at + 1 :], content + b"x"][rng.integers(4)]
            )
        yield "solve, broken cache", *solves.ended(solves.start(cache))
        shutil.rmtree(cache)
        room = solves.start(folder / "empty", preexec_fn=_no_room)
        yield "solve, no room for a cache", *solves.ended(room)
        checkpoint = folder / f"checkpoint{k}.npz"
        process = solves.start(solves.cache, "--checkpoint", checkpoint, "--every", "1")
        time.sleep(rng.uniform(0, solves.seconds))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = solves.start(solves.cache, "--checkpoint", checkpoint, "--every", "1")
        yield "solve, killed, goes on", *solves.ended(process)


def _no_room() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LITTLE, LITTLE))


FORKS = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import asker

def shift(x, a):
    return x - a

def solved(n):
    rng = np.random.default_rng(0)
    i = rng.integers(0, 50, 20_000)
    x = asker.Variables(np.zeros((50, 2)), name="x")
    problem = asker.Problem(asker.Factors(shift, x[i], data=rng.normal(size=(len(i), 2)) + i[:, None]))
    return asker.solve(problem, asker.IRLS(), max_iterations=3, threads=n, engine="cpu").cost

right = solved(1)
for k in range(int(sys.argv[1])):
    solved(2)
    child = os.fork()
    if not child:
        os._exit(0 if solved(2) == right else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("forked", "right" if code == 0 else "wrong", flush=True)
    with ThreadPoolExecutor(5) as pool:
        for cost in pool.map(solved, [2, 3, 1, 2, 4]):
            print("threads", "right" if cost == right else "wrong", flush=True)
"""


def fork_and_thread(n: int) -> Iterator[Trial]:
    """Solves in a forked process, and from several Python threads."""
    command = [sys.executable, "-c", FORKS, str(n)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MOST)
    except subprocess.TimeoutExpired:
        yield "solve, forked", "hang", ""
        return
    for line in done.stdout.splitlines():
        what, end = line.split()
        yield f"solve, {what}", end, ""
    if done.returncode:
        yield "solve, threads", "traceback", done.stderr

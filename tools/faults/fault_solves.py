"""Trials of solves without disk space for the cache, in forked processes and in threads: the costs are the same."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fault_processes import costs_in, scene_in, solve_command
from fault_trials import MAX_SECONDS, Trial

MAX_FILE_BYTES = 20_000
"""File size limit: less than machine code, more than the output of a solve."""


def solve_anyway(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Solve `n` times with a file size limit that prevents caching of compiled code."""
    data = scene_in(folder)
    alone = solve_command(folder / "alone", data)
    assert not (wrong := alone.wrong_end(alone.start())), wrong
    right = costs_in(alone.folder / "run.json")
    for k in range(n):
        command = solve_command(folder / f"solve{k}", data)
        settings = os.environ | {"ASKER_CACHE": str(folder / f"cache{k}")}
        fault = command.wrong_end(command.start(env=settings, preexec_fn=_limit_file_size))
        if not fault and costs_in(command.folder / "run.json") != right:
            fault = "other costs"
        yield Trial("solve, full disk of the cache", fault)


def _limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))


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


def fork_and_thread(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Solve `n` times in a forked process, and five times from several Python threads."""
    command = [sys.executable, "-c", FORKS, str(n)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAX_SECONDS)
    except subprocess.TimeoutExpired:
        yield Trial("solve, forked", "hangs")
        return
    for what, end in sorted(map(str.split, done.stdout.splitlines())):
        yield Trial(f"solve, {what}", None if end == "right" else "other costs")
    if done.returncode:
        yield Trial("solve, threads", done.stderr)

"""Utilities of the peers: command line, scene files, conversion of the cameras, memory, and the JSON report.

A scene is an .npz file with the arrays of a BAL file: cameras (n, 9), points, camera_index, point_index, uv.
A peer prints one line of JSON:

    name, version, kernel         solver and kernel
    iterations, accepted          number of linear solves and of accepted steps
    seconds_per_iteration         median over the iterations with derivatives, without the first one
    split                         the same by stage (evaluate, linearise, solve, …), if the peer reports it
    cores                         processor time divided by wall time of the solve
    initial_cost, final_cost      cost with the kernel
    initial_quadratic             ½Σ‖r‖² at the initial guess, if the peer reports it
    peak_mb, increase_mb          peak memory of the process, and its increase since the moment before the problem
                                  was built, when libraries and scene were loaded
    notes                         settings of the solver
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FLIP = np.diag([1.0, -1.0, -1.0])  # from BAL's camera frame, which looks along -z, to one that looks along +z


class Scene(NamedTuple):
    """Arrays of a BAL file."""

    cameras: np.ndarray
    points: np.ndarray
    camera_index: np.ndarray
    point_index: np.ndarray
    uv: np.ndarray


def parser(description: str | None) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("scene", type=Path)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--iterations", type=int, default=10, help="at least 2: the first one is not timed")
    return p


def load(path: Path) -> Scene:
    with np.load(path) as file:
        return Scene(*(file[name] for name in Scene._fields))


def cross_matrices(w: np.ndarray) -> np.ndarray:
    """Return the cross product matrix [w]× of every row, (n, 3, 3)."""
    x, y, z = w.T
    o = np.zeros_like(x)
    return np.stack([o, -z, y, z, o, -x, -y, x, o], axis=1).reshape(-1, 3, 3)


def rotations(w: np.ndarray) -> np.ndarray:
    """Return the rotation matrix of every angle-axis vector."""
    theta = np.linalg.norm(w, axis=1)[:, None, None]
    K = cross_matrices(w)
    a, b = np.sinc(theta / np.pi), np.sinc(theta / (2 * np.pi)) ** 2 / 2  # sin θ / θ, (1 - cos θ) / θ²
    return np.eye(3) + a * K + b * K @ K


def forward_poses(cameras: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return R (n, 3, 3) and t (n, 3) of the cameras in a frame that looks along +z, to go with `forward_pixels`."""
    return FLIP @ rotations(cameras[:, :3]), cameras[:, 3:6] @ FLIP


def forward_pixels(uv: np.ndarray) -> np.ndarray:
    """Return the observations with v pointing down."""
    return uv * [1.0, -1.0]


def peak_mb() -> float:
    """Return the peak memory of the process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def memory_mb() -> float:
    """Return the present memory of the process in MB, or its peak if the system does not report it."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * resource.getpagesize() / 1e6 if statm.exists() else peak_mb()


def with_cores(run: Callable[[], Any]) -> tuple[Any, float]:
    """Return the value of `run()`, and the mean number of cores in use."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    return result, (time.process_time() - cpu) / (time.perf_counter() - wall)


def report(before_mb: float, **line: Any) -> None:
    """Print the report; `before_mb` is `memory_mb()` before the problem was built."""
    line.setdefault("peak_mb", peak_mb())
    print(json.dumps(line | {"increase_mb": line["peak_mb"] - before_mb}))

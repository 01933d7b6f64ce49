"""Several methods on one made scene, and how near to the truth each of them comes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from asker.io.bal import Bundle
from asker.problems.bundle import bundle_problem, camera_centres
from asker.result import Iteration, Result
from asker.solve import solve
from asker.strategies import METHODS

DEMO_METHODS = ("irls", "gnc", "moo", "asker")


class Errors(NamedTuple):
    """Median distances from the truth, in parts of the cameras' mean distance from their middle."""

    cameras: float
    points: float


def run(
    method: str, start: Bundle, truth: Bundle, on_iteration: Callable[[Iteration], None] | None = None
) -> tuple[Result, Errors]:
    """One method from one start.  Code is compiled before the clock runs."""
    made = bundle_problem(start)
    solve(made.problem, METHODS[method](), max_iterations=2)
    result = solve(made.problem, METHODS[method](), on_iteration=on_iteration)
    return result, errors(made.refined(result.values), truth)


def errors(found: Bundle, truth: Bundle) -> Errors:
    """How far a reconstruction is from the truth.

    It is known up to a similarity.  That is fitted to the camera centres, then again to the half of them that
    fits best, so that a few lost cameras do not bend it.
    """
    source, target = camera_centres(found), camera_centres(truth)
    size = np.linalg.norm(target - target.mean(axis=0), axis=1).mean()
    keep = np.ones(len(source), dtype=bool)
    for _ in range(10):
        s, R, t = similarity(source[keep], target[keep])
        distance = np.linalg.norm(s * source @ R.T + t - target, axis=1)
        keep = distance <= np.median(distance)
    points = np.linalg.norm(s * found.points @ R.T + t - truth.points, axis=1)
    return Errors(float(np.median(distance) / size), float(np.median(points) / size))


def similarity(source: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """s, R, t with target ≈ s R source + t in least squares (Umeyama, PAMI 1991); rows are points."""
    a, b = source.mean(axis=0), target.mean(axis=0)
    U, D, Vt = np.linalg.svd((target - b).T @ (source - a))
    sign = np.array([1.0, 1.0, np.linalg.det(U @ Vt)])  # no mirror image
    R = U * sign @ Vt
    s = D @ sign / ((source - a) ** 2).sum()
    return float(s), R, b - s * R @ a

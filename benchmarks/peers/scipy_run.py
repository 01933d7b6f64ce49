"""Run SciPy's `least_squares` on one scene, with analytic sparse derivatives and `trf` with `lsmr`.

SciPy applies the loss to each coordinate instead of the norm of a residual, so its cost differs.  An iteration ends
with an evaluation of the derivatives.  The initial trust region is far too large; the evaluations that shrink it are
allowed in addition to `--iterations`, and the first iteration is not timed.
"""

import statistics
import time
from typing import Any

import numpy as np
import scipy
from common import Scene, cross_matrices, load, memory_mb, parser, report, rotations, with_cores
from scipy.optimize import least_squares
from scipy.sparse import csr_matrix

EXTRA_EVALUATIONS = 20  # that shrink the initial trust region


class Residuals:
    """Residuals of a scene and their sparse Jacobian as functions of one vector: poses, then points."""

    def __init__(self, scene: Scene):
        self.scene = scene
        n, N = len(scene.cameras), len(scene.uv)
        self.x0 = np.concatenate([scene.cameras[:, :6].ravel(), scene.points.ravel()])
        columns = np.concatenate(
            [
                6 * scene.camera_index[:, None] + np.arange(6),
                6 * n + 3 * scene.point_index[:, None] + np.arange(3),
            ],
            axis=1,
        )
        self.columns = np.repeat(columns, 2, axis=0).ravel()  # nine in each of the 2N rows
        self.starts = np.arange(0, 18 * N + 1, 9)
        self.calls: list[tuple[str, float, float]] = []

    def _project(self, x: np.ndarray):
        """Return the poses and R of the cameras; per observation f, k1, k2, RX, z and the normalised image point p."""
        i, j = self.scene.camera_index, self.scene.point_index
        n = len(self.scene.cameras)
        poses, points = x[: 6 * n].reshape(n, 6), x[6 * n :].reshape(-1, 3)
        R = rotations(poses[:, :3])
        RX = np.einsum("nab,nb->na", R[i], points[j])
        Q = RX + poses[i, 3:]
        return poses, R, self.scene.cameras[i, 6:].T, RX, Q[:, 2], -Q[:, :2] / Q[:, 2:]

    def residuals(self, x: np.ndarray) -> np.ndarray:
        begin = time.perf_counter()
        _, _, (f, k1, k2), _, _, p = self._project(x)
        n = np.sum(p * p, axis=1)
        r = ((f * (1 + k1 * n + k2 * n * n))[:, None] * p - self.scene.uv).ravel()
        self.calls.append(("evaluate", begin, time.perf_counter()))
        return r

    def jacobian(self, x: np.ndarray) -> csr_matrix:
        begin = time.perf_counter()
        i = self.scene.camera_index
        poses, R, (f, k1, k2), RX, z, p = self._project(x)
        n = np.sum(p * p, axis=1)
        D = (f * (1 + k1 * n + k2 * n * n))[:, None, None] * np.eye(2)  # d pixel / d p
        D = D + (f * (2 * k1 + 4 * k2 * n))[:, None, None] * p[:, :, None] * p[:, None, :]
        D = -D / z[:, None, None]
        D = np.concatenate([D, D @ p[:, :, None]], axis=2)  # d pixel / d P, (N, 2, 3)
        turn = -cross_matrices(RX) @ left_jacobians(poses[:, :3])[i]
        J = np.concatenate([D @ turn, D, D @ R[i]], axis=2)  # (N, 2, 9)
        J = csr_matrix((J.ravel(), self.columns, self.starts), shape=(2 * len(i), len(x)))
        self.calls.append(("linearise", begin, time.perf_counter()))
        return J


def left_jacobians(w: np.ndarray) -> np.ndarray:
    """Return the left Jacobian J of every row: exp(w + d) ≈ exp(J d) exp(w)."""
    theta = np.maximum(np.linalg.norm(w, axis=1), 1e-4)[:, None, None]
    K = cross_matrices(w)
    return np.eye(3) + (1 - np.cos(theta)) / theta**2 * K + (theta - np.sin(theta)) / theta**3 * K @ K


def timing(calls: list[tuple[str, float, float]]) -> tuple[float, dict[str, float]]:
    """Seconds per iteration, from one Jacobian to the next, and their split."""
    ends = [end for what, _, end in calls if what == "linearise"]
    if len(ends) < 3:
        raise SystemExit("fewer than two steps were accepted")
    seconds = statistics.median(np.diff(ends[1:]))
    split = {w: statistics.median(e - b for what, b, e in calls if what == w) for w in ("evaluate", "linearise")}
    return seconds, split | {"solve": seconds - sum(split.values())}


def minimise(problem: Residuals, iterations: int) -> Any:
    return least_squares(
        problem.residuals,
        problem.x0,
        problem.jacobian,
        method="trf",
        loss="huber",
        f_scale=1.0,
        x_scale="jac",
        tr_solver="lsmr",
        max_nfev=iterations + EXTRA_EVALUATIONS,
        ftol=1e-15,
        xtol=None,
        gtol=None,
    )


def main() -> None:
    args = parser(__doc__).parse_args()
    scene = load(args.scene)
    before = memory_mb()
    problem = Residuals(scene)
    result, cores = with_cores(lambda: minimise(problem, args.iterations))
    seconds, split = timing(problem.calls)
    r = problem.residuals(problem.x0)
    huber = np.where(np.abs(r) <= 1, r * r / 2, np.abs(r) - 0.5)
    report(
        before,
        name="scipy",
        version=scipy.__version__,
        kernel="huber of each coordinate",
        iterations=result.nfev - 1,
        accepted=result.njev - 1,
        seconds_per_iteration=seconds,
        split=split,
        cores=cores,
        initial_cost=float(huber.sum()),
        final_cost=float(result.cost),
        initial_quadratic=float(r @ r / 2),
        notes="trf, lsmr, one thread; the loss is of each coordinate",
    )


if __name__ == "__main__":
    main()

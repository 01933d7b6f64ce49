"""Reprojection residual with its 2×9 derivatives: asker's compiled loop against a hand-written Numba loop.

    python benchmarks/reprojection_loop.py

Both write the same arrays on the same threads in the same run; the rounds alternate and the shortest time of each is
shown.  A plain copy of as many bytes is timed as a lower bound.
"""

import argparse
import math
import time

import numpy as np
from numba import njit, prange, set_num_threads

from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from asker.engines.cpu.engine import CpuEngine
from asker.engines.cpu.threads import n_threads
from record import add_record_option, recorded


@njit(parallel=True, error_model="numpy", fastmath={"contract"})
def by_hand(poses, points, intrinsics, camera, point, uv, r, J):
    """Write residuals and derivatives of all observations to r and J."""
    for k in prange(len(uv)):
        x, X, K = poses[camera[k]], points[point[k]], intrinsics[camera[k]]
        a0 = x[0] * X[0] + x[1] * X[1] + x[2] * X[2]  # RX, which rotates; P = RX + t
        a1 = x[3] * X[0] + x[4] * X[1] + x[5] * X[2]
        a2 = x[6] * X[0] + x[7] * X[1] + x[8] * X[2]
        i2 = 1.0 / (a2 + x[11])
        p0, p1 = -(a0 + x[9]) * i2, -(a1 + x[10]) * i2
        f, f2 = K[0], K[0] * K[0]
        n = p0 * p0 + p1 * p1
        d = f * (1.0 + K[1] * f2 * n + K[2] * f2 * f2 * n * n)
        e = 2.0 * f * (K[1] * f2 + 2.0 * K[2] * f2 * f2 * n)  # dd/dn · 2
        r[k, 0], r[k, 1] = d * p0 - uv[k, 0], d * p1 - uv[k, 1]
        q00, q01, q11 = d + e * p0 * p0, e * p0 * p1, d + e * p1 * p1  # d pixel / d p
        c00, c01, c02 = -q00 * i2, -q01 * i2, -(q00 * p0 + q01 * p1) * i2  # d pixel / d P
        c10, c11, c12 = -q01 * i2, -q11 * i2, -(q01 * p0 + q11 * p1) * i2
        J[k, 0], J[k, 1], J[k, 2] = c00, c01, c02
        J[k, 3], J[k, 4], J[k, 5] = a1 * c02 - a2 * c01, a2 * c00 - a0 * c02, a0 * c01 - a1 * c00
        J[k, 9], J[k, 10], J[k, 11] = c10, c11, c12
        J[k, 12], J[k, 13], J[k, 14] = a1 * c12 - a2 * c11, a2 * c10 - a0 * c12, a0 * c11 - a1 * c10
        for m in range(3):
            J[k, 6 + m] = c00 * x[m] + c01 * x[3 + m] + c02 * x[6 + m]
            J[k, 15 + m] = c10 * x[m] + c11 * x[3 + m] + c12 * x[6 + m]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cameras", type=int, default=356)
    parser.add_argument("--observations", type=int, default=1_250_000)
    parser.add_argument("--rounds", type=int, default=9)
    add_record_option(parser)
    args = parser.parse_args()
    set_num_threads(n_threads())

    scene = make_scene(args.cameras, args.observations, seed=1).start
    bundle = bundle_problem(scene)
    engine = CpuEngine(bundle.problem)
    rows = dict(zip(bundle.problem.variables, engine.start().theta, strict=True))
    code = engine.factors[0]
    n = scene.n_observations
    r, J = np.empty((n, 2)), np.empty((n, 18))
    intrinsics = bundle.problem.variables[2]
    hand = (
        rows[bundle.cameras],
        rows[bundle.points],
        rows[intrinsics],
        scene.camera_index,
        scene.point_index,
        scene.uv,
        r,
        J,
    )
    best = {"asker": math.inf, "by hand": math.inf, "copy": math.inf}
    for _ in range(args.rounds):
        for name, run in (
            ("asker", lambda: code.linearise(rows)),
            ("by hand", lambda: by_hand(*hand)),
            ("copy", lambda: np.copyto(J, code.J)),
        ):
            time.sleep(0.02)  # Numba's threads keep spinning for a while after their loop
            begin = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - begin)
    by_hand(*hand)
    lin = code.linearise(rows)
    error = max(np.abs(lin.r - r).max(), (np.abs(lin.J - J) / (1 + np.abs(J))).max())
    with recorded(args.record):
        print(f"{n} observations, {args.cameras} cameras, {n_threads()} threads, largest difference {error:.1e}\n")
        print("| loop | ms | asker / this |\n|---|---|---|")
        for name, seconds in best.items():
            print(f"| {name} | {1e3 * seconds:.2f} | {best['asker'] / seconds:.2f} |")


if __name__ == "__main__":
    main()

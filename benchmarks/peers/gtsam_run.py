"""Run GTSAM on one scene: `GeneralSFMFactorPoseCal3Bundler`, six degrees of freedom per camera, fixed calibration.

One `iterate()` increases the damping until the cost decreases, so it may contain more than one linear solve.
The residual of an observation behind its camera is zero.
"""

import statistics
import time
from importlib.metadata import version
from typing import Any

import gtsam
from common import Scene, forward_pixels, forward_poses, load, memory_mb, parser, report, with_cores
from gtsam.symbol_shorthand import C, P

OPTIMIZERS = {
    "general": (gtsam.LevenbergMarquardtOptimizer, gtsam.LevenbergMarquardtParams.CeresDefaults),
    "sfm": (gtsam.SfmLevenbergMarquardtOptimizer, gtsam.SfmLevenbergMarquardtParams.ceresDefaults),
}
SMALLEST_DAMPING = 1e-7  # the gauge is free, and GTSAM terminates at a singular system


def graph_of(scene: Scene) -> tuple[gtsam.NonlinearFactorGraph, gtsam.Values]:
    start = gtsam.Values()
    R, t = forward_poses(scene.cameras)
    for i, (f, k1, k2) in enumerate(scene.cameras[:, 6:]):
        pose = gtsam.Pose3(gtsam.Rot3(R[i]), t[i]).inverse()  # of the camera in the world
        start.insert(C(i), gtsam.PinholePoseCal3Bundler(pose, gtsam.Cal3Bundler(f, k1, k2, 0, 0)))
    for j, xyz in enumerate(scene.points):
        start.insert(P(j), xyz)
    huber = gtsam.noiseModel.mEstimator.Huber.Create(1.0)
    noise = gtsam.noiseModel.Robust.Create(huber, gtsam.noiseModel.Unit.Create(2))
    graph = gtsam.NonlinearFactorGraph()
    pixels = forward_pixels(scene.uv)
    for i, j, uv in zip(scene.camera_index.tolist(), scene.point_index.tolist(), pixels, strict=True):
        graph.add(gtsam.GeneralSFMFactorPoseCal3Bundler(uv, noise, C(i), P(j)))
    return graph, start


def iterate(optimizer: Any, iterations: int) -> tuple[list[float], int]:
    """Return the seconds of each iteration, and the number of iterations that decreased the cost."""
    times, accepted = [], 0
    for _ in range(iterations):
        cost, begin = optimizer.error(), time.perf_counter()
        optimizer.iterate()
        times.append(time.perf_counter() - begin)
        accepted += optimizer.error() < cost
    return times, accepted


def main() -> None:
    p = parser(__doc__)
    p.add_argument("--optimizer", choices=OPTIMIZERS, default="general")
    args = p.parse_args()
    scene = load(args.scene)
    before = memory_mb()
    graph, start = graph_of(scene)
    make, defaults = OPTIMIZERS[args.optimizer]
    settings = defaults()
    settings.setlambdaLowerBound(SMALLEST_DAMPING)
    optimizer = make(graph, start, settings)
    (times, accepted), cores = with_cores(lambda: iterate(optimizer, args.iterations))
    report(
        before,
        name="gtsam",
        version=version("gtsam"),
        kernel="huber",
        iterations=len(times),
        accepted=accepted,
        seconds_per_iteration=statistics.median(times[1:]),
        split={},
        cores=cores,
        initial_cost=graph.error(start),
        final_cost=optimizer.error(),
        notes=f"{make.__name__}, Ceres defaults",
    )


if __name__ == "__main__":
    main()

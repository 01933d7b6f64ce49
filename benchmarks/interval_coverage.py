"""Coverage of confidence intervals: how often the 95 % intervals of a result contain the truth.

    python benchmarks/interval_coverage.py [--kinds line,circle,graph,bundle] [--seeds 32] [--curves 125]
                                   [--outliers 0,0.1,0.3,0.5]

The scenes are synthetic, with a known truth; asker estimates the noise.  An interval belongs to one component of a
variable, such as a coordinate of a point or of a pose: its estimate ± `result.interval`.  In a bundle nothing is fixed;
estimate and truth are both taken relative to the cameras (`Uncertainty.relative`).  `lost scenes` counts scenes whose
median error exceeds 5 half-widths: there the solution itself is wrong.  Components without a finite interval are
counted: `open` for variables that the data do not determine, `chance` for variables whose inliers may agree by chance.
Rows with `sandwich` use the sandwich covariance, for poses and curves.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

import asker
from asker.applications.bundle.problem import bundle_problem, camera_poses
from asker.applications.bundle.synthetic import make_scene
from asker.applications.pose_graph import refine
from asker.applications.pose_graph.formats.g2o import PoseGraph
from asker.applications.pose_graph.loops.false_loops import add_false_loops
from asker.geometry import poses
from asker.geometry.gauge import Observed, restore_gauge
from asker.geometry.rotations import angle_axis_from_matrix
from asker.problem.by_group import Groups
from record import add_record_option, recorded

LOST_HALF_WIDTHS = 5.0
"""Median error, in half-widths of the intervals, above which a scene counts as lost."""


@dataclass(frozen=True)
class Coverage:
    """Numbers of intervals of one kind of variables in one scene."""

    inside: int
    n: int
    n_open: int
    n_chance: int
    is_lost: bool


def covered(error: np.ndarray, half_width: np.ndarray) -> Coverage:
    """Count the errors that lie within the half-widths; NaN is undetermined, infinite is accidental agreement."""
    known = np.isfinite(half_width) & (half_width > 0)
    off = np.abs(error[known]) / half_width[known]
    is_lost = bool(np.median(off) > LOST_HALF_WIDTHS) if off.size else True
    n_open, n_chance = int(np.isnan(half_width).sum()), int(np.isinf(half_width).sum())
    return Coverage(int((off <= 1).sum()), int(known.sum()), n_open, n_chance, is_lost)


# ------------------------------------------------------------------ curves


def off_line(x: Any, t: Any, y: Any) -> Any:
    return x[0] * t + x[1] - y


def off_circle(x: Any, point: Any) -> Any:
    import jax.numpy as jnp

    return jnp.sqrt((point[0] - x[0]) ** 2 + (point[1] - x[1]) ** 2) - x[2]


def line(seed: int, share: float) -> dict[str, Coverage]:
    """Coverage for a line fit."""
    rng, n = np.random.default_rng(seed), 100
    truth, t = rng.uniform(-2, 2, 2), rng.uniform(-1, 1, n)
    y = truth[0] * t + truth[1] + 0.05 * rng.standard_normal(n)
    wrong = np.arange(n) < share * n
    y[wrong] = rng.uniform(-6, 6, wrong.sum())
    return curve(off_line, (t, y), np.zeros(2), truth)


def circle(seed: int, share: float) -> dict[str, Coverage]:
    """Coverage for a circle fit."""
    rng, n = np.random.default_rng(seed), 100
    truth, angle = np.append(rng.uniform(-1, 1, 2), rng.uniform(1, 2)), rng.uniform(0, 2 * np.pi, n)
    points = truth[:2] + truth[2] * np.column_stack([np.cos(angle), np.sin(angle)]) + 0.02 * rng.standard_normal((n, 2))
    wrong = np.arange(n) < share * n
    points[wrong] = rng.uniform(-4, 4, (int(wrong.sum()), 2))
    return curve(off_circle, (points,), np.append(points.mean(axis=0), 1.5), truth)


def curve(residual: Callable[..., Any], data: tuple, start: np.ndarray, truth: np.ndarray) -> dict[str, Coverage]:
    """Coverage for a curve fit, with both covariance models."""
    x = asker.Variables(start[None], name="x")
    factors = asker.Factors(residual, x[np.zeros(len(data[0]), int)], data=data)
    result = asker.solve(asker.Problem(factors))
    error = result[x] - truth
    errors = {"": result.interval(x), ", sandwich": result.interval(x, sandwich=True)}
    return {f"curve{how}": covered(error, s) for how, s in errors.items()}


# ------------------------------------------------------------------ pose graphs


def synthetic_graph(rng: np.random.Generator, n: int = 100, span: int = 4) -> tuple[PoseGraph, np.ndarray]:
    """Return a graph of a random walk on a grid up to ±span, with odometry and loop closures, and the true poses."""
    place, heading, T = np.zeros(2), 0, []
    for _ in range(n):
        T.append([*place, heading * np.pi / 2])
        ahead = np.round([np.cos(heading * np.pi / 2), np.sin(heading * np.pi / 2)])
        if np.abs(place + ahead).max() > span:
            heading = (heading + rng.choice([-1, 1])) % 4
            continue
        place = place + ahead
        heading = (heading + rng.choice([-1, 0, 0, 1])) % 4
    truth = np.array(T)
    a, b = cKDTree(truth[:, :2]).query_pairs(1.5, output_type="ndarray").T
    a, b = a[b - a >= 5], b[b - a >= 5]
    some = rng.permutation(len(a))[: 2 * n]
    i = np.concatenate([np.arange(n - 1), a[some]]).astype(np.int32)
    j = np.concatenate([np.arange(1, n), b[some]]).astype(np.int32)
    sigma = np.array([0.05, 0.05, 0.02])
    M = poses.matrices("SE2", truth)
    exact = poses.rows("SE2", poses.inverses("SE2", M[i]) @ M[j])
    measured = exact + sigma * rng.standard_normal(exact.shape)
    announced = sigma * rng.uniform(0.7, 1.6)  # the stated covariance differs from the noise
    information = np.tile(np.diag(announced**-2), (len(i), 1, 1))
    start = [M[0]]
    for step in poses.matrices("SE2", measured[: n - 1]):
        start.append(start[-1] @ step)
    none = np.zeros(n, bool)
    return PoseGraph("SE2", np.arange(n), poses.rows("SE2", np.array(start)), i, j, measured, information, none), truth


def graph(seed: int, share: float) -> dict[str, Coverage]:
    """Coverage for a pose graph."""
    rng = np.random.default_rng(seed)
    made, truth = synthetic_graph(rng)
    if share:
        made, _ = add_false_loops(made, share / (1 - share), seed=seed)
    outcome = refine(made)
    result = outcome.refit.result if outcome.refit else outcome.result
    (v,) = result.problem.variables
    estimate = result[v]
    c, s = np.cos(estimate[:, 2]), np.sin(estimate[:, 2])
    d = truth - estimate
    turn = d[:, 2] - 2 * np.pi * np.round(d[:, 2] / (2 * np.pi))
    error = np.column_stack([c * d[:, 0] + s * d[:, 1], c * d[:, 1] - s * d[:, 0], turn])
    errors = {"": result.interval(v), ", sandwich": result.interval(v, sandwich=True)}
    return {f"poses{how}": covered(error, s) for how, s in errors.items()}


# ------------------------------------------------------------------ bundles


def bundle(seed: int, share: float) -> dict[str, Coverage]:
    """Coverage for a bundle adjustment."""
    scene = make_scene(8, 2400, outlier_ratio=share, outlier_size=60.0, start_error=3.0, seed=seed)
    made = bundle_problem(scene.start, None)
    result = asker.solve(made.problem)
    true_poses, b = camera_poses(scene.truth), scene.truth
    seen = Observed(b.camera_index, b.point_index, np.ones(b.n_observations))
    moved = restore_gauge(true_poses, result[made.cameras], result[made.points], np.zeros(b.n_cameras, bool), seen)
    values = {made.cameras: moved[0], made.points: moved[1]}
    items = [values.get(v, result[v]) for v in made.problem.variables]
    result = replace(result, values=Groups(items, result.values.names, made.problem.variables))
    R = np.einsum("nij,nkj->nik", true_poses[:, :, :3], moved[0][:, :, :3])
    steps = {
        made.cameras: np.concatenate([true_poses[:, :, 3] - moved[0][:, :, 3], angle_axis_from_matrix(R)], axis=1),
        made.points: b.points - moved[1],
    }
    of = result.uncertainty(datum=made.cameras)
    error = of.relative(steps)
    coverage = {"poses": covered(error[made.cameras], of.interval(made.cameras))}
    coverage["points"] = covered(error[made.points], of.interval(made.points))
    spread = result.interval(made.cameras, datum=made.cameras, sandwich=True)
    return coverage | {"poses, sandwich": covered(error[made.cameras], spread)}


KINDS: dict[str, Callable[[int, float], dict[str, Coverage]]] = {
    "line": line, "circle": circle, "graph": graph, "bundle": bundle,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seeds", type=int, default=32, help="scenes of each kind, for each outlier ratio")
    parser.add_argument(
        "--curves", type=int, default=125, help="the same for lines and circles, which have few components"
    )
    parser.add_argument("--outliers", default="0,0.1,0.3,0.5")
    add_record_option(parser)
    args = parser.parse_args()
    with recorded(args.record):
        print("| scenes | outliers | intervals of | contain the truth | intervals | open | chance | lost scenes |")
        print("|---|--:|---|--:|--:|--:|--:|--:|")
        for kind in args.kinds.split(","):
            n_scenes = args.curves if kind in ("line", "circle") else args.seeds
            for share in map(float, args.outliers.split(",")):
                runs = [KINDS[kind](seed, share) for seed in range(n_scenes)]
                for what in runs[0]:
                    of = [run[what] for run in runs]
                    n = sum(h.n for h in of)
                    without = f"{sum(h.n_open for h in of)} | {sum(h.n_chance for h in of)}"
                    numbers = f"{sum(h.inside for h in of) / max(n, 1):.1%} | {n} | {without}"
                    print(f"| {n_scenes} {kind} | {share:.0%} | {what} | {numbers} | {sum(h.is_lost for h in of)} |")
                sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Similarity (Sim(3)) graphs: chunks of a monocular or feed-forward reconstruction, each with an individual scale.

A camera moves around a circle three times.  A chunk is connected with the next one and with nearby chunks of the other
rounds by noisy similarities.  Of the loops, 40 % are false: they copy the measurement of another loop.  The initial
guess is odometry, whose scale drifts.

The error is the RMSE of the chunks' origins after a similarity alignment, in units of the path's radius.  The oracle is
least squares with the right loops, started at the truth.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

import asker
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.initial.spanning_tree_init import odometry_poses
from asker.applications.pose_graph.loops.false_loops import add_false_loops
from asker.applications.pose_graph.loops.inlier_refit import TOL
from asker.applications.pose_graph.problem import default_tau, pose_graph_problem
from asker.geometry import poses
from asker.geometry.alignment import distances, similarity
from asker.kernels.kernels import SmoothTruncated
from families.data_and_peers import peer
from families.family import Condition, Instance
from families.graphs import by_default, positions_of, refitted

LAPS, PER_LAP = 3, 30
FALSE_FRACTION = 0.4
"""Fraction of false ones among all loops."""
SEEDS = 10
TIME_LIMIT = 60.0
SIGMA = np.array([0.02, 0.02, 0.02, 0.01, 0.01, 0.01, 0.01])
"""Standard deviations of the translation (for a radius of 10), the rotation and the logarithm of the scale; they are
multiplied by the noise of the condition."""
CONDITIONS: list[Condition] = [
    {"kind": kind, "noise": noise} for kind, noise in product(("random", "grouped"), (1.0, 3.0))
]


class SimilarityFamily:
    name = "sim3"
    n_oracles = 8
    sweep = (0.3, 1.0)
    methods = ("irls-cauchy", "gnc", "gnc-tls", "asker")

    def cases(self, quick: bool) -> list[tuple[Condition, int]]:
        return [(c, seed) for c in CONDITIONS for seed in range(SEEDS)]

    def make(self, condition: Condition, seed: int) -> Instance:
        chunks = make_chunks(condition["noise"], condition["kind"], seed)
        graph, tau = chunks.graph, default_tau("SIM3")
        off = partial(off_truth, truth=chunks.truth)

        def error(result: asker.Result) -> float:
            return off(positions_of(graph, refitted(graph, result, TIME_LIMIT)))

        return Instance(
            problem=lambda kernel: pose_graph_problem(graph, kernel or SmoothTruncated(tau)).problem,
            error=error,
            oracle=off(oracle(chunks)),
            number=tau,
            default=partial(by_default, graph, off, TIME_LIMIT),
            peers=gtsam_peers(graph, off),
            time_limit=TIME_LIMIT,
        )


FAMILY = SimilarityFamily()


@dataclass(frozen=True, eq=False)
class SimulatedGraph:
    """Synthetic graph with its truth."""

    graph: PoseGraph
    """Graph with odometry as the initial guess."""
    truth: np.ndarray
    """True poses (n, 8), in the format of `graph.poses`."""
    is_false: np.ndarray
    """Mask of the false loops, (n_edges,)."""


def make_chunks(noise: float, kind: Any, seed: int) -> SimulatedGraph:
    """Simulate a graph in which `FALSE_FRACTION` of the loops are false, of a kind of `add_false_loops`."""
    rng = np.random.default_rng(seed)
    n = LAPS * PER_LAP
    angle = 2 * np.pi * np.arange(n) / PER_LAP
    T = np.tile(np.eye(4), (n, 1, 1))
    turns = np.column_stack([0.2 * np.sin(2 * angle), 0.2 * np.cos(angle), angle + np.pi / 2])
    scale = np.exp(0.4 * rng.standard_normal(n))
    T[:, :3, :3] = scale[:, None, None] * Rotation.from_euler("xyz", turns).as_matrix()
    T[:, :3, 3] = np.column_stack([10 * np.cos(angle), 10 * np.sin(angle), np.sin(3 * angle) + 0.02 * np.arange(n)])
    pairs = [(k, k + 1) for k in range(n - 1)]
    pairs += [(k, k + lap * PER_LAP + step) for lap in (1, 2) for step in (-1, 0, 1) for k in range(0, n, 2)]
    i, j = np.array([(a, b) for a, b in pairs if b < n], np.int32).T
    sigma = (
        noise * SIGMA / np.where(np.arange(7) < 3, scale[j][:, None], 1.0)
    )  # translations are in the units of the target chunk
    M = (
        poses.inverses("SIM3", T[i])
        @ T[j]
        @ np.array([expm(twist(x)) for x in sigma * rng.standard_normal(sigma.shape)])
    )
    information = np.einsum("ni,ij->nij", 1 / sigma**2, np.eye(7))
    truth = poses.rows("SIM3", T)
    graph = PoseGraph("SIM3", np.arange(n), truth, i, j, poses.rows("SIM3", M), information, np.zeros(n, bool))
    graph = replace(graph, poses=odometry_poses(graph))
    graph, is_false = add_false_loops(graph, FALSE_FRACTION / (1 - FALSE_FRACTION), kind, seed)
    return SimulatedGraph(graph, truth, is_false)


def twist(x: np.ndarray) -> np.ndarray:
    """Return the 4×4 Lie algebra element of the tangent vector (ρ, ω, σ)."""
    X = np.zeros((4, 4))
    X[:3, :3], X[:3, 3] = np.cross(x[3:6], np.eye(3)).T + x[6] * np.eye(3), x[:3]
    return X


def off_truth(origins: np.ndarray, truth: np.ndarray) -> float:
    """Return the RMSE of the chunks' origins after alignment, in units of the radius."""
    if not np.isfinite(origins).all():
        return np.inf
    where = truth[:, :3]
    return float(np.sqrt(np.mean(distances(similarity(origins, where), origins, where) ** 2))) / 10


def oracle(chunks: SimulatedGraph) -> np.ndarray:
    """Return the origins (n, 3) of least squares with the right loops, started at the truth."""
    right = replace(chunks.graph, poses=chunks.truth).with_edges(~chunks.is_false)
    plain = pose_graph_problem(right, robust="none")
    return plain.refined(asker.solve(plain.problem, asker.IRLS(), tol=TOL).values).poses[:, :3]


def gtsam_peers(graph: PoseGraph, off: Callable[[np.ndarray], float]) -> dict[str, Any]:
    """Return GTSAM with the Huber loss on the loops; its default transition is 1.345."""
    module = peer("gtsam_graph")
    return {} if module is None else {"GTSAM Huber": partial(_gtsam, module.gtsam, graph, off)}


def _gtsam(gtsam: Any, graph: PoseGraph, off: Callable[[np.ndarray], float], number: float | None) -> float:
    def similar(row: np.ndarray) -> Any:  # s (R X + t)
        return gtsam.Similarity3(gtsam.Rot3(Rotation.from_quat(row[3:7]).as_matrix()), row[:3] / row[7], row[7])

    radius = 1.345 if number is None else number * SmoothTruncated.unit_inflection
    order = [3, 4, 5, 0, 1, 2, 6]  # rotation first
    factors, start = gtsam.NonlinearFactorGraph(), gtsam.Values()
    for k, row in enumerate(graph.poses):
        start.insert(k, similar(row))
    rows = zip(
        graph.i.tolist(), graph.j.tolist(), graph.measurements, graph.information, graph.is_odometry, strict=True
    )
    for a, b, row, information, trusted in rows:
        noise = gtsam.noiseModel.Gaussian.Information(information[np.ix_(order, order)])
        if not trusted:
            noise = gtsam.noiseModel.Robust.Create(gtsam.noiseModel.mEstimator.Huber.Create(radius), noise)
        factors.add(gtsam.BetweenFactorSimilarity3(a, b, similar(row), noise))
    factors.add(gtsam.PriorFactorSimilarity3(0, similar(graph.poses[0]), gtsam.noiseModel.Isotropic.Sigma(7, 1e-6)))
    values = gtsam.LevenbergMarquardtOptimizer(factors, start).optimize()
    return off(np.array([s.scale() * s.translation() for s in map(values.atSimilarity3, range(graph.n_poses))]))

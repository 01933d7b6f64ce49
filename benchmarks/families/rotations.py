"""Rotation averaging: made relative rotations, 10 to 70 % of them wrong, with a noise of 1 to 10 degrees per axis.

The start lies along a spanning tree: of pairs that close with others, as `RelativeRotations.start` has it, or of any
pairs, wrong ones among them.

The error is the root mean square of the angles from the truth, in degrees, over the best 95 % of the rotations, once a
rotation of the whole has aligned the two: one rotation in twenty may be lost without a say.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import asker
from asker.applications.rotation_averaging.files import RelativeRotations
from asker.applications.rotation_averaging.problem import TAU, angle_errors, averaging_problem, make_rotations
from asker.geometry.spanning import spanning_tree
from families.design import balanced_cases, peer, trimmed
from families.family import Condition, Instance

N = 60
LEVELS: dict[str, tuple[Any, ...]] = {
    "noise": (1.0, 2.0, 5.0, 10.0),
    "outlier_ratio": (0.1, 0.2, 0.3, 0.5, 0.6, 0.7),
    "pairs_each": (8, 15),
    "start": ("closing pairs", "any pairs"),
}
N_CONDITIONS, SEEDS = 12, (0,)


@dataclass(frozen=True, eq=False)
class Started(RelativeRotations):
    """Relative rotations with another start."""

    begin: np.ndarray | None = None

    def start(self) -> np.ndarray:
        assert self.begin is not None
        return self.begin


class RotationFamily:
    name = "rotations"
    n_oracles = 8
    sweep = (0.5, 1.0, 2.0, 4.0, 8.0)
    methods = None

    def cases(self, quick: bool) -> list[tuple[Condition, int]]:
        return balanced_cases(LEVELS, N_CONDITIONS, SEEDS, quick)

    def make(self, condition: Condition, seed: int) -> Instance:
        made = make_rotations(N, condition["pairs_each"] * N, condition["noise"], condition["outlier_ratio"], seed)
        assert made.truth is not None
        start = made.start() if condition["start"] == "closing pairs" else along_any_pairs(made, seed)
        data, truth = started(made, start), made.truth

        def off(found: np.ndarray) -> float:
            return trimmed(angle_errors(found, truth)) if np.isfinite(found).all() else np.inf

        def error(result: asker.Result) -> float:
            return off(result["rotations"])

        return Instance(
            problem=lambda kernel: averaging_problem(data, kernel).problem,
            error=error,
            oracle=error(oracle(made)),
            number=TAU,
            at_truth=lambda: averaging_problem(started(made, truth), None).problem,
            peers=gtsam_peers(data, off),
        )


FAMILY = RotationFamily()


def started(made: RelativeRotations, begin: np.ndarray, chosen: np.ndarray | None = None) -> Started:
    """The same pairs, or some of them, from another start."""
    k = slice(None) if chosen is None else chosen
    return Started(made.names, made.i[k], made.j[k], made.matrices[k], made.weights[k], begin=begin)


def along_any_pairs(made: RelativeRotations, seed: int) -> np.ndarray:
    """(n, 3, 3): along a spanning tree of pairs that are drawn, right and wrong ones alike."""
    price = 1 + np.random.default_rng(seed).random(len(made.i))
    R = np.tile(np.eye(3), (len(made.names), 1, 1))
    for k, parent, edge in zip(*spanning_tree(made.i, made.j, price, len(R), 1), strict=True):
        R[k] = (made.matrices[edge] if made.j[edge] == k else made.matrices[edge].T) @ R[parent]
    return R


def oracle(made: RelativeRotations) -> asker.Result:
    """Least squares from the truth, on the pairs that are right."""
    assert made.truth is not None
    assert made.outliers is not None
    right = started(made, made.truth, ~made.outliers)
    return asker.solve(averaging_problem(right, asker.Quadratic()).problem, asker.IRLS(), tol=1e-12)


def gtsam_peers(data: RelativeRotations, off: Callable[[np.ndarray], float]) -> dict[str, Any]:
    """GTSAM on the same pairs: Levenberg-Marquardt with robust losses, and graduated non-convexity.

    The number is the angle in degrees from which a loss turns, or up to which GNC takes a pair for right; without one
    the noise is 1 radian, and the losses' and GNC's own constants hold.
    """
    module = peer("gtsam_graph")
    if module is None:
        return {}
    names = ("Huber", "Cauchy", "GemanMcClure", "GNC-TLS")
    return {f"GTSAM {name}": partial(_gtsam, module.gtsam, data, off, name) for name in names}


def _gtsam(gtsam: Any, data: RelativeRotations, off: Callable[..., float], how: str, degrees: float | None) -> float:
    plain = gtsam.noiseModel.Isotropic.Sigma(3, 1.0 if degrees is None else np.radians(degrees))
    noise = plain
    if how != "GNC-TLS":
        loss = getattr(gtsam.noiseModel.mEstimator, how)
        # without a number: the constants that GTSAM's own loss functions default to
        own = {"Huber": 1.345, "Cauchy": 0.1, "GemanMcClure": 1.0}[how]
        noise = gtsam.noiseModel.Robust.Create(loss.Create(own if degrees is None else 1.0), plain)
    graph, start = gtsam.NonlinearFactorGraph(), gtsam.Values()
    for k, R in enumerate(data.start()):
        start.insert(k, gtsam.Rot3(R.T))
    for i, j, R in zip(data.i.tolist(), data.j.tolist(), data.matrices, strict=True):
        graph.add(gtsam.BetweenFactorRot3(j, i, gtsam.Rot3(R), noise))
    graph.add(gtsam.PriorFactorRot3(0, start.atRot3(0), gtsam.noiseModel.Isotropic.Sigma(3, 1e-6)))
    if how == "GNC-TLS":
        settings = gtsam.GncLMParams()
        settings.setLossType(gtsam.GncLossType.TLS)
        settings.setKnownInliers([graph.size() - 1])
        optimizer = gtsam.GncLMOptimizer(graph, start, settings)
        if degrees is not None:
            optimizer.setInlierCostThresholds(0.5)  # ½‖r‖² in units of the number
    else:
        optimizer = gtsam.LevenbergMarquardtOptimizer(graph, start)
    values = optimizer.optimize()
    return off(np.array([values.atRot3(k).matrix().T for k in range(len(data.names))]))

"""Rotation averaging: synthetic relative rotations with 10 to 70 % outliers and a noise of 1 to 10 degrees per axis.

The initial guess follows a spanning tree: of pairs with small cycle errors (`RelativeRotations.start`), or of random
pairs, some of them wrong.

The error is the RMS angle from the truth after a global alignment, in degrees, over the best 95 % of the rotations: one
rotation in twenty may be lost without effect on the error.
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
from families.data_and_peers import peer
from families.factorial_design import balanced_cases
from families.family import Condition, Instance
from families.trimmed_error import trimmed

N = 60
LEVELS: dict[str, tuple[Any, ...]] = {
    "noise": (1.0, 2.0, 5.0, 10.0),
    "outlier_ratio": (0.1, 0.2, 0.3, 0.5, 0.6, 0.7),
    "pairs_each": (8, 15),
    "start": ("closing pairs", "any pairs"),
}
N_CONDITIONS, SEEDS = 12, (0,)


@dataclass(frozen=True, eq=False)
class WithInitialGuess(RelativeRotations):
    """Relative rotations with a prescribed initial guess."""

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
        pairs = make_rotations(N, condition["pairs_each"] * N, condition["noise"], condition["outlier_ratio"], seed)
        assert pairs.truth is not None
        start = pairs.start() if condition["start"] == "closing pairs" else random_tree_guess(pairs, seed)
        data, truth = with_initial_guess(pairs, start), pairs.truth

        def off(R: np.ndarray) -> float:
            return trimmed(angle_errors(R, truth)) if np.isfinite(R).all() else np.inf

        def error(result: asker.Result) -> float:
            return off(result["rotations"])

        return Instance(
            problem=lambda kernel: averaging_problem(data, kernel).problem,
            error=error,
            oracle=error(oracle(pairs)),
            number=TAU,
            at_truth=lambda: averaging_problem(with_initial_guess(pairs, truth), None).problem,
            peers=gtsam_peers(data, off),
        )


FAMILY = RotationFamily()


def with_initial_guess(
    pairs: RelativeRotations, begin: np.ndarray, chosen: np.ndarray | None = None
) -> WithInitialGuess:
    """Return the chosen pairs (by default all) with another initial guess."""
    k = slice(None) if chosen is None else chosen
    return WithInitialGuess(pairs.names, pairs.i[k], pairs.j[k], pairs.matrices[k], pairs.weights[k], begin=begin)


def random_tree_guess(pairs: RelativeRotations, seed: int) -> np.ndarray:
    """Return rotations (n, 3, 3) along a random spanning tree of the pairs, inliers and outliers alike."""
    price = 1 + np.random.default_rng(seed).random(len(pairs.i))
    R = np.tile(np.eye(3), (len(pairs.names), 1, 1))
    for k, parent, edge in zip(*spanning_tree(pairs.i, pairs.j, price, len(R), 1), strict=True):
        R[k] = (pairs.matrices[edge] if pairs.j[edge] == k else pairs.matrices[edge].T) @ R[parent]
    return R


def oracle(pairs: RelativeRotations) -> asker.Result:
    """Return least squares on the inlier pairs, started at the truth."""
    assert pairs.truth is not None
    assert pairs.outliers is not None
    right = with_initial_guess(pairs, pairs.truth, ~pairs.outliers)
    return asker.solve(averaging_problem(right, asker.Quadratic()).problem, asker.IRLS(), tol=1e-12)


def gtsam_peers(data: RelativeRotations, off: Callable[[np.ndarray], float]) -> dict[str, Any]:
    """Return GTSAM's methods on the same pairs: Levenberg-Marquardt with robust losses, and GNC.

    The scale parameter is the transition angle of the loss, or the inlier threshold of GNC, in degrees; without it the
    noise is 1 radian, and the losses and GNC use their default constants.
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
        # the default constants of GTSAM's loss functions
        constant = {"Huber": 1.345, "Cauchy": 0.1, "GemanMcClure": 1.0}[how]
        noise = gtsam.noiseModel.Robust.Create(loss.Create(constant if degrees is None else 1.0), plain)
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
            optimizer.setInlierCostThresholds(0.5)  # ½‖r‖² in units of the scale parameter
    else:
        optimizer = gtsam.LevenbergMarquardtOptimizer(graph, start)
    values = optimizer.optimize()
    return off(np.array([values.atRot3(k).matrix().T for k in range(len(data.names))]))

"""Pose graphs that announce another noise than they have.

Information matrices are often guesses.  Those of public graphs announce 1.5 to 170 times the noise that their loops
show, and then a false loop can be had for a little bent odometry: Ψ itself is lower with it.  The noise can be seen in
what was kept:

(1) solve with the noise as announced;
(2) the share of it that is there: the median of ‖r‖, over the loops kept and over odometry, in units of the median
    that was announced.  Up to half of those kept may be false;
(3) where that is much less, solve again with that share of τ, from where the last solution ended; back to (2);
(4) descend on Ψ with TAIL times that share, from each of these solutions, and return the lowest: right loops in the
    tails come back, and a solution that (3) left for a worse one does too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from asker.io.g2o import PoseGraph
from asker.kernels import Kernel, SmoothTruncated
from asker.poses import N_DOF
from asker.problem import Problem
from asker.problems.pose_graph import PoseGraphProblem, Robust, default_tau, pose_graph_problem
from asker.result import Result, Status
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Strategy

MUCH_LESS = 0.5
TAIL = 5.0
LEAST = 1e-3
"""Data without noise would leave no τ at all."""
CUT_SHORT = (Status.TIME_LIMIT, Status.INTERRUPTED, Status.STOPPED)


@dataclass(frozen=True, eq=False)
class Estimated:
    """A solved graph, and what share of the announced noise its kernel allows for."""

    made: PoseGraphProblem
    result: Result
    noise: float
    rounds: list[tuple[float, Result]]
    """All that was solved on the way, each with its share."""


def noise_share(made: PoseGraphProblem, result: Result) -> float:
    """How much of the announced noise a solution shows; 1 where no loop was kept, which says nothing."""
    from scipy.stats import chi2

    odometry = made.graph.is_odometry
    norms = made.per_edge([np.linalg.norm(r, axis=1) for r in result.residuals])
    kept = made.per_edge(result.inliers) & ~odometry
    if not kept.any():
        return 1.0
    seen = max(np.median(norms[of]) for of in (kept, odometry) if of.any())
    return float(seen / np.sqrt(chi2.median(N_DOF[made.graph.kind])))


def solve_with_estimated_noise(
    graph: PoseGraph,
    solve: Callable[[Problem, Strategy], Result],
    strategy: Strategy,
    kernel: Callable[..., Kernel] = SmoothTruncated,
    tau: float | None = None,
    robust: Robust = "loops",
) -> Estimated:
    """`solve` is called for each round; `kernel` with tau=…, which is `default_tau` times the share of the noise."""
    tau = default_tau(graph.kind) if tau is None else tau
    rounds: list[tuple[float, Result]] = []

    def solved(start: PoseGraph, share: float, how: Strategy) -> tuple[PoseGraphProblem, Result]:
        made = pose_graph_problem(start, kernel(tau=share * tau), robust)
        rounds.append((share, solve(made.problem, how)))
        return made, rounds[-1][1]

    share = 1.0
    seen: list[PoseGraph] = []
    while True:
        made, result = solved(seen[-1] if seen else graph, share, strategy)  # (1), (3)
        seen.append(made.refined(result.values))
        there = max(noise_share(made, result), LEAST)  # (2)
        if there > MUCH_LESS * share or result.status in CUT_SHORT:
            break
        share = there
    if share < 1 and result.status not in CUT_SHORT:
        share = min(1.0, TAIL * share)
        made, result = min((solved(start, share, IRLS()) for start in seen), key=_cost)  # (4)
    return Estimated(made, result, share, rounds)


def _cost(solved: tuple[Any, Result]) -> float:
    return solved[1].cost

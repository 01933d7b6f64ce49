"""Least squares with the inliers of a robust solution.

A robust kernel also reduces the weights of inliers, and its width depends on an uncertain noise scale.  Once the
inliers are known (edges with more than half of the full weight), their information matrices are the right weights.
False loop closures cause fill-in of the sparse factor: without many of them, this step is cheap compared with the
search.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.problem import PoseGraphProblem, pose_graph_problem
from asker.solver.result import Result
from asker.strategies.irls import IRLS

TOL = 1e-12
"""Relative tolerance.  Long chains are ill-conditioned: with 1e-8, parking-garage ends 0.7 mm from the optimum."""


@dataclass(frozen=True, eq=False)
class Refit:
    """Least-squares solution of the inliers."""

    graph: PoseGraph
    """Refined graph with all edges, including rejected ones."""
    kept: NDArray[np.bool_]
    """(n_edges,): mask of the inliers."""
    result: Result


def plain_from(result: Result) -> IRLS:
    """Return IRLS with an initial damping that is not above the final one of another solve."""
    return IRLS(min(IRLS.damping, result.history[-1].damping))


def refit(made: PoseGraphProblem, result: Result, solve: Callable[..., Result]) -> Refit | None:
    """Solve by least squares with the inliers of a robust solution, starting from it.

    Parameters
    ----------
    made
        Robust problem.
    result
        Result of the robust problem.
    solve
        Function called as solve(problem, strategy, tol=…).

    Returns
    -------
    Refit or None
        None if the inliers are odometry only, which already fits exactly.
    """
    robust, kept = made.refined(result.values), ~made.rejected(result)
    others = {tag: ~rejected for tag, rejected in made.rejected_measurements(result).items()}
    if not (np.any(kept & ~robust.is_odometry) or any(map(np.any, others.values()))):
        return None
    plain = pose_graph_problem(robust.with_edges(kept).with_measured(others), robust="none")
    again = solve(plain.problem, plain_from(result), tol=TOL)
    refined = plain.refined(again.values)
    return Refit(replace(robust, poses=refined.poses, landmarks=refined.landmarks), kept, again)

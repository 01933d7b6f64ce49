"""Least squares with the edges that a robust solution keeps.

A kernel weighs what it keeps: the less, the further it is off, in units of a noise that is often a guess.  Once it is
known which edges to believe (those with more than half of the full weight), their information matrices say what each is
worth.  False loops fill the sparse factor: where many are refused, this costs little beside the search.
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
"""Long chains are ill-conditioned: with 1e-8 the trajectory of parking-garage is 0.7 mm from where this one leads."""


@dataclass(frozen=True, eq=False)
class Refit:
    graph: PoseGraph
    """With all edges, the refused ones too."""
    kept: NDArray[np.bool_]
    """(n_edges,)"""
    result: Result


def plain_from(result: Result) -> IRLS:
    """A plain descent from where another ended, no more damped than that was."""
    return IRLS(min(IRLS.damping, result.history[-1].damping))


def refit(made: PoseGraphProblem, result: Result, solve: Callable[..., Result]) -> Refit | None:
    """Solve again, from where a robust solution ended; None where that kept odometry alone, which fits as
    it is.

    solve: called as solve(problem, strategy, tol=…)
    """
    found, kept = made.refined(result.values), ~made.refused(result)
    others = {tag: ~refused for tag, refused in made.refused_measured(result).items()}
    if not (np.any(kept & ~found.is_odometry) or any(map(np.any, others.values()))):
        return None
    plain = pose_graph_problem(found.with_edges(kept).with_measured(others), robust="none")
    again = solve(plain.problem, plain_from(result), tol=TOL)
    refined = plain.refined(again.values)
    return Refit(replace(found, poses=refined.poses, landmarks=refined.landmarks), kept, again)

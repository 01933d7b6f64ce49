"""Iteration limits of the solves of a loop search, from the size of the pose graph."""

import numpy as np

from asker.applications.pose_graph.graph import PoseGraph
from asker.geometry.poses import N_DOF

INEXACT_WORK = 3e6
"""Work of a solve that need not be exact: iterations · poses · (unknowns per pose)³."""
MIN_INEXACT_ITERATIONS, MAX_INEXACT_ITERATIONS = 20, 100
"""Bounds of the iteration limit that follows from `INEXACT_WORK`."""
EXCHANGE_WORK = 8e5
"""Exchanges take up to (EXCHANGE_WORK / work of one)² iterations, or a quarter of those before if these are more."""
MIN_EXCHANGE_ITERATIONS = 30
"""Iterations that a single exchange requires: none is made if the limit is lower."""
LARGE_LOOPS_PER_POSE = 0.25
"""Number of loop closures per pose above which a graph counts as large."""


def iteration_work(graph: PoseGraph) -> int:
    """Return the approximate work of one iteration: poses · (unknowns per pose)³."""
    return graph.n_poses * N_DOF[graph.kind] ** 3


def inexact_iterations(graph: PoseGraph) -> int:
    """Return the largest number of iterations of a solve that need not be exact."""
    return int(np.clip(INEXACT_WORK / iteration_work(graph), MIN_INEXACT_ITERATIONS, MAX_INEXACT_ITERATIONS))


def is_expensive(graph: PoseGraph) -> bool:
    """Return whether single iterations are expensive."""
    return INEXACT_WORK / iteration_work(graph) < MIN_INEXACT_ITERATIONS


def is_large(graph: PoseGraph) -> bool:
    """Return whether the loop closures are so many that they can be checked against each other."""
    has_many_loops = graph.n_loops > LARGE_LOOPS_PER_POSE * graph.n_poses
    return has_many_loops and INEXACT_WORK / iteration_work(graph) < MAX_INEXACT_ITERATIONS


def exchange_iterations(graph: PoseGraph, n_before: int) -> int:
    """Return the largest number of exchange iterations after `n_before` others; 0 if they are not worthwhile."""
    n = int(max((EXCHANGE_WORK / iteration_work(graph)) ** 2, n_before / 4))
    return n if n >= MIN_EXCHANGE_ITERATIONS else 0

"""How much work the solves of a pose graph are, and how much of it is worth doing."""

import numpy as np

from asker.applications.pose_graph.graph import PoseGraph
from asker.geometry.poses import N_DOF

FIRST, FEW = 3e6, (20, 100)
"""The work of a descent that need not be exact, as iterations · poses · (unknowns of a pose)³; iterations at least and
at most."""
EXCHANGES, ONE = 8e5, 30
"""Exchanges may take a quarter of the iterations so far, or the square of this over the work of one, if that is more;
where that is less than one exchange takes, none is made."""
MANY = 0.25
"""Loops for each pose of a graph."""


def work(graph: PoseGraph) -> int:
    """Of one iteration, about."""
    return graph.n_poses * N_DOF[graph.kind] ** 3


def few_iterations(graph: PoseGraph) -> int:
    """The most that a descent has which need not be exact."""
    return int(np.clip(FIRST / work(graph), *FEW))


def is_dear(graph: PoseGraph) -> bool:
    """Whether an iteration is dear."""
    return FIRST / work(graph) < FEW[0]


def is_large(graph: PoseGraph) -> bool:
    """Whether it has so many loops that they say which of them are right; where loops are few, each decides."""
    return graph.n_loops > MANY * graph.n_poses and FIRST / work(graph) < FEW[1]


def exchange_iterations(graph: PoseGraph, n_before: int) -> int:
    """The most that exchanges have, after so many; 0 where none is worth it."""
    n = int(max((EXCHANGES / work(graph)) ** 2, n_before / 4))
    return n if n >= ONE else 0

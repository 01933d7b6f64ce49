"""Single solves of a loop search, with kernels for a given noise scale."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.initial.chordal_init import chordal_initialization, chordal_start
from asker.applications.pose_graph.loops import work_budget
from asker.applications.pose_graph.loops.inlier_refit import TOL
from asker.applications.pose_graph.loops.loop_consistency import LoopConsistency
from asker.applications.pose_graph.loops.noise_scale import SELECTION_FACTOR, TAIL_FACTOR, Round, noise_scale
from asker.applications.pose_graph.options import Robust
from asker.applications.pose_graph.problem import INLIER_PROBABILITY, PoseGraphProblem, pose_graph_problem
from asker.kernels.kernel import Kernel
from asker.solver.result import Result
from asker.solver.time_budget import Clock
from asker.strategies.composite.inlier_exchange import Exchanges
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Strategy

TAIL_QUANTILE = 0.95
"""Quantile of the residual norms that measures their tails."""
MAX_TAIL_RATIO = 2.0
"""Upper bound of the noise scale by `TAIL_QUANTILE` over that by the median; 5 would accept false loop closures."""
INEXACT_TOL = 0.1
"""Relative decrease of the cost at which inexact least squares terminates."""
REJECTION_WEIGHT = 0.5
"""Fraction of the full weight below which an edge counts as rejected."""


@dataclass
class RoundSolver:
    """Solver of one pose graph for different noise scales and initial values."""

    graph: PoseGraph
    solve: Callable[..., Result]
    strategy: Strategy
    kernel: Callable[..., Kernel]
    tau: float
    """Kernel width for the stated noise."""
    robust: Robust
    clock: Clock
    estimates_noise: bool
    thorough: bool
    """True if steps (0) and (6) of the search are run."""

    @cached_property
    def consistency(self) -> LoopConsistency:
        return LoopConsistency(self.graph)

    @property
    def inexact_limits(self) -> dict[str, int]:
        """Iteration limit of solves that need not be exact, for `asker.solve`."""
        return {"max_iterations": work_budget.inexact_iterations(self.graph)} if self.thorough else {}

    @cached_property
    def is_expensive(self) -> bool:
        return work_budget.is_expensive(self.graph)

    @cached_property
    def is_large(self) -> bool:
        return work_budget.is_large(self.graph)

    def run(self, start: PoseGraph, scale: float, strategy: Strategy, **limits: int) -> Round:
        """Solve with the kernels for a noise scale."""
        made = self._problem(start, scale)
        return Round(scale, made, self.run_problem(made.problem, strategy, **limits))

    def exchange(self, start: PoseGraph, scale: float, n: int) -> Round:
        """Exchange single inliers, for at most `n` iterations."""
        made = self._problem(start, scale)
        strategy = Exchanges(restart=partial(chordal_start, made))
        return Round(scale, made, self.run_problem(made.problem, strategy, max_iterations=n))

    def least_squares(self, start: PoseGraph) -> Round:
        """Solve by least squares with all edges."""
        made = pose_graph_problem(start, robust="none")
        tol = INEXACT_TOL if self.is_expensive else TOL
        return Round(np.inf, made, self.run_problem(made.problem, IRLS(), tol=tol, **self.inexact_limits))

    def reweighted(self, solved: Round, scale: float) -> Round:
        """Evaluate a round under the kernels for another noise scale, without solving."""
        kernels = self.kernel(tau=scale * self.tau), self.robust, self.kernel(tau=self.tau)
        made = solved.graph_problem.with_kernels(*kernels)
        return Round(scale, made, made.reweighted(solved.result))

    def run_problem(self, problem: Any, strategy: Strategy, **limits: Any) -> Result:
        """Solve a problem in the time that remains."""
        return self.solve(problem, strategy, time_limit=self.clock.left(), **limits)

    def _problem(self, start: PoseGraph, scale: float) -> PoseGraphProblem:
        return pose_graph_problem(start, self.kernel(tau=scale * self.tau), self.robust, self.kernel(tau=self.tau))

    def better_start(self, graph: PoseGraph) -> PoseGraph:
        """Return the chordal initialisation of a graph if its cost is lower than that of the given poses."""
        chordal = chordal_initialization(graph)
        if chordal is None:
            return graph
        problems = [pose_graph_problem(start, robust="none").problem for start in (graph, chordal)]
        before, after = (self.run_problem(problem, IRLS(), max_iterations=0).cost for problem in problems)
        return chordal if after < before else graph

    def with_poses_of(self, part: PoseGraph) -> PoseGraph:
        """Return the graph with all edges, and the poses of one with some of them."""
        return replace(self.graph, poses=part.poses, landmarks=part.landmarks)

    def fits_all_edges(self, made: PoseGraphProblem, result: Result) -> bool:
        """Return whether least squares passes the χ² test, and few loop closures would be rejected by step (5)."""
        u = made.per_edge([(r**2).sum(axis=1) for r in result.residuals])[~made.graph.is_odometry]
        kernel = self.kernel(tau=self.tail_scale(made, result, noise_scale(made, result) or 1.0) * self.tau)
        n_far = np.count_nonzero(kernel.omega(u) <= REJECTION_WEIGHT)
        passes = Round(1.0, made, result).passes_chi2_test
        return passes and bool(n_far <= (1 - INLIER_PROBABILITY) * len(u))

    def tail_scale(self, made: PoseGraphProblem, result: Result, scale: float) -> float:
        """Return the width, relative to the stated noise, of the kernel that matches the tails of the inliers, (5)."""
        tail = noise_scale(made, result, TAIL_QUANTILE)
        return 1.0 if tail is None else min(TAIL_FACTOR * min(tail, MAX_TAIL_RATIO * scale), 1.0)

    def selection_scale(self, scale: float | None) -> float:
        """Return the width, relative to the stated noise, of the kernel that selects between solutions."""
        return min(SELECTION_FACTOR * (scale or 1.0), 1.0)

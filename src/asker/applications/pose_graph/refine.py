"""Pose graph optimisation in one call, as `asker solve` runs it on a g2o file.

Algorithm   (0) align the whole graph with its priors, if there are any (`prior_frame`)
            (1) solve, and again if the stated noise is too large (`loop_search`)
            (2) least squares with the inliers (`inlier_refit`)

The time limit applies to all steps together.  An interrupt ends the current solve and keeps the best solution so far.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import asker
from asker.applications.outcome import (
    MethodRequest,
    Outcome,
    Say,
    compilations,
    select_strategy,
    silent,
    solve_record,
    solve_succeeded,
)
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.initial.prior_frame import aligned_with_priors
from asker.applications.pose_graph.loops.inlier_refit import Refit
from asker.applications.pose_graph.loops.inlier_refit import refit as least_squares
from asker.applications.pose_graph.loops.loop_search import solve_pose_graph
from asker.applications.pose_graph.loops.noise_scale import Round, SearchResult, noise_scale
from asker.applications.pose_graph.loops.search_checkpoint import CheckpointedSolves
from asker.applications.pose_graph.options import Noise, Robust
from asker.applications.pose_graph.problem import default_tau, pose_graph_problem
from asker.applications.pose_graph.record import (
    Truth,
    known_false_record,
    rejection_record,
    search_record,
    sizes_record,
    truth_record,
)
from asker.applications.pose_graph.residuals import manifold_values
from asker.applications.pose_graph.uncertainty import data_covariances
from asker.solver.time_budget import Clock


@dataclass(frozen=True, eq=False, repr=False)
class GraphOutcome(Outcome):
    """Result of `refine`."""

    search: SearchResult
    """Rounds of step (1)."""
    refit: Refit | None
    """Result of step (2), None if it was skipped."""
    rejected: np.ndarray
    """(n_edges,): mask of the rejected loop closures."""
    rejected_measurements: dict[str, np.ndarray]
    """Masks of the rejected landmark measurements and priors, by tag."""
    truth: Truth | None
    """True positions, if they were passed."""
    start: PoseGraph
    """Initial graph, in the frame of its priors."""


def refine(
    graph: PoseGraph,
    method: str | None = None,
    kernel: str | None = None,
    tau: float | None = None,
    *,
    robust: Robust = "loops",
    noise: Noise = "auto",
    refit: bool = True,
    truth: Truth | None = None,
    is_false: np.ndarray | None = None,
    time_limit: float | None = None,
    checkpoint: Any = None,
    say: Say = silent,
    **limits: Any,
) -> GraphOutcome:
    """Estimate the poses of a graph and its landmarks, and reject outlier measurements.

    Parameters
    ----------
    graph
        Poses, landmarks and measurements.
    method
        One of `asker.METHODS`; by default "asker", or "irls" if no kernel can reject measurements.
    kernel
        One of `asker.KERNELS`, with parameters as in "barron:alpha=-2".
    tau
        Width of the kernel for edges, in standard deviations; `default_tau` by default.
    robust
        Edges with a robust kernel, as in `pose_graph_problem`.
    noise
        "announced": use the stated information matrices; "estimated": solve again if the observed noise is less;
        "auto": estimated if loop closures can be rejected.
    refit
        Whether to end with least squares on the inliers.
    truth
        Result of `true_positions`, to record the trajectory error.
    is_false
        Mask of the edges known to be false, to record which of them were accepted.
    time_limit
        Time limit of all solves together, in seconds.
    checkpoint
        File to save all solves to; if it exists, the search resumes from it (`search_checkpoint`).
    say
        Function called with messages on the progress.
    limits
        Further keyword arguments of `asker.solve`: max_iterations (of each round), tol, on_iteration, engine, ...

    Returns
    -------
    GraphOutcome
        `refined` is the graph with estimated poses and landmarks.
    """
    request = MethodRequest(method, kernel, tau)
    tau, kernel = default_tau(graph.kind) if tau is None else tau, kernel or "smooth-truncated"
    psi = partial(asker.kernel_named, kernel)
    plain = psi(tau=tau).convex or robust == "none"
    noise_mode: Noise = ("announced" if plain else "estimated") if noise == "auto" else noise
    has_defaults = method is None and robust == "loops" and limits.get("max_iterations") is None
    method, strategy = select_strategy(method, plain)
    clock = Clock(time_limit)
    settings = _Settings(strategy, psi, tau, robust, noise_mode, has_defaults and not plain, refit and not plain)
    graph = aligned_with_priors(graph)  # (0)
    start = {"poses": manifold_values(graph).copy(), "landmarks": graph.landmarks.points.copy()}
    with compilations() as compiled:
        search, again, result = _solve(graph, settings, clock, limits, checkpoint, say)  # (1), (2)
    chosen = search.chosen
    refined, rejected = again.graph if again else chosen.refined, chosen.graph_problem.rejected(chosen.result)
    others = chosen.graph_problem.rejected_measurements(chosen.result)

    def record() -> dict[str, Any]:
        return {
            **sizes_record(graph),
            **{"method": method, "kernel": kernel, "robust": robust, "noise": noise_mode, "compiled": len(compiled)},
            "finds_noise": request.estimates_noise and noise_mode == "estimated",
            "noise_seen": None if plain else noise_scale(chosen.graph_problem, chosen.result),
            **search_record(start, search, tau),
            "refit": again and solve_record(again.result),
            **rejection_record(graph, rejected, others),
            **truth_record(graph, refined, truth),
            **known_false_record(graph, rejected, is_false),
        }

    succeeded = any(solve_succeeded(r.result) for r in search.rounds)
    steps = search, again, rejected & ~graph.is_odometry, others, truth, graph
    covariances = partial(data_covariances, refined, (again or search.fit or chosen).result)
    return GraphOutcome(result, record, succeeded, lambda: refined, *steps, make_covariances=covariances)


@dataclass(frozen=True)
class _Settings:
    """Settings of steps (1) and (2)."""

    strategy: asker.Strategy
    kernel: Callable[..., asker.Kernel]
    tau: float
    robust: Robust
    noise: Noise
    thorough: bool
    refit: bool

    def description(self, tol: float | None) -> str:
        """Return the settings that determine the sequence of solves, in words."""
        exchanges = ", with exchanges" if self.thorough else ""
        tolerance = f", tol {tol:g}" if tol is not None else ""
        return f"noise that is {self.noise}, {self.strategy}{exchanges}{tolerance}"


def _solve(
    graph: PoseGraph, settings: _Settings, clock: Clock, limits: dict[str, Any], checkpoint: Any, say: Say
) -> tuple[SearchResult, Refit | None, asker.Result]:
    """Run steps (1) and (2), and return the result of the chosen round with the status of the checkpoint."""
    solve: Callable[..., asker.Result] = partial(asker.solve, **limits)
    kernel, tau, robust = settings.kernel, settings.tau, settings.robust
    saved = None
    if checkpoint is not None:
        first = pose_graph_problem(graph, kernel(tau=tau), robust).problem
        solve = saved = CheckpointedSolves(checkpoint, settings.description(limits.get("tol")), first, limits)
    options: Any = (robust, clock.left(), settings.noise, settings.thorough)
    search = solve_pose_graph(graph, solve, settings.strategy, kernel, tau, *options)
    again = None
    if settings.refit and _needs_refit(search):
        say("least squares with the inliers")
        again = _refit(search.chosen, partial(solve, time_limit=clock.left()))
    if saved:
        saved.save()
    result = search.chosen.result
    return search, again, saved.with_file_status(result) if saved else result


def _needs_refit(search: SearchResult) -> bool:
    """Return whether the search was completed, made steps, and did not end with least squares on all edges."""
    return search.fit is None and not search.stopped_early and any(r.result.iterations for r in search.rounds)


def _refit(searched: Round, solve: Callable[..., Any]) -> Refit | None:
    """Run the final least squares; an interrupt before its first step discards only this step."""
    try:
        return least_squares(searched.graph_problem, searched.result, solve)
    except KeyboardInterrupt:
        return None

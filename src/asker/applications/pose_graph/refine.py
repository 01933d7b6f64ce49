"""A pose graph in one call: what `asker solve` does with a g2o file.

(0) where there are priors, the whole graph is moved to them (`priors`);
(1) solve, again where the graph announces too much noise (`search`);
(2) least squares with what was kept (`refit`).

One time limit holds for all of it.  An interrupt ends the solve under way and keeps what was found.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import asker
from asker.applications.outcome import (
    Outcome,
    Say,
    compilations,
    select_strategy,
    silent,
    solve_record,
    solve_succeeded,
)
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.initial.prior_frame import moved_to_priors
from asker.applications.pose_graph.loops.inlier_refit import Refit
from asker.applications.pose_graph.loops.inlier_refit import refit as least_squares
from asker.applications.pose_graph.loops.loop_search import solve_pose_graph
from asker.applications.pose_graph.loops.noise_scale import Round, Solved, noise_share
from asker.applications.pose_graph.loops.search_checkpoint import RememberedSolves
from asker.applications.pose_graph.options import Noise, Robust
from asker.applications.pose_graph.problem import default_tau, pose_graph_problem
from asker.applications.pose_graph.residuals import stored
from asker.applications.pose_graph.uncertainty import data_covariances
from asker.geometry import poses
from asker.geometry.alignment import trajectory_error
from asker.solver.time_budget import Clock
from asker.strategies.irls import IRLS

Truth = tuple[np.ndarray, np.ndarray]
"""Indices of poses, and where they truly are: what `true_positions` returns."""


@dataclass(frozen=True, eq=False, repr=False)
class GraphOutcome(Outcome):
    """What `refine` ends with."""

    found: Solved
    """The rounds of (1)."""
    refit: Refit | None
    """(2), where it was done."""
    refused: np.ndarray
    """(n_edges,): the loops that were refused, a mask."""
    refused_measured: dict[str, np.ndarray]
    """The same of landmarks and priors, by tag."""
    truth: Truth | None
    """As it was given."""
    start: PoseGraph
    """The graph as it was given, in the frame of its priors."""


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
    """Find the poses of a graph, its landmarks, and the measurements to refuse.

    method      one of `asker.METHODS`; when not given asker, or irls where no edge is under a kernel that refuses
    kernel      one of `asker.KERNELS`, with parameters as in "barron:alpha=-2"
    tau         its width for edges, in standard deviations; `default_tau` when not given
    robust      the edges that the kernel acts on, as in `pose_graph_problem`
    noise       announced: the graph's noise is believed; estimated: solved again where less is seen; auto: estimated
                where loops can be refused
    refit       whether least squares with what was kept ends it
    truth       from `true_positions`: the record then has the trajectory error
    is_false    a mask of the edges that are known to be false: the record then says which were kept
    time_limit  seconds, for all solves together
    checkpoint  a file to write all solves to; a search that finds it goes on from there (`remembered`)
    say         called with what is being done
    limits      go to `asker.solve`: max_iterations (of each round), tol, on_iteration, engine, ...
    """
    tau = default_tau(graph.kind) if tau is None else tau
    kernel = kernel or "smooth-truncated"
    psi = partial(asker.kernel_named, kernel)
    plain = psi(tau=tau).convex or robust == "none"
    believed: Noise = ("announced" if plain else "estimated") if noise == "auto" else noise
    nothing_given = method is None and robust == "loops" and limits.get("max_iterations") is None
    thorough = nothing_given and not plain
    method, strategy = select_strategy(method, plain)
    clock = Clock(time_limit)
    graph = moved_to_priors(graph)  # (0)
    start = {"poses": stored(graph).copy(), "landmarks": graph.landmarks.points.copy()}
    with compilations() as compiled:
        solve: Callable[..., asker.Result] = partial(asker.solve, **limits)
        kept = None
        if checkpoint is not None:
            begun = pose_graph_problem(graph, psi(tau=tau), robust).problem
            how = f"noise that is {believed}, {strategy}{', with exchanges' if thorough else ''}"
            how += f", tol {limits['tol']:g}" if limits.get("tol") is not None else ""
            solve = kept = RememberedSolves(checkpoint, how, begun, limits)
        asked: Any = (robust, clock.left(), believed, thorough)
        found = solve_pose_graph(graph, solve, strategy, psi, tau, *asked)  # (1)
        again = None
        is_fitted = plain or found.fit is not None
        if refit and not is_fitted and not found.is_cut_short and any(r.result.iterations for r in found.rounds):
            say("least squares with what was kept")
            again = _refit(found.chosen, partial(solve, time_limit=clock.left()))  # (2)
        if kept:
            kept.save()
    chosen = found.chosen
    refined, refused = again.graph if again else chosen.refined, chosen.made.refused(chosen.result)
    others = chosen.made.refused_measured(chosen.result)

    def record() -> dict[str, Any]:
        return {
            **_sizes(graph),
            **{"method": method, "kernel": kernel, "robust": robust, "noise": believed, "compiled": len(compiled)},
            "noise_seen": None if plain else noise_share(chosen.made, chosen.result),
            **_search_record(start, found, tau),
            "refit": again and solve_record(again.result),
            **_refused_record(graph, refused),
            "measured": {tag: _measured_record(graph, tag, mask) for tag, mask in others.items()},
            **_truth_record(graph, refined, truth),
            **_false_record(graph, refused, is_false),
        }

    fell = any(solve_succeeded(r.result) for r in found.rounds)
    sure = partial(data_covariances, refined, (again or found.fit or chosen).result)
    loops = refused & ~graph.is_odometry
    told = found, again, loops, others, truth, graph
    result = kept.told(chosen.result) if kept else chosen.result
    return GraphOutcome(result, record, fell, lambda: refined, *told, make_covariances=sure)


def _sizes(graph: PoseGraph) -> dict[str, Any]:
    sizes = {"kind": graph.kind, "n_poses": graph.n_poses, "n_edges": graph.n_edges, "n_loops": graph.n_loops}
    return sizes | {"n_landmarks": len(graph.landmarks), "repairs": list(graph.repairs)}


def _refit(searched: Round, solve: Callable[..., Any]) -> Refit | None:
    """An interrupt before the first step costs this alone, and not what was found."""
    try:
        return least_squares(searched.made, searched.result, solve)
    except KeyboardInterrupt:
        return None


def _search_record(start: dict[str, np.ndarray], found: Solved, tau: float) -> dict[str, Any]:
    """What `--json` says of the search; of several solves: how they ended, the sums, and each with its history."""
    chosen = found.chosen
    one = {"tau": chosen.noise_share * tau, "noise_share": chosen.noise_share, **solve_record(chosen.result)}
    one["initial_cost"] = _initial_cost(start, chosen)
    if len(found.rounds) == 1:
        return one
    rounds = [
        {"noise_share": r.noise_share, "tau": r.noise_share * tau, **solve_record(r.result)} for r in found.rounds
    ]
    sums = {k: sum(r[k] for r in rounds) for k in ("iterations", "seconds")}
    ended = {"status": found.ended.status.name.lower(), "message": found.ended.message}
    return one | sums | ended | {"history": None, "rounds": rounds}


def _initial_cost(start: dict[str, np.ndarray], chosen: Round) -> float:
    """Of the graph as it was, with the kernel that was used last."""
    problem, engine = chosen.made.problem, chosen.result.engine
    own: Any = {v.name: start[v.name] for v in problem.variables}
    return asker.solve(problem, IRLS(), max_iterations=0, engine=engine, start=own).cost  # type: ignore[arg-type]


def _refused_record(graph: PoseGraph, refused: np.ndarray) -> dict[str, Any]:
    loops, odometry = refused & ~graph.is_odometry, refused & graph.is_odometry
    return {
        "n_refused_loops": loops.sum(),
        "refused_loops": graph.named(loops),
        "n_refused_odometry": odometry.sum(),
        "refused_odometry": graph.named(odometry),
    }


def _measured_record(graph: PoseGraph, tag: str, refused: np.ndarray) -> dict[str, Any]:
    return {"n": len(refused), "n_refused": refused.sum(), "refused": graph.named_measured(tag, refused)}


def _truth_record(graph: PoseGraph, refined: PoseGraph, truth: Truth | None) -> dict[str, Any]:
    if truth is None:
        return {}
    index, where = truth
    scale = graph.kind == "SIM3"
    before, after = (trajectory_error(poses.positions(g.kind, g.poses)[index], where, scale) for g in (graph, refined))
    return {"initial_trajectory_error": before, "trajectory_error": after}


def _false_record(graph: PoseGraph, refused: np.ndarray, is_false: np.ndarray | None) -> dict[str, Any]:
    if is_false is None:
        return {}
    loops = refused & ~graph.is_odometry
    return {
        "n_false_loops": is_false.sum(),
        "false_loops_kept": graph.named(is_false & ~loops),
        "true_loops_refused": graph.named(loops & ~is_false),
    }

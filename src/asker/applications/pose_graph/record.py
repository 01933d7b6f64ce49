"""Records of `refine` for `--json`."""

from typing import Any

import numpy as np

import asker
from asker.applications.outcome import solve_record
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.loops.noise_scale import Round, SearchResult
from asker.geometry import poses
from asker.geometry.alignment import trajectory_error
from asker.strategies.irls import IRLS

Truth = tuple[np.ndarray, np.ndarray]
"""Indices of poses and their true positions, as `true_positions` returns them."""


def sizes_record(graph: PoseGraph) -> dict[str, Any]:
    """Return the size of a graph, and the repaired issues of its file."""
    sizes = {"kind": graph.kind, "n_poses": graph.n_poses, "n_edges": graph.n_edges, "n_loops": graph.n_loops}
    return sizes | {"n_landmarks": len(graph.landmarks), "repairs": list(graph.repairs)}


def search_record(start: dict[str, np.ndarray], search: SearchResult, tau: float) -> dict[str, Any]:
    """Return the record of a search: of its chosen round, and, if there are several, of each round and their sums.

    Parameters
    ----------
    start
        Initial values of the variables, by name.
    search
        Result of the search.
    tau
        Kernel width for the stated noise.
    """
    chosen = search.chosen
    one = {"tau": chosen.noise_scale * tau, "noise_share": chosen.noise_scale, **solve_record(chosen.result)}
    one["initial_cost"] = _initial_cost(start, chosen)
    if len(search.rounds) == 1:
        return one
    rounds = [
        {"noise_share": r.noise_scale, "tau": r.noise_scale * tau, **solve_record(r.result)} for r in search.rounds
    ]
    sums = {k: sum(r[k] for r in rounds) for k in ("iterations", "seconds")}
    last = search.last_result
    ended = {"status": last.status.name.lower(), "message": last.message}
    return one | sums | ended | {"history": None, "rounds": rounds}


def _initial_cost(start: dict[str, np.ndarray], chosen: Round) -> float:
    """Return the cost of the initial graph under the kernels of the chosen round."""
    problem, engine = chosen.graph_problem.problem, chosen.result.engine
    values: Any = {v.name: start[v.name] for v in problem.variables}
    return asker.solve(problem, IRLS(), max_iterations=0, engine=engine, start=values).cost  # type: ignore[arg-type]


def rejection_record(
    graph: PoseGraph, rejected: np.ndarray, rejected_measurements: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Return the numbers and ids of rejected loop closures, odometry edges and other measurements, from masks."""
    loops, odometry = rejected & ~graph.is_odometry, rejected & graph.is_odometry
    return {
        "n_refused_loops": loops.sum(),
        "refused_loops": graph.named(loops),
        "n_refused_odometry": odometry.sum(),
        "refused_odometry": graph.named(odometry),
        "measured": {
            tag: {"n": len(mask), "n_refused": mask.sum(), "refused": graph.named_measured(tag, mask)}
            for tag, mask in rejected_measurements.items()
        },
    }


def truth_record(graph: PoseGraph, refined: PoseGraph, truth: Truth | None) -> dict[str, Any]:
    """Return the trajectory errors before and after, if the true positions are known."""
    if truth is None:
        return {}
    index, positions = truth
    scale = graph.kind == "SIM3"
    before, after = (
        trajectory_error(poses.positions(g.kind, g.poses)[index], positions, scale) for g in (graph, refined)
    )
    return {"initial_trajectory_error": before, "trajectory_error": after}


def known_false_record(graph: PoseGraph, rejected: np.ndarray, is_false: np.ndarray | None) -> dict[str, Any]:
    """Return the false loop closures that were accepted and the true ones that were rejected, if these are known."""
    if is_false is None:
        return {}
    loops = rejected & ~graph.is_odometry
    return {
        "n_false_loops": is_false.sum(),
        "false_loops_kept": graph.named(is_false & ~loops),
        "true_loops_refused": graph.named(loops & ~is_false),
    }

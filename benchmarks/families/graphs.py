"""Pose graphs: public graphs with added false loop closures, and Bicocca 25b, which contains false ones.

A case is a graph, a kind of false loops and their number relative to the existing loops; the initial guess is odometry.
The truth is the least squares optimum of the original graph.  The error is the RMSE of the positions after a rigid
alignment.

The error of the oracle, which is that optimum, would be 0, and no ratio to it is defined.  Instead `oracle` is set to
1/1.5 of 0.1 % of the map's extent (the diagonal of the optimum's bounding box).  A case is therefore *solved*, with an
error of at most 1.5 times the oracle's, if the error is at most 0.1 % of the extent.

For Bicocca the error is the distance from GPS in metres, at the same fraction of the path length.  A loop counts as
right if the distance of its ends by GPS differs from the measured one by less than a metre; the oracle is least squares
with these loops.

NewCollege is excluded because its loops are inconsistent and the right ones are unknown: the least squares cost of all
of them is 77824, where about 960 is expected, and a robust fit rejects 112 of 641.

Every run has a time limit; a run that reaches it is a `TimeoutError` and not solved.  `graphs` has the small graphs
with several settings; `large_graphs` has the others, with fewer cases, fewer methods and one setting.
"""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import asker
from asker.applications import pose_graph
from asker.applications.pose_graph.formats.g2o import read_g2o, write_g2o
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.initial.spanning_tree_init import odometry_poses
from asker.applications.pose_graph.loops.false_loops import add_false_loops
from asker.applications.pose_graph.loops.inlier_refit import TOL
from asker.applications.pose_graph.problem import default_tau, pose_graph_problem
from asker.applications.pose_graph.true_trajectory import true_positions
from asker.geometry import poses
from asker.geometry.alignment import trajectory_error
from asker.kernels.kernels import SmoothTruncated
from families.data_and_peers import PEERS, data_folder, peer
from families.family import Condition, Instance

KINDS, SHARES = ("random", "grouped", "local"), (0.1, 0.3, 0.5)
CONDITIONS: list[Condition] = [{"kind": "none", "share": 0.0}] + [
    {"kind": kind, "share": share} for kind, share in product(KINDS, SHARES)
]
SEEDS = 5
SMALL = ("MIT", "intel", "CSAIL", "kitti_00")
LARGE: dict[str, tuple[tuple[str, float], ...]] = {
    "M3500": (("none", 0.0), ("random", 0.1), ("grouped", 0.3), ("local", 0.5), ("random", 0.3)),
    "parking-garage": (("none", 0.0), ("local", 0.3)),
    "sphere2500": (("none", 0.0), ("grouped", 0.1)),
    "torus3D": (("none", 0.0), ("random", 0.1)),
    "cubicle": (("none", 0.0), ("grouped", 0.1)),
}
BICOCCA = "bicocca25b"
SOLVED_FRACTION = 1e-3
"""Largest error of a solved case, as a fraction of the map's extent."""
GPS_TOLERANCE = 1.0
"""Largest difference, in metres, between the GPS distance and the measured distance of a right loop's ends."""


@dataclass(frozen=True)
class GraphFamily:
    name: str
    listed: Sequence[tuple[str, Condition, int]]
    sweep: Sequence[float]
    methods: Sequence[str] | None
    time_limit: float
    """Seconds for one run, of asker or of a peer."""
    quick: str
    """Graph of the quick cases."""
    n_oracles: int = 0

    def cases(self, quick: bool) -> list[tuple[Condition, int]]:
        names = list(dict.fromkeys(name for name, _, _ in self.listed))
        available = {name for name in names if file_of(name).exists() and (name != BICOCCA or gps_file().exists())}
        for name in (name for name in names if name not in available):
            print(f"{self.name}: {name} is skipped, its file does not exist; ASKER_DATA sets the data folder")
        cases = [({"graph": name} | condition, seed) for name, condition, seed in self.listed if name in available]
        return [case for case in cases if case[0]["graph"] == self.quick] if quick else cases

    def make(self, condition: Condition, seed: int) -> Instance:
        if condition["graph"] == BICOCCA:
            graph, off, oracle = bicocca()
        else:
            graph, off, oracle = with_false_loops(condition, seed)
        tau = default_tau(graph.kind)
        limit = self.time_limit

        def error(result: asker.Result) -> float:
            """Return the error after a least squares refit with the loops that the method keeps."""
            return off(positions_of(graph, refitted(graph, result, limit)))

        return Instance(
            problem=lambda kernel: pose_graph_problem(graph, kernel or SmoothTruncated(tau)).problem,
            error=error,
            oracle=oracle,
            number=tau,
            default=partial(by_default, graph, off, limit),
            peers=gtsam_peers(graph, off, limit),
            without_number=frozenset({"GTSAM GNC-TLS"}),
            time_limit=limit,
        )


def _small() -> list[tuple[str, Condition, int]]:
    """Return each graph with every condition; the seeds rotate, so that all five occur for each graph."""
    return [(name, c, 1 + (k + m) % SEEDS) for m, name in enumerate(SMALL) for k, c in enumerate(CONDITIONS)]


def _large() -> list[tuple[str, Condition, int]]:
    of_graphs = [
        (name, {"kind": kind, "share": share}, 1 + (k + m) % SEEDS)
        for m, (name, conditions) in enumerate(LARGE.items())
        for k, (kind, share) in enumerate(conditions)
    ]
    return [*of_graphs, (BICOCCA, {"kind": "its own", "share": 0.0}, 0)]


SMALL_GRAPHS = GraphFamily(
    "graphs",
    _small(),
    (0.3, 1.0),
    ("irls-huber", "irls-cauchy", "irls-gm", "irls", "gnc", "gnc-tls", "asker", "asker-cauchy"),
    time_limit=20,
    quick="CSAIL",
)
LARGE_GRAPHS = GraphFamily(
    "large_graphs", _large(), (1.0,), ("irls-cauchy", "gnc-tls", "asker"), time_limit=20, quick=BICOCCA
)
FAMILIES = (SMALL_GRAPHS, LARGE_GRAPHS)


def file_of(name: str) -> Path:
    return data_folder() / "g2o" / f"{name + '-all-loops' if name == BICOCCA else name}.g2o.bz2"


def gps_file() -> Path:
    return file_of(BICOCCA).with_name(f"{BICOCCA}-truth.g2o.bz2")


@cache
def clean_graph(name: str) -> PoseGraph:
    return read_g2o(file_of(name))


@cache
def optimum(name: str) -> np.ndarray:
    """Return the positions of a clean graph at the least squares optimum, see `least_squares`.

    They are cached in the folder of temporary files, under a hash of the graph's file and asker's version.
    """
    digest = hashlib.sha256(file_of(name).read_bytes() + b"as read" + asker.__version__.encode()).hexdigest()[:16]
    file = Path(tempfile.gettempdir()) / f"asker-optimum-{name}-{digest}.npy"
    if file.exists():
        return np.load(file)
    positions = least_squares(clean_graph(name))
    with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".npy", delete=False) as part:
        np.save(part, positions)
    Path(part.name).replace(file)
    return positions


def least_squares(graph: PoseGraph) -> np.ndarray:
    """Return the positions at the lower of two optima: from the file's poses, and from ASKER's robust solution."""
    robust = pose_graph_problem(graph)
    starts = graph, robust.refined(asker.solve(robust.problem).values)
    optima = []
    for start in starts:
        graph_problem = pose_graph_problem(start, robust="none")
        result = asker.solve(graph_problem.problem, tol=1e-12)
        optima.append((result.cost, poses.positions(graph.kind, graph_problem.refined(result.values).poses)))
    return min(optima, key=lambda pair: pair[0])[1]


GraphCase = tuple[PoseGraph, Callable[[np.ndarray], float], float]
"""A graph at its initial guess, the error function of positions, and the oracle's error."""


def with_false_loops(condition: Condition, seed: int) -> GraphCase:
    """Return the case of a public graph with added false loops."""
    clean = clean_graph(condition["graph"])
    truth = optimum(condition["graph"])
    graph = replace(clean, poses=odometry_poses(clean))
    if condition["share"]:
        graph, _ = add_false_loops(graph, condition["share"], condition["kind"], seed)
    extent = float(np.linalg.norm(np.ptp(truth, axis=0)))
    return graph, _finite(partial(trajectory_error, truth=truth)), SOLVED_FRACTION * extent / 1.5


@cache
def bicocca() -> GraphCase:
    """Return the case of Bicocca 25b, with GPS as the truth."""
    graph = clean_graph(BICOCCA)
    truth = read_g2o(gps_file(), trajectory=True)
    index, where = true_positions(graph, truth, "length")
    at = np.empty_like(where)
    at[index] = where
    by_gps = np.linalg.norm(at[graph.i] - at[graph.j], axis=1)
    measured = np.linalg.norm(poses.positions(graph.kind, graph.measurements), axis=1)
    right = graph.is_odometry | (np.abs(by_gps - measured) < GPS_TOLERANCE)
    graph = replace(graph, poses=odometry_poses(graph))
    off = _finite(lambda positions: trajectory_error(positions[index], where))
    graph_problem = pose_graph_problem(graph.with_edges(right), robust="none")
    best = graph_problem.refined(asker.solve(graph_problem.problem, tol=1e-12).values)
    return graph, off, off(poses.positions(graph.kind, best.poses))


def _finite(off: Callable[[np.ndarray], float]) -> Callable[[np.ndarray], float]:
    """Return the error function extended by infinity for positions that are not finite."""
    return lambda positions: off(positions) if np.isfinite(positions).all() else np.inf


def positions_of(graph: PoseGraph, result: asker.Result) -> np.ndarray:
    """Return the positions of a result, (n, 2) or (n, 3)."""
    values = result["poses"]
    return values[:, :2] if graph.kind == "SE2" else values[:, :, 3]


def refitted(graph: PoseGraph, result: asker.Result, time_limit: float) -> asker.Result:
    """Return least squares with the edges whose weight exceeds 0.5; the result itself if no loop has such a weight."""
    robust = pose_graph_problem(graph)  # the same edges in the same groups
    kept = robust.per_edge(result.weights) > 0.5
    if not np.any(kept & ~graph.is_odometry):
        return result
    refined = robust.refined(asker.Groups([result["poses"]], ["poses"], [robust.poses]))
    plain = pose_graph_problem(refined.with_edges(kept | graph.is_odometry), robust="none")
    return asker.solve(plain.problem, asker.IRLS(), tol=TOL, time_limit=time_limit)


def by_default(graph: PoseGraph, off: Callable[[np.ndarray], float], time_limit: float) -> float:
    """Return the error of `pose_graph.refine` with default settings."""
    outcome = pose_graph.refine(graph, time_limit=time_limit)
    time_out = outcome.search.stopped_early or (
        outcome.refit and outcome.refit.result.status is asker.Status.TIME_LIMIT
    )
    if time_out:
        raise not_finished(time_limit)
    return off(poses.positions(graph.kind, outcome.refined.poses))


def not_finished(time_limit: float) -> TimeoutError:
    return TimeoutError(f"not finished in {time_limit:g} s")


def gtsam_peers(graph: PoseGraph, off: Callable[[np.ndarray], float], time_limit: float) -> dict[str, Any]:
    """Return GTSAM's methods on the graph, with odometry as known inliers.

    The scale parameter is τ of the smooth truncated kernel; the transition of the Huber loss is its inflection point
    τ/√3, or 1.345 without a parameter.  GNC has no parameter: its threshold is the 99 % quantile of χ², as in asker.
    """
    if peer("gtsam_graph") is None:
        return {}
    return {f"GTSAM {how}": partial(_gtsam, graph, off, time_limit, how) for how in ("Huber", "GNC-TLS")}


def _gtsam(
    graph: PoseGraph, off: Callable[[np.ndarray], float], time_limit: float, how: str, number: float | None
) -> float:
    """Return the error of GTSAM, run in a separate process with a time limit."""
    radius = 1.345 if number is None else number * SmoothTruncated.unit_inflection
    options = ["--huber", str(radius)] if how == "Huber" else []
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "graph.g2o", Path(folder) / "out.npz"
        write_g2o(file, graph)
        command = [sys.executable, str(PEERS / "gtsam_graph.py"), str(file), "--out", str(out), *options]
        try:
            subprocess.run(command, capture_output=True, timeout=time_limit, check=True, text=True)
        except subprocess.TimeoutExpired:
            raise not_finished(time_limit) from None
        except subprocess.CalledProcessError as error:  # report the last line of its output instead of the command
            raise RuntimeError((error.stderr.strip() or f"exit status {error.returncode}").splitlines()[-1]) from None
        with np.load(out) as arrays:
            return off(arrays["positions"][np.searchsorted(arrays["ids"], graph.ids)])

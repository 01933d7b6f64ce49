"""Pose graphs: the public ones with false loops, and Bicocca 25b with its own.

A case is a graph, a kind of false loops and their share of the loops that are there; all begin at odometry.  The truth
is the optimum of the right loops: least squares on the graph as it came.  The error is the root mean square of the
distances from it after a rigid alignment.

The oracle is that optimum, so its error is 0 and no ratio to it is defined.  The family says instead what is near
enough: 0.1 % of the map's extent (the diagonal of the optimum's bounding box), and gives 1/1.5 of it as `oracle`.  So
*solved*, within 1.5 of it, means within 0.1 % of the extent.

Bicocca's wrong loops are its own.  Its error is in metres from GPS, at the same part of the way.  A loop is right where
the distance of its ends by GPS is within a metre of the measured one; the oracle is least squares with these.

NewCollege is left out.  Its own loops do not fit together: least squares over all of them costs 77824, where about 960
is what right ones would, and a robust fit refuses 112 of 641.  Which of them are right is not known.

Every run has a time limit; one that meets it is a `TimeoutError`, not solved.  `graphs` has the small ones and several
settings; `large_graphs` the others, with fewer cases, fewer methods and one setting.
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
from families.design import PEERS, data_folder, peer
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
NEAR_ENOUGH = 1e-3
"""Of the map's extent."""
GPS = 1.0
"""Metres between the true and the measured distance of a right loop's ends, at most."""


@dataclass(frozen=True)
class GraphFamily:
    name: str
    listed: Sequence[tuple[str, Condition, int]]
    sweep: Sequence[float]
    methods: Sequence[str] | None
    time_limit: float
    """Seconds for one run, whoever it is."""
    quick: str
    """The graph of the quick cases."""
    n_oracles: int = 0

    def cases(self, quick: bool) -> list[tuple[Condition, int]]:
        names = list(dict.fromkeys(name for name, _, _ in self.listed))
        there = {name for name in names if file_of(name).exists() and (name != BICOCCA or gps_file().exists())}
        for name in (name for name in names if name not in there):
            print(f"{self.name}: {name} is not there; ASKER_DATA says where")
        found = [({"graph": name} | condition, seed) for name, condition, seed in self.listed if name in there]
        return [case for case in found if case[0]["graph"] == self.quick] if quick else found

    def make(self, condition: Condition, seed: int) -> Instance:
        if condition["graph"] == BICOCCA:
            graph, off, oracle = bicocca()
        else:
            graph, off, oracle = with_false_loops(condition, seed)
        tau = default_tau(graph.kind)
        limit = self.time_limit

        def error(result: asker.Result) -> float:
            """After least squares with the loops that the method keeps, as `asker solve` ends."""
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
    """Each graph with every condition; the seeds go round, so that all five come for each graph."""
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
    """Positions of the clean graph's poses at the least squares optimum: see `least_squares`.

    They are kept in the folder of temporary files, under a name that the graph's file and asker's version decide.
    """
    told = hashlib.sha256(file_of(name).read_bytes() + b"as read" + asker.__version__.encode()).hexdigest()[:16]
    file = Path(tempfile.gettempdir()) / f"asker-optimum-{name}-{told}.npy"
    if file.exists():
        return np.load(file)
    found = least_squares(clean_graph(name))
    with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".npy", delete=False) as part:
        np.save(part, found)
    Path(part.name).replace(file)
    return found


def least_squares(graph: PoseGraph) -> np.ndarray:
    """Positions at the lower one of two optima: from the file's start, and from where ASKER ends with robust loops."""
    robust = pose_graph_problem(graph)
    starts = graph, robust.refined(asker.solve(robust.problem).values)
    found = []
    for start in starts:
        made = pose_graph_problem(start, robust="none")
        result = asker.solve(made.problem, tol=1e-12)
        found.append((result.cost, poses.positions(graph.kind, made.refined(result.values).poses)))
    return min(found, key=lambda pair: pair[0])[1]


Posed = tuple[PoseGraph, Callable[[np.ndarray], float], float]
"""A graph from its start, the error of positions, and the oracle's."""


def with_false_loops(condition: Condition, seed: int) -> Posed:
    clean = clean_graph(condition["graph"])
    truth = optimum(condition["graph"])
    graph = replace(clean, poses=odometry_poses(clean))
    if condition["share"]:
        graph, _ = add_false_loops(graph, condition["share"], condition["kind"], seed)
    extent = float(np.linalg.norm(np.ptp(truth, axis=0)))
    return graph, _finite(partial(trajectory_error, truth=truth)), NEAR_ENOUGH * extent / 1.5


@cache
def bicocca() -> Posed:
    graph = clean_graph(BICOCCA)
    truth = read_g2o(gps_file(), trajectory=True)
    index, where = true_positions(graph, truth, "length")
    at = np.empty_like(where)
    at[index] = where
    by_gps = np.linalg.norm(at[graph.i] - at[graph.j], axis=1)
    measured = np.linalg.norm(poses.positions(graph.kind, graph.measurements), axis=1)
    right = graph.is_odometry | (np.abs(by_gps - measured) < GPS)
    graph = replace(graph, poses=odometry_poses(graph))
    off = _finite(lambda found: trajectory_error(found[index], where))
    made = pose_graph_problem(graph.with_edges(right), robust="none")
    best = made.refined(asker.solve(made.problem, tol=1e-12).values)
    return graph, off, off(poses.positions(graph.kind, best.poses))


def _finite(off: Callable[[np.ndarray], float]) -> Callable[[np.ndarray], float]:
    return lambda found: off(found) if np.isfinite(found).all() else np.inf


def positions_of(graph: PoseGraph, result: asker.Result) -> np.ndarray:
    """(n, 2) or (n, 3)"""
    values = result["poses"]
    return values[:, :2] if graph.kind == "SE2" else values[:, :, 3]


def refitted(graph: PoseGraph, result: asker.Result, time_limit: float) -> asker.Result:
    """Least squares with the edges that have more than half of the full weight; the result itself if no loop has."""
    robust = pose_graph_problem(graph)  # the same edges in the same groups
    kept = robust.per_edge(result.weights) > 0.5
    if not np.any(kept & ~graph.is_odometry):
        return result
    found = robust.refined(asker.Groups([result["poses"]], ["poses"], [robust.poses]))
    plain = pose_graph_problem(found.with_edges(kept | graph.is_odometry), robust="none")
    return asker.solve(plain.problem, asker.IRLS(), tol=TOL, time_limit=time_limit)


def by_default(graph: PoseGraph, off: Callable[[np.ndarray], float], time_limit: float) -> float:
    """The error of `pose_graph.refine` with nothing given."""
    outcome = pose_graph.refine(graph, time_limit=time_limit)
    cut = outcome.found.is_cut_short or (outcome.refit and outcome.refit.result.status is asker.Status.TIME_LIMIT)
    if cut:
        raise not_finished(time_limit)
    return off(poses.positions(graph.kind, outcome.refined.poses))


def not_finished(time_limit: float) -> TimeoutError:
    return TimeoutError(f"not finished in {time_limit:g} s")


def gtsam_peers(graph: PoseGraph, off: Callable[[np.ndarray], float], time_limit: float) -> dict[str, Any]:
    """GTSAM on the graph's file, odometry trusted.

    The number is τ of the smooth truncated kernel; at τ/√3, what a right loop stays below, Huber's loss turns, and
    without a number at 1.345.  GNC takes no number: its threshold is the 99 % quantile of χ², as asker's is.
    """
    if peer("gtsam_graph") is None:
        return {}
    return {f"GTSAM {how}": partial(_gtsam, graph, off, time_limit, how) for how in ("Huber", "GNC-TLS")}


def _gtsam(
    graph: PoseGraph, off: Callable[[np.ndarray], float], time_limit: float, how: str, number: float | None
) -> float:
    """In a process of its own, which a time limit can end."""
    radius = 1.345 if number is None else number * SmoothTruncated.unit_inflection
    asked = ["--huber", str(radius)] if how == "Huber" else []
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "graph.g2o", Path(folder) / "out.npz"
        write_g2o(file, graph)
        command = [sys.executable, str(PEERS / "gtsam_graph.py"), str(file), "--out", str(out), *asked]
        try:
            subprocess.run(command, capture_output=True, timeout=time_limit, check=True, text=True)
        except subprocess.TimeoutExpired:
            raise not_finished(time_limit) from None
        except subprocess.CalledProcessError as error:  # its own words, and not the command with its paths
            raise RuntimeError((error.stderr.strip() or f"exit status {error.returncode}").splitlines()[-1]) from None
        with np.load(out) as found:
            return off(found["positions"][np.searchsorted(found["ids"], graph.ids)])

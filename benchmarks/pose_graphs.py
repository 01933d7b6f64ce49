"""Trajectory error and time per iteration of every method and of GTSAM's GNC on pose graphs with false loop closures.

    python benchmarks/pose_graphs.py [--graphs intel,M3500] [--shares 0.1,0.3,0.5] [--kind random] [--start odometry]
    python benchmarks/pose_graphs.py --quick     intel alone, few methods

False loops are added to the public graphs (see `pose_graph.false_loops`).  The error is the RMSE of the positions after
a rigid alignment with the least squares optimum without false loops (the lower of two local optima, started at the
file's poses and at ASKER's result: on torus3D the former is poor, cost 29950 against 12118).  Bicocca 25b contains
false loops; its error is the distance from GPS at the same fraction of the path length.  `start` is the initial guess:
odometry or the poses of the file.  `kept` counts the false loops among the inliers of the final fit (with --no-refit:
within the inflection point of the kernel), `lost` the right ones among its outliers.  A run that reaches the time limit
is not shown.  With --json every run is saved when it ends, and a later call continues from there. asker's methods run
through `pose_graph.refine`, as in `asker solve`: they are repeated with the estimated noise if the stated noise is too
large, and followed by least squares with the edges that they keep.  --noise announced --no-refit runs the method only.
--kernel applies to asker's methods, with the same τ (`gnc-gm` and `gnc-tls` use it at the end of their schedules).

Time per iteration is that of least squares, on the original graph and with false loops: asker's `irls` and GTSAM's
Levenberg-Marquardt.  --only-times measures nothing else.  GTSAM's wheel is built without TBB and OpenMP and has one
thread; use --threads 1 for an equal comparison.
GTSAM runs in the environment created by benchmarks/bundle.py; `ASKER_PEERS_PYTHON` names another.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

import asker
from asker._solve import ENGINES
from asker.applications import pose_graph
from asker.applications.pose_graph.formats.g2o import read_g2o, write_g2o
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.initial.spanning_tree_init import odometry_poses
from asker.applications.pose_graph.loops.false_loops import FalseLoops, add_false_loops
from asker.applications.pose_graph.problem import pose_graph_problem
from asker.applications.pose_graph.true_trajectory import true_positions
from asker.geometry import poses
from asker.geometry.alignment import trajectory_error
from asker.kernels.registry import KERNELS
from bundle import HERE, PEERS, names, peers_python
from record import add_record_option, recorded

GRAPHS = ("intel", "M3500", "parking-garage", "sphere2500", "torus3D")
BICOCCA = "bicocca25b"
DEFAULT_NOISE, DEFAULT_KERNEL = "estimated", "smooth-truncated"
TIMED_ITERATIONS = 10


@dataclass(frozen=True)
class Task:
    """One graph to solve and its error measure."""

    name: str
    graph: PoseGraph
    is_false: np.ndarray | None
    error: Callable[[np.ndarray], float]
    """Return the error of positions, in the order of the graph's poses."""


def tasks(name: str, args: argparse.Namespace) -> list[Task]:
    """Return a task for each share of false loops."""
    graph = read_g2o(args.data / "g2o" / f"{name}.g2o.bz2")
    truth = least_squares_positions(graph, args.threads)
    if args.start == "odometry":
        graph = replace(graph, poses=odometry_poses(graph))
    listed = []
    for share in args.shares:
        bad, is_false = add_false_loops(graph, share, args.kind, args.seed)
        listed.append(Task(f"{name} {share:.0%}", bad, is_false, lambda x: trajectory_error(x, truth)))
    return listed


def least_squares_positions(graph: PoseGraph, threads: int) -> np.ndarray:
    """Return the positions at the lower of two optima: from the file's poses, and from ASKER's robust solution."""
    robust = pose_graph_problem(graph)
    starts = graph, robust.refined(asker.solve(robust.problem, threads=threads).values)
    optima = []
    for start in starts:
        made = pose_graph_problem(start, robust="none")
        result = asker.solve(made.problem, tol=1e-12, threads=threads)
        optima.append((result.cost, poses.positions(graph.kind, made.refined(result.values).poses)))
    return min(optima, key=lambda pair: pair[0])[1]


def bicocca(args: argparse.Namespace) -> list[Task]:
    """Return the task of Bicocca 25b, whose truth is GPS."""
    graph, truth = (
        read_g2o(args.data / "g2o" / f"{BICOCCA}-{part}.g2o.bz2", trajectory=True) for part in ("all-loops", "truth")
    )
    index, where = true_positions(graph, truth, "length")
    return [Task(BICOCCA, graph, None, lambda x: trajectory_error(x[index], where))]


def solved(task: Task, method: str, args: argparse.Namespace) -> dict[str, Any]:
    """Solve a task with a method of asker and return the record."""
    limits = {"max_iterations": args.iterations, "engine": args.engine, "linear_solver": args.linear_solver}
    limits |= {"threads": args.threads, "time_limit": args.time_limit}
    begin = time.perf_counter()
    try:
        outcome = pose_graph.refine(task.graph, method, args.kernel, noise=args.noise, refit=args.refit, **limits)
    except asker.ProblemError as error:  # the method does not support this kernel
        return {"failed": str(error)}
    search, refit = outcome.search, outcome.refit
    iterations = sum(r.result.iterations for r in search.rounds)
    if search.stopped_early:
        return {"failed": not_finished(args), "iterations": iterations}
    chosen = search.chosen
    kept, before = chosen.made.per_edge(chosen.result.within_inflection), {}
    if refit:
        before = {"error_before_refit": task.error(poses.positions(task.graph.kind, chosen.refined.poses))}
        kept, iterations = refit.kept, iterations + refit.result.iterations
    line = {
        "error": task.error(poses.positions(task.graph.kind, outcome.refined.poses)),
        **before,
        "seconds": time.perf_counter() - begin,
        "cost": outcome.result.cost,
        "iterations": iterations,
        "status": outcome.result.status.name.lower(),
    }
    return line | loop_counts(task, kept)


def not_finished(args: argparse.Namespace) -> str:
    return f"not finished in {args.time_limit:g} s"


def loop_counts(task: Task, kept: np.ndarray) -> dict[str, int]:
    """Return the numbers of false loops kept and right loops lost, or of all loops kept if unknown which are false."""
    loops = ~task.graph.is_odometry
    if task.is_false is None:
        return {"loops_kept": int(np.count_nonzero(kept & loops))}
    kept_false, lost = kept & task.is_false, ~kept & loops & ~task.is_false
    return {"kept": int(np.count_nonzero(kept_false)), "lost": int(np.count_nonzero(lost))}


def gtsam(task: Task, python: str, args: argparse.Namespace, *more: str) -> dict[str, Any]:
    """Return the report of `peers/gtsam_graph.py` on a task, or the error message under "failed"."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "graph.g2o", Path(folder) / "out.npz"
        write_g2o(file, task.graph)
        command = [python, str(PEERS / "gtsam_graph.py"), str(file), "--out", str(out), *more]
        limits = {name: str(args.threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TBB_NUM_THREADS")}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=os.environ | limits, timeout=args.time_limit, check=False
            )
        except subprocess.TimeoutExpired:
            return {"failed": not_finished(args)}
        if done.returncode:
            return {"failed": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
        line = json.loads(done.stdout.splitlines()[-1])
        with np.load(out) as file_of:
            where = file_of["positions"][np.searchsorted(file_of["ids"], task.graph.ids)]
    kept = np.zeros(task.graph.n_edges, bool)
    kept[line.pop("kept", [])] = True
    return line | {"error": task.error(where)} | loop_counts(task, kept)


def time_per_iteration(task: Task, python: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the milliseconds per iteration of least squares by asker and by GTSAM."""
    problem = pose_graph_problem(task.graph, robust="none").problem
    settings: dict[str, Any] = {"tol": 0, "threads": args.threads}
    asker.solve(problem, asker.IRLS(), max_iterations=2, **settings)  # compiles
    history = asker.solve(problem, asker.IRLS(), max_iterations=TIMED_ITERATIONS, **settings).history
    seconds = statistics.median(np.diff([h.seconds for h in history[1:]]))
    peer = gtsam(task, python, args, "--time-iterations", str(TIMED_ITERATIONS))
    return {"asker": 1e3 * seconds, "gtsam": 1e3 * peer.get("seconds_per_iteration", float("nan"))}


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return a Markdown table with a row for each method and a column for each task."""
    methods = [
        m for m in ("at the start", *asker.METHODS, "gtsam gnc") if any(m in lines for lines in results.values())
    ]
    rows = [["method", *results], ["---"] * (1 + len(results))]
    for method in methods:
        name = "**asker**" if method == "asker" else method
        rows.append([name, *(cell(lines.get(method)) for lines in results.values())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cell(line: dict[str, Any] | None) -> str:
    """Return the error as text; if any loops are misclassified, with (false loops kept, right ones lost)."""
    if line is None:
        return "not run"
    if "failed" in line:
        return str(line["failed"])[:40]
    error = line["error"]
    text = "< 0.01 mm" if error < 1e-5 else f"{1e3 * error:.2g} mm" if error < 0.1 else f"{error:.2f} m"
    if "loops_kept" in line:
        return f"{text} ({line['loops_kept']} loops)"
    wrong = line.get("kept", 0), line.get("lost", 0)
    return f"{text} {wrong}" if any(wrong) else text


class Record:
    """Measurements of this and earlier calls, and the file in which they are saved."""

    def __init__(self, args: argparse.Namespace):
        self.file = args.json
        same = ("kind", "start", "noise", "refit", "kernel", "iterations", "peer_inner_iterations", "seed", "threads")
        self.settings = {k: str(getattr(args, k)) for k in same}
        self.results: dict[str, dict[str, dict[str, Any]]] = {}
        self.times: dict[str, dict[str, Any]] = {}
        if self.file and self.file.exists():
            earlier = json.loads(self.file.read_text())
            if earlier["settings"] != self.settings:
                raise SystemExit(
                    f"{self.file} has runs with other settings, {earlier['settings']}: choose another --json"
                )
            self.results, self.times = earlier["results"], earlier["times"]

    def once(self, lines: dict[str, dict[str, Any]], name: str, measure: Callable[[], dict[str, Any]]) -> None:
        """Measure and save `name` unless it is in `lines`."""
        if name in lines:
            return
        lines[name] = measure()
        if self.file:
            whole = {"settings": self.settings, "results": self.results, "times": self.times}
            self.file.write_text(json.dumps(whole, indent=1) + "\n")


def without_false_loops(task: Task) -> Task:
    """Return the task of the original graph."""
    if task.is_false is None:
        return task
    return replace(task, graph=task.graph.with_edges(~task.is_false), is_false=None)


def measure(task: Task, record: Record, python: str, args: argparse.Namespace) -> None:
    """Run all methods on a task and print their errors."""
    lines = record.results.setdefault(task.name, {})
    start = task.error(poses.positions(task.graph.kind, task.graph.poses))
    record.once(lines, "at the start", lambda: {"error": start})
    for method in args.methods:
        record.once(lines, method, partial(solved, task, method, args))
    if not args.no_peer:
        inner = [] if args.peer_inner_iterations is None else ["--inner-iterations", str(args.peer_inner_iterations)]
        record.once(lines, "gtsam gnc", lambda: gtsam(task, python, args, *inner))
    print(f"{task.name}: {', '.join(f'{m} {cell(line)}' for m, line in lines.items())}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = HERE.parents[1] / "shared" / "data"
    known = (*GRAPHS, BICOCCA)
    parser.add_argument("--graphs", type=names(known), default=[*GRAPHS, BICOCCA])
    parser.add_argument("--shares", type=lambda text: [float(x) for x in text.split(",")], default=[0.1, 0.3, 0.5])
    parser.add_argument("--kind", choices=get_args(FalseLoops), default="random")
    parser.add_argument("--start", choices=("odometry", "file"), default="odometry")
    parser.add_argument("--noise", choices=("announced", "estimated"), default=DEFAULT_NOISE)
    parser.add_argument(
        "--refit",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="least squares with the kept edges at the end",
    )
    parser.add_argument("--kernel", choices=KERNELS, default=DEFAULT_KERNEL)
    parser.add_argument("--methods", type=names(tuple(asker.METHODS)), default=list(asker.METHODS))
    parser.add_argument("--only-times", action="store_true", help="measure only the time per iteration")
    parser.add_argument("--no-peer", action="store_true", help="do not run GTSAM")
    parser.add_argument("--engine", choices=ENGINES, default="cpu")
    parser.add_argument("--linear-solver", default="auto")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ASKER_DATA") or here))
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--peer-inner-iterations", type=int, help="limit of GTSAM's GNC in each step")
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds for one method on one graph")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file in which the runs are saved")
    parser.add_argument("--quick", action="store_true")
    add_record_option(parser)
    args = parser.parse_args()
    if args.noise == "estimated" and KERNELS[args.kernel]().convex:
        parser.error(f"--kernel {args.kernel} is convex: use --noise announced --no-refit, or a redescending kernel")
    if args.quick:
        args.graphs, args.shares, args.methods = ["intel"], [0.3], ["irls", "asker"]
    python = "" if args.no_peer else peers_python()
    record = Record(args)
    for name in args.graphs:
        of_graph = bicocca(args) if name == BICOCCA else tasks(name, args)
        if not args.no_peer:
            for task in (replace(without_false_loops(of_graph[0]), name=name), *of_graph):
                record.once(record.times, task.name, partial(time_per_iteration, task, python, args))
        for task in [] if args.only_times else of_graph:
            measure(task, record, python, args)
    results, times = record.results, record.times
    with recorded(args.record):
        for name in dict.fromkeys(task.split()[0] for task in results):
            print(f"\n{table({t: lines for t, lines in results.items() if t.split()[0] == name})}\n")
        print("| ms per iteration | asker irls | gtsam |\n| --- | --- | --- |")
        for name, line in times.items():
            print(f"| {name} | {line['asker']:.2f} | {line['gtsam']:.2f} |")


if __name__ == "__main__":
    main()

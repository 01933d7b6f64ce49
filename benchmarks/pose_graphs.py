"""False loop closures: the trajectory error of every method and of GTSAM's GNC, and the time per iteration.

    python benchmarks/pose_graphs.py [--graphs intel,M3500] [--shares 0.1,0.3,0.5] [--kind random] [--start odometry]
    python benchmarks/pose_graphs.py --quick     intel alone, few methods

False loops are added to the public graphs (see `pose_graph.false_loops`).  The error is the root mean square of the
distances, after a rigid alignment, from the least squares optimum without false loops (the lower one of those that the
file's start and ASKER's result lead to: on torus3D the former is poor, cost 29950 against 12118); for Bicocca 25b,
whose wrong loops are its own, from the GPS truth at the same part of the way.  `start` is where all begin: odometry,
or what the file gives.  `kept` counts false loops in what is fitted at last (with --no-refit: within the inflection
point of the kernel), `lost` right ones outside.  A run that meets the time limit is not shown.  With --json every run
is written down as it ends, and a later call goes on from there.
asker's methods solve as `asker solve` does, through `pose_graph.refine`: again where the file announces too much noise,
and at last by least squares with the edges that they keep; --noise announced and --no-refit leave the method alone.
--kernel is for them, with the same τ (`gnc-gm` and `gnc-tls` come to it after their own schedules).

Time per iteration is that of least squares, on the graph as it is and with the false loops in it: asker's `irls` and
GTSAM's Levenberg-Marquardt.  --only-times measures nothing else.  GTSAM's wheel is built without TBB and OpenMP and
has one thread; --threads 1 gives asker no more.
GTSAM runs in the environment that benchmarks/bundle.py makes; `ASKER_PEERS_PYTHON` names another.
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
NOISE, KERNEL = "estimated", "smooth-truncated"  # unless asked for others
TO_TIME = 10  # iterations


@dataclass(frozen=True)
class Task:
    """One graph to solve, and what its result is measured with."""

    name: str
    graph: PoseGraph
    is_false: np.ndarray | None
    error: Callable[[np.ndarray], float]
    """Of positions, in the order of the graph's poses."""


def tasks(name: str, args: argparse.Namespace) -> list[Task]:
    """A task for each share of false loops."""
    graph = read_g2o(args.data / "g2o" / f"{name}.g2o.bz2")
    truth = least_squares_positions(graph, args.threads)
    if args.start == "odometry":
        graph = replace(graph, poses=odometry_poses(graph))
    found = []
    for share in args.shares:
        bad, is_false = add_false_loops(graph, share, args.kind, args.seed)
        found.append(Task(f"{name} {share:.0%}", bad, is_false, lambda x: trajectory_error(x, truth)))
    return found


def least_squares_positions(graph: PoseGraph, threads: int) -> np.ndarray:
    """At the lower one of two optima: from the file's start, and from where ASKER ends with robust loops."""
    robust = pose_graph_problem(graph)
    starts = graph, robust.refined(asker.solve(robust.problem, threads=threads).values)
    found = []
    for start in starts:
        made = pose_graph_problem(start, robust="none")
        result = asker.solve(made.problem, tol=1e-12, threads=threads)
        found.append((result.cost, poses.positions(graph.kind, made.refined(result.values).poses)))
    return min(found, key=lambda pair: pair[0])[1]


def bicocca(args: argparse.Namespace) -> list[Task]:
    graph, truth = (
        read_g2o(args.data / "g2o" / f"{BICOCCA}-{part}.g2o.bz2", trajectory=True) for part in ("all-loops", "truth")
    )
    index, where = true_positions(graph, truth, "length")
    return [Task(BICOCCA, graph, None, lambda x: trajectory_error(x[index], where))]


def solved(task: Task, method: str, args: argparse.Namespace) -> dict[str, Any]:
    limits = {"max_iterations": args.iterations, "engine": args.engine, "linear_solver": args.linear_solver}
    limits |= {"threads": args.threads, "time_limit": args.time_limit}
    begin = time.perf_counter()
    try:
        outcome = pose_graph.refine(task.graph, method, args.kernel, noise=args.noise, refit=args.refit, **limits)
    except asker.ProblemError as error:  # the method is not for this kernel
        return {"failed": str(error)}
    found, again = outcome.found, outcome.refit
    iterations = sum(r.result.iterations for r in found.rounds)
    if found.is_cut_short:
        return {"failed": not_finished(args), "iterations": iterations}
    chosen = found.chosen
    kept, before = chosen.made.per_edge(chosen.result.within_inflection), {}
    if again:
        before = {"error_before_refit": task.error(poses.positions(task.graph.kind, chosen.refined.poses))}
        kept, iterations = again.kept, iterations + again.result.iterations
    line = {
        "error": task.error(poses.positions(task.graph.kind, outcome.refined.poses)),
        **before,
        "seconds": time.perf_counter() - begin,
        "cost": outcome.result.cost,
        "iterations": iterations,
        "status": outcome.result.status.name.lower(),
    }
    return line | judged(task, kept)


def not_finished(args: argparse.Namespace) -> str:
    return f"not finished in {args.time_limit:g} s"


def judged(task: Task, kept: np.ndarray) -> dict[str, int]:
    loops = ~task.graph.is_odometry
    if task.is_false is None:
        return {"loops_kept": int(np.count_nonzero(kept & loops))}
    kept_false, lost = kept & task.is_false, ~kept & loops & ~task.is_false
    return {"kept": int(np.count_nonzero(kept_false)), "lost": int(np.count_nonzero(lost))}


def gtsam(task: Task, python: str, args: argparse.Namespace, *more: str) -> dict[str, Any]:
    """What `peers/gtsam_graph.py` says of the graph, or what went wrong."""
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
    return line | {"error": task.error(where)} | judged(task, kept)


def time_per_iteration(task: Task, python: str, args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of least squares on a graph: asker, GTSAM."""
    problem = pose_graph_problem(task.graph, robust="none").problem
    settings: dict[str, Any] = {"tol": 0, "threads": args.threads}
    asker.solve(problem, asker.IRLS(), max_iterations=2, **settings)  # compiles
    history = asker.solve(problem, asker.IRLS(), max_iterations=TO_TIME, **settings).history
    own = statistics.median(np.diff([h.seconds for h in history[1:]]))
    peer = gtsam(task, python, args, "--time-iterations", str(TO_TIME))
    return {"asker": 1e3 * own, "gtsam": 1e3 * peer.get("seconds_per_iteration", float("nan"))}


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """A row for each method, a column for each task."""
    methods = [
        m for m in ("at the start", *asker.METHODS, "gtsam gnc") if any(m in lines for lines in results.values())
    ]
    rows = [["method", *results], ["---"] * (1 + len(results))]
    for method in methods:
        name = "**asker**" if method == "asker" else method
        rows.append([name, *(cell(lines.get(method)) for lines in results.values())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cell(line: dict[str, Any] | None) -> str:
    """The error; in brackets the false loops kept and the right ones lost, where there are any."""
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
    """What was measured, and the file that it is kept in."""

    def __init__(self, args: argparse.Namespace):
        self.file = args.json
        same = ("kind", "start", "noise", "refit", "kernel", "iterations", "peer_inner_iterations", "seed", "threads")
        self.settings = {k: str(getattr(args, k)) for k in same}
        self.results: dict[str, dict[str, dict[str, Any]]] = {}
        self.times: dict[str, dict[str, Any]] = {}
        if self.file and self.file.exists():
            earlier = json.loads(self.file.read_text())
            if earlier["settings"] != self.settings:
                raise SystemExit(f"{self.file} holds runs with other settings: {earlier['settings']}")
            self.results, self.times = earlier["results"], earlier["times"]

    def once(self, lines: dict[str, dict[str, Any]], name: str, measure: Callable[[], dict[str, Any]]) -> None:
        """Measure what is not there yet."""
        if name in lines:
            return
        lines[name] = measure()
        if self.file:
            whole = {"settings": self.settings, "results": self.results, "times": self.times}
            self.file.write_text(json.dumps(whole, indent=1) + "\n")


def without_false_loops(task: Task) -> Task:
    if task.is_false is None:
        return task
    return replace(task, graph=task.graph.with_edges(~task.is_false), is_false=None)


def measure(task: Task, record: Record, python: str, args: argparse.Namespace) -> None:
    lines = record.results.setdefault(task.name, {})
    start = task.error(poses.positions(task.graph.kind, task.graph.poses))
    record.once(lines, "at the start", lambda: {"error": start})
    for method in args.methods:
        record.once(lines, method, partial(solved, task, method, args))
    if not args.no_peer:
        inner = [] if args.peer_inner_iterations is None else ["--inner-iterations", str(args.peer_inner_iterations)]
        record.once(lines, "gtsam gnc", lambda: gtsam(task, python, args, *inner))
    told = ", ".join(f"{m} {cell(line)}" for m, line in lines.items())
    print(f"{task.name}: {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = HERE.parents[1] / "shared" / "data"
    known = (*GRAPHS, BICOCCA)
    parser.add_argument("--graphs", type=names(known), default=[*GRAPHS, BICOCCA])
    parser.add_argument("--shares", type=lambda text: [float(x) for x in text.split(",")], default=[0.1, 0.3, 0.5])
    parser.add_argument("--kind", choices=get_args(FalseLoops), default="random")
    parser.add_argument("--start", choices=("odometry", "file"), default="odometry")
    parser.add_argument("--noise", choices=("announced", "estimated"), default=NOISE)
    parser.add_argument("--refit", action=argparse.BooleanOptionalAction, default=True, help="as `asker solve` does")
    parser.add_argument("--kernel", choices=KERNELS, default=KERNEL)
    parser.add_argument("--methods", type=names(tuple(asker.METHODS)), default=list(asker.METHODS))
    parser.add_argument("--only-times", action="store_true", help="time per iteration alone")
    parser.add_argument("--no-peer", action="store_true", help="leave GTSAM out")
    parser.add_argument("--engine", choices=ENGINES, default="cpu")
    parser.add_argument("--linear-solver", default="auto")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ASKER_DATA") or here))
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--peer-inner-iterations", type=int, help="of GTSAM's GNC, in each of its steps")
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds for one method on one graph")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to keep the runs")
    parser.add_argument("--quick", action="store_true")
    add_record_option(parser)
    args = parser.parse_args()
    if args.noise == "estimated" and KERNELS[args.kernel]().convex:
        parser.error("the noise is estimated under a kernel that is not convex; or --noise announced --no-refit")
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

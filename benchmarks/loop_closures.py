"""Loop closures that asker accepts and rejects by default: public pose graphs with added false loops, five seeds each.

    python benchmarks/loop_closures.py [--graphs MIT,intel] [--seeds 1,2,3] [--processes 2] [--runs FILE] [--tables]
    python benchmarks/loop_closures.py --clean [--graphs MIT,intel]

The initial guess of every graph is odometry.  A case is *near* if the distance of its map from the optimum of the right
loops is at most 0.1 % of the map's extent, and *right* if in addition no false loop is kept and no right one is
rejected.  Bicocca contains false loops; it is near if its error from GPS is at most 1.5 times that of least squares
with the loops that GPS confirms.
Each case is written to FILE when it is finished and is not repeated; --tables runs no case.

--clean measures the overhead of the default on graphs without false loops: its processor time compared with least
squares of the same graph from the same initial guess (`asker.solve` with all edges), in one process with one thread,
the minimum of REPEATS alternating repetitions after one that compiles.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import asker
from asker.applications import pose_graph
from asker.applications.pose_graph.initial.spanning_tree_init import odometry_poses
from asker.geometry import poses
from families.graphs import BICOCCA, KINDS, LARGE, SHARES, SMALL, bicocca, clean_graph, optimum, with_false_loops
from record import add_record_option, recorded
from truth import computed, done_before

SEEDS = (1, 2, 3, 4, 5)
LARGE_GRAPH_SHARES = (0.1,)
"""Shares of false loops in large graphs."""
REPEATS = 3
Row = dict[str, Any]
Case = tuple[str, str, float, int]


def cases(names: list[str], seeds: tuple[int, ...]) -> list[Case]:
    """Return the cases: each graph without and with false loops, the most expensive first."""
    listed: list[Case] = []
    for name in names:
        listed.append((name, "none", 0.0, 0))
        if name != BICOCCA:
            listed += product([name], KINDS, SHARES if name in SMALL else LARGE_GRAPH_SHARES, seeds)
    return sorted(listed, key=lambda case: -clean_graph(case[0]).n_edges * (1 + case[2]))


def run_case(case: Case, time_limit: float) -> Row:
    """Solve one case and return its record."""
    name, kind, share, seed = case
    if name == BICOCCA:
        graph, off, near = bicocca()
    else:
        graph, off, near = with_false_loops({"graph": name, "kind": kind, "share": share}, seed)
    is_false = np.arange(graph.n_edges) >= clean_graph(name).n_edges
    begin = time.perf_counter()
    outcome = pose_graph.refine(graph, time_limit=time_limit)
    seconds = time.perf_counter() - begin
    error = off(poses.positions(graph.kind, outcome.refined.poses))
    return {
        "case": list(case),
        "near": bool(error <= 1.5 * near),
        "error": error / (1.5 * near),
        "kept": int(np.count_nonzero(is_false & ~outcome.rejected)),
        "lost": int(np.count_nonzero(outcome.rejected & ~is_false)),
        "seconds": round(seconds, 2),
        "is_cut_short": outcome.search.stopped_early,
    }


def print_clean(names: list[str]) -> None:
    """Print the times on graphs without false loops."""
    asker.set_threads(1)
    print("| graph | poses | loops | least squares, s | iterations | `refine`, s | ratio | loops rejected |")
    print("|---|---|---|---|---|---|---|---|")
    for name in names:
        clean = clean_graph(name)
        graph = replace(clean, poses=odometry_poses(clean))
        seconds, (fit, outcome) = least_times(partial(plain, graph), partial(pose_graph.refine, graph))
        cells = [name, graph.n_poses, graph.n_loops, f"{seconds[0]:.3f}", fit.iterations, f"{seconds[1]:.3f}"]
        cells += [f"{seconds[1] / seconds[0]:.2f}", np.count_nonzero(outcome.rejected)]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def plain(graph: pose_graph.PoseGraph) -> asker.Result:
    """Return the result of least squares with all edges."""
    return asker.solve(pose_graph.pose_graph_problem(graph, robust="none").problem)


def least_times(*calls: Callable[[], Any]) -> tuple[list[float], list[Any]]:
    """Return the shortest processor time of each call, and the return values."""
    values, seconds = [call() for call in calls], []
    for call in [*calls] * REPEATS:
        begin = time.process_time()
        call()
        seconds.append(time.process_time() - begin)
    return [min(seconds[k :: len(calls)]) for k in range(len(calls))], values


def print_tables(rows: list[Row]) -> None:
    """Print the table of all cases, and the list of those that are not right."""
    print("| graph | false loops | cases | near | right | false ones kept | right ones lost | s, median | s, most |")
    print("|---|---|---|---|---|---|---|---|---|")
    groups: dict[tuple[str, str, float], list[Row]] = {}
    for row in rows:
        name, kind, share, _ = row["case"]
        groups.setdefault((name, kind, share), []).append(row)
    for (name, kind, share), of in [*sorted(groups.items()), (("all", "", 0.0), rows)]:
        label = f"{kind} {share:.0%}" if share else kind
        counts = [
            sum(r["near"] for r in of),
            sum(map(is_right, of)),
            *(sum(r[k] for r in of) for k in ("kept", "lost")),
        ]
        seconds = [r["seconds"] for r in of]
        cells = [name, label, len(of), *counts, f"{np.median(seconds):.1f}", f"{max(seconds):.1f}"]
        print(f"| {' | '.join(map(str, cells))} |")
    print(
        "\nCases that are not right: graph, kind, share, seed; error in 0.1 % of the extent; false kept, right lost.\n"
    )
    for row in rows:
        if not is_right(row):
            cut = ", not finished" if row["is_cut_short"] else ""
            name, kind, share, seed = row["case"]
            print(f"- {name} {kind} {share:.0%} {seed}: {row['error']:.2g}; {row['kept']}, {row['lost']}{cut}")


def is_right(row: Row) -> bool:
    """Return whether the map is near and all loops are classified correctly (Bicocca may lose loops)."""
    return row["near"] and not row["kept"] and (not row["lost"] or row["case"][0] == BICOCCA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default=",".join([*SMALL, *LARGE, BICOCCA]))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--runs", type=Path, default=Path("runs/loops.jsonl"), help="file of the finished cases")
    parser.add_argument("--processes", type=int, default=2, help="number of processes, with one thread each")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for one case")
    parser.add_argument(
        "--tables", action="store_true", help="print the tables of the cases in FILE without running any"
    )
    parser.add_argument(
        "--clean", action="store_true", help="time graphs without false loops, compared with least squares"
    )
    add_record_option(parser)
    args = parser.parse_args()
    if args.clean:
        with recorded(args.record):
            print_clean(args.graphs.split(","))
        return
    rows = list(done_before(args.runs))
    if not args.tables:
        done = {tuple(row["case"]) for row in rows}
        seeds = tuple(int(seed) for seed in args.seeds.split(","))
        pending = [case for case in cases(args.graphs.split(","), seeds) if case not in done]
        for name in {case[0] for case in pending} - {BICOCCA}:
            optimum(name)  # computed once here instead of in every process
        args.runs.parent.mkdir(parents=True, exist_ok=True)
        with args.runs.open("a", encoding="utf-8") as out:
            for row in computed(pending, partial(run_case, time_limit=args.time_limit), args.processes):
                out.write(json.dumps(row) + "\n")
                out.flush()
                rows.append(row)
    with recorded(args.record):
        print_tables(rows)


if __name__ == "__main__":
    main()

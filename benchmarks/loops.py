"""Which loops asker believes: public pose graphs with false loops of every kind, five seeds of each, nothing given.

    python benchmarks/loops.py [--graphs MIT,intel] [--seeds 1,2,3] [--processes 2] [--runs FILE] [--tables]
    python benchmarks/loops.py --clean [--graphs MIT,intel]

Every graph begins at odometry.  A case is *near* where its map lies within 0.1 % of its extent of the optimum of the
right loops, and *right* where it also keeps no false loop and loses no right one.  Bicocca's false loops are its own:
it is near within 1.5 times the error, from GPS, of least squares with the loops that GPS confirms.
A case is written to FILE when it is done, and is not run again; --tables runs none.

--clean: what the default costs on graphs without false loops, beside least squares of the same graph from the same
start (`asker.solve` with all edges, as it comes), in one process with one thread: the least of REPEATS times, in turn,
after one that compiles.
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
FEW = (0.1,)
"""The shares of false loops in large graphs."""
REPEATS = 3
Row = dict[str, Any]
Case = tuple[str, str, float, int]


def cases(names: list[str], seeds: tuple[int, ...]) -> list[Case]:
    """Each graph as it is, and with false loops; the dear ones first."""
    found: list[Case] = []
    for name in names:
        found.append((name, "none", 0.0, 0))
        if name != BICOCCA:
            found += product([name], KINDS, SHARES if name in SMALL else FEW, seeds)
    return sorted(found, key=lambda case: -clean_graph(case[0]).n_edges * (1 + case[2]))


def run_case(case: Case, time_limit: float) -> Row:
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
        "kept": int(np.count_nonzero(is_false & ~outcome.refused)),
        "lost": int(np.count_nonzero(outcome.refused & ~is_false)),
        "seconds": round(seconds, 2),
        "is_cut_short": outcome.found.is_cut_short,
    }


def print_clean(names: list[str]) -> None:
    asker.set_threads(1)
    print("| graph | poses | loops | least squares, s | iterations | `refine`, s | times | loops refused |")
    print("|---|---|---|---|---|---|---|---|")
    for name in names:
        clean = clean_graph(name)
        graph = replace(clean, poses=odometry_poses(clean))
        seconds, (fit, outcome) = least_times(partial(plain, graph), partial(pose_graph.refine, graph))
        cells = [name, graph.n_poses, graph.n_loops, f"{seconds[0]:.3f}", fit.iterations, f"{seconds[1]:.3f}"]
        cells += [f"{seconds[1] / seconds[0]:.2f}", np.count_nonzero(outcome.refused)]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def plain(graph: pose_graph.PoseGraph) -> asker.Result:
    return asker.solve(pose_graph.pose_graph_problem(graph, robust="none").problem)


def least_times(*calls: Callable[[], Any]) -> tuple[list[float], list[Any]]:
    """Seconds of the processor for each of them, and what each returns."""
    found, seconds = [call() for call in calls], []
    for call in [*calls] * REPEATS:
        begin = time.process_time()
        call()
        seconds.append(time.process_time() - begin)
    return [min(seconds[k :: len(calls)]) for k in range(len(calls))], found


def print_tables(rows: list[Row]) -> None:
    print("| graph | false loops | cases | near | right | false ones kept | right ones lost | s, median | s, most |")
    print("|---|---|---|---|---|---|---|---|---|")
    groups: dict[tuple[str, str, float], list[Row]] = {}
    for row in rows:
        name, kind, share, _ = row["case"]
        groups.setdefault((name, kind, share), []).append(row)
    for (name, kind, share), of in [*sorted(groups.items()), (("all", "", 0.0), rows)]:
        what = f"{kind} {share:.0%}" if share else kind
        told = [sum(r["near"] for r in of), sum(map(is_right, of)), *(sum(r[k] for r in of) for k in ("kept", "lost"))]
        seconds = [r["seconds"] for r in of]
        cells = [name, what, len(of), *told, f"{np.median(seconds):.1f}", f"{max(seconds):.1f}"]
        print(f"| {' | '.join(map(str, cells))} |")
    print("\nNot right: graph, kind, share, seed; error in 0.1 % of the extent; kept, lost.\n")
    for row in rows:
        if not is_right(row):
            cut = ", not finished" if row["is_cut_short"] else ""
            name, kind, share, seed = row["case"]
            print(f"- {name} {kind} {share:.0%} {seed}: {row['error']:.2g}; {row['kept']}, {row['lost']}{cut}")


def is_right(row: Row) -> bool:
    return row["near"] and not row["kept"] and (not row["lost"] or row["case"][0] == BICOCCA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default=",".join([*SMALL, *LARGE, BICOCCA]))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--runs", type=Path, default=Path("runs/loops.jsonl"), help="where cases are kept")
    parser.add_argument("--processes", type=int, default=2, help="each has one thread")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for a case")
    parser.add_argument("--tables", action="store_true", help="run nothing: tables of the cases that are in FILE")
    parser.add_argument("--clean", action="store_true", help="graphs as they are, beside least squares")
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
        left = [case for case in cases(args.graphs.split(","), seeds) if case not in done]
        for name in {case[0] for case in left} - {BICOCCA}:
            optimum(name)  # once, and not in every process
        args.runs.parent.mkdir(parents=True, exist_ok=True)
        with args.runs.open("a", encoding="utf-8") as out:
            for row in computed(left, partial(run_case, time_limit=args.time_limit), args.processes):
                out.write(json.dumps(row) + "\n")
                out.flush()
                rows.append(row)
    with recorded(args.record):
        print_tables(rows)


if __name__ == "__main__":
    main()

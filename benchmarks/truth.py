"""Accuracy of asker and other programs on families of problems with a known truth.

    python benchmarks/truth.py [--families circle,pnp] [--quick] [--from-truth] [--told-all] [--runs FILE]

Every case of every family is solved by asker's default, by each of asker's methods and by other programs, with several
values of the scale parameter that they need.  Errors are relative to the oracle's, which is least squares on the true
inliers, started at the truth.  A run is *solved* if its error is at most 1.5 times the oracle's, or three standard
deviations of the oracle's.  notes/truth.md describes the comparison.

Each case is written to FILE when it is finished and is not repeated; delete the file to start again.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import asker
from asker.io.files import write_whole
from families import FAMILIES
from families.family import Condition, Instance
from families.tables import AT_TRUTH, DEFAULT, OWN_DEFAULT, TOLD_ALL, Row, print_tables
from record import HERE, add_record_option, commit, recorded

EXCLUDED = ("asker-paper", "gnc-exit", "gnc-last", "regemm", "sqrt-psi", "triggs")
"""Variants of `asker-published`, `gnc` and `irls`, and methods that the paper does not compare."""
METHODS: dict[str, tuple[Callable[[], Any], type[asker.Kernel]]] = {
    "irls-huber": (asker.IRLS, asker.Huber),
    "irls-cauchy": (asker.IRLS, asker.Cauchy),
    "irls-gm": (asker.IRLS, asker.GemanMcClure),
    **{name: (of, asker.SmoothTruncated) for name, of in asker.METHODS.items() if name not in EXCLUDED},
    "asker-cauchy": (asker.ASKER, asker.Cauchy),
}
"""Methods of asker that need τ of their kernel; those of `asker.METHODS` use the smooth truncated kernel."""
QUICK = ("irls-cauchy", "gnc", "asker")
"""Methods of `--quick`."""
FIRST_ORACLE_SEED = 10_000
"""First seed of the instances from which the standard deviation of the oracle's error is computed."""
Task = tuple[str, Condition, int]


def run_case(task: Task, quick: bool, only: str | None, from_truth: bool = False, told_all: bool = False) -> Row:
    """Run every method with every setting on one case, and return the record."""
    name, condition, seed = task
    family = FAMILIES[name]
    instance = family.make(condition, seed)
    runs = [run(DEFAULT, None, partial(nothing_given, instance))]
    if from_truth and instance.at_truth is not None:
        runs.append(run(AT_TRUTH, None, lambda: error_of(instance, instance.at_truth(), None)))
    if told_all and instance.told_all is not None:
        runs.append(run(TOLD_ALL, None, instance.told_all))
    if only is None:
        factors = sorted({1.0, max(family.sweep)}) if quick else sorted({1.0, *family.sweep})
        listed = METHODS if family.methods is None else family.methods
        for method in [name for name in listed if name in QUICK] if quick else listed:
            runs += [run(method, factor, partial(with_number, instance, method, factor)) for factor in factors]
        for peer, error in instance.peers.items():
            runs.append(run(peer, OWN_DEFAULT, partial(error, None)))
            if peer not in instance.without_number:
                runs += [run(peer, factor, partial(error, factor * instance.number)) for factor in factors]
    oracles = [] if instance.oracle is None or quick else oracles_of(name, json.dumps(condition))
    row = {"family": name, "condition": condition, "seed": seed, "oracle": instance.oracle, "oracles": oracles}
    return row | {"runs": runs}


@cache
def oracles_of(family: str, condition: str) -> list[float]:
    """Return the oracle's errors under a condition for separate seeds, to estimate their standard deviation."""
    one = FAMILIES[family]
    made = (
        one.make(json.loads(condition), seed) for seed in range(FIRST_ORACLE_SEED, FIRST_ORACLE_SEED + one.n_oracles)
    )
    return [instance.oracle for instance in made if instance.oracle is not None]


def nothing_given(instance: Instance) -> float:
    """Return the error of asker's default, without a kernel."""
    if instance.default is not None:
        return instance.default()
    return error_of(instance, instance.problem(None), None)


def with_number(instance: Instance, method: str, factor: float) -> float:
    """Return the error of a method of asker with a multiple of the user's scale."""
    strategy, kernel = METHODS[method]
    return error_of(instance, instance.problem(kernel(factor * instance.number)), strategy())


def error_of(instance: Instance, problem: asker.Problem, strategy: asker.Strategy | None) -> float:
    """Return the error of one solve."""
    n, seconds = None if strategy is None else instance.max_iterations, instance.time_limit
    result = asker.solve(problem, strategy, max_iterations=n, time_limit=seconds)
    if result.status is asker.Status.TIME_LIMIT:
        raise TimeoutError(f"not finished in {seconds:g} s")
    return instance.error(result)


def run(method: str, factor: Any, error: Callable[[], float]) -> dict[str, Any]:
    """Return the record of a run with its error and seconds; an exception counts as an infinite error."""
    record: dict[str, Any] = {"method": method, "factor": factor}
    begin = time.perf_counter()
    try:
        value = float(error())
    except Exception as failure:
        record["failed"] = f"{type(failure).__name__}: {str(failure).splitlines()[0] if str(failure) else ''}"
        value = float("inf")
    seconds = time.perf_counter() - begin
    return {**record, "error": value if value < float("inf") else None, "seconds": round(seconds, 4)}


def begin_worker() -> None:
    """Initialise a worker process: one thread, no warnings, Ctrl-C only handled by the main process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    asker.set_threads(1)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """End a worker whose parent was killed, which would otherwise wait for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def done_before(file: Path) -> Iterator[Row]:
    """Yield the cases of a file, without incomplete lines."""
    if not file.exists():
        return
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            print(f"{file.name}: an incomplete line is ignored", file=sys.stderr)


def key(row: Row) -> str:
    """Return a unique key of a case and of how it was run."""
    return json.dumps([row["family"], row["condition"], row["seed"], row["how"]], sort_keys=True)


def run_all(tasks: list[Task], file: Path, how: str, work: Callable[[Task], Row], processes: int) -> list[Row]:
    """Return all cases in the order of the tasks; run those that are not in the file and append them to it."""
    now = commit(HERE.parent)
    earlier = list(done_before(file))
    finished = {key(row): row for row in earlier}
    requested = [key({"family": f, "condition": c, "seed": s, "how": how}) for f, c, s in tasks]
    others = {row["commit"] for k, row in finished.items() if k in requested} - {now}
    if others:
        print(f"{file.name} has cases of other commits, which are kept: {', '.join(sorted(others))}", file=sys.stderr)
    pending = [task for k, task in zip(requested, tasks, strict=True) if k not in finished]
    if pending:
        file.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(file) as whole:  # drops incomplete lines
            whole.writelines(json.dumps(row).encode() + b"\n" for row in earlier)
        with file.open("a", encoding="utf-8") as out:
            for row in computed(pending, work, processes):
                row |= {"how": how, "commit": now}
                out.write(json.dumps(row) + "\n")
                out.flush()
                finished[key(row)] = row
    return [finished[k] for k in requested]


def computed(tasks: list[Task], work: Callable[[Task], Row], processes: int) -> Iterable[Row]:
    """Yield the cases as they finish; an exception in the generation of a case ends the run."""
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM"), "1")
    begin = time.perf_counter()
    with ProcessPoolExecutor(processes, get_context("spawn"), begin_worker) as pool:
        try:
            for n, future in enumerate(as_completed([pool.submit(work, task) for task in tasks]), 1):
                yield future.result()
                if n % 20 == 0 or n == len(tasks):
                    print(f"{n} of {len(tasks)} cases, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default=",".join(FAMILIES), help=f"comma-separated, of: {', '.join(FAMILIES)}")
    parser.add_argument("--quick", action="store_true", help="few cases and settings")
    parser.add_argument("--runs", type=Path, default=Path("runs/truth.jsonl"), help="file of the finished cases")
    parser.add_argument("--processes", type=int, default=2, help="number of processes, with one thread each")
    parser.add_argument("--seeds-from", default="0", metavar="K,...", help="add K to the seed of each case")
    parser.add_argument("--only", choices=("asker",), help="run asker's default only")
    parser.add_argument("--from-truth", action="store_true", help="also run asker's default from the truth")
    parser.add_argument("--told-all", action="store_true", help="also compute maximum likelihood for known noise")
    parser.add_argument("--tables", action="store_true", help="print the tables of FILE without running cases")
    parser.add_argument("--conditions", action="store_true", help="also print a table of all conditions")
    add_record_option(parser)
    args = parser.parse_args()
    names = [name.strip() for name in args.families.split(",")]
    if unknown := [name for name in names if name not in FAMILIES]:
        parser.error(f"unknown family {unknown[0]!r}; the families are {', '.join(FAMILIES)}")
    cases = {name: FAMILIES[name].cases(args.quick)[: 1 if args.quick else None] for name in names}
    firsts = [int(first) for first in args.seeds_from.split(",")]
    tasks = [(name, c, seed + first) for first in firsts for name in names for c, seed in cases[name]]
    tasks.sort(key=lambda task: task[2])  # so that an interrupted run has cases of each family
    how = f"{'quick' if args.quick else 'all'} {args.only or ','.join(METHODS)}{' from-truth' * args.from_truth}"
    how += " told-all" * args.told_all
    work = partial(run_case, quick=args.quick, only=args.only, from_truth=args.from_truth, told_all=args.told_all)
    n_cases = len(tasks)
    if args.tables:
        finished = {key(row) for row in done_before(args.runs)}
        tasks = [
            (f, c, s) for f, c, s in tasks if key({"family": f, "condition": c, "seed": s, "how": how}) in finished
        ]
    try:
        rows = run_all(tasks, args.runs, how, work, args.processes)
    except KeyboardInterrupt:
        sys.exit(f"\ninterrupted; {args.runs.name} has the finished cases; repeat the command to continue")
    with recorded(args.record):
        commits = ", ".join(sorted({row["commit"] for row in rows}))
        print(f"{len(rows)} of {n_cases} cases, of the commits {commits}.\n")
        print_tables(rows, args.conditions)


if __name__ == "__main__":
    main()

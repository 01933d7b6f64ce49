"""Who finds the truth: families of problems whose truth is known, and what a user would have used instead.

    python benchmarks/truth.py [--families circle,pnp] [--quick] [--from-truth] [--told-all] [--runs FILE]

Every case of every family is solved by asker with nothing given, by each of its methods and by other programs, over
several settings of the number that they need.  Every error is a ratio to the oracle's: least squares on the true
inliers, from the truth.  A run is *solved* within 1.5 of the oracle's error, or within three standard deviations of it.
What is compared with what: notes/truth.md.

A case is written to FILE when it is done, and is not run again; delete the file to begin anew.
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

LEFT_OUT = ("asker-paper", "gnc-exit", "gnc-last", "regemm", "sqrt-psi", "triggs")
"""Variants of `asker-published`, `gnc` and `irls`, and what the paper does not compare with."""
METHODS: dict[str, tuple[Callable[[], Any], type[asker.Kernel]]] = {
    "irls-huber": (asker.IRLS, asker.Huber),
    "irls-cauchy": (asker.IRLS, asker.Cauchy),
    "irls-gm": (asker.IRLS, asker.GemanMcClure),
    **{name: (of, asker.SmoothTruncated) for name, of in asker.METHODS.items() if name not in LEFT_OUT},
    "asker-cauchy": (asker.ASKER, asker.Cauchy),
}
"""Those of asker that need a number, τ of their kernel.  A name of `asker.METHODS` has the smooth truncated kernel."""
QUICK = ("irls-cauchy", "gnc", "asker")
"""Those of `--quick`."""
OTHER_SEEDS = 10_000
"""The first seed of the oracles that say how much their errors vary."""
Task = tuple[str, Condition, int]


def run_case(task: Task, quick: bool, only: str | None, from_truth: bool = False, told_all: bool = False) -> Row:
    """One case by every method with every setting."""
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
    """The oracle's errors under a condition, with seeds of their own: how much they vary by chance."""
    one = FAMILIES[family]
    made = (one.make(json.loads(condition), seed) for seed in range(OTHER_SEEDS, OTHER_SEEDS + one.n_oracles))
    return [instance.oracle for instance in made if instance.oracle is not None]


def nothing_given(instance: Instance) -> float:
    """The error of asker's default."""
    if instance.default is not None:
        return instance.default()
    return error_of(instance, instance.problem(None), None)


def with_number(instance: Instance, method: str, factor: float) -> float:
    """The error of a method of asker, with a multiple of the user's number."""
    strategy, kernel = METHODS[method]
    return error_of(instance, instance.problem(kernel(factor * instance.number)), strategy())


def error_of(instance: Instance, problem: asker.Problem, strategy: asker.Strategy | None) -> float:
    """The error of one solve."""
    n, seconds = None if strategy is None else instance.max_iterations, instance.time_limit
    result = asker.solve(problem, strategy, max_iterations=n, time_limit=seconds)
    if result.status is asker.Status.TIME_LIMIT:
        raise TimeoutError(f"not finished in {seconds:g} s")
    return instance.error(result)


def run(method: str, factor: Any, error: Callable[[], float]) -> dict[str, Any]:
    """A run as it is written: its error and seconds; an exception is a run that did not solve anything."""
    said: dict[str, Any] = {"method": method, "factor": factor}
    begin = time.perf_counter()
    try:
        value = float(error())
    except Exception as failure:
        said["failed"] = f"{type(failure).__name__}: {str(failure).splitlines()[0] if str(failure) else ''}"
        value = float("inf")
    seconds = time.perf_counter() - begin
    return {**said, "error": value if value < float("inf") else None, "seconds": round(seconds, 4)}


def begin_worker() -> None:
    """One thread; Ctrl-C is for the process that the user sees."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    asker.set_threads(1)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def done_before(file: Path) -> Iterator[Row]:
    """The cases of a file; a last line that was cut short is left out."""
    if not file.exists():
        return
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            print(f"{file.name}: a line that was cut short is left out", file=sys.stderr)


def key(row: Row) -> str:
    """What tells one case from another, and how it was run."""
    return json.dumps([row["family"], row["condition"], row["seed"], row["how"]], sort_keys=True)


def run_all(tasks: list[Task], file: Path, how: str, work: Callable[[Task], Row], processes: int) -> list[Row]:
    """All cases in the order of the tasks: those of the file, and the others, which are added to it."""
    now = commit(HERE.parent)
    earlier = list(done_before(file))
    found = {key(row): row for row in earlier}
    wanted = [key({"family": f, "condition": c, "seed": s, "how": how}) for f, c, s in tasks]
    others = {row["commit"] for k, row in found.items() if k in wanted} - {now}
    if others:
        print(f"{file.name} has cases of other commits, which are kept: {', '.join(sorted(others))}", file=sys.stderr)
    left = [task for k, task in zip(wanted, tasks, strict=True) if k not in found]
    if left:
        file.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(file) as whole:  # without a line that was cut short
            whole.writelines(json.dumps(row).encode() + b"\n" for row in earlier)
        with file.open("a", encoding="utf-8") as out:
            for row in computed(left, work, processes):
                row |= {"how": how, "commit": now}
                out.write(json.dumps(row) + "\n")
                out.flush()
                found[key(row)] = row
    return [found[k] for k in wanted]


def computed(tasks: list[Task], work: Callable[[Task], Row], processes: int) -> Iterable[Row]:
    """The cases as they end; a case that cannot be made ends the run."""
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
    parser.add_argument("--families", default=",".join(FAMILIES), help=f"of: {', '.join(FAMILIES)}")
    parser.add_argument("--quick", action="store_true", help="a few cases and settings")
    parser.add_argument("--runs", type=Path, default=Path("runs/truth.jsonl"), help="where cases are kept")
    parser.add_argument("--processes", type=int, default=2, help="each has one thread")
    parser.add_argument("--seeds-from", default="0", metavar="K,...", help="other seeds: each case with K added to its")
    parser.add_argument("--only", choices=("asker",), help="only asker with nothing given")
    parser.add_argument("--from-truth", action="store_true", help="asker started at the truth, too")
    parser.add_argument("--told-all", action="store_true", help="the likeliest solution under the true noise, too")
    parser.add_argument("--tables", action="store_true", help="run nothing: tables of the cases that are in FILE")
    parser.add_argument("--conditions", action="store_true", help="a table of every condition, too")
    add_record_option(parser)
    args = parser.parse_args()
    names = [name.strip() for name in args.families.split(",")]
    if unknown := [name for name in names if name not in FAMILIES]:
        parser.error(f"no family is called {unknown[0]!r}; there are {', '.join(FAMILIES)}")
    cases = {name: FAMILIES[name].cases(args.quick)[: 1 if args.quick else None] for name in names}
    firsts = [int(first) for first in args.seeds_from.split(",")]
    tasks = [(name, c, seed + first) for first in firsts for name in names for c, seed in cases[name]]
    tasks.sort(key=lambda task: task[2])  # a run that was stopped has something of each family
    how = f"{'quick' if args.quick else 'all'} {args.only or ','.join(METHODS)}{' from-truth' * args.from_truth}"
    how += " told-all" * args.told_all
    work = partial(run_case, quick=args.quick, only=args.only, from_truth=args.from_truth, told_all=args.told_all)
    n_cases = len(tasks)
    if args.tables:
        there = {key(row) for row in done_before(args.runs)}
        tasks = [(f, c, s) for f, c, s in tasks if key({"family": f, "condition": c, "seed": s, "how": how}) in there]
    try:
        rows = run_all(tasks, args.runs, how, work, args.processes)
    except KeyboardInterrupt:
        sys.exit(f"\nstopped; {args.runs.name} has the cases that were done, and the same command goes on from there")
    with recorded(args.record):
        commits = ", ".join(sorted({row["commit"] for row in rows}))
        print(f"{len(rows)} of {n_cases} cases, of the commits {commits}.\n")
        print_tables(rows, args.conditions)


if __name__ == "__main__":
    main()

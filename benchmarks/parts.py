"""Contribution of each part of the default: `truth.py` without settings, and without one part at a time.

    python benchmarks/parts.py [--families circle,bundle] [--parts moves,votes] [--seeds-from 5000] [--processes 2]

The first table has a row for each part and a column for each family, with the share of solved cases and the median
ratio to the oracle without the part; the second has the processor time in seconds.  A cell is `=` if every case has the
same error as with all parts, within 1 %, and empty if no case has used the part.

A part is removed by replacing functions of the search.  If such a function does not exist, has another signature or
fails, the run ends with an error and does not count as an unsolved case.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from asker.search.latent_inliers import InlierSets

from asker.kernels.kernels import SmoothTruncated
from asker.search import context, evidence, refinement
from asker.search.search import Search
from asker.statistics import scale
from families import FAMILIES
from families.family import Instance
from families.tables import Outcome, Row, by_method, figures, short, with_setting
from record import add_record_option, recorded
from truth import Task, nothing_given, oracles_of, run_all

Other = Callable[..., Any]
"""A replacement with the signature of the replaced function; it returns `NotImplemented` to call the original."""
Part = Sequence[tuple[Any, str, Other]]
"""The functions to replace: their module or class, their names and the replacements."""
ALL = "nothing"
"""The name of the run with all parts."""
TOGETHER = "+"
"""Separator of parts that are removed together."""
SAME = 0.01
"""The relative difference up to which two errors count as equal."""


def _candidate(*names: str) -> Part:
    """Remove some of the first descents: they are neither run nor compared."""
    return [
        (Search, "_run", lambda self, kernels, strategy, point, n, stage: point if stage in names else NotImplemented),
        (
            Search,
            "_compare",
            lambda self, name, point, start: (True, self.found, self.broad) if name in names else NotImplemented,
        ),
    ]


def _all_vote(factors: Any, weights: Any, voting: bool = False, **of: Any) -> Any:
    return [np.ones_like(w) for w in weights] if voting else NotImplemented


def _truncated(self: Search, of: scale.Noise, p: int, Q: float) -> Any:
    return SmoothTruncated(scale.REACH * of.sigma) if self.has_few_unknowns else NotImplemented


def _all_left(factors: Any, u: Any, variances: Any, *of: Any, **more: Any) -> Any:
    return [np.ones(np.broadcast(x, s).shape) for x, s in zip(u, variances, strict=True)]


PARTS: dict[str, Part] = {
    ALL: [],
    "following": [(Search, "_follow", lambda self, start: ([], 1.0, self.broad))],
    "from the start": _candidate("from the start"),
    "least squares": _candidate("least squares", "from least squares"),
    "from least squares": _candidate("from least squares"),
    "subsets": [(Search, "_from_subsets", lambda self, start: [])],
    "graduated": _candidate("graduated"),
    "moves from the start": [
        *_candidate("moves"),
        (Search, "_moved", lambda self, kernels, point, noises=(): NotImplemented if noises else point),
    ],
    "moves": [(Search, "_moved", lambda self, kernels, point, noises=(): point)],
    "votes": [(scale, "kept_shares", _all_vote)],
    "leverage in the noise": [(scale, "fitted_shares", _all_left)],
    "leverage in the likelihood": [(evidence, "fitted_shares", _all_left)],
    "ties": [(evidence, "mean_squares", lambda engine, point: [0.0 for _ in engine.problem.factors])],
    "farthest outliers": [(scale, "capped", lambda factors, u, broad: list(u))],
    "rounding": [(context, "rounding", lambda engine, point, k: 0.0)],
    "beyond doubt": [(Search, "_is_done", lambda self: False)],
    "one noise": [(refinement, "one_noise", lambda problem, u, given, sums: None)],
    "proofs": [(refinement, "hidden_ratio", lambda *of: 1.0)],
    "kernel of the likelihood": [(Search, "_end_kernel", _truncated)],
    "truncated kernels": [(Search, "_end_kernel", lambda self, of, p, Q: refinement.efficient(of, p, Q))],
    "Cauchy's kernel": [(Search, "_refined", lambda self, best: self._ended(best, self._end_kernel))],
    "heavy tails": [(Search, "_has_heavy_tails", lambda self, found: False)],
    "possible": [(Search, "_possible", lambda self, point: None)],
    "chance": [(refinement, "rightness", lambda problem, *of: tuple(np.ones(f.n) for f in problem.factors))],
    "cycles": [(Search, "_cycled", lambda self, best: self._weighed(self._refined(best)))],
    "near outliers": [(Search, "_averaged", lambda self, end: end)],
    "sets of inliers": [(InlierSets, "suit", lambda problem, v: False)],
    "few observations": [(context, "told", lambda scale, *of: scale)],
}
"""All parts by name, in the order of `asker.search.search` and `asker.search.refinement`."""


@contextmanager
def without(part: str) -> Iterator[list[str]]:
    """Remove one or several parts; the list collects the name of a replaced function at each of its calls."""
    met: list[str] = []
    with ExitStack() as stack:
        for where, name, other in (each for single in part.split(TOGETHER) for each in PARTS[single]):
            stack.enter_context(mock.patch.object(where, name, _in_place(getattr(where, name), name, other, met)))
        yield met


def _in_place(own: Any, name: str, other: Other, met: list[str]) -> Any:
    def called(*args: Any, **kwargs: Any) -> Any:
        found = other(*args, **kwargs)
        if found is NotImplemented:
            return own(*args, **kwargs)
        met.append(name)
        return found

    return called


def run_parts(task: Task, parts: Sequence[str]) -> Row:
    """Run one case without each of the parts."""
    name, condition, seed = task
    instance = FAMILIES[name].make(condition, seed)
    run_without(ALL, instance)  # excludes the work that is done once per process from the times
    runs = [run_without(part, instance) for part in parts]
    oracles = oracles_of(name, json.dumps(condition))
    row = {"family": name, "condition": condition, "seed": seed, "oracle": instance.oracle, "oracles": oracles}
    return row | {"runs": runs}


def run_without(part: str, instance: Instance) -> dict[str, Any]:
    """Return the record of a run; its error is None after the time limit."""
    with without(part) as met:
        begin = time.process_time()
        try:
            error = nothing_given(instance)
        except TimeoutError:
            error = inf
        seconds = round(time.process_time() - begin, 4)
    found = error if error < inf else None
    return {"method": part, "factor": None, "error": found, "seconds": seconds, "met": bool(met)}


class Table:
    """The cases of all families, part by part."""

    def __init__(self, rows: list[Row]):
        self.families = list(dict.fromkeys(row["family"] for row in rows))
        outcomes = {family: by_method(row for row in rows if row["family"] == family) for family in self.families}
        self.outcomes = {
            family: {part: with_setting(conditions, None) for part, conditions in of_family.items()}
            for family, of_family in outcomes.items()
        }
        self.met = {(row["family"], run["method"]) for row in rows for run in row["runs"] if run["met"]}

    def cell(self, part: str, family: str) -> str:
        """Return the statistics of a family without a part."""
        if part != ALL and (family, part) not in self.met:
            return ""
        outcomes, with_all = self.outcomes[family][part], self.outcomes[family][ALL]
        is_same = part != ALL and all(_is_same(a, b) for a, b in zip(outcomes, with_all, strict=True))
        return "=" if is_same else short(figures(outcomes))

    def in_all(self, part: str) -> str:
        """Return the numbers of solved, won and lost cases of all families, and the error relative to all parts."""
        each = (zip(of_family[part], of_family[ALL], strict=True) for of_family in self.outcomes.values())
        pairs = [pair for of_family in each for pair in of_family]
        solved = [(a.solved, b.solved) for a, b in pairs]
        n, won, lost = sum(a for a, _ in solved), sum(a > b for a, b in solved), sum(a < b for a, b in solved)
        error = np.exp(np.mean([np.log(a.ratio / b.ratio) for a, b in pairs if a.solved and b.solved]))
        return f"{n} | {won} | {lost} | {error:.3f}"

    def seconds(self, part: str) -> list[float]:
        """Return the seconds of each family, then of all."""
        each = [sum(run.seconds for run in of_family[part]) for of_family in self.outcomes.values()]
        return [*each, sum(each)]

    def print(self, parts: Sequence[str]) -> None:
        n = [len(of_family[ALL]) for of_family in self.outcomes.values()]
        print(f"{sum(n)} cases: {', '.join(f'{k} of {f}' for k, f in zip(n, self.families, strict=True))}.")
        print("Won, lost: solved only without the part, or only with it.")
        print("Error: relative to that with all parts, over cases solved by both (geometric mean).\n")
        print(f"| without | {' | '.join(self.families)} | solved | won | lost | error |\n|---|{'---|' * (len(n) + 4)}")
        for part in parts:
            cells = (self.cell(part, family) for family in self.families)
            print(f"| {part} | {' | '.join(cells)} | {self.in_all(part)} |")
        print(f"\nSeconds of processor time:\n\n| without | {' | '.join(self.families)} | all |")
        print(f"|---|{'---|' * (len(n) + 1)}")
        for part in parts:
            print(f"| {part} | {' | '.join(f'{seconds:.1f}' for seconds in self.seconds(part))} |")


def _is_same(a: Outcome, b: Outcome) -> bool:
    return a.solved == b.solved and bool(np.isclose(a.ratio, b.ratio, rtol=SAME, atol=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default="circle,line,ellipse,essential,ranges,rotations,bundle")
    parser.add_argument(
        "--parts", default=",".join(PARTS), help=f"left out one at a time; with {TOGETHER} between them: together"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/parts.jsonl"), help="where cases are kept")
    parser.add_argument("--seeds-from", default="5000", metavar="K,...", help="each case with K added to its seed")
    parser.add_argument("--processes", type=int, default=2, help="each has one thread")
    add_record_option(parser)
    args = parser.parse_args()
    parts = list(dict.fromkeys([ALL, *args.parts.split(",")]))
    if strange := [single for part in parts for single in part.split(TOGETHER) if single not in PARTS]:
        parser.error(f"no part is called {strange[0]!r}; there are {', '.join(PARTS)}")
    firsts = [int(first) for first in args.seeds_from.split(",")]
    cases = [(f, c, s) for f in args.families.split(",") for c, s in FAMILIES[f].cases(False)]
    tasks = [(f, c, s + first) for first in firsts for f, c, s in cases]
    rows = run_all(tasks, args.runs, ",".join(parts), partial(run_parts, parts=parts), args.processes)
    with recorded(args.record):
        Table(rows).print(parts)


if __name__ == "__main__":
    main()

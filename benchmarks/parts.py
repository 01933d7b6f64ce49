"""What each part of the default is worth: `truth.py` with nothing given, with one part left out at a time.

    python benchmarks/parts.py [--families circle,bundle] [--seeds-from 5000] [--processes 2]

A table: families as rows, the share solved and the median ratio to the oracle for each variant.
"""

import argparse
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np

from asker import noise, unknown
from asker.efficiency import efficient_width
from asker.kernels import Cauchy, SmoothTruncated
from families import FAMILIES
from families.tables import deviation_of, is_solved
from record import add_record_option, recorded
from truth import Row, Task, run_all, run_case

Patch = Callable[[], Any]


def _without(name: str) -> Patch:
    """One of the first descents is left out."""
    ends = unknown.Search._ends

    def others(self: Any, start: Any) -> Iterator[Any]:
        return ((n, point) for n, point in ends(self, start) if n != name)

    return lambda: mock.patch.object(unknown.Search, "_ends", others)


VARIANTS: dict[str, Patch] = {
    "all": contextlib.nullcontext,
    "no subsets": lambda: mock.patch.object(unknown.Subsets, "suit", staticmethod(lambda *_: False)),
    "no moves": lambda: mock.patch.object(unknown.Search, "_moved", lambda self, kernels, point: point),
    "no graduated": _without("graduated"),
    "no least squares": _without("from least squares"),
    "no cycles": lambda: mock.patch.object(
        unknown.Search, "_cycled", lambda self, best: self._weighed(self._refined(best))
    ),
    "no chance": lambda: mock.patch.object(unknown.Search, "_rightness", _all_right),
    "no votes": lambda: mock.patch.object(noise, "kept_shares", _all_vote),
    "truncated end": lambda: mock.patch.object(
        unknown.Search, "_end_kernel", lambda self, n, p, Q: SmoothTruncated(noise.REACH * n.sigma)
    ),
    "Cauchy end": lambda: mock.patch.object(
        unknown.Search, "_end_kernel", lambda self, n, p, Q: Cauchy(efficient_width(p) * n.sigma)
    ),
}
KEPT = noise.kept_shares


def _all_right(self: Any, found: Any) -> Any:
    return tuple(np.ones(f.n) for f in self.engine.problem.factors)


def _all_vote(factors: Any, weights: Any, voting: bool = False) -> Any:
    return [np.ones(f.n) for f in factors] if voting else KEPT(factors, weights)


def run_variant(task: Task, variant: str) -> Row:
    """One case by one variant."""
    with VARIANTS[variant]():
        return run_case(task, quick=False, only="asker")


def told(rows: list[Row]) -> str:
    """Share solved and median ratio."""
    errors = [(row["runs"][0]["error"] or np.inf, row["oracle"], deviation_of(row)) for row in rows]
    solved = np.mean([is_solved(error, oracle, deviation) for error, oracle, deviation in errors])
    return f"{solved:.0%}, {np.median([error / oracle for error, oracle, _ in errors]):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default="circle,line,ellipse,essential,ranges,rotations,bundle")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--seeds-from", type=int, default=5000, metavar="K")
    parser.add_argument("--processes", type=int, default=2)
    add_record_option(parser)
    args = parser.parse_args()
    families, variants = args.families.split(","), args.variants.split(",")
    tasks = [(f, c, s + args.seeds_from) for f in families for c, s in FAMILIES[f].cases(False)]
    found = {}
    with TemporaryDirectory() as folder:
        for variant in variants:
            file = Path(folder) / f"{variant}.jsonl"
            found[variant] = run_all(tasks, file, variant, partial(run_variant, variant=variant), args.processes)
    with recorded(args.record):
        print(f"| family | {' | '.join(variants)} |\n|---|{'---|' * len(variants)}")
        for family in families:
            cells = (told([row for row in found[v] if row["family"] == family]) for v in variants)
            print(f"| {family} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

"""Contribution of each part of the default: `truth.py` without settings, and without one part at a time.

    python benchmarks/parts.py [--families circle,bundle] [--parts 'minimal subsets,Student tails'] [--processes 2]

The first table has a row for each part and a column for each family, with the share of solved cases and the median
ratio to the oracle without the part; the second has the processor time in seconds.  A cell is `=` if every case has the
same error as with all parts, within 1 %.

A part is removed by the generators and the settings of `asker.Search`, as a user would do it.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

import asker
from asker.search.generators import GENERATORS
from families import FAMILIES
from families.family import Instance
from families.tables import Outcome, Row, by_method, figures, short, with_setting
from record import add_record_option, recorded
from truth import Task, oracles_of, run_all

ALL = "nothing"
"""The name of the run with all parts."""
TOGETHER = "+"
"""Separator of parts that are removed together."""
SAME = 0.01
"""The relative difference up to which two errors count as equal."""
SETTINGS: dict[str, dict[str, Any]] = {
    "Student tails": {"tail_dofs": (inf,)},
    "heavy background": {"background_dofs": (inf,)},
    "exact leverage": {"max_exact_leverage_unknowns": 0},
    "agreement of leverage": {"max_agreement_rounds": 1},
    "majority": {"alternative_nats": 0.0},
    "several scales": {"initial_quantiles": (0.5,)},
    "refinement": {"max_refinement_rounds": 1},
    "variance components": {"max_variance_rounds": 1},
    "block moves": {"max_move_rounds": 0},
    "inlier sets": {"max_enumerated_observations": 0},
    "all generators in small problems": {"max_small_unknowns": 0},
}
"""Settings without a part."""
PARTS = (ALL, *(generator.name for generator in GENERATORS), *SETTINGS)
"""All parts by name: the generators, and what a setting turns off."""


def search_without(part: str) -> asker.Search:
    """Return the default method without one or several parts."""
    names = part.split(TOGETHER)
    if strange := [name for name in names if name not in PARTS]:
        raise ValueError(f"no part is called {strange[0]!r}; there are {', '.join(PARTS)}")
    settings = asker.SearchSettings()
    for name in names:
        settings = replace(settings, **SETTINGS.get(name, {}))
    return asker.Search(tuple(g for g in GENERATORS if g.name not in names), settings)


def without(part: str, instance: Instance) -> float:
    """Return the error of the default method without a part."""
    result = asker.solve(instance.problem(None), search_without(part), time_limit=instance.time_limit)
    if result.status is asker.Status.TIME_LIMIT:
        raise TimeoutError(f"not finished in {instance.time_limit:g} s")
    return instance.error(result)


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
    begin = time.process_time()
    try:
        error = without(part, instance)
    except TimeoutError:
        error = inf
    seconds = round(time.process_time() - begin, 4)
    return {"method": part, "factor": None, "error": error if error < inf else None, "seconds": seconds}


class Table:
    """The cases of all families, part by part."""

    def __init__(self, rows: list[Row]):
        self.families = list(dict.fromkeys(row["family"] for row in rows))
        outcomes = {family: by_method(row for row in rows if row["family"] == family) for family in self.families}
        self.outcomes = {
            family: {part: with_setting(conditions, None) for part, conditions in of_family.items()}
            for family, of_family in outcomes.items()
        }

    def cell(self, part: str, family: str) -> str:
        """Return the statistics of a family without a part."""
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
    try:
        for part in parts:
            search_without(part)
    except ValueError as error:
        parser.error(str(error))
    firsts = [int(first) for first in args.seeds_from.split(",")]
    cases = [(f, c, s) for f in args.families.split(",") for c, s in FAMILIES[f].cases(False)]
    tasks = [(f, c, s + first) for first in firsts for f, c, s in cases]
    rows = run_all(tasks, args.runs, ",".join(parts), partial(run_parts, parts=parts), args.processes)
    with recorded(args.record):
        Table(rows).print(parts)


if __name__ == "__main__":
    main()

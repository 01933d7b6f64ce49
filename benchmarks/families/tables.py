"""The tables of `truth.py`, from its cases.

A *setting* of a method is the factor by which the user's number was multiplied; a *choice* is one setting for each
condition.  A method that needs a number is shown with two choices: the user's number, and its best setting, which
solves most seeds of a condition (then: has the lowest median ratio).
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np

Row = dict[str, Any]
"""A case as `truth.py` writes it."""
DEFAULT = "asker, nothing given"
AT_TRUTH = "asker, started at the truth"
"""The same default from where nobody begins: a case that this does not solve either is beyond any search."""
TOLD_ALL = "the likeliest, all told but who is an outlier"
"""A case that this does not solve is beyond anybody who has the data alone."""
OURS = (DEFAULT, AT_TRUTH, TOLD_ALL)
OWN_DEFAULT = "default"
"""The setting of another program that is given no number."""
START = "the start"
"""What the names of lines begin with that show the start for comparison."""
RATIO, DEVIATIONS = 1.5, 3.0
WITHOUT_ORACLE = 1.01
"""Times the lowest error: what is *solved* where there is no oracle."""


@dataclass(frozen=True)
class Outcome:
    """One run, measured by the oracle."""

    solved: bool
    ratio: float
    seconds: float


@dataclass(frozen=True)
class Figures:
    """What a table says of some runs."""

    solved: float
    ratio: float
    worst: float
    """The 90th percentile of the ratio."""
    seconds: float

    @property
    def rank(self) -> tuple[float, float]:
        """The better, the smaller."""
        return -self.solved, self.ratio


Runs = dict[str, dict[str, dict[Any, list[Outcome]]]]
"""Of one family: method -> condition -> setting -> a run for each seed."""


def is_solved(error: float, oracle: float, deviation: float | None) -> bool:
    """Whether an error is about as small as can be.

    `deviation` is the standard deviation of the oracle's errors; None: there is no oracle, but the lowest error of all.
    """
    if deviation is None:
        return error <= WITHOUT_ORACLE * oracle
    return error <= max(RATIO * oracle, DEVIATIONS * deviation)


def floor_of(row: Row) -> float:
    """The oracle's error, or the lowest one where there is none."""
    if row["oracle"] is not None:
        return row["oracle"]
    return min(run["error"] for run in row["runs"] if run["error"] is not None and run["factor"] != OWN_DEFAULT)


def deviation_of(row: Row) -> float | None:
    """The standard deviation of the oracle's errors under the row's condition."""
    if row["oracle"] is None:
        return None
    return float(np.std(row["oracles"], ddof=1)) if row["oracles"] else 0.0


def by_method(rows: Iterable[Row]) -> Runs:
    """The runs of one family."""
    rows = list(rows)
    deviation = {name_of(row["condition"]): deviation_of(row) for row in rows}
    found: Runs = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        condition, oracle = name_of(row["condition"]), floor_of(row)
        for run in row["runs"]:
            error = inf if run["error"] is None else run["error"]
            outcome = Outcome(is_solved(error, oracle, deviation[condition]), error / oracle, run["seconds"])
            found[run["method"]][condition][run["factor"]].append(outcome)
    return found


def name_of(condition: dict[str, Any]) -> str:
    """A condition in words."""
    return ", ".join(f"{k} {v}" if isinstance(v, str) else f"{k} {json.dumps(v)}" for k, v in condition.items())


def figures(runs: list[Outcome]) -> Figures:
    """The figures of runs; a run that failed has an infinite ratio."""
    ratios = np.array([run.ratio for run in runs])
    ratio, worst = (float(np.quantile(ratios, q, method="inverted_cdf")) for q in (0.5, 0.9))
    return Figures(
        float(np.mean([run.solved for run in runs])), ratio, worst, float(np.median([run.seconds for run in runs]))
    )


def with_setting(conditions: dict[str, dict[Any, list[Outcome]]], setting: Any) -> list[Outcome]:
    """The runs of one setting under all conditions; empty where a condition has none."""
    if not all(setting in settings for settings in conditions.values()):
        return []
    return [run for settings in conditions.values() for run in settings[setting]]


def with_best_setting(conditions: dict[str, dict[Any, list[Outcome]]]) -> list[Outcome]:
    """The runs of the best setting of each condition."""
    best = (min(settings.values(), key=lambda runs: figures(runs).rank) for settings in conditions.values())
    return [run for runs in best for run in runs]


def lines_of(runs: Runs) -> tuple[dict[str, Figures], dict[str, Figures]]:
    """Of each method the figures with what a user would give, and with its best setting.

    Another program is a line of the first kind twice: with the user's number, and by its own default.
    """
    plain, best = {}, {}
    for method, conditions in runs.items():
        for setting, name in ((None, method), (1.0, method), (OWN_DEFAULT, f"{method}, its default")):
            if chosen := with_setting(conditions, setting):
                plain[name] = figures(chosen)
        if method not in OURS:
            best[method] = figures(with_best_setting(conditions))
    return plain, best


def with_one_setting(runs: Runs) -> dict[str, Figures]:
    """Of each other method the figures with each of its settings, the same under all conditions."""
    lines = {}
    for method, conditions in runs.items():
        settings = dict.fromkeys(setting for each in conditions.values() for setting in each)
        for setting in settings if method not in OURS else ():
            if chosen := with_setting(conditions, setting):
                name = f"{method}, {setting if setting == OWN_DEFAULT else f'{setting:g} ×'}"
                lines[name] = figures(chosen)
    return lines


def print_tables(rows: list[Row], every_condition: bool) -> None:
    """A summary, then each family, in Markdown."""
    families = {name: by_method(r for r in rows if r["family"] == name) for name in dict.fromkeys(map(family_of, rows))}
    print_summary(families)
    for name, runs in families.items():
        print(f"\n## {name}\n")
        print_family(runs)
        if every_condition:
            print_conditions(runs)
    print_failures(rows)


def family_of(row: Row) -> str:
    return row["family"]


def print_summary(families: dict[str, Runs]) -> None:
    """Each family in a line.  *Other* is every method but asker with nothing given; asker's own are among them."""
    others = "the user's number", "one setting", "its best setting"
    heads = (DEFAULT, "solvable", *(f"best other, {how}" for how in others), "any other")
    print("## Summary\n\nShare solved, and the median ratio of the error to the oracle's.")
    print("Solvable: by asker with nothing given, from the start or from the truth.")
    print("One setting: of the user's number a multiple, the best one for the whole family.")
    print("Its best setting: the best one for each condition; both are chosen with the truth in hand.")
    print("Any other: by at least one other method with one of its settings, which nobody could choose.\n")
    print(f"| family | cases | {' | '.join(heads)} |\n|---|---|" + "---|" * len(heads))
    for name, runs in families.items():
        plain, best = lines_of(runs)
        ours = plain.pop(DEFAULT)
        for name_of_ours in OURS[1:]:
            plain.pop(name_of_ours, None)
        n = len(with_setting(runs[DEFAULT], None))
        one = winner(with_one_setting(runs))
        cells = short(ours), solvable(runs), winner(plain), one, winner(best), by_any(runs)
        print(f"| {name} | {n} | {' | '.join(cells)} |")


def solvable(runs: Runs) -> str:
    """The share of the cases that asker solves with nothing given, from the start or from the truth."""
    if AT_TRUTH not in runs:
        return ""
    pairs = zip(with_setting(runs[DEFAULT], None), with_setting(runs[AT_TRUTH], None), strict=True)
    return f"{np.mean([a.solved or b.solved for a, b in pairs]):.0%}"


def by_any(runs: Runs) -> str:
    """The share of the cases that at least one other method solves, with one of its settings."""
    conditions = defaultdict[str, list[list[bool]]](list)
    for method in (name for name in runs if name not in OURS and not name.startswith(START)):
        for condition, settings in runs[method].items():
            conditions[condition] += [[each.solved for each in outcomes] for outcomes in settings.values()]
    shares = [one for each in conditions.values() for one in np.any(each, axis=0)]
    return f"{np.mean(shares):.0%}" if shares else ""


def winner(lines: dict[str, Figures]) -> str:
    """The best of some methods, with its name; the start is none."""
    lines = {name: figures for name, figures in lines.items() if not name.startswith(START)}
    if not lines:
        return ""
    name = min(lines, key=lambda each: lines[each].rank)
    return f"{name}: {short(lines[name])}"


def print_family(runs: Runs) -> None:
    """The methods of a family, the best first."""
    plain, best = lines_of(runs)
    print("| method | solved | ratio | 90 % | s | best setting: solved | ratio | 90 % | s |\n|---|" + "---|" * 8)
    for name in sorted({**best, **plain}, key=lambda each: (each not in OURS, {**best, **plain}[each].rank)):
        print(f"| {name} | {long(plain.get(name))} | {long(best.get(name))} |")


def print_conditions(runs: Runs) -> None:
    """Condition by condition: asker with nothing given, and the best of all others with its best setting."""
    print(f"\n| condition | {DEFAULT} | best other, its best setting |\n|---|---|---|")
    for condition, settings in runs[DEFAULT].items():
        others = {m: figures(with_best_setting({condition: c[condition]})) for m, c in runs.items() if m not in OURS}
        print(f"| {condition} | {short(figures(settings[None]))} | {winner(others)} |")


def print_failures(rows: list[Row]) -> None:
    """What was said by the runs that ended with an exception."""
    said: dict[tuple[str, str, str], int] = defaultdict(int)
    for row in rows:
        for run in row["runs"]:
            if "failed" in run:
                said[row["family"], run["method"], run["failed"]] += 1
    if said:
        print("\n## Runs that failed\n\n| family | method | runs | what was said |\n|---|---|---|---|")
    for (family, method, text), n in said.items():
        print(f"| {family} | {method} | {n} | {text.replace('|', '/')} |")


def short(f: Figures) -> str:
    return f"{f.solved:.0%}, {number(f.ratio)}"


def long(f: Figures | None) -> str:
    return " | | | " if f is None else f"{f.solved:.0%} | {number(f.ratio)} | {number(f.worst)} | {f.seconds:.3f}"


def number(x: float) -> str:
    """Two decimals, or fewer where there is more before them."""
    if not isfinite(x):
        return "∞"
    return f"{x:.2f}" if x < 100 else f"{x:.0f}" if x < 1e5 else f"{x:.0e}"

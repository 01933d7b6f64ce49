"""Tables of `truth.py`.

A *setting* of a method is the factor by which the user's scale was multiplied; a *choice* is one setting for each
condition.  A method that needs a scale is shown with two choices: the user's scale, and the best setting of each
condition, which solves the most seeds (and, among equals, has the lowest median ratio).
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np

Row = dict[str, Any]
"""Record of a case in the format of `truth.py`."""
DEFAULT = "asker, nothing given"
AT_TRUTH = "asker, started at the truth"
"""The default started at the truth; a case that this does not solve either cannot be solved by any search."""
TOLD_ALL = "the likeliest, all told but who is an outlier"
"""Maximum likelihood for known noise and outlier model; a case that this does not solve is not determined by the data.
The string is the name in saved cases; `LABELS` has the label of the tables."""
LABELS = {
    DEFAULT: "asker, no settings",
    TOLD_ALL: "maximum likelihood, noise and outlier ratio known",
    "the start, which saw them": "the initial guess, from all observations",
}
"""Labels in the tables of methods whose saved names differ."""
OURS = (DEFAULT, AT_TRUTH, TOLD_ALL)
OWN_DEFAULT = "default"
"""Setting of another program with its default scale."""
START = "the start"
"""Prefix of the names of lines that show the initial guess for comparison."""
SOLVED_RATIO, SOLVED_SIGMAS = 1.5, 3.0
"""Largest error of a solved case: relative to the oracle's, or in standard deviations of the oracle's error."""
SOLVED_RATIO_WITHOUT_ORACLE = 1.01
"""Largest error of a solved case relative to the lowest error, if there is no oracle."""


@dataclass(frozen=True)
class Outcome:
    """One run compared with the oracle."""

    solved: bool
    ratio: float
    seconds: float


@dataclass(frozen=True)
class Figures:
    """Statistics of several runs in a table."""

    solved: float
    ratio: float
    worst: float
    """90th percentile of the ratio."""
    seconds: float

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key: smaller is better."""
        return -self.solved, self.ratio


Runs = dict[str, dict[str, dict[Any, list[Outcome]]]]
"""Runs of one family: method -> condition -> setting -> a run for each seed."""


def is_solved(error: float, oracle: float, deviation: float | None) -> bool:
    """Return whether an error is within the sampling error of the oracle's.

    `deviation` is the standard deviation of the oracle's errors; None if `oracle` is the lowest error of all runs.
    """
    if deviation is None:
        return error <= SOLVED_RATIO_WITHOUT_ORACLE * oracle
    return error <= max(SOLVED_RATIO * oracle, SOLVED_SIGMAS * deviation)


def floor_of(row: Row) -> float:
    """Return the oracle's error, or the lowest error of all runs if there is no oracle."""
    if row["oracle"] is not None:
        return row["oracle"]
    return min(run["error"] for run in row["runs"] if run["error"] is not None and run["factor"] != OWN_DEFAULT)


def deviation_of(row: Row) -> float | None:
    """Return the standard deviation of the oracle's errors under the row's condition."""
    if row["oracle"] is None:
        return None
    return float(np.std(row["oracles"], ddof=1)) if row["oracles"] else 0.0


def by_method(rows: Iterable[Row]) -> Runs:
    """Return the runs of one family, grouped by method, condition and setting."""
    rows = list(rows)
    deviation = {name_of(row["condition"]): deviation_of(row) for row in rows}
    runs: Runs = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        condition, oracle = name_of(row["condition"]), floor_of(row)
        for run in row["runs"]:
            error = inf if run["error"] is None else run["error"]
            outcome = Outcome(is_solved(error, oracle, deviation[condition]), error / oracle, run["seconds"])
            runs[run["method"]][condition][run["factor"]].append(outcome)
    return runs


def name_of(condition: dict[str, Any]) -> str:
    """Return a condition as text."""
    return ", ".join(f"{k} {v}" if isinstance(v, str) else f"{k} {json.dumps(v)}" for k, v in condition.items())


def figures(runs: list[Outcome]) -> Figures:
    """Return the statistics of runs; a failed run has an infinite ratio."""
    ratios = np.array([run.ratio for run in runs])
    ratio, worst = (float(np.quantile(ratios, q, method="inverted_cdf")) for q in (0.5, 0.9))
    return Figures(
        float(np.mean([run.solved for run in runs])), ratio, worst, float(np.median([run.seconds for run in runs]))
    )


def with_setting(conditions: dict[str, dict[Any, list[Outcome]]], setting: Any) -> list[Outcome]:
    """Return the runs of one setting under all conditions; empty if a condition lacks the setting."""
    if not all(setting in settings for settings in conditions.values()):
        return []
    return [run for settings in conditions.values() for run in settings[setting]]


def with_best_setting(conditions: dict[str, dict[Any, list[Outcome]]]) -> list[Outcome]:
    """Return the runs of the best setting of each condition."""
    best = (min(settings.values(), key=lambda runs: figures(runs).rank) for settings in conditions.values())
    return [run for runs in best for run in runs]


def lines_of(runs: Runs) -> tuple[dict[str, Figures], dict[str, Figures]]:
    """Return the statistics of each method with the user's scale, and with its best setting.

    Other programs have two lines of the first kind: with the user's scale, and with their default.
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
    """Return the statistics of each other method for each setting, fixed for all conditions."""
    lines = {}
    for method, conditions in runs.items():
        settings = dict.fromkeys(setting for each in conditions.values() for setting in each)
        for setting in settings if method not in OURS else ():
            if chosen := with_setting(conditions, setting):
                name = f"{method}, {setting if setting == OWN_DEFAULT else f'{setting:g} ×'}"
                lines[name] = figures(chosen)
    return lines


def print_tables(rows: list[Row], every_condition: bool) -> None:
    """Print a summary, then the table of each family, in Markdown."""
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
    """Print one line for each family; *other* methods are all but asker's default, including asker's strategies."""
    others = "the user's number", "one setting", "its best setting"
    heads = (LABELS[DEFAULT], "solvable", *(f"best other, {how}" for how in others), "any other")
    print("## Summary\n\nShare of solved cases, and the median ratio of the error to the oracle's.")
    print("Solvable: solved by asker without settings, started at the initial guess or at the truth.")
    print("One setting: the multiple of the user's number that is best for the whole family.")
    print("Its best setting: the best one for each condition; both are chosen with knowledge of the truth.")
    print("Any other: solved by at least one other method with one of its settings, unknown in practice.\n")
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
    """Return the share of cases that asker's default solves from the initial guess or from the truth."""
    if AT_TRUTH not in runs:
        return ""
    pairs = zip(with_setting(runs[DEFAULT], None), with_setting(runs[AT_TRUTH], None), strict=True)
    return f"{np.mean([a.solved or b.solved for a, b in pairs]):.0%}"


def by_any(runs: Runs) -> str:
    """Return the share of cases that at least one other method solves with one of its settings."""
    conditions = defaultdict[str, list[list[bool]]](list)
    for method in (name for name in runs if name not in OURS and not name.startswith(START)):
        for condition, settings in runs[method].items():
            conditions[condition] += [[each.solved for each in outcomes] for outcomes in settings.values()]
    shares = [one for each in conditions.values() for one in np.any(each, axis=0)]
    return f"{np.mean(shares):.0%}" if shares else ""


def winner(lines: dict[str, Figures]) -> str:
    """Return the name and statistics of the best method; the initial guess does not count."""
    lines = {name: figures for name, figures in lines.items() if not name.startswith(START)}
    if not lines:
        return ""
    name = min(lines, key=lambda each: lines[each].rank)
    return f"{name}: {short(lines[name])}"


def print_family(runs: Runs) -> None:
    """Print the methods of a family, the best first."""
    plain, best = lines_of(runs)
    print("| method | solved | ratio | 90 % | s | best setting: solved | ratio | 90 % | s |\n|---|" + "---|" * 8)
    for name in sorted({**best, **plain}, key=lambda each: (each not in OURS, {**best, **plain}[each].rank)):
        print(f"| {LABELS.get(name, name)} | {long(plain.get(name))} | {long(best.get(name))} |")


def print_conditions(runs: Runs) -> None:
    """Print, for each condition, asker's default and the best other method with its best setting."""
    print(f"\n| condition | {LABELS[DEFAULT]} | best other, its best setting |\n|---|---|---|")
    for condition, settings in runs[DEFAULT].items():
        others = {m: figures(with_best_setting({condition: c[condition]})) for m, c in runs.items() if m not in OURS}
        print(f"| {condition} | {short(figures(settings[None]))} | {winner(others)} |")


def print_failures(rows: list[Row]) -> None:
    """Print the messages of the runs that ended with an exception."""
    counts: dict[tuple[str, str, str], int] = defaultdict(int)
    for row in rows:
        for run in row["runs"]:
            if "failed" in run:
                counts[row["family"], run["method"], run["failed"]] += 1
    if counts:
        print("\n## Runs that failed\n\n| family | method | runs | message |\n|---|---|---|---|")
    for (family, method, text), n in counts.items():
        print(f"| {family} | {method} | {n} | {text.replace('|', '/')} |")


def short(f: Figures) -> str:
    """Return the share of solved cases and the median ratio as text."""
    return f"{f.solved:.0%}, {number(f.ratio)}"


def long(f: Figures | None) -> str:
    """Return the four cells of a line of a family's table."""
    return " | | | " if f is None else f"{f.solved:.0%} | {number(f.ratio)} | {number(f.worst)} | {f.seconds:.3f}"


def number(x: float) -> str:
    """Return a number as text with at most two decimals."""
    if not isfinite(x):
        return "∞"
    return f"{x:.2f}" if x < 100 else f"{x:.0f}" if x < 1e5 else f"{x:.0e}"

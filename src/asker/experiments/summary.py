"""Summaries of recorded runs: tables, rankings and performance profiles."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from asker.applications.application import Application
from asker.experiments.instances import application_of_kind
from asker.experiments.plan import Plan, Run
from asker.experiments.published_results import reference_cost, reference_inliers
from asker.experiments.records import Record, read_record
from asker.io.files import FileError, write_whole
from asker.io.json import read_json

TIE = 1e-3  # two costs this near, relatively, are the same


@dataclass(frozen=True)
class Measure:
    """A metric that ranks methods; less is better."""

    key: str
    """The key of its value in the record of a run."""
    noun: str
    """Its name in sentences."""


COST = Measure("cost", "cost")
HELD_OUT = Measure("held_out_score", "held-out score")
HELD_OUT_COLUMNS = (
    ("held_out_score", "held-out score"),
    ("held_out_median", "held-out median"),
    ("held_out_below_1", "held out below 1, %"),
    ("held_out_below_2", "held out below 2, %"),
)


@dataclass(frozen=True, eq=False)
class Results:
    """The recorded runs of one group."""

    title: str
    kind: str
    text: str
    instances: tuple[str, ...]
    labels: tuple[str, ...]
    records: dict[tuple[str, str], Record]
    """The record for each instance and label; of several repeats the one with the median time."""

    @property
    def is_comparison(self) -> bool:
        """True if the methods are ranked, False in a study of the effect of a setting."""
        return self.kind != "study"

    def of(self, instance: str) -> dict[str, Record]:
        """Return the records of an instance by label."""
        return {label: self.records[instance, label] for label in self.labels if (instance, label) in self.records}

    def by_application(self) -> dict[Application, dict[str, dict[str, Record]]]:
        """Return the runs by application, instance and label, without instances that have no runs."""
        runs: dict[Application, dict[str, dict[str, Record]]] = {}
        for instance in self.instances:
            for label, record in self.of(instance).items():
                of_instance = runs.setdefault(application_of_kind(record.run.kind), {}).setdefault(instance, {})
                of_instance[label] = record
        return runs

    def drawn(self) -> Iterator[tuple[Application, dict[str, dict[str, Record]]]]:
        """Yield the applications that draw figures of this group, and their runs."""
        for application, runs in self.by_application().items():
            if self.is_comparison or application.plots_parameter_studies:
                yield application, runs

    @property
    def measure(self) -> Measure:
        """The metric that ranks: the held-out score or the true error if all runs have it, else the cost."""
        truths = {application_of_kind(r.run.kind).truth for r in self.records.values()}
        keys = [HELD_OUT, *([Measure(truths.pop(), "error")] if len(truths) == 1 else [])]
        return next((m for m in keys if m.key and all(m.key in r.result for r in self.records.values())), COST)

    def complete(self) -> list[str]:
        """Return the instances on which every method has run."""
        return [i for i in self.instances if len(self.of(i)) == len(self.labels)]


@dataclass(frozen=True, eq=False)
class Book:
    """The content of a folder of runs."""

    title: str
    missing: list[str]
    """Data sets that were not available."""
    failed: dict[str, str]
    """The error messages of failed runs."""
    groups: list[Results]
    root: Path


def write_index(plan: Plan, root: Path, failed: dict[str, str] | None = None) -> None:
    """Write the index of the folder: the groups with their runs, the failed runs and the missing data sets."""
    index = {
        "title": plan.title,
        "missing": list(plan.missing),
        "failed": failed or {},
        "groups": [
            {
                "title": g.title, "kind": g.kind, "text": g.text, "instances": g.instances, "labels": g.labels,
                "runs": [[i, label, [run.folder for run in runs]] for (i, label), runs in g.runs.items()],
            }
            for g in plan.groups
        ],
    }  # fmt: skip
    with write_whole(root / "plan.json") as file:
        file.write(json.dumps(index, indent=1).encode() + b"\n")


def read_book(root: Path) -> Book:
    """Return the finished runs of a folder."""
    file = root / "plan.json"
    if not os.path.exists(file):
        raise FileError(
            root, "this folder was not written by `asker reproduce` or `asker compare`: it has no plan.json"
        )
    what = "an index written by `asker reproduce` or `asker compare`"
    index = read_json(file, what)
    try:
        groups = [made for g in index["groups"] if (made := _group(g, root)) is not None]
        missing = [str(name) for name in _texts(index["missing"])]
        failed = {str(run): str(why) for run, why in index.get("failed", {}).items()}
        book = Book(str(index["title"]), missing, failed, groups, root)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
        if isinstance(e, FileError):
            raise
        raise FileError(file, f"this is not {what} ({e})") from e
    if not groups:
        raise FileError(root, "this folder has no finished run yet")
    return book


def _group(given: dict[str, Any], root: Path) -> Results | None:
    """Return the finished runs of a group of the index, or None if there are none."""
    title, kind, text = (str(given[key]) for key in ("title", "kind", "text"))
    instances, labels = (_texts(given[key]) for key in ("instances", "labels"))
    records = {}
    for instance, label, folders in given["runs"]:
        if instance not in instances or label not in labels:
            raise ValueError(f"{instance!r} and {label!r} are not among the instances and the labels")
        at = [root / "runs" / _plain(name) for name in _texts(folders)]
        found = [read_record(folder) for folder in at if os.path.exists(folder)]
        if found:
            found.sort(key=lambda r: r.result["seconds"])
            records[instance, label] = found[len(found) // 2]
    return Results(title, kind, text, instances, labels, records) if records else None


def _texts(given: Any) -> tuple[str, ...]:
    """Return a list of names as a tuple, or raise a ValueError."""
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise ValueError(f"expected a list of names, not {str(given)[:40]}")
    return tuple(given)


def _plain(name: str) -> str:
    """Return the name of a folder if it is a plain name and not a path."""
    if Path(name).name != name or name in ("", "..") or "\0" in name:
        raise ValueError(f"{name!r} is not the name of a folder")
    return name


@contextmanager
def telling_damage(book: Book) -> Iterator[None]:
    """Raise errors in the context as a `FileError` of the folder, whose files may have been edited."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as e:
        if isinstance(e, FileError):
            raise
        raise FileError(book.root, f"the runs here are damaged: {type(e).__name__}: {e}") from e


def excess(results: Results, what: str = "cost") -> dict[str, list[float]]:
    """Return the relative excess over the lowest value on each complete instance, by label."""
    table: dict[str, list[float]] = {label: [] for label in results.labels}
    for instance in results.complete():
        runs = results.of(instance)
        values = {label: _value(r, what) for label, r in runs.items()}
        lowest = min(values.values())
        for label, value in values.items():
            table[label].append(value / lowest - 1 if 0 < lowest < inf else float(value > lowest))
    return table


def _value(record: Record, key: str) -> float:
    """Return a number of a record; infinity replaces a missing one."""
    value = record.result[key]
    return inf if value is None else value


def ranking(results: Results) -> list[dict[str, Any]]:
    """Return a row of statistics for each method, best first, by the metric of the results."""
    table = excess(results, results.measure.key)
    rows = [
        {
            "method": label,
            "wins": sum(e <= TIE for e in values),
            "median": 100 * median(values),
            "worst": 100 * max(values),
            "typical": median(_value(results.records[i, label], results.measure.key) for i in results.complete()),
            "seconds": sum(results.records[i, label].result["seconds"] for i in results.complete()),
        }
        for label, values in table.items()
        if values
    ]
    return sorted(rows, key=lambda row: (row["median"], row["worst"]))


def sentence(results: Results) -> str:
    """Return a sentence on the best methods and their margin."""
    rows, n, noun = ranking(results), len(results.complete()), results.measure.noun
    if len(rows) < 2:
        return "Nothing to compare."
    first, second = rows[0], rows[1]
    names = [r["method"] for r in rows if r["wins"] == first["wins"] and r["median"] <= 100 * TIE]
    who = " and ".join(names) if names else first["method"]
    verb = "have" if len(names) > 1 else "has"
    on = "the instance" if n == 1 else f"{first['wins']} of {n} instances"
    others = [r for r in rows if r["method"] not in names] or [second]
    if others[0]["median"] <= 100 * TIE and n == 1:
        return f"{who} {verb} the lowest {noun}; all are within {100 * TIE:g} % of it."
    middle = "" if n == 1 else " in the median"
    near = [r for r in rows[1:] if r["method"] not in names and r["median"] <= 1]
    if results.measure is HELD_OUT and n == 1 and near:
        return f"{who} {verb} the lowest {noun}; {len(near)} more within 1 %, which may be chance: try --holdout-seed."
    text = f"{who} {verb} the lowest {noun} on {on}. Next comes {others[0]['method']}, {_higher(others[0])}{middle}"
    return text + (f"; the last is {rows[-1]['method']}, {_higher(rows[-1])}." if len(rows) > 2 else ".")


def _higher(row: dict[str, Any]) -> str:
    return f"{row['median']:.3g} % higher"


def profile(results: Results, what: str) -> dict[str, tuple[list[float], list[float]]]:
    """Return performance profiles (Dolan & Moré): the share of instances within a factor of the best, by label."""
    curves = {}
    table = excess(results, what)
    widest = max((max(v) for v in table.values() if v), default=0.0)
    for label, values in table.items():
        if not values:
            continue
        steps = np.sort(values)
        x = [1.0, *(1 + np.repeat(steps, 2)).tolist(), 1 + 1.05 * widest + 1e-6]
        shares = np.arange(len(steps) + 1) / len(steps)
        curves[label] = (x, [0.0, *np.repeat(shares, 2)[1:-1].tolist(), 1.0])
    return curves


def _is_the_papers(run: Run) -> bool:
    """Return True if the run has the settings of the paper's experiments."""
    asked = {"tau": 1.0, "camera": "pixel", "dof": 6}
    same = all(run.keys.get(key) == value for key, value in asked.items())
    own = run.settings or run.kernel or run.holdout
    return same and run.iterations == 100 and not own


def cost_rows(results: Results) -> list[dict[str, Any]]:
    """Return a row for each run: scores and true errors, then the cost and the paper's cost if it is known."""
    rows = []
    for (instance, label), r in results.records.items():
        known = reference_cost(instance, r.run.method) if _is_the_papers(r.run) else None
        row: dict[str, Any] = {"instance": instance, "method": label}
        for key, title in (*HELD_OUT_COLUMNS, *application_of_kind(r.run.kind).columns):
            if r.result.get(key) is not None:
                row[title] = (100 if title.endswith("%") else 1) * r.result[key]
        row |= {"start": r.result["initial_cost"], "cost": r.cost}
        row |= {"mean cost": r.result["mean_cost"], "seconds": r.result["seconds"]}
        row |= {"reference": known[0] if known else None, "from": known[1] if known else ""}
        row["difference %"] = 100 * (r.cost / known[0] - 1) if known else None
        rows.append(row | {"files": f"runs/{r.folder.name}/"})
    return rows


def within_inflection_rows(results: Results) -> list[dict[str, Any]]:
    """Return the observations within the inflection point of the kernel, in percent.

    There is a row for each instance, with the paper's numbers in brackets; the paper counts inliers in this way.
    """
    rows = []
    for instance in results.instances:
        runs = {k: r for k, r in results.of(instance).items() if "within_inflection" in r.result}
        if not runs:
            continue
        row: dict[str, Any] = {"instance": instance}
        for label, r in runs.items():
            known = reference_inliers(instance, r.run.method) if _is_the_papers(r.run) else None
            row[label] = f"{100 * r.result['within_inflection']:.1f}" + (f" ({known:.1f})" if known else "")
        rows.append(row)
    return rows

"""The HTML page of recorded runs; it contains the plotting library and needs no network."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from asker.experiments.plan import Run
from asker.experiments.records import Record
from asker.experiments.summary import (
    COST,
    HELD_OUT_COLUMNS,
    Book,
    Measure,
    Results,
    cost_rows,
    profile,
    ranking,
    sentence,
    within_inflection_rows,
)
from asker.io.figures import STYLES, method_styles
from asker.io.files import write_whole
from asker.strategies.filter import Filter

DIGITS = 7
MOST_NAMED = 6
DIGEST = re.compile(r"-[0-9a-f]{10}$")  # of the folder of a run


def write_page(path: Path, book: Book) -> None:
    from plotly.offline import get_plotlyjs

    template = resources.files("asker.experiments").joinpath("page.html").read_text(encoding="utf-8")
    text = json.dumps(rounded(page_data(book)), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    page = template.replace("/*PLOTLY*/", get_plotlyjs().replace("</script", "<\\/script"), 1).replace(
        "/*DATA*/", text, 1
    )
    with write_whole(path) as file:
        file.write(page.encode())


def page_data(book: Book) -> dict[str, Any]:
    records = [r for g in book.groups for r in g.records.values()]
    versions = {json.dumps(r.versions, sort_keys=True): r.versions for r in records}
    settings = [
        {"instance": g_instance, "method": label, "of": r.run.method, "iterations": r.run.iterations}
        | {"settings": _listed(r.run.settings), "instance settings": _listed(_instance_settings(r.run))}
        for g in book.groups
        for (g_instance, label), r in g.records.items()
    ]
    return {
        "title": book.title,
        "about": about([r.run for r in records]),
        "missing": book.missing,
        "failed": [f"{DIGEST.sub('', run)}: {why}" for run, why in book.failed.items()],
        "versions": list(versions.values()),
        "settings": settings,
        "styles": _styles(label for g in book.groups for _, label in g.records),
        "groups": [group_data(g) for g in book.groups],
    }


def about(runs: Sequence[Run]) -> str:
    """Return a line on the data, kernels, noise and iterations of all runs, for the top of the page."""

    def listed(name: str, values: Iterable[Any]) -> list[str]:
        known = [f"{x:g}" if isinstance(x, float) else str(x) for x in dict.fromkeys(values) if x is not None]
        some = ", ".join(known[:MOST_NAMED]) + (f" and {len(known) - MOST_NAMED} more" if known[MOST_NAMED:] else "")
        return [f"{name} {some}"] if known else []

    parts = [
        *listed("Data:", (r.instance for r in runs)),
        *listed("kernel", ("estimated" if r.estimates_noise else r.kernel_name for r in runs)),
        *listed("τ =", (r.keys.get("tau") for r in runs if not r.estimates_noise)),
        *listed("noise", (r.keys.get("noise") for r in runs)),
        *listed("iterations:", (r.iterations for r in runs)),
    ]
    return "; ".join(parts) + "." if runs else ""


def _styles(labels: Iterable[str]) -> dict[str, Any]:
    """Return the colour, dash and width of each method, as in the figures."""
    dashes = ["solid", "dash", "dashdot", "dot", "longdash"]
    lines = [line for line, _ in STYLES]
    return {
        label: {"color": s["color"], "dash": dashes[lines.index(s["linestyle"])], "width": 1.5 * s["linewidth"]}
        for label, s in method_styles(dict.fromkeys(labels)).items()
    }


def group_data(g: Results) -> dict[str, Any]:
    symbols = {application.symbol for application in g.by_application()}
    complete = g.complete()
    data: dict[str, Any] = {
        "title": g.title, "text": g.text, "kind": g.kind, "what": symbols.pop() if len(symbols) == 1 else "Ψ",
        "curves": [curve_data(g, i) for i in g.instances if g.of(i)] if _has_curves(g) else [],
        "rows": [row if _same_kernels(g) else _without_costs(row) for row in cost_rows(g)],
        "within_inflection": within_inflection_rows(g),
        "ranking": [_ranked(row, len(complete), g.measure) for row in ranking(g)] if complete else [],
        "lowest": _column(g),
        "sentence": sentence(g) if complete else "",
        "clouds": [], "space": [], "paths": [], "maps": [],
    }  # fmt: skip
    if g.is_comparison and len(complete) > 1:
        costs = {"Best cost": profile(g, "cost"), "Mean cost": profile(g, "mean_cost")}
        name = g.measure.noun.capitalize()
        data["profiles"] = costs if g.measure is COST else {name: profile(g, g.measure.key)}
    if g.is_comparison and all(application.plots_filter for application in g.by_application()):
        data |= inside(g)
    for application, runs in g.drawn():
        for key, drawing in application.page(runs).items():  # type: ignore[arg-type]
            data[key] = data[key] + drawing if isinstance(drawing, list) else drawing
    return data


def _column(g: Results) -> str:
    """Return the title of the column of the metric that ranks."""
    known = [*HELD_OUT_COLUMNS, *(column for application in g.by_application() for column in application.columns)]
    return next((title for key, title in known if key == g.measure.key), "cost")


def _ranked(row: dict[str, Any], n: int, measure: Measure) -> dict[str, Any]:
    shown = {
        "method": row["method"],
        f"median {measure.noun}": row["typical"],
        f"lowest (of {n})": row["wins"],
        "median excess %": row["median"],
        "worst excess %": row["worst"],
        "seconds in all": row["seconds"],
    }
    return {key: value for key, value in shown.items() if measure is not COST or not key.endswith("cost")}


def curve_data(g: Results, instance: str) -> dict[str, Any]:
    lines = [
        {
            "label": label,
            "iteration": [h["iteration"] for h in r.history],
            "seconds": [h["seconds"] for h in r.history],
            "best": [h["best_cost"] for h in r.history],
        }
        for label, r in g.of(instance).items()
    ]
    return {"instance": instance, "lines": lines}


def inside(g: Results) -> dict[str, Any]:
    """Return the filter, and Ψ, f and h, of the first ASKER run."""
    for (instance, label), r in g.records.items():
        if r.run.method.startswith("asker"):
            of = {"instance": instance, "label": label}
            return {"objectives": objectives_data(r) | of, "filter": filter_data(r) | of}
    return {}


def objectives_data(r: Record) -> dict[str, Any]:
    def positive(key: str) -> list[float | None]:
        return [h[key] if h.get(key) and h[key] > 0 else None for h in r.history]

    return {"iteration": [h["iteration"] for h in r.history]} | {k: positive(k) for k in ("cost", "f", "h")}


def filter_data(r: Record) -> dict[str, Any]:
    """Return the corners, the outline of the forbidden region and the steps at the iteration with most corners."""
    filters = [Filter()]
    for line in r.history:
        filters.append(filters[-1].with_corner(*line["corner"]) if line.get("corner") else filters[-1])
    at = max(range(len(r.history)), key=lambda k: len(filters[k + 1].corners))
    corners = sorted(filters[at + 1].corners, key=lambda c: c[1])
    steps = [[h["f"], h["h"]] for h in r.history[: at + 1]]
    right = 1.1 * max([h for _, h in [*corners, *steps]], default=1.0)
    top = 1.05 * max([f for f, _ in [*corners, *steps]], default=1.0)
    edge: list[list[float]] = []
    level = top
    for f, h in corners:  # from the left: points above f and to the right of h are forbidden
        if f < level:
            edge += [[level, h], [f, h]]
            level = f
    return {"at": at, "corners": corners, "steps": steps, "edge": [*edge, [level, right], [top, right]] if edge else []}


def _instance_settings(run: Run) -> dict[str, Any]:
    """Return the options of the instance and of its held-out observations; no kernel and τ if they are estimated."""
    keys = {k: v for k, v in run.keys.items() if not (run.estimates_noise and k in ("kernel", "tau"))}
    if run.holdout is None:
        return keys
    held_out = {"held out": run.holdout, "held-out seed": run.holdout_seed or 0}
    return keys | held_out | {"held-out unit": run.holdout_unit or 1.0}


def _same_kernels(g: Results) -> bool:
    """Return True if all runs have one kernel, so that their costs can be compared."""
    return len({(r.run.estimates_noise, r.run.kernel, r.run.tau) for r in g.records.values()}) <= 1


def _has_curves(g: Results) -> bool:
    """Return True if the costs of all iterations of all runs are those of one kernel."""
    return _same_kernels(g) and not any(r.run.estimates_noise for r in g.records.values())


def _without_costs(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("start", "cost", "mean cost", "difference %")}


def _listed(options: dict[str, Any]) -> str:
    """Return options as text, with paths reduced to names."""
    return ", ".join(f"{k} = {Path(v).name if k in ('file', 'folder') else v}" for k, v in options.items())


def rounded(value: Any) -> Any:
    """Return the data with floats rounded to `DIGITS` digits, which halves the size of the page."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return rounded(value.item()) if isinstance(value, np.generic) else value

"""One web page from recorded runs.  It needs no network: the plotting library is inside."""

import base64
import json
import math
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from asker.io.files import write_whole
from asker.io.images import picture_bytes
from asker.strategies.filter import Filter
from asker.study.mean import landscape
from asker.study.runs import Record
from asker.study.summary import Book, Results, cost_rows, inlier_rows, profile, ranking, sentence

CLOUDS = ("irls", "asker")  # the methods whose structures are shown
IN_SPACE = 3  # instances that are shown in space: a browser draws no more than a dozen such figures at a time
FLAT_POINTS = 1500
DIGITS = 7


def write_page(path: Path, book: Book) -> None:
    from plotly.offline import get_plotlyjs

    template = resources.files("asker.study").joinpath("page.html").read_text(encoding="utf-8")
    text = json.dumps(rounded(page_data(book)), allow_nan=False, separators=(",", ":")).replace("</", "<\\/")
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
        | {"settings": _told(r.run.settings), "instance settings": _told(r.run.options)}
        for g in book.groups
        for (g_instance, label), r in g.records.items()
    ]
    return {
        "title": book.title,
        "missing": book.missing,
        "versions": list(versions.values()),
        "settings": settings,
        "groups": [group_data(g) for g in book.groups],
    }


def group_data(g: Results) -> dict[str, Any]:
    stereo = all(r.run.kind == "stereo" for r in g.records.values())
    complete = g.complete()
    data: dict[str, Any] = {
        "title": g.title, "text": g.text, "kind": g.kind, "what": "energy" if stereo else "Ψ",
        "curves": [curve_data(g, i) for i in g.instances if g.of(i)],
        "rows": cost_rows(g), "inliers": inlier_rows(g),
        "ranking": [_ranked(row, len(complete)) for row in ranking(g)] if complete else [],
        "sentence": sentence(g) if complete else "",
        "clouds": [], "space": [], "maps": list(map_rows(g)) if stereo else [],
    }  # fmt: skip
    if g.kind == "comparison" and len(complete) > 1:
        data["profiles"] = {"Best cost": profile(g, "cost"), "Mean cost": profile(g, "mean_cost")}
    if stereo and complete:
        values = [[g.records[i, label].cost for i in complete] for label in g.labels]
        data["bars"] = {"labels": g.labels, "instances": complete, "values": values}
    if g.kind == "comparison":
        data |= inside(g)
        for c in cloud_data(g):
            data["clouds"].append(c)
        data["space"] = list(space_data(g))
    return data


def _ranked(row: dict[str, Any], n: int) -> dict[str, Any]:
    return {
        "method": row["method"],
        f"lowest (of {n})": row["wins"],
        "median excess %": row["median"],
        "worst excess %": row["worst"],
        "seconds in all": row["seconds"],
    }


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
    """The filter, and Ψ, f and h, of the first ASKER run; the landscape of a robust mean."""
    data: dict[str, Any] = {}
    for (instance, label), r in g.records.items():
        if r.run.kind == "mean":
            found = [{"label": k, "mean": o.result["mean"]} for k, o in g.of(instance).items()]
            curve = {k: v.tolist() for k, v in landscape(r.run.options["seed"]).items()}
            return {"mean": curve | {"found": found}}
        if r.run.method.startswith("asker") and "objectives" not in data:
            data["objectives"] = objectives_data(r) | {"instance": instance, "label": label}
            data["filter"] = filter_data(r) | {"instance": instance, "label": label}
    return data


def objectives_data(r: Record) -> dict[str, Any]:
    def positive(key: str) -> list[float | None]:
        return [h[key] if h.get(key) and h[key] > 0 else None for h in r.history]

    return {"iteration": [h["iteration"] for h in r.history]} | {k: positive(k) for k in ("cost", "f", "h")}


def filter_data(r: Record) -> dict[str, Any]:
    """At the iteration with the most corners: the corners, the outline of what they forbid, the steps so far."""
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
    for f, h in corners:  # from the left: what lies above f and to the right of h is forbidden
        if f < level:
            edge += [[level, h], [f, h]]
            level = f
    return {"at": at, "corners": corners, "steps": steps, "edge": [*edge, [level, right], [top, right]] if edge else []}


def cloud_data(g: Results) -> Iterator[dict[str, Any]]:
    for instance in g.instances:
        for label, r in g.of(instance).items():
            if r.run.kind in ("bal", "scene") and r.run.method in CLOUDS and not r.run.settings:
                a = r.arrays()
                points, supported = a["points"][:FLAT_POINTS], a["supported"][:FLAT_POINTS]
                yield _cloud(instance, label, points, a["centres"], supported)


def space_data(g: Results) -> Iterator[dict[str, Any]]:
    """Before and after ASKER."""
    for instance in g.instances[:IN_SPACE]:
        shown = [
            (k, r) for k, r in g.of(instance).items() if r.run.kind in ("bal", "scene") and r.run.method == "asker"
        ]
        for label, r in shown[:1]:
            a = r.arrays()
            yield _cloud(instance, "before", a["points_before"], a["centres_before"], a["supported_before"])
            yield _cloud(instance, f"after {label}", a["points"], a["centres"], a["supported"])


def _cloud(instance: str, label: str, points: np.ndarray, centres: np.ndarray, good: np.ndarray) -> dict[str, Any]:
    """Its box holds nearly all points and nearly all cameras."""
    boxes = [np.percentile(x[np.isfinite(x).all(axis=1)], [3, 97], axis=0) for x in (points, centres)]
    low, high = np.minimum(*[box[0] for box in boxes]), np.maximum(*[box[1] for box in boxes])
    middle, half = (low + high) / 2, 0.7 * float(max(high - low)) + 1e-9
    inside_box = (np.abs(points - middle) <= 3 * half).all(axis=1)
    spread = np.ptp(centres, axis=0) if len(centres) > 1 else np.ones(3)
    return {
        "instance": instance, "label": label,
        "points": points[inside_box].tolist(), "good": good[inside_box].astype(int).tolist(),
        "centres": centres.tolist(),
        "range": [[float(m - half), float(m + half)] for m in middle],
        "up": int(np.argmin(spread[1:])) + 1,
    }  # fmt: skip


def map_rows(g: Results) -> Iterator[dict[str, Any]]:
    for instance in g.instances:
        runs = g.of(instance)
        if not runs:
            continue
        first = next(iter(runs.values()))
        arrays, largest = first.arrays(), first.run.options["max_disparity"]
        images = [_map("winner takes all", arrays["winner"], largest, first.result.get("wta_bad_1"))]
        images += [_map(k, r.arrays()["disparity"], largest, r.result.get("bad_1")) for k, r in runs.items()]
        if "truth" in arrays:
            images.append(_map("truth", arrays["truth"], largest, None))
        yield {"instance": instance, "images": images}


def _map(label: str, disparity: np.ndarray, largest: float, bad: float | None) -> dict[str, Any]:
    png = base64.b64encode(picture_bytes(disparity, largest)).decode()
    return {"label": label, "png": f"data:image/png;base64,{png}", "bad": None if bad is None else 100 * bad}


def _told(options: dict[str, Any]) -> str:
    """Without the folders of this machine."""
    return ", ".join(f"{k} = {Path(v).name if k in ('file', 'folder') else v}" for k, v in options.items())


def rounded(value: Any) -> Any:
    """Seven digits are enough for a figure, and half the size."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return rounded(value.item()) if isinstance(value, np.generic) else value

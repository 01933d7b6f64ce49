"""Figures for papers, as PNG and PDF, from recorded runs."""

from pathlib import Path
from typing import Any

import numpy as np

from asker.figures import STYLES, figure
from asker.study.mean import WIDER, landscape
from asker.study.page import CLOUDS, filter_data, objectives_data
from asker.study.runs import Record
from asker.study.summary import Book, Results, profile


def write_figures(folder: Path, book: Book) -> list[Path]:
    """Every figure twice; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for k, g in enumerate(book.groups):
        for name, draw in _figures(g).items():
            for suffix in (".png", ".pdf"):
                path = folder / f"{k + 1}-{name}{suffix}"
                draw(path)
                written.append(path)
    return written


def _figures(g: Results) -> dict[str, Any]:
    made: dict[str, Any] = {"curves": lambda path: draw_group(path, g)}
    if g.kind == "comparison" and len(g.complete()) > 1:
        made["profiles"] = lambda path: draw_profiles(path, g)
    kinds = {r.run.kind for r in g.records.values()}
    ours = next((r for r in g.records.values() if r.run.method.startswith("asker")), None)
    if g.kind == "comparison" and ours and not kinds & {"mean"}:
        made["inside"] = lambda path: draw_inside(path, ours)
    if any(_has_structure(r) for r in g.records.values()) and g.kind == "comparison":
        made["structures"] = lambda path: draw_structures(path, g)
    if kinds == {"mean"}:
        made["landscape"] = lambda path: draw_landscape(path, g)
    if kinds == {"stereo"}:
        made["maps"] = lambda path: draw_disparities(path, g)
    return made


def _line(k: int) -> dict[str, Any]:
    style, color = STYLES[k % len(STYLES)]
    return {"linestyle": style, "color": color}


def draw_group(path: Path, g: Results) -> None:
    instances = [i for i in g.instances if g.of(i)]
    columns = min(3, len(instances))
    rows = -(-len(instances) // columns)
    with figure(path, 3.6 * columns, 2.9 * rows + 0.4) as drawn:
        axes = drawn.subplots(rows, columns, squeeze=False).ravel()
        for ax in axes[len(instances) :]:
            ax.set_axis_off()
        for ax, instance in zip(axes, instances, strict=False):
            for k, (label, r) in enumerate(g.of(instance).items()):
                ax.plot(
                    [h["iteration"] for h in r.history], [h["best_cost"] for h in r.history], label=label, **_line(k)
                )
            ax.set_title(instance, fontsize=10)
            ax.set_xlabel("iterations")
        axes[0].set_ylabel("lowest cost so far")
        handles, labels = axes[0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6), frameon=False)


def draw_profiles(path: Path, g: Results) -> None:
    with figure(path, 8, 3.4) as drawn:
        for ax, (what, title) in zip(
            drawn.subplots(1, 2), (("cost", "best cost"), ("mean_cost", "mean cost")), strict=True
        ):
            for k, (label, (x, y)) in enumerate(profile(g, what).items()):
                ax.plot(x, y, label=label, **_line(k))
            ax.set_xlabel("cost / lowest cost")
            ax.set_ylabel("share of instances")
            ax.set_title(title)
        ax.legend(fontsize=8)


def draw_inside(path: Path, r: Record) -> None:
    """Ψ, f and h over the iterations; the filter and what it forbids."""
    with figure(path, 8, 3.4) as drawn:
        left, right = drawn.subplots(1, 2)
        values = objectives_data(r)
        for k, (key, name) in enumerate((("cost", "Ψ"), ("f", "f"), ("h", "h"))):
            y = [np.nan if v is None else v for v in values[key]]
            left.semilogy(values["iteration"], y, label=name, **_line(k))
        left.set_xlabel("iterations")
        left.legend()
        data = filter_data(r)
        right.plot(
            [h for _, h in data["steps"]],
            [f for f, _ in data["steps"]],
            "o-",
            ms=3,
            lw=0.8,
            color="#0072b2",
            label="iterates",
        )
        if data["edge"]:
            h, f = [p[1] for p in data["edge"]], [p[0] for p in data["edge"]]
            right.fill_between(h, f, max(f), color="#d55e00", alpha=0.2, step=None, label="forbidden")
            right.plot(h, f, color="#d55e00", lw=1.2)
        right.set_xlabel("h")
        right.set_ylabel("f")
        right.set_title(f"the filter after {data['at']} iterations", fontsize=10)
        right.legend(fontsize=8)


def draw_landscape(path: Path, g: Results) -> None:
    """The cost over a robust mean, under the kernel and under a wide one, and where the methods end."""
    with figure(path, 6, 3.4) as drawn:
        ax = drawn.subplots()
        instance, runs = next((i, g.of(i)) for i in g.instances if g.of(i))
        curves = landscape(next(iter(runs.values())).run.options["seed"])
        for k, (key, name) in enumerate((("target", "target kernel"), ("scaled", f"{WIDER:g} times as wide"))):
            ax.plot(curves["x"], curves[key], label=name, **_line(k))
        for k, (label, r) in enumerate(runs.items()):
            ax.axvline(r.result["mean"], label=f"{label}: {r.result['mean']:.2f}", **_line(k + 2))
        ax.set_title(instance, fontsize=10)
        ax.set_xlabel("mean")
        ax.set_ylabel("cost / largest")
        ax.legend(fontsize=8)


def _has_structure(r: Record) -> bool:
    return r.run.kind in ("bal", "scene") and r.run.method in CLOUDS and not r.run.settings


def draw_structures(path: Path, g: Results) -> None:
    """From above, by IRLS and by ASKER."""
    instances = [i for i in g.instances if any(map(_has_structure, g.of(i).values()))]
    with figure(path, 7, 3.2 * len(instances)) as drawn:
        for axes, instance in zip(drawn.subplots(len(instances), 2, squeeze=False), instances, strict=True):
            runs = [(k, r) for k, r in g.of(instance).items() if _has_structure(r)]
            for ax in axes:
                ax.set_axis_off()
            for ax, (label, r) in zip(axes, runs, strict=False):
                a = r.arrays()
                up = int(np.argmin(np.ptp(a["centres"], axis=0)[1:])) + 1
                other = 3 - up
                both = np.concatenate([a["points"], a["centres"]])
                low, high = np.percentile(both[np.isfinite(both).all(axis=1)], [3, 97], axis=0)
                for good, color in ((True, "#333333"), (False, "#e08214")):
                    at = a["supported"] == good
                    ax.plot(a["points"][at, 0], a["points"][at, other], ".", ms=1, color=color)
                ax.plot(a["centres"][:, 0], a["centres"][:, other], "^", ms=3, color="#d62728")
                pad = 0.3 * (high - low)
                ax.set_xlim(low[0] - pad[0], high[0] + pad[0])
                ax.set_ylim(low[other] - pad[other], high[other] + pad[other])
                ax.set_title(f"{instance}, {label}", fontsize=10)


def draw_disparities(path: Path, g: Results) -> None:
    from asker.figures import draw_maps

    maps: dict[str, dict[str, np.ndarray]] = {}
    for instance in g.instances:
        for label, r in g.of(instance).items():
            arrays = r.arrays()
            row = maps.setdefault(instance, {"winner takes all": arrays["winner"]})
            row[label] = arrays["disparity"]
            if "truth" in arrays:
                truth = arrays["truth"]
        if instance in maps and "truth" in arrays:
            maps[instance]["truth"] = truth
    draw_maps(path, maps)

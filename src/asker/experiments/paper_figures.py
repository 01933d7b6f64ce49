"""Figures for papers, as PNG and PDF, from recorded runs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from asker.experiments.html_report import filter_data, objectives_data
from asker.experiments.records import Record
from asker.experiments.summary import Book, Results, profile
from asker.io.figures import figure, method_styles, style
from asker.io.folders import make_folder


def write_figures(folder: Path, book: Book) -> list[Path]:
    """Write every figure as PNG and PDF, and return the paths."""
    make_folder(folder)
    written = []
    for k, g in enumerate(book.groups):
        for name, draw in _figures(g).items():
            for suffix in (".png", ".pdf"):
                path = folder / f"{k + 1}-{name}{suffix}"
                draw(path)
                written.append(path)
    return written


def _figures(g: Results) -> dict[str, Callable[[Path], None]]:
    made: dict[str, Callable[[Path], None]] = {"curves": lambda path: draw_group(path, g)}
    if g.is_comparison and len(g.complete()) > 1:
        made["profiles"] = lambda path: draw_profiles(path, g)
    ours = next((r for r in g.records.values() if r.run.method.startswith("asker")), None)
    if g.is_comparison and ours and all(application.plots_filter for application in g.by_application()):
        made["inside"] = lambda path: draw_inside(path, ours)
    for application, runs in g.drawn():
        made |= application.figures(runs)  # type: ignore[arg-type]
    return made


def draw_group(path: Path, g: Results) -> None:
    instances = [i for i in g.instances if g.of(i)]
    columns = min(3, len(instances))
    rows = -(-len(instances) // columns)
    with figure(path, 3.6 * columns, 2.9 * rows + 0.4) as drawn:
        axes = drawn.subplots(rows, columns, squeeze=False).ravel()
        for ax in axes[len(instances) :]:
            ax.set_axis_off()
        styles = method_styles(label for _, label in g.records)
        for ax, instance in zip(axes, instances, strict=False):
            for label, r in g.of(instance).items():
                x, y = ([h[key] for h in r.history] for key in ("iteration", "best_cost"))
                ax.plot(x, y, label=label, **styles[label])
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
            lines = profile(g, what)
            for (label, (x, y)), of_method in zip(lines.items(), method_styles(lines).values(), strict=True):
                ax.plot(x, y, label=label, **of_method)
            ax.set_xlabel("cost / lowest cost")
            ax.set_ylabel("share of instances")
            ax.set_title(title)
        ax.legend(fontsize=8)


def draw_inside(path: Path, r: Record) -> None:
    """Draw Ψ, f and h over the iterations, and the filter with its forbidden region."""
    with figure(path, 8, 3.4) as drawn:
        left, right = drawn.subplots(1, 2)
        values = objectives_data(r)
        for k, (key, name) in enumerate((("cost", "Ψ"), ("f", "f"), ("h", "h"))):
            y = [np.nan if v is None else v for v in values[key]]
            left.semilogy(values["iteration"], y, label=name, **style(k))
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

"""Figures that can be read in grey: costs over iterations and time, bars."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from asker.io.files import write_whole

STYLES = (("-", "#1b1b1b"), ("--", "#0072b2"), ("-.", "#d55e00"), (":", "#009e73"), ((0, (5, 1)), "#cc79a7"))
FAMILIES = {
    "asker": "#0072b2", "irls": "#d55e00", "gnc": "#8a8a8a", "moo": "#009e73", "mhq": "#cc79a7", "triggs": "#b8860b",
    "sqrt-psi": "#56b4e9", "regemm": "#4c4c4c",
}  # fmt: skip
"""The colour of each method, by how its name begins; the same in every figure and on every page."""
FORMATS = (".png", ".svg", ".pdf")
HATCHES = ("", "//", "..", "xx", "\\\\")
Histories = dict[str, dict[str, list[Any]]]
"""Of each problem and method: the iterations of a result."""


def style(k: int) -> dict[str, Any]:
    """Of the k-th line."""
    line, color = STYLES[k % len(STYLES)]
    return {"linestyle": line, "color": color}


def method_styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour, line and width of each method; those of one family differ in the line, and ours are the thickest."""
    found: dict[str, dict[str, Any]] = {}
    for label in labels:
        family = next((name for name in FAMILIES if label.startswith(name)), "")
        color = FAMILIES.get(family, STYLES[0][1])
        before = sum(style["color"] == color for style in found.values())
        line = STYLES[before % len(STYLES)][0]
        found[label] = {"color": color, "linestyle": line, "linewidth": 2.6 if family == "asker" else 1.3}
    return found


@contextmanager
def figure(path: Path, width: float, height: float) -> Iterator[Any]:
    """A matplotlib figure that is written at the end, whole or not at all."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(width, height), layout="constrained")
    yield drawn
    with write_whole(path) as file:
        drawn.savefig(file, dpi=130, format=path.suffix.lstrip(".") or "png")


def draw_curves(path: Path, histories: Histories, what: str) -> None:
    """A row for each problem: the lowest cost so far over iterations, and over seconds."""
    with figure(path, 9, 3.2 * len(histories)) as drawn:
        grid = drawn.subplots(len(histories), 2, squeeze=False)
        for axes, (name, runs) in zip(grid, histories.items(), strict=True):
            styles = method_styles(runs)
            for ax, unit in zip(axes, ("iteration", "seconds"), strict=True):
                for method, history in runs.items():
                    begin = history[1].seconds if unit == "seconds" and len(history) > 1 else 0.0  # after compiling
                    x = [max(0.0, getattr(h, unit) - begin) for h in history]
                    ax.plot(x, [h.best_cost for h in history], label=method, **styles[method])
                ax.set_xlabel(unit)
                ax.set_ylabel(f"lowest {what} so far")
                ax.set_title(name)
            axes[0].legend()


def draw_bars(path: Path, values: dict[str, dict[str, float]], what: str) -> None:
    """A group of bars for each problem, a bar for each method."""
    with figure(path, 8, 3.4) as drawn:
        ax = drawn.subplots()
        methods = list(next(iter(values.values())))
        width, styles = 0.8 / len(methods), method_styles(methods)
        for k, method in enumerate(methods):
            x = np.arange(len(values)) + (k - (len(methods) - 1) / 2) * width
            heights = [v[method] for v in values.values()]
            style = {"color": styles[method]["color"], "hatch": HATCHES[k % len(HATCHES)], "edgecolor": "white"}
            bars = ax.bar(x, heights, width, label=method, **style)
            ax.bar_label(bars, fmt="%.4g", fontsize=7)
        ax.set_xticks(range(len(values)), list(values))
        ax.set_ylabel(what)
        ax.legend(ncols=len(methods), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)

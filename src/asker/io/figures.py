"""Figures that are readable in greyscale: costs over iterations and time, bars."""

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
"""The colour of each method by the beginning of its name, in all figures and pages."""
FORMATS = (".png", ".svg", ".pdf")
HATCHES = ("", "//", "..", "xx", "\\\\")
Histories = dict[str, dict[str, list[Any]]]
"""The iterations of a result, by problem and method."""


def style(k: int) -> dict[str, Any]:
    """Return the style of the k-th line."""
    line, color = STYLES[k % len(STYLES)]
    return {"linestyle": line, "color": color}


def method_styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return colour, line and width of each method; those of one family differ in the line, ASKER has the widest."""
    styles: dict[str, dict[str, Any]] = {}
    for label in labels:
        family = next((name for name in FAMILIES if label.startswith(name)), "")
        color = FAMILIES.get(family, STYLES[0][1])
        before = sum(style["color"] == color for style in styles.values())
        line = STYLES[before % len(STYLES)][0]
        styles[label] = {"color": color, "linestyle": line, "linewidth": 2.6 if family == "asker" else 1.3}
    return styles


@contextmanager
def figure(path: Path, width: float, height: float) -> Iterator[Any]:
    """Yield a matplotlib figure, and write it atomically at the end."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(width, height), layout="constrained")
    yield drawn
    with write_whole(path) as file:
        drawn.savefig(file, dpi=130, format=path.suffix.lstrip(".") or "png")


def draw_curves(path: Path, histories: Histories, what: str) -> None:
    """Draw a row for each problem: the lowest cost so far over iterations and over seconds."""
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
    """Draw a group of bars for each problem, with a bar for each method."""
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

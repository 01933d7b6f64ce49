"""Figures that can be read in grey: costs over iterations and time, bars, disparity maps, trajectories."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from asker import poses
from asker.io.files import write_whole
from asker.io.g2o import PoseGraph
from asker.result import Iteration

STYLES = (("-", "#1b1b1b"), ("--", "#0072b2"), ("-.", "#d55e00"), (":", "#009e73"), ((0, (5, 1)), "#cc79a7"))
FORMATS = (".png", ".svg", ".pdf")
HATCHES = ("", "//", "..", "xx", "\\\\")
Histories = dict[str, dict[str, list[Iteration]]]


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
            for ax, unit in zip(axes, ("iteration", "seconds"), strict=True):
                for k, (method, history) in enumerate(runs.items()):
                    line, color = STYLES[k % len(STYLES)]
                    begin = history[1].seconds if unit == "seconds" and len(history) > 1 else 0.0  # after compiling
                    x = [max(0.0, getattr(h, unit) - begin) for h in history]
                    ax.plot(x, [h.best_cost for h in history], linestyle=line, color=color, label=method)
                ax.set_xlabel(unit)
                ax.set_ylabel(f"lowest {what} so far")
                ax.set_title(name)
            axes[0].legend()


def draw_bars(path: Path, values: dict[str, dict[str, float]], what: str) -> None:
    """A group of bars for each problem, a bar for each method."""
    with figure(path, 8, 3.4) as drawn:
        ax = drawn.subplots()
        methods = list(next(iter(values.values())))
        width = 0.8 / len(methods)
        for k, method in enumerate(methods):
            x = np.arange(len(values)) + (k - (len(methods) - 1) / 2) * width
            heights = [v[method] for v in values.values()]
            style = {"color": STYLES[k % len(STYLES)][1], "hatch": HATCHES[k % len(HATCHES)], "edgecolor": "white"}
            bars = ax.bar(x, heights, width, label=method, **style)
            ax.bar_label(bars, fmt="%.4g", fontsize=7)
        ax.set_xticks(range(len(values)), list(values))
        ax.set_ylabel(what)
        ax.legend(ncols=len(methods), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)


def draw_maps(path: Path, maps: dict[str, dict[str, np.ndarray]]) -> None:
    """A row for each pair, its disparity maps side by side in the same colours."""
    columns = max(map(len, maps.values()))
    with figure(path, 2.6 * columns, 2.5 * len(maps)) as drawn:
        grid = drawn.subplots(len(maps), columns, squeeze=False)
        for axes, (pair, row) in zip(grid, maps.items(), strict=True):
            largest = max(float(np.nanmax(m)) for m in row.values())
            for ax in axes:
                ax.set_axis_off()
            for ax, (name, disparity) in zip(axes, row.items(), strict=False):
                image = ax.imshow(disparity, cmap="viridis", vmin=0, vmax=largest)
                ax.set_title(f"{pair}: {name}", fontsize=9)
            drawn.colorbar(image, ax=list(axes), label="disparity (px)", shrink=0.8)


def draw_trajectories(path: Path, graphs: dict[str, PoseGraph], refused: np.ndarray) -> None:
    """The same graph side by side: the way in order of ids, loops that are kept in grey, refused ones in colour.

    A graph in space is seen along the axis in which its last state is flattest.
    """
    from matplotlib.collections import LineCollection

    last = list(graphs.values())[-1]
    extent = np.ptp(poses.positions(last.kind, last.poses), axis=0)
    axes = np.sort(np.argsort(-extent, kind="stable")[:2])
    with figure(path, 5 * len(graphs), 4.8) as drawn:
        for ax, (name, graph) in zip(drawn.subplots(1, len(graphs), squeeze=False)[0], graphs.items(), strict=True):
            xy = poses.positions(graph.kind, graph.poses)[:, axes]
            ends = np.stack([xy[graph.i], xy[graph.j]], axis=1)
            kept = ~refused & ~graph.is_odometry
            for label, which, color in (("loops kept", kept, "#b0b0b0"), ("loops refused", refused, "#d55e00")):
                ax.add_collection(LineCollection(list(ends[which]), colors=color, linewidths=0.5, label=label))
            ax.plot(*xy[np.argsort(graph.ids)].T, color="#0072b2", linewidth=1.0, label="way")
            ax.set_aspect("equal", adjustable="datalim")
            ax.set_xlabel("xyz"[axes[0]])
            ax.set_ylabel("xyz"[axes[1]])
            ax.set_title(name)
        ax.legend(loc="upper right", fontsize=8)

"""Drawings of trajectories."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from asker.applications.application import Arrays, Runs
from asker.applications.pose_graph.graph import PoseGraph
from asker.geometry import poses
from asker.geometry.alignment import similarity
from asker.geometry.poses import Kind
from asker.io.figures import figure

MOST_LOOPS = 2000  # refused ones on a page
UNITS: dict[Kind, str] = {"SE2": "m", "SE3": "m", "SIM3": "in the unit of the file"}
"""g2o files are in metres; similarities in whatever the first one has."""


def seen_axes(xyz: np.ndarray) -> np.ndarray:
    """The two axes along which positions (n, 2) or (n, 3) are spread the most, in order."""
    return np.sort(np.argsort(-np.ptp(xyz, axis=0), kind="stable")[:2])


def draw_trajectories(
    path: Path, graphs: dict[str, PoseGraph], refused: np.ndarray, truth: tuple[np.ndarray, np.ndarray] | None = None
) -> None:
    """The same graph side by side: the way in order of ids, loops that are kept in grey, refused ones in colour.

    A graph in space is seen along the axis in which its last state is flattest.  With a truth (as `true_positions`
    returns it) each state is aligned with it, and it is drawn too.
    """
    from matplotlib.collections import LineCollection

    placed = {name: _aligned(graph, truth) for name, graph in graphs.items()}
    axes = seen_axes(list(placed.values())[-1][0])
    with figure(path, 5 * len(graphs), 4.8) as drawn:
        for ax, (name, graph) in zip(drawn.subplots(1, len(graphs), squeeze=False)[0], graphs.items(), strict=True):
            xy, points = (x[:, axes] for x in placed[name])
            ends = np.stack([xy[graph.i], xy[graph.j]], axis=1)
            kept = ~refused & ~graph.is_odometry
            for label, which, color in (("loops kept", kept, "#b0b0b0"), ("loops refused", refused, "#d55e00")):
                ax.add_collection(LineCollection(list(ends[which]), colors=color, linewidths=0.5, label=label))
            if truth is not None:
                index, where = truth
                ax.plot(*where[np.argsort(graph.ids[index])][:, axes].T, "k--", linewidth=0.8, label="truth")
            ax.plot(*xy[np.argsort(graph.ids)].T, color="#0072b2", linewidth=1.0, label="way")
            if len(points):
                ax.plot(*points.T, ".", color="#009e73", markersize=4, label="landmarks")
            ax.set_aspect("equal", adjustable="datalim")
            ax.set_xlabel(f"{'xyz'[axes[0]]} ({UNITS[graph.kind]})")
            ax.set_ylabel(f"{'xyz'[axes[1]]} ({UNITS[graph.kind]})")
            ax.set_title(name)
        ax.legend(loc="upper right", fontsize=8)


def _aligned(graph: PoseGraph, truth: tuple[np.ndarray, np.ndarray] | None) -> tuple[np.ndarray, np.ndarray]:
    """The positions of poses and of landmarks, in the frame of a truth."""
    xyz = poses.positions(graph.kind, graph.poses)
    points = graph.landmarks.points[:, : xyz.shape[1]]
    if truth is None:
        return xyz, points
    s, R, t = similarity(xyz[truth[0]], truth[1], scale=graph.kind == "SIM3")
    return s * xyz @ R.T + t, s * points @ R.T + t


# ---- for studies


def plot_arrays(before: PoseGraph, after: PoseGraph, refused: np.ndarray) -> Arrays:
    """What is recorded of a run: the way before and after, and the loops, in the two axes of the widest spread."""
    xy = poses.positions(after.kind, after.poses)
    axes = seen_axes(xy)
    order = np.argsort(after.ids)
    loops = ~after.is_odometry
    ends = np.stack([xy[after.i[loops]], xy[after.j[loops]]], axis=1)[:, :, axes]
    return {
        "way_before": poses.positions(before.kind, before.poses)[order][:, axes].astype(np.float32),
        "way": xy[order][:, axes].astype(np.float32),
        "loops": ends.astype(np.float32),
        "refused": refused[loops],
    }


def page(runs: Runs) -> dict[str, Any]:
    """The way at the start and where each method puts it, with the loops that it refuses."""
    paths = []
    for instance, of_instance in runs.items():
        for k, (label, run) in enumerate(of_instance.items()):
            a = run.arrays()
            if k == 0:
                paths.append({"instance": instance, "label": "before", "way": a["way_before"].tolist(), "refused": []})
            refused = a["loops"][a["refused"]][:MOST_LOOPS].tolist()
            paths.append({"instance": instance, "label": label, "way": a["way"].tolist(), "refused": refused})
    return {"paths": paths}


def figures(runs: Runs) -> dict[str, Callable[[Path], None]]:
    """The ways of every method."""
    return {"trajectories": lambda path: draw_ways(path, runs)} if runs else {}


def draw_ways(path: Path, runs: Runs) -> None:
    """A row for each instance, a column for each method."""
    from matplotlib.collections import LineCollection

    columns = max(map(len, runs.values()))
    with figure(path, 3.2 * columns, 3.2 * len(runs)) as drawn:
        for axes, (instance, of) in zip(drawn.subplots(len(runs), columns, squeeze=False), runs.items(), strict=True):
            for ax in axes[len(of) :]:
                ax.set_axis_off()
            for ax, (label, run) in zip(axes, of.items(), strict=False):
                a = run.arrays()
                for which, color in ((~a["refused"], "#b0b0b0"), (a["refused"], "#d55e00")):
                    ax.add_collection(LineCollection(list(a["loops"][which]), colors=color, linewidths=0.5))
                ax.plot(*a["way"].T, color="#0072b2", linewidth=1.0)
                ax.set_aspect("equal", adjustable="datalim")
                ax.set_title(f"{instance}, {label}", fontsize=10)

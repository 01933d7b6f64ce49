"""Figures of trajectories."""

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

MAX_REJECTED_ON_PAGE = 2000  # rejected loop closures per trajectory
UNITS: dict[Kind, str] = {"SE2": "m", "SE3": "m", "SIM3": "in the unit of the file"}
"""g2o files are in metres; similarities have the scale of the first pose."""


def widest_axes(xyz: np.ndarray) -> np.ndarray:
    """Return the two axes along which positions (n, 2) or (n, 3) extend the most, in increasing order."""
    return np.sort(np.argsort(-np.ptp(xyz, axis=0), kind="stable")[:2])


def draw_trajectories(
    path: Path, graphs: dict[str, PoseGraph], rejected: np.ndarray, truth: tuple[np.ndarray, np.ndarray] | None = None
) -> None:
    """Draw states of a graph next to each other: the trajectory in order of ids, accepted and rejected loop closures.

    Graphs in space are projected along the axis in which the last state extends the least.

    Parameters
    ----------
    path
        Image file to write.
    graphs
        States of the graph, by title.
    refused
        Mask of the rejected edges, (n_edges,).
    truth
        Result of `true_positions`; each state is aligned with it, and it is drawn too.
    """
    from matplotlib.collections import LineCollection

    placed = {name: _aligned(graph, truth) for name, graph in graphs.items()}
    axes = widest_axes(list(placed.values())[-1][0])
    with figure(path, 5 * len(graphs), 4.8) as drawn:
        for ax, (name, graph) in zip(drawn.subplots(1, len(graphs), squeeze=False)[0], graphs.items(), strict=True):
            xy, points = (x[:, axes] for x in placed[name])
            ends = np.stack([xy[graph.i], xy[graph.j]], axis=1)
            accepted = ~rejected & ~graph.is_odometry
            for label, mask, color in (
                ("accepted loops", accepted, "#b0b0b0"),
                ("rejected loops", rejected, "#d55e00"),
            ):
                ax.add_collection(LineCollection(list(ends[mask]), colors=color, linewidths=0.5, label=label))
            if truth is not None:
                index, positions = truth
                ax.plot(*positions[np.argsort(graph.ids[index])][:, axes].T, "k--", linewidth=0.8, label="truth")
            ax.plot(*xy[np.argsort(graph.ids)].T, color="#0072b2", linewidth=1.0, label="trajectory")
            if len(points):
                ax.plot(*points.T, ".", color="#009e73", markersize=4, label="landmarks")
            ax.set_aspect("equal", adjustable="datalim")
            ax.set_xlabel(f"{'xyz'[axes[0]]} ({UNITS[graph.kind]})")
            ax.set_ylabel(f"{'xyz'[axes[1]]} ({UNITS[graph.kind]})")
            ax.set_title(name)
        ax.legend(loc="upper right", fontsize=8)


def _aligned(graph: PoseGraph, truth: tuple[np.ndarray, np.ndarray] | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of poses and of landmarks, aligned with the true positions if these are known."""
    xyz = poses.positions(graph.kind, graph.poses)
    points = graph.landmarks.points[:, : xyz.shape[1]]
    if truth is None:
        return xyz, points
    s, R, t = similarity(xyz[truth[0]], truth[1], scale=graph.kind == "SIM3")
    return s * xyz @ R.T + t, s * points @ R.T + t


# ---- for experiments


def plot_arrays(before: PoseGraph, after: PoseGraph, rejected: np.ndarray) -> Arrays:
    """Return the arrays of a run that figures need: the trajectory before and after, and the loop closures, in 2-D."""
    xy = poses.positions(after.kind, after.poses)
    axes = widest_axes(xy)
    order = np.argsort(after.ids)
    loops = ~after.is_odometry
    ends = np.stack([xy[after.i[loops]], xy[after.j[loops]]], axis=1)[:, :, axes]
    return {
        "way_before": poses.positions(before.kind, before.poses)[order][:, axes].astype(np.float32),
        "way": xy[order][:, axes].astype(np.float32),
        "loops": ends.astype(np.float32),
        "refused": rejected[loops],
    }


def page(runs: Runs) -> dict[str, Any]:
    """Return the trajectory at the start and after each method, with the rejected loop closures, for an HTML report."""
    paths = []
    for instance, of_instance in runs.items():
        for k, (label, run) in enumerate(of_instance.items()):
            a = run.arrays()
            if k == 0:
                paths.append({"instance": instance, "label": "before", "way": a["way_before"].tolist(), "refused": []})
            rejected = a["loops"][a["refused"]][:MAX_REJECTED_ON_PAGE].tolist()
            paths.append({"instance": instance, "label": label, "way": a["way"].tolist(), "refused": rejected})
    return {"paths": paths}


def figures(runs: Runs) -> dict[str, Callable[[Path], None]]:
    """Return a function that draws the trajectories of every method."""
    return {"trajectories": lambda path: draw_trajectory_grid(path, runs)} if runs else {}


def draw_trajectory_grid(path: Path, runs: Runs) -> None:
    """Draw trajectories in a grid with a row for each instance and a column for each method."""
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

"""How sure the poses of a refined graph are."""

from pathlib import Path

import numpy as np

from asker.applications.pose_graph.draw import UNITS, seen_axes
from asker.applications.pose_graph.formats.g2o import PoseGraph
from asker.applications.uncertainty import DataCovariances
from asker.geometry import poses
from asker.io.figures import figure
from asker.solver.result import Result
from asker.uncertainty.covariance import Uncertainty

SIGMAS = 2.4477
"""The radius of an ellipse that holds 95 % of a Gaussian in the plane."""
MOST = 40
"""Ellipses in a figure: more of them hide each other."""


def data_covariances(graph: PoseGraph, result: Result) -> DataCovariances:
    """Covariances of poses, as steps on their manifold, of positions along the axes of the graph, of rotations in
    radians, and of landmarks."""

    def arrays(of: Uncertainty) -> dict[str, np.ndarray]:
        C = of.covariance("poses").blocks
        d = poses.N_AXES[graph.kind]
        R = poses.matrices(graph.kind, graph.poses)[:, :d, :d] if graph.kind == "SE2" else np.eye(d)[None]
        turn = slice(d, d + (1 if graph.kind == "SE2" else 3))
        found = {
            "ids": graph.ids,
            "pose_covariances": C,
            "position_covariances": R @ C[:, :d, :d] @ R.swapaxes(1, 2),
            "rotation_covariances": C[:, turn, turn],
        }
        if len(graph.landmarks.ids):
            found |= {"landmark_ids": graph.landmarks.ids, "landmark_covariances": of.covariance("landmarks").blocks}
        return found

    return DataCovariances(result, arrays, ["poses"])


def draw_ellipses(path: Path, graph: PoseGraph, sure: DataCovariances) -> None:
    """The way, and the ellipses that hold each position with 95 %, of at most so many poses."""
    from matplotlib.collections import PolyCollection

    xy = poses.positions(graph.kind, graph.poses)
    axes = seen_axes(xy)
    C = sure.arrays["position_covariances"][:, axes[:, None], axes]
    some = np.unique(np.linspace(0, len(xy) - 1, min(len(xy), MOST)).astype(int))
    some = some[np.isfinite(C[some]).all(axis=(1, 2))]
    sizes, U = np.linalg.eigh(C[some])
    angle = np.linspace(0, 2 * np.pi, 40)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    shapes = SIGMAS * (U * np.sqrt(np.maximum(sizes, 0.0))[:, None, :]) @ circle  # (n, 2, 40)
    outlines = shapes.swapaxes(1, 2) + xy[some][:, None, axes]
    with figure(path, 6, 5.6) as drawn:
        ax = drawn.subplots()
        drawn_as = PolyCollection(list(outlines), facecolors="#d55e0012", edgecolors="#d55e0099", linewidths=0.7)
        drawn_as.set_label("95 %")
        ax.add_collection(drawn_as)
        ax.plot(*xy[np.argsort(graph.ids)][:, axes].T, color="#0072b2", linewidth=1.0, label="way")
        ax.set_aspect("equal", adjustable="datalim")
        ax.set_xlabel(f"{'xyz'[axes[0]]} ({UNITS[graph.kind]})")
        ax.set_ylabel(f"{'xyz'[axes[1]]} ({UNITS[graph.kind]})")
        ax.legend(loc="upper right", fontsize=8)

"""Covariances of the poses of a refined graph."""

from pathlib import Path

import numpy as np

from asker.applications.pose_graph.draw import UNITS, widest_axes
from asker.applications.pose_graph.formats.g2o import PoseGraph
from asker.applications.uncertainty import DataCovariances
from asker.geometry import poses
from asker.io.figures import figure
from asker.solver.result import Result
from asker.uncertainty.covariance import Uncertainty

ELLIPSE_RADIUS = 2.4477
"""Radius of the 95 % confidence ellipse of a Gaussian in the plane, in standard deviations."""
MAX_ELLIPSES = 40
"""Largest number of ellipses in a figure: more would overlap."""


def data_covariances(graph: PoseGraph, result: Result) -> DataCovariances:
    """Return the covariances of the refined data.

    They concern poses (as tangent vectors), positions along the axes of the graph, rotations in radians, and landmarks.
    """

    def arrays(uncertainty: Uncertainty) -> dict[str, np.ndarray]:
        C = uncertainty.covariance("poses").blocks
        d = poses.N_AXES[graph.kind]
        R = poses.matrices(graph.kind, graph.poses)[:, :d, :d] if graph.kind == "SE2" else np.eye(d)[None]
        rotation = slice(d, d + (1 if graph.kind == "SE2" else 3))
        covariances = {
            "ids": graph.ids,
            "pose_covariances": C,
            "position_covariances": R @ C[:, :d, :d] @ R.swapaxes(1, 2),
            "rotation_covariances": C[:, rotation, rotation],
        }
        if len(graph.landmarks.ids):
            covariances["landmark_ids"] = graph.landmarks.ids
            covariances["landmark_covariances"] = uncertainty.covariance("landmarks").blocks
        return covariances

    return DataCovariances(result, arrays, ["poses"])


def draw_ellipses(path: Path, graph: PoseGraph, sure: DataCovariances) -> None:
    """Draw the trajectory and the 95 % confidence ellipses of at most `MOST` positions."""
    from matplotlib.collections import PolyCollection

    xy = poses.positions(graph.kind, graph.poses)
    axes = widest_axes(xy)
    C = sure.arrays["position_covariances"][:, axes[:, None], axes]
    index = np.unique(np.linspace(0, len(xy) - 1, min(len(xy), MAX_ELLIPSES)).astype(int))
    index = index[np.isfinite(C[index]).all(axis=(1, 2))]
    variances, U = np.linalg.eigh(C[index])
    angle = np.linspace(0, 2 * np.pi, 40)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    shapes = ELLIPSE_RADIUS * (U * np.sqrt(np.maximum(variances, 0.0))[:, None, :]) @ circle  # (n, 2, 40)
    outlines = shapes.swapaxes(1, 2) + xy[index][:, None, axes]
    with figure(path, 6, 5.6) as drawn:
        ax = drawn.subplots()
        drawn_as = PolyCollection(list(outlines), facecolors="#d55e0012", edgecolors="#d55e0099", linewidths=0.7)
        drawn_as.set_label("95 %")
        ax.add_collection(drawn_as)
        ax.plot(*xy[np.argsort(graph.ids)][:, axes].T, color="#0072b2", linewidth=1.0, label="trajectory")
        ax.set_aspect("equal", adjustable="datalim")
        ax.set_xlabel(f"{'xyz'[axes[0]]} ({UNITS[graph.kind]})")
        ax.set_ylabel(f"{'xyz'[axes[1]]} ({UNITS[graph.kind]})")
        ax.legend(loc="upper right", fontsize=8)

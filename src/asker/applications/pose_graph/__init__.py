"""Pose graph optimisation: g2o files, false loop closures, the noise scale, and `refine`."""

from asker.applications.pose_graph.formats.detection import read_graph
from asker.applications.pose_graph.formats.g2o import read_g2o, write_g2o
from asker.applications.pose_graph.formats.trajectories import read_trajectory, write_trajectory
from asker.applications.pose_graph.graph import Landmarks, Measurements, PoseGraph
from asker.applications.pose_graph.initial.spanning_tree_init import odometry_poses
from asker.applications.pose_graph.loops.false_loops import add_false_loops
from asker.applications.pose_graph.loops.loop_search import solve_pose_graph
from asker.applications.pose_graph.loops.noise_scale import noise_scale
from asker.applications.pose_graph.options import Options, Robust
from asker.applications.pose_graph.problem import (
    PoseGraphProblem,
    default_tau,
    inlier_radius,
    pose_graph_problem,
    residual_norms,
)
from asker.applications.pose_graph.refine import GraphOutcome, refine
from asker.applications.pose_graph.true_trajectory import true_positions
from asker.geometry.alignment import trajectory_error

__all__ = [
    "GraphOutcome",
    "Landmarks",
    "Measurements",
    "Options",
    "PoseGraph",
    "PoseGraphProblem",
    "Robust",
    "add_false_loops",
    "default_tau",
    "inlier_radius",
    "noise_scale",
    "odometry_poses",
    "pose_graph_problem",
    "read_g2o",
    "read_graph",
    "read_trajectory",
    "refine",
    "residual_norms",
    "solve_pose_graph",
    "trajectory_error",
    "true_positions",
    "write_g2o",
    "write_trajectory",
]

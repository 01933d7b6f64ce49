"""Bundle adjustment: BAL files, problems, synthetic scenes with ground truth, and `refine`."""

from asker.applications.bundle.bal import Bundle, BundlePortion, read_bal, read_bal_portion, write_bal
from asker.applications.bundle.options import CameraModel, Dof, Options
from asker.applications.bundle.problem import (
    BundleProblem,
    bundle_problem,
    camera_centres,
    camera_poses,
    reprojection_norms,
)
from asker.applications.bundle.refine import BundleOutcome, issues_of, refine
from asker.applications.bundle.synthetic import Scene, make_scene
from asker.applications.bundle.truth_errors import Errors, errors

__all__ = [
    "Bundle",
    "BundleOutcome",
    "BundlePortion",
    "BundleProblem",
    "CameraModel",
    "Dof",
    "Errors",
    "Options",
    "Scene",
    "bundle_problem",
    "camera_centres",
    "camera_poses",
    "errors",
    "issues_of",
    "make_scene",
    "read_bal",
    "read_bal_portion",
    "refine",
    "reprojection_norms",
    "write_bal",
]

"""COLMAP models: files, camera models, problems and `refine`."""

from asker.applications.colmap.formats.folder import read_model, write_model
from asker.applications.colmap.formats.from_pycolmap import from_arrays, from_pycolmap, to_pycolmap
from asker.applications.colmap.formats.nerfstudio import transforms, write_transforms
from asker.applications.colmap.georegistration.position_priors import Control, Positions, read_control, read_positions
from asker.applications.colmap.inliers import InlierTable, inlier_tables, widest_angles, without_outliers
from asker.applications.colmap.model import (
    CAMERA_MODELS,
    NO_POINT,
    Cameras,
    ColmapModel,
    Frames,
    Images,
    Points,
    Rigs,
    camera_poses,
)
from asker.applications.colmap.options import Options, Refine
from asker.applications.colmap.problem import ColmapProblem, colmap_problem
from asker.applications.colmap.refine import ColmapOutcome, issues_of, refine
from asker.applications.colmap.reprojection_error import camera_centres, reprojection_norms
from asker.applications.colmap.triangulation import retriangulated

__all__ = [
    "CAMERA_MODELS",
    "NO_POINT",
    "Cameras",
    "ColmapModel",
    "ColmapOutcome",
    "ColmapProblem",
    "Control",
    "Frames",
    "Images",
    "InlierTable",
    "Options",
    "Points",
    "Positions",
    "Refine",
    "Rigs",
    "camera_centres",
    "camera_poses",
    "colmap_problem",
    "from_arrays",
    "from_pycolmap",
    "inlier_tables",
    "issues_of",
    "read_control",
    "read_model",
    "read_positions",
    "refine",
    "reprojection_norms",
    "retriangulated",
    "to_pycolmap",
    "transforms",
    "widest_angles",
    "without_outliers",
    "write_model",
    "write_transforms",
]

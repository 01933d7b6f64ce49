"""Posed images: refinement of approximate poses by features, verified matches and robust bundle adjustment."""

from asker.applications.posed.correspondences.features import MissingFeatures, match_images
from asker.applications.posed.correspondences.matches import Matches, matches_from, read_matches
from asker.applications.posed.correspondences.pairs import select_pairs
from asker.applications.posed.correspondences.tracks import Tracks, join
from asker.applications.posed.formats.detection import read_poses
from asker.applications.posed.formats.folder import ImageFiles, assigned, list_images
from asker.applications.posed.formats.trajectories import Intrinsics, parse_intrinsics
from asker.applications.posed.image_table import ImageTable
from asker.applications.posed.options import IntrinsicsMode, Options
from asker.applications.posed.posed_images import PosedImages, from_model, with_cameras
from asker.applications.posed.refine import PosedOutcome, refine
from asker.applications.posed.reports.outputs import write_outputs
from asker.applications.posed.validation import Verdict

__all__ = [
    "ImageFiles",
    "ImageTable",
    "Intrinsics",
    "IntrinsicsMode",
    "Matches",
    "MissingFeatures",
    "Options",
    "PosedImages",
    "PosedOutcome",
    "Tracks",
    "Verdict",
    "assigned",
    "from_model",
    "join",
    "list_images",
    "match_images",
    "matches_from",
    "parse_intrinsics",
    "read_matches",
    "read_poses",
    "refine",
    "select_pairs",
    "with_cameras",
    "write_outputs",
]

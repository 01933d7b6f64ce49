"""Dense stereo: matching costs, the energy, image pairs with known disparities, and `refine`."""

from asker.applications.stereo.errors import DisparityErrors, disparity_errors, visible
from asker.applications.stereo.matching import Matching, Minima, cost_volume, local_minima, match
from asker.applications.stereo.options import Cost, Options, Start
from asker.applications.stereo.pairs import StereoPair, make_pair, read_folder, read_pair
from asker.applications.stereo.problem import StereoProblem, energy, stereo_problem
from asker.applications.stereo.refine import StereoOutcome, refine

__all__ = [
    "Cost",
    "DisparityErrors",
    "Matching",
    "Minima",
    "Options",
    "Start",
    "StereoOutcome",
    "StereoPair",
    "StereoProblem",
    "cost_volume",
    "disparity_errors",
    "energy",
    "local_minima",
    "make_pair",
    "match",
    "read_folder",
    "read_pair",
    "refine",
    "stereo_problem",
    "visible",
]

"""Points of a model found again from their observations, with the cameras as they are."""

from dataclasses import replace
from typing import Any

import numpy as np

import asker
from asker.applications.colmap.constant_parameters import Held
from asker.applications.colmap.model import ColmapModel
from asker.applications.colmap.problem import colmap_problem
from asker.applications.colmap.reprojection_error import point_errors
from asker.kernels.kernel import Kernel


def retriangulated(
    model: ColmapModel, kernel: Kernel | None = None, hold: np.ndarray | None = None, **limits: Any
) -> ColmapModel:
    """The model with points that most of their observations agree on, wherever they were before.

    Without a kernel the noise is found, and points are solved from pairs of their observations
    (`asker.strategies.composite.block_moves`).  A point with fewer than two observations stays, as do those of the mask
                                                 `hold`.
    """
    n_seen = np.bincount(model.observations().point, minlength=len(model.points))
    still = (n_seen < 2) | (False if hold is None else hold)
    if still.all():
        return model
    held = Held(np.ones(len(model.images), bool), np.ones(len(model.cameras), bool), still)
    made = colmap_problem(model, kernel, hold=held)
    result = asker.solve(made.problem, None if kernel is None else asker.IRLS(), **limits)
    found = replace(model, points=replace(model.points, xyz=result[made.points]))
    return replace(found, points=replace(found.points, errors=point_errors(found)))

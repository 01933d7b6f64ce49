"""Triangulation of all points of a model from their observations, with constant cameras."""

from dataclasses import replace
from typing import Any

import numpy as np

import asker
from asker.applications.colmap.constant_parameters import ConstantParameters
from asker.applications.colmap.model import ColmapModel
from asker.applications.colmap.problem import colmap_problem
from asker.applications.colmap.reprojection_error import point_errors
from asker.kernels.kernel import Kernel


def retriangulated(
    model: ColmapModel, kernel: Kernel | None = None, hold: np.ndarray | None = None, **limits: Any
) -> ColmapModel:
    """Return the model with its points triangulated anew; initial positions are ignored if no kernel is given.

    Parameters
    ----------
    model
        A COLMAP model.
    kernel
        The robust kernel of a local solve.  By default the noise is estimated, and points are initialised from pairs of
        their observations (`asker.strategies.composite.block_moves`).
    hold
        (n_points,): a mask of constant points; points with fewer than two observations are constant, too.
    **limits
        Arguments of `asker.solve`.

    Returns
    -------
    ColmapModel
        The model with new points and their errors.
    """
    n_observations = np.bincount(model.observations().point, minlength=len(model.points))
    is_constant = (n_observations < 2) | (False if hold is None else hold)
    if is_constant.all():
        return model
    constants = ConstantParameters(np.ones(len(model.images), bool), np.ones(len(model.cameras), bool), is_constant)
    made = colmap_problem(model, kernel, hold=constants)
    result = asker.solve(made.problem, None if kernel is None else asker.IRLS(), **limits)
    moved = replace(model, points=replace(model.points, xyz=result[made.points]))
    return replace(moved, points=replace(moved.points, errors=point_errors(moved)))

"""What the linear system is made of, factor group by factor group."""

from typing import NamedTuple

import numpy as np

from asker.variables import Variables

Delta = dict[Variables, np.ndarray]
"""A number for every direction of every variable: (n, tangent) for each group."""


class Linearization(NamedTuple):
    """One factor group at a point: residuals and derivatives, observation by observation."""

    r: np.ndarray  # (n, p)
    J: np.ndarray  # (n, p·D)


class Weights(NamedTuple):
    """One factor group's part of a model: a, b, c per residual; `radial` says whether b is there."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    radial: bool

"""What the linear system is made of, factor group by factor group."""

from typing import Any, NamedTuple

import numpy as np

from asker.problem.variables import Variables

Delta = dict[Variables, np.ndarray]
"""A number for every direction of every variable: (n, tangent) for each group."""


class Linearization(NamedTuple):
    """One factor group at a point: residuals and derivatives, observation by observation."""

    r: np.ndarray  # (n, p)
    J: np.ndarray  # (n, p·D)


class InPassing(NamedTuple):
    """One factor group at a point whose residuals and derivatives are made where they are needed, and held nowhere.

    To make them again costs less than to write them to memory and to read them (in_passing.py).
    """

    text: str
    """A printed loop `linearise(start, stop, *arguments, r, J)`."""
    by_observation: tuple[bool, ...]
    """Which of the arguments have a row for each observation."""
    arguments: tuple[Any, ...]


Derivatives = Linearization | InPassing


class Weights(NamedTuple):
    """One factor group's part of a model: a, b, c per residual; `radial` says whether b is there."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    radial: bool

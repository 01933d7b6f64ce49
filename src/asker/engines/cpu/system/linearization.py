"""The data of the linear system, per factor group."""

from typing import Any, NamedTuple

import numpy as np

from asker.problem.variables import Variables

Delta = dict[Variables, np.ndarray]
"""A tangent vector of every variable: (n, tangent) for each group."""


class Linearization(NamedTuple):
    """The residuals and Jacobians of one factor group at a point."""

    r: np.ndarray  # (n, p)
    J: np.ndarray  # (n, p·D)


class FusedJacobian(NamedTuple):
    """One factor group at a point, with residuals and Jacobians that are evaluated in the loops that use them.

    Evaluating them again costs less than writing them to memory and reading them (fused_jacobians.py).
    """

    text: str
    """The source of a loop `linearise(start, stop, *arguments, r, J)`."""
    by_observation: tuple[bool, ...]
    """A flag per argument: true if it has a row per observation."""
    arguments: tuple[Any, ...]


Derivatives = Linearization | FusedJacobian


class Weights(NamedTuple):
    """The weights a, b, c per residual of one factor group; b is used only if `radial`."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    radial: bool

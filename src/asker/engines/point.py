"""What strategies and engines hand each other."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from asker.problem import Variables

Array = Any
PerFactor = tuple[Array, ...]
"""One array of per-residual numbers for each factor group, in the engine's own order."""


@dataclass(frozen=True, eq=False)
class Point:
    """Values of all variables, and the squared residuals there."""

    theta: tuple[Array, ...]
    """The rows of each variable group."""
    u: PerFactor
    """‖r‖² of every residual."""
    finite: bool
    """Whether every residual is a number."""


class Model(NamedTuple):
    """Hᵢ = Jᵢᵀ(aᵢI + bᵢ rᵢrᵢᵀ)Jᵢ,  gᵢ = cᵢJᵢᵀrᵢ: all that a strategy says about a step."""

    a: PerFactor
    b: PerFactor | None
    """None for 0."""
    c: PerFactor


@dataclass(frozen=True, eq=False)
class Step:
    """The solution δ of the linear system, from one point."""

    start: Point
    delta: dict[Variables, Array]

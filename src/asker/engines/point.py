"""What strategies and engines hand each other, and the verbs in which they speak.

A formula is a function `formula(kernel, u, *arrays, **numbers)` of ONE residual, written with arithmetic and the
array functions of `asker.arrays.namespace`; it is compiled in the same way as a residual function.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from asker.problem import Problem, Variables

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
    finite: Any
    """Whether every residual is a number; a device may still be working it out."""


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


Formula = Callable[..., Any]


class Engine(Protocol):
    """All that a strategy sees of a machine."""

    problem: Problem

    def each(self, formula: Formula, point: Point, *arrays: PerFactor, **numbers: float) -> Any:
        """A formula of every residual: one PerFactor, or a tuple of them where the formula returns a tuple."""

    def total(self, formula: Formula, point: Point, *arrays: PerFactor, **numbers: float) -> Any:
        """The same, summed over all residuals; NaN where a residual of the point is not finite."""

    def largest(self, formula: Formula, point: Point) -> float:
        """The largest value of a formula that is never negative."""

    def solve(self, point: Point, model: Model, damping: float) -> Step | None:
        """The step of the one linear system; None when it has none."""

    def radial(self, step: Step) -> PerFactor:
        """rᵀJδ of every residual."""

    def gradient_products(self, point: Point, c: PerFactor, d: PerFactor) -> tuple[float, float, float]:
        """g·g, g·h and h·h of the gradients g = Σ c Jᵀr and h = Σ d Jᵀr."""

    def move(self, step: Step) -> Point:
        """The point that the step leads to, with its residuals and no derivatives."""

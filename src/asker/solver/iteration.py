"""Variables, residuals and weights at a point of an engine: by group, in the user's order."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from asker.engines.interface import Engine, Point, omega
from asker.problem.by_group import Groups
from asker.problem.problem import Problem
from asker.solver.result import Iteration


def values_at(engine: Engine, point: Point) -> Groups[Any]:
    """Return the variables, in the shape of their initial values."""
    variables = engine.problem.variables
    values = [v.manifold.unpack(rows) for v, rows in zip(variables, engine.rows(point), strict=True)]
    return Groups(values, [v.name for v in variables], variables)


def residuals_at(engine: Engine, point: Point) -> Groups[np.ndarray]:
    """Return the residuals (n, p) of each factor group, without weights.

    Those of observations of weight 0, which the problem of the engine excludes, are included.
    """
    residuals, unfiltered = by_factor(engine.problem, engine.residuals(point)), engine.problem.unfiltered
    if unfiltered is None:
        return residuals
    excluded, auxiliary = [~f.is_informative for f in unfiltered.factors], engine.auxiliary_engines
    if "weight 0" not in auxiliary:
        auxiliary["weight 0"] = engine.for_other(unfiltered.only(excluded))
    other = auxiliary["weight 0"]
    for r, mask, rows in zip(residuals, excluded, other.residuals(other.evaluate(engine.rows(point))), strict=True):
        r[mask] = rows
    return residuals


def weights_at(engine: Engine, point: Point) -> Groups[np.ndarray]:
    """Return the kernel weight ω of each observation, for each factor group; 0 for observations of weight 0."""
    return by_factor(engine.problem, engine.in_user_order(engine.each(omega, point)))


def by_factor(problem: Problem, items: Sequence[np.ndarray]) -> Groups[np.ndarray]:
    """Return arrays with a row for each observation of the user, by factor group; 0 for observations of weight 0."""
    if problem.unfiltered is not None:
        items = [_with_zeros(x, f.is_informative) for x, f in zip(items, problem.unfiltered.factors, strict=True)]
    return Groups(items, [f.name for f in problem.factors], problem.factors)


def _with_zeros(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return an array over all observations from that of the selected ones, 0 elsewhere."""
    whole = np.zeros((len(mask), *x.shape[1:]), dtype=x.dtype)
    whole[mask] = x
    return whole


@dataclass(frozen=True, eq=False)
class CurrentIteration(Iteration):
    """Current iteration of a solve; values, residuals and weights at its point are computed on access."""

    engine: Any = field(default=None, repr=False)
    """Engine of the solve."""
    point: Any = field(default=None, repr=False)
    """Current point, in the representation of the engine."""

    @property
    def recorded(self) -> Iteration:
        """Record for the history, without engine and point."""
        return Iteration(**{f.name: getattr(self, f.name) for f in fields(Iteration)})

    def __reduce__(self) -> tuple[Any, ...]:
        """Reduce to a record of the history for pickles and deep copies: engines cannot leave their process."""
        return Iteration, tuple(getattr(self, f.name) for f in fields(Iteration))

    @cached_property
    def values(self) -> Groups[Any]:
        """Variables at the current point, as in `Result.values`."""
        return values_at(self.engine, self.point)

    @cached_property
    def residuals(self) -> Groups[np.ndarray]:
        """Residuals of each factor group, (n, p)."""
        return residuals_at(self.engine, self.point)

    @cached_property
    def weights(self) -> Groups[np.ndarray]:
        """Kernel weight ω of each observation, for each factor group."""
        return weights_at(self.engine, self.point)

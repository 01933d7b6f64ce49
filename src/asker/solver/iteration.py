"""What holds at a point of an engine, for a user: by group, in the user's order."""

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
    """The variables, shaped as they were given."""
    variables = engine.problem.variables
    values = [v.manifold.unpack(rows) for v, rows in zip(variables, engine.rows(point), strict=True)]
    return Groups(values, [v.name for v in variables], variables)


def residuals_at(engine: Engine, point: Point) -> Groups[np.ndarray]:
    """(n, p) for each factor group, without weights; also of the observations of weight 0, which the engine leaves
    out."""
    found, given = by_factor(engine.problem, engine.residuals(point)), engine.problem.given
    if given is None:
        return found
    left_out, others = [~f.is_informative for f in given.factors], engine.others
    if "weight 0" not in others:
        others["weight 0"] = engine.for_other(given.only(left_out))
    other = others["weight 0"]
    for r, mask, own in zip(found, left_out, other.residuals(other.evaluate(engine.rows(point))), strict=True):
        r[mask] = own
    return found


def weights_at(engine: Engine, point: Point) -> Groups[np.ndarray]:
    """ω of each residual, for each factor group; 0 where the observation has weight 0."""
    return by_factor(engine.problem, engine.in_user_order(engine.each(omega, point)))


def by_factor(problem: Problem, items: Sequence[np.ndarray]) -> Groups[np.ndarray]:
    """One item for each factor group, with a row for each observation of the user's: 0 where its weight is."""
    if problem.given is not None:
        items = [_with_zeros(x, f.is_informative) for x, f in zip(items, problem.given.factors, strict=True)]
    return Groups(items, [f.name for f in problem.factors], problem.factors)


def _with_zeros(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    whole = np.zeros((len(mask), *x.shape[1:]), dtype=x.dtype)
    whole[mask] = x
    return whole


@dataclass(frozen=True, eq=False)
class CurrentIteration(Iteration):
    """The iteration that a solve is at; what holds at its point is worked out when it is asked for."""

    engine: Any = field(default=None, repr=False)
    """The engine that solves."""
    point: Any = field(default=None, repr=False)
    """Where it is, as the engine has it."""

    @property
    def recorded(self) -> Iteration:
        """The same for the history, which holds no points."""
        return Iteration(**{f.name: getattr(self, f.name) for f in fields(Iteration)})

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle and a deep copy are the line of the history: the engine stays in its process."""
        return Iteration, tuple(getattr(self, f.name) for f in fields(Iteration))

    @cached_property
    def values(self) -> Groups[Any]:
        """The variables, as in `Result.values`."""
        return values_at(self.engine, self.point)

    @cached_property
    def residuals(self) -> Groups[np.ndarray]:
        """(n, p) for each factor group."""
        return residuals_at(self.engine, self.point)

    @cached_property
    def weights(self) -> Groups[np.ndarray]:
        """ω of each residual, for each factor group."""
        return weights_at(self.engine, self.point)

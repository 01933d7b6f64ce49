"""Conditions under which observations are possible, such as a positive depth: `Factors(valid=...)`.

The residual alone does not show this: it may also be small for a point behind the camera.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine, Point

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
INVALID_SQUARE_FACTOR = 1e6
"""‖r‖² of an invalid observation, relative to the largest ‖r‖²."""


class Conditions:
    """The conditions of a problem, evaluated by an engine of the same kind."""

    def __init__(self, engine: Engine):
        self.problem = engine.problem
        conditions = [f.condition() for f in self.problem.factors if f.valid is not None and f.n]
        engines = engine.auxiliary_engines
        if conditions and "conditions" not in engines:
            engines["conditions"] = engine.for_other(self.problem.beside(conditions))
        self.engine = engines["conditions"] if conditions else None

    def impossible(self, rows: Sequence[NDArray[np.float64]]) -> list[Mask]:
        """Return a mask of the impossible observations of each factor group, in the user's order.

        Parameters
        ----------
        rows
            Rows of all variables; those of this process, if it has a portion of the problem.
        """
        all_possible = [np.zeros(f.n, dtype=bool) for f in self.problem.factors]
        if self.engine is None:
            return all_possible
        point = self.engine.evaluate(tuple(rows))
        violations = iter(self.engine.in_user_order(point.u))
        groups = zip(self.problem.factors, all_possible, strict=True)
        return [next(violations) > 0 if f.valid is not None and f.n else none for f, none in groups]


def squares(engine: Engine, point: Point, conditions: Conditions | None = None) -> tuple[Floats, ...]:
    """Return ‖r‖² of every observation of this process, with weights, in the user's order.

    Impossible observations have a very large value.  `conditions` are those of the engine, if they already exist.
    """
    u = engine.here(point.u)
    if all(f.valid is None for f in engine.problem.factors):
        return u
    impossible = (conditions or Conditions(engine)).impossible(engine.rows_here(point))
    pairs = zip(impossible, u, strict=True)
    return tuple(np.where(mask, INVALID_SQUARE_FACTOR * engine.sums.largest(x), x) for mask, x in pairs)

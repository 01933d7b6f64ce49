"""What a user says of observations that are not possible: a point behind a camera is not seen by it.

`Factors(valid=...)` says so.  A residual cannot: it may be small behind a camera, too.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine, Point

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
INVALID = 1e6
"""‖r‖² of an invalid observation, in units of the largest ‖r‖²."""


class Conditions:
    """The conditions of a problem, evaluated by an engine of the same kind."""

    def __init__(self, engine: Engine):
        self.problem = engine.problem
        given = [f.condition() for f in self.problem.factors if f.valid is not None and f.n]
        others = engine.others
        if given and "conditions" not in others:
            others["conditions"] = engine.for_other(self.problem.beside(given))
        self.engine = others["conditions"] if given else None

    def impossible(self, rows: Sequence[NDArray[np.float64]]) -> list[Mask]:
        """Of each factor group, in the user's order, at these rows of all variables; of a portion: of what it has."""
        nothing = [np.zeros(f.n, dtype=bool) for f in self.problem.factors]
        if self.engine is None:
            return nothing
        point = self.engine.evaluate(tuple(rows))
        found = iter(self.engine.in_user_order(point.u))
        groups = zip(self.problem.factors, nothing, strict=True)
        return [next(found) > 0 if f.valid is not None and f.n else none for f, none in groups]


def squares(engine: Engine, point: Point, conditions: Conditions | None = None) -> tuple[Floats, ...]:
    """Return ‖r‖² of every observation, weights included, in the user's order; that of an invalid one is very large.

    Where a process has a portion of the problem, these are its own observations.  `conditions` are the engine's, if
    they were made before.
    """
    u = engine.here(point.u)
    if all(f.valid is None for f in engine.problem.factors):
        return u
    impossible = (conditions or Conditions(engine)).impossible(engine.rows_here(point))
    return tuple(np.where(no, INVALID * engine.sums.largest(x), x) for no, x in zip(impossible, u, strict=True))

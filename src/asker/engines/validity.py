"""What a user says of observations that are not possible: a point behind a camera is not seen by it.

`Factors(valid=...)` says so.  A residual cannot: it may be small behind a camera, too.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine

Mask = NDArray[np.bool_]


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

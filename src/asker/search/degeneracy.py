"""Whether residuals still depend on the data: where they do not, they are small for nothing.

The length of A(m − b) less 1, of a magnetometer's readings m, goes to 0 for all of them while A does and b goes to
infinity.  A likelihood of residuals cannot tell such a solution from the right one.  But there residuals hardly change
with the data.  The difference of a model and what was measured changes as much everywhere: of it nothing is told.

Law     A column of the data, one number of every observation, is shifted by ±h, a small part of its spread, with signs
        by chance.  The median change of ‖r‖, over h, is how much residuals depend on it; some observations are enough.
Fled    A solution where every column counts for a tenth, or less, of what it does at the start.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine
from asker.problem.factors import Factors
from asker.statistics.scale import spread

Floats = NDArray[np.float64]
PART = 1e-6
"""h, as a part of the spread of the data."""
SEEN = 500
"""Observations of each factor group, at most."""
COLUMNS = 12
"""Of a factor group, at most: of more nothing is told."""
FLED = 0.1


class Dependence:
    """How much the residuals of some factor groups depend on each column of their data."""

    def __init__(self, engine: Engine, factors: Sequence[Factors], seed: int = 0):
        self.engine, rng = engine, np.random.default_rng(seed)
        self.pairs: list[tuple[Engine, Engine, float]] = []
        """Without a shift and with it, and h."""
        for f in (_some(f) for f in factors if f.n):
            columns = [(j, q) for j, x in enumerate(f.data) if x.dtype.kind == "f" for q in range(x[0].size)]
            if len(columns) > COLUMNS:
                continue
            plain = engine.for_other(engine.problem.beside([f]))
            for j, q in columns:
                x = np.array(f.data[j], dtype=np.float64)
                column = x.reshape(f.n, -1)[:, q]
                h = PART * float(np.ptp(column))
                if h > 0:
                    column += h * rng.choice([-1.0, 1.0], f.n)  # in x itself
                    shifted = f.with_data((*f.data[:j], x, *f.data[j + 1 :]))
                    self.pairs.append((plain, engine.for_other(engine.problem.beside([shifted])), h))

    def at(self, rows: Sequence[Floats]) -> list[float]:
        """Of each column, where the variables have these rows; NaN where residuals are not finite."""
        found = []
        for plain, shifted, h in self.pairs:
            (r,), (other,) = (each.residuals(each.evaluate(tuple(rows))) for each in (plain, shifted))
            found.append(float(np.median(np.linalg.norm(other - r, axis=1))) / h)
        return found


def _some(f: Factors) -> Factors:
    """Of many observations some."""
    return f.only(np.arange(f.n)[spread(f.n, max(f.n // SEEN, 1))])


def has_fled(at_the_start: Sequence[float], here: Sequence[float]) -> bool:
    """Whether residuals depend far less than at the start on every column that they depend on at all."""
    pairs = [(a, b) for a, b in zip(at_the_start, here, strict=True) if a > 0 or b > 0]
    return bool(pairs) and all(b < FLED * a for a, b in pairs)

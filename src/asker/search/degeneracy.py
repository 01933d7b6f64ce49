"""Degenerate solutions: those at which the residuals hardly depend on the data.

The residual ‖A(m − b)‖ − 1 of a magnetometer's readings m goes to 0 for all of them if A goes to 0 and b to infinity.
A likelihood of residuals cannot distinguish such a solution from the right one, but the residuals hardly change with
the data there.  The difference of a model and a measurement changes as much everywhere, and is never degenerate.

Sensitivity  A column of the data, one number of every observation, is shifted by ±h, a small part of its range, with
             random signs.  The median change of ‖r‖ over h is the sensitivity to this column.
Degenerate   A solution whose sensitivity to every column is at most a tenth of that at the start.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine
from asker.problem.factors import Factors

Floats = NDArray[np.float64]
RELATIVE_SHIFT = 1e-6
"""h relative to the range of the data."""
MAX_OBSERVATIONS = 500
"""Maximum number of observations of each factor group."""
MAX_COLUMNS = 12
"""Maximum number of columns of a factor group; with more it is not examined."""
DEGENERATE_RATIO = 0.1
"""Sensitivity relative to the start at which a solution is degenerate."""


class Dependence:
    """Sensitivity of the residuals of some factor groups to each column of their data."""

    def __init__(self, engine: Engine, factors: Sequence[Factors], start: Sequence[Floats], seed: int = 0):
        self.engine, rng = engine, np.random.default_rng(seed)
        self.pairs: list[tuple[Engine, Engine, float]] = []
        """Engines without and with a shift, and h."""
        for f in (_some(f) for f in factors if f.n):
            columns = [(j, q) for j, x in enumerate(f.data) if x.dtype.kind == "f" for q in range(x[0].size)]
            if len(columns) > MAX_COLUMNS:
                continue
            plain = engine.for_other(engine.problem.beside([f]))
            for j, q in columns:
                x = np.array(f.data[j], dtype=np.float64)
                column = x.reshape(f.n, -1)[:, q]
                h = RELATIVE_SHIFT * float(np.ptp(column))
                if h > 0:
                    column += h * rng.choice([-1.0, 1.0], f.n)  # in x itself
                    shifted = f.with_data((*f.data[:j], x, *f.data[j + 1 :]))
                    self.pairs.append((plain, engine.for_other(engine.problem.beside([shifted])), h))

        self.at_start = self.at(start)
        """Sensitivities at the start."""

    def at(self, rows: Sequence[Floats]) -> list[float]:
        """Return the sensitivity to each column at these rows of the variables; NaN if residuals are not finite."""
        found = []
        for plain, shifted, h in self.pairs:
            (r,), (other,) = (each.residuals(each.evaluate(tuple(rows))) for each in (plain, shifted))
            found.append(float(np.median(np.linalg.norm(other - r, axis=1))) / h)
        return found


def _some(f: Factors) -> Factors:
    """Return some of many observations."""
    return f.only(np.linspace(0, f.n - 1, min(f.n, MAX_OBSERVATIONS)).astype(np.int64))


def is_degenerate(at_the_start: Sequence[float], here: Sequence[float]) -> bool:
    """Return whether the sensitivity to every column that matters is far less than at the start."""
    pairs = [(a, b) for a, b in zip(at_the_start, here, strict=True) if a > 0 or b > 0]
    return bool(pairs) and all(b < DEGENERATE_RATIO * a for a, b in pairs)

"""Properties of the data that mislead an estimate of the noise: rounding, duplicates, and degenerate solutions.

Rounding     A fit can meet rounded data exactly: a line along one of their steps, a mean at one of their values.  A
             likelihood has no bound there, and one such line beats the right one.  But a number that was rounded to
             multiples of h is off by up to h/2, evenly spread, which is a noise of at least h/√12 (Sheppard 1898).
             h is the largest number of which all residuals are multiples, by Euclid's algorithm on all of them at once.
             Two numbers up to A that are known to ±t have a common divisor h or a larger one by chance with a
             probability of about (A/h)·(2t/h); if that is not unlikely, there is no grid.  Exact data with outliers
             that are off by whole numbers are not rounded: one of the data must be on a grid, too.
Duplicates   Observations that repeat others exactly, such as those of a logger that is faster than its sensor, agree
             without noise whatever the model, so copies count as one in the estimate of the noise.  Numbers on a grid
             repeat by chance, and count; most observations must have copies, and two must differ.
Degeneracy   The residual ‖A(m − b)‖ − 1 of a magnetometer's readings m goes to 0 for all of them if A goes to 0.  A
             likelihood of residuals cannot distinguish such a solution from the right one, but its residuals hardly
             depend on the data.  The sensitivity to a column of the data is the median change of ‖r‖ after a small
             shift with random signs; a solution is degenerate if every sensitivity is at most a tenth of that at the
             start.  The difference of a model and a measurement is never degenerate.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine, Point
from asker.problem.factors import Factors

Floats = NDArray[np.float64]
EXACT = 10**-12.5
"""Relative error of a residual that is 0 but for rounding in double precision."""
UNLIKELY = 0.01
"""Probability of a common divisor by chance, up to which a grid is detected."""
RELATIVE_SHIFT = 1e-6
"""h relative to the range of the data."""
MAX_OBSERVATIONS = 500
"""Maximum number of observations of each factor group."""
MAX_COLUMNS = 12
"""Maximum number of columns of a factor group; with more it is not examined."""
DEGENERATE_RATIO = 0.1
"""Sensitivity relative to the start at which a solution is degenerate."""


def step_of_grid(numbers: Floats) -> float:
    """Return the largest h of which all numbers are multiples; 0 if there is none that is not due to chance."""
    v = np.unique(np.abs(numbers[np.isfinite(numbers)]))
    A = float(v.max(initial=0.0))
    t = EXACT * A
    v = v[v > t]
    if not v.size or A - v[0] <= t:
        return 0.0
    h = float(v[0])
    while h**2 * UNLIKELY > 2 * t * A:
        times = np.round(v / h)
        rest = np.abs(v - times * h)
        if (off := rest[rest > t * A / h]).size:  # h is known to ±t
            h = float(off.min())
            continue
        h = float(times @ v / (times @ times))
        return h if np.abs(v - times * h).max() <= t else 0.0
    return 0.0


def rounding(engine: Engine, point: Point, k: int) -> float:
    """Return the step of the grid that the residuals of group k lie on at a point, with weights; 0 for none."""
    f = engine.problem.factors[k]
    measured = [data for data in f.data if data.dtype.kind == "f"] or f.data  # others may be names of things
    if not any(_is_on_a_common_grid(engine, data) for data in measured):
        return 0.0
    u, r = engine.in_user_order(point.u)[k], engine.residuals(point)[k]
    plain = np.einsum("np,np->n", r, r)
    root_weight = np.sqrt(np.divide(u, plain, out=np.zeros_like(u), where=plain > 0))
    if h := step_of_grid(root_weight[:, None] * r):
        return h
    steps = [step_of_grid(data.astype(np.float64)) for data in measured] if f.weight is None else []
    return max((h for h in steps if h and _are_multiples(r, h)), default=0.0)


def _are_multiples(r: Floats, h: float) -> bool:
    """Return whether residuals, not all of them 0, are multiples of the step of the data: if all are off by one step
    or none, they do not show it by themselves."""
    A = float(np.abs(r).max(initial=0.0))
    return h <= A < np.inf and bool((np.abs(r - np.round(r / h) * h) <= EXACT * A).all())


def _is_on_a_common_grid(engine: Engine, data: NDArray) -> bool:
    """Return whether a data array lies on a grid, in every process by itself."""
    return not engine.sums.any(data.dtype.kind == "f" and not step_of_grid(data.astype(np.float64)))


def first_copies(f: Factors) -> NDArray[np.int64] | None:
    """Return the numbers of the observations that repeat no earlier one; None if there are no copies."""
    if not f.n:
        return None
    first, n_same = _first_of_each(f)
    if len(first) < 2 or np.count_nonzero(n_same > 1) <= len(first) / 2 or all(_is_on_a_grid(data) for data in f.data):
        return None
    return first


def _first_of_each(f: Factors) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first of the observations that are equal to the last bit, and the number of each."""
    arrays = [slot.index for slot in f.slots] + list(f.data) + ([] if f.weight is None else [f.weight])
    rows = [np.ascontiguousarray(x).reshape(f.n, -1).view(np.uint8) for x in arrays]
    table = np.ascontiguousarray(np.concatenate(rows, axis=1))
    rows_as_one = table.view(f"V{table.shape[1]}").ravel()
    _, first, n_same = np.unique(rows_as_one, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], n_same[order]


def _is_on_a_grid(data: NDArray) -> bool:
    """Return whether a data array lies on a grid, as whole numbers do."""
    return data.dtype.kind != "f" or step_of_grid(data.astype(np.float64)) > 0


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

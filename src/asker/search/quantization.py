"""Rounded data: the grid that residuals lie on where many of them fit exactly, and the least noise that follows.

A fit can meet rounded data exactly: a line along one of their steps, a mean at one of their values.  A likelihood has
no bound there, as if the noise were 0, and one such line beats the right one.  But a number that was rounded to
multiples of h is off by up to h/2, evenly spread, which is a noise of h/√12 at least (Sheppard 1898).

Grid        h is the largest number of which all residuals are multiples, by Euclid's algorithm on all of them at once.
Chance      Two numbers up to A that are known to ±t have a common divisor h or a larger one by chance with a
            probability of about (A/h)·(2t/h); where that is not unlikely, there is no grid.  One number alone says
            nothing.
Data        Exact data with outliers that are off by whole numbers are not rounded: one of the data must be on a grid,
            too.
"""

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine, Point

Floats = NDArray[np.float64]
EXACT = 10**-12.5
"""Relative error of a residual that is 0 but for rounding in double precision."""
UNLIKELY = 0.01
"""Probability of a common divisor by chance, up to which a grid is detected."""


def step_of_grid(numbers: Floats) -> float:
    """The largest h of which all numbers are multiples; 0 where there is none that is not due to chance."""
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
    """The step of the grid that the residuals of factor group k lie on at a point, weights included; 0 for none."""
    f = engine.problem.factors[k]
    measured = [data for data in f.data if data.dtype.kind == "f"] or f.data  # others may be names of things
    if not any(_is_on_a_grid(engine, data) for data in measured):
        return 0.0
    u, r = engine.in_user_order(point.u)[k], engine.residuals(point)[k]
    plain = np.einsum("np,np->n", r, r)
    root_weight = np.sqrt(np.divide(u, plain, out=np.zeros_like(u), where=plain > 0))
    if h := step_of_grid(root_weight[:, None] * r):
        return h
    steps = [step_of_grid(data.astype(np.float64)) for data in measured] if f.weight is None else []
    return max((h for h in steps if h and _are_multiples(r, h)), default=0.0)


def _are_multiples(r: Floats, h: float) -> bool:
    """Whether residuals, not all of them 0, are multiples of the step of the data: where all are off by one step or
    none, they do not show it by themselves."""
    A = float(np.abs(r).max(initial=0.0))
    return h <= A < np.inf and bool((np.abs(r - np.round(r / h) * h) <= EXACT * A).all())


def _is_on_a_grid(engine: Engine, data: NDArray) -> bool:
    """Whether a data array lies on a grid, in every process by itself."""
    return not engine.sums.any(data.dtype.kind == "f" and not step_of_grid(data.astype(np.float64)))

"""Candidates from fits of random minimal subsets.

Rousseeuw: Least Median of Squares Regression, J. Am. Stat. Assoc. 1984.

Problem     points x of which at least one is near the estimate, with up to half of the observations outliers
Algorithm   (1) draw p of the n observations at random, for p unknowns
            (2) fit them by nonlinear least squares, from the initial guess or from the best point so far
            (3) repeat until a subset without outliers was drawn with a probability of 99.9 % at 50 % outliers, at
                least 200 times; all subsets if there are fewer
Deviations  A fit of a subset is cut short after 12 steps, or after a step with little progress, since candidates are
            refined anyway.
            Subsets of nonlinear functions need several fits, so that (2) alternates between the two starts.
"""

from collections.abc import Iterator
from itertools import combinations
from math import comb, log

import numpy as np
from numpy.typing import NDArray

from asker.engines.dense_step import bounded_step, column_norms
from asker.estimators.descent import Residuals

Floats = NDArray[np.float64]
MIN_SUBSETS, MAX_SUBSETS = 200, 5000
CONFIDENCE = 0.999
"""Probability that a subset without outliers is drawn."""
MAX_FIT_STEPS = 12
MIN_PROGRESS = 0.1
"""Relative decrease of the sum of squares in a step below which a fit is cut short."""
FIT_RTOL = 1e-3
"""Norm of the residuals of a fitted subset, relative to that at the start."""
MAX_UNKNOWNS = 20
"""Largest number of unknowns for which random subsets without outliers are likely enough."""


def n_subsets(n: int, p: int) -> int:
    """Return the number of subsets (3)."""
    needed = log(1 - CONFIDENCE) / log(1 - 0.5**p) if p <= MAX_UNKNOWNS else MAX_SUBSETS
    return min(int(np.clip(np.ceil(needed), MIN_SUBSETS, MAX_SUBSETS)), comb(n, p))


def subsets(n: int, p: int, count: int, rng: np.random.Generator) -> Iterator[NDArray[np.intp]]:
    """Yield subsets of p of n observations: all of them if there are at most `count`, else random ones (1)."""
    if comb(n, p) <= count:
        yield from map(np.array, combinations(range(n), p))
        return
    for _ in range(count):
        yield rng.choice(n, p, replace=False)


def fit_of_subset(functions: Residuals, x: Floats, subset: NDArray[np.intp]) -> Floats | None:
    """Return x fitted to a subset (2), or None if its residuals are not finite or its derivatives are dependent."""
    r = functions(x)[subset]
    first = cost = float(r @ r)
    D, radius = np.zeros(len(x)), np.inf
    for _ in range(MAX_FIT_STEPS):
        if cost <= FIT_RTOL**2 * first:
            break
        J = functions.derivatives(x)[subset]
        D = np.maximum(D, column_norms(J))
        if not np.isfinite(J).all() or not D.all():
            return None
        if not np.isfinite(radius):
            radius = 10 * (float(np.linalg.norm(D * x)) + float(np.linalg.norm(r)))
        to, _ = bounded_step(r, J, D, x, functions.lower, functions.upper, radius)
        other = functions(to)[subset]
        trial = float(other @ other)
        length = float(np.linalg.norm(D * (to - x)))
        if not trial < cost:
            radius = 0.1 * min(radius, length)
            if length == 0 or radius <= FIT_RTOL * float(np.linalg.norm(D * x)):
                break
            continue
        has_stalled = trial > (1 - MIN_PROGRESS) * cost
        x, r, cost = to, other, trial
        if has_stalled:
            break
    return x if np.isfinite(functions(x)).all() else None

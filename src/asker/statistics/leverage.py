"""Leverage without a factorisation: the degrees of freedom that a fit uses up in each observation, by variable.

A variable with d unknowns uses up d degrees of freedom of its observations, in proportion to their weights w/σ²:

    h = Σ w d / (p Σ w)        over the variables of the observation; Σ w over the observations of the variable

It is at most p, as for a variable with fewer observations than it needs.  It is exact where the observations of a
variable are alike and variables share no factors.  `asker.uncertainty.leverage` has the exact one,
which needs an inverse.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.problem.factors import Factors
from asker.problem.reductions import ALONE, Sums
from asker.problem.variables import Variables

Floats = NDArray[np.float64]
NEGLIGIBLE = 1e-290
"""Sum of weights below which a variable has no observations."""


def remaining_fractions(
    factors: Sequence[Factors], weights: Sequence[Floats], sums: Sums = ALONE, precisions: Sequence[float] | None = None
) -> list[Floats]:
    """Return 1 − h/p of every observation, the fraction of its numbers that the fit leaves.

    Parameters
    ----------
    factors
        Factor groups.
    weights
        Weight of every observation, from 0 to 1.
    sums
        Sums over all processes.
    precisions
        1/σ² of each factor group, up to a common factor; by default all alike.
    """
    precisions = precisions if precisions is not None else [1.0] * len(factors)
    totals: dict[Variables, Any] = {}
    free = [[(s.variables, s.index) for s in f.slots if s.variables.is_free] for f in factors]
    for f, slots, w, precision in zip(factors, free, weights, precisions, strict=True):
        for v, index in slots:
            number = np.bincount(index, precision * w * f.residual_size, minlength=len(v))
            totals[v] = totals.get(v, 0.0) + number
    totals = {v: sums.by_variable(v, numbers) for v, numbers in totals.items()}
    remaining = []
    for f, slots, w, precision in zip(factors, free, weights, precisions, strict=True):
        used = np.zeros(f.n)
        for v, index in slots:
            share = np.where(v.fixed, 0.0, v.manifold.tangent / np.maximum(totals[v], NEGLIGIBLE))
            used += np.minimum(precision * w * share[index], 1.0)
        remaining.append(np.maximum(1 - used, 0.0))
    return remaining

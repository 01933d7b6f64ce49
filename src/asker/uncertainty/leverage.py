"""The leverage of every observation: how much of it the fit has used up.

An observation with p numbers that counts has leverage h = α tr(J A⁻¹ Jᵀ): over all observations the leverages add up to
the number of unknowns that are determined.  With h near p an observation decides alone what is fitted to it, and its
residual says nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asker.problem.by_group import Groups
from asker.uncertainty.covariance import Uncertainty
from asker.uncertainty.information import squares

Floats = NDArray[np.float64]
SMALLEST = 1e-9
"""Of the numbers that an observation keeps, p − h."""


@dataclass(frozen=True, eq=False)
class Leverage:
    """Of one factor group, observation by observation."""

    used: Floats
    """h, from 0 to p: how many of its numbers the fit has used up; 0 for those that do not count."""
    studentised: Floats
    """‖r‖ in units of what is expected of it: √(p − h) σ where it counts, √(p + h) σ where it does not, with the h that
    it would have.  Its square has mean 1 for an inlier.  NaN for observations of weight 0."""

    @property
    def n_used(self) -> float:
        """The effective number of unknowns that this group has determined."""
        return float(self.used.sum())


def leverage(of: Uncertainty, informative: Sequence[NDArray[np.bool_]]) -> Groups[Leverage]:
    """Leverage of every factor group; `informative`: masks of the user's observations that have a positive weight."""
    alpha = [part.alpha for part in of.information]
    largest = [float(x.max(initial=0.0)) for x in alpha]
    inverse = of.model.inverse(alpha, None, of.stiffening)
    parts = zip(
        of.problem.factors, of.information, squares(of.result), of.model.predicted(inverse), largest, strict=True
    )
    items = []
    for mask, (f, part, u, predicted, full) in zip(informative, parts, strict=True):
        would = np.where(part.counted, part.alpha, full) * predicted
        left = np.where(part.counted, f.residual_size - would, f.residual_size + would)
        expected = part.sigma**2 * np.maximum(left, SMALLEST)
        used, studentised = np.zeros(len(mask)), np.full(len(mask), np.nan)
        used[mask], studentised[mask] = np.where(part.counted, would, 0.0), np.sqrt(u / expected)
        items.append(Leverage(used, studentised))
    return Groups(items, [f.name for f in of.problem.factors], of.problem.factors)

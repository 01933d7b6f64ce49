"""Leverage and studentised residual of every observation.

An inlier with p components has leverage h = α tr(J A⁻¹ Jᵀ), the degrees of freedom that the fit uses up in it; over all
observations the leverages add up to the number of determined unknowns.  With h near p the fit follows the observation
alone, and its residual carries no information.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asker.problem.by_group import Groups
from asker.uncertainty.covariance import Uncertainty
from asker.uncertainty.information import squared_norms

Floats = NDArray[np.float64]
MIN_DEGREES_OF_FREEDOM = 1e-9
"""Lower bound of p − h, the degrees of freedom of an observation."""


@dataclass(frozen=True, eq=False)
class Leverage:
    """Leverage and studentised residual of every observation of one factor group."""

    used: Floats
    """h, from 0 to p; 0 for outliers."""
    studentised: Floats
    """‖r‖ over its expected value: √(p − h) σ for an inlier, √(p + h) σ for an outlier, with the h that it would have
    as an inlier.  The square has mean 1 for an inlier.  NaN for observations of weight 0."""

    @property
    def n_used(self) -> float:
        """Effective number of unknowns that this group has determined."""
        return float(self.used.sum())


def leverage(of: Uncertainty, informative: Sequence[NDArray[np.bool_]]) -> Groups[Leverage]:
    """Return the leverage of every factor group; `informative` are masks of the observations with positive weight."""
    alpha = [part.alpha for part in of.information]
    largest = [float(x.max(initial=0.0)) for x in alpha]
    inverse = of.model.inverse(alpha, None, of.regularisation)
    parts = zip(
        of.problem.factors, of.information, squared_norms(of.result), of.model.predicted(inverse), largest, strict=True
    )
    items = []
    for mask, (f, part, u, predicted, full) in zip(informative, parts, strict=True):
        h = np.where(part.counted, part.alpha, full) * predicted
        dof = np.where(part.counted, f.residual_size - h, f.residual_size + h)
        expected = part.sigma**2 * np.maximum(dof, MIN_DEGREES_OF_FREEDOM)
        used, studentised = np.zeros(len(mask)), np.full(len(mask), np.nan)
        used[mask], studentised[mask] = np.where(part.counted, h, 0.0), np.sqrt(u / expected)
        items.append(Leverage(used, studentised))
    return Groups(items, [f.name for f in of.problem.factors], of.problem.factors)

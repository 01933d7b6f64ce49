"""The probability that the observations which hold a variable agree by chance.

A point that two images see has one number to spare: two outliers, or an outlier and an inlier, may happen to meet
there.  No residual tells, and the point is then anywhere.  With all other variables known, two explanations are
compared:

    right      the s observations of the variable that count are inliers, its other m − s are outliers
    by chance  fewer than k of all m are inliers, as many as it takes to determine the d unknowns of the variable;
               where no number is to spare, nothing has met, and k others may be the inliers as well

    odds = P(fewer than k of m) / (π^s (1 − π)^(m−s)) · (√2π σ g √(s/(s−1)))^(ps − d) · exp(Σu/2σ²)

π is the share of observations that count, and g the density of a number of an outlier around 0: half of them are
nearer than their median.  A spare number that is small speaks for the first explanation by 1/(√2π σ g), or less, since
the fit goes a part 1/s of the way towards an outlier.  Factor groups in which everything counts are beyond doubt: their
numbers are taken off d.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from asker.problem.problem import Problem
from asker.problem.reductions import ALONE, Sums
from asker.problem.variables import Variables

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Seen:
    """What a solution shows of one factor group, in the user's order."""

    u: Floats
    """‖r‖², weights included."""
    counted: Mask
    sigma: float
    typical: float
    """About the median size of a number of those that do not count; anything where all count."""


@dataclass
class _Hold:
    """Sums over the observations of each variable of a group, (n,) each."""

    n_sure: Floats
    """Numbers of observations beyond doubt."""
    m: Floats
    s: Floats
    expected: Floats
    """Σπ over the m"""
    n_numbers: Floats
    """ps, of those that count"""
    n_all: Floats
    """pm"""
    log_prior: Floats
    log_density: Floats
    """ps · log(√2π σ g)"""
    log_fit: Floats
    """Σu/2σ²"""


def chances(problem: Problem, seen: Sequence[Seen], sums: Sums = ALONE) -> dict[Variables, Floats]:
    """Of every free group, (n,); where a process has a portion of the observations, `sums` adds up over all."""
    free = [v for v in problem.variables if v.is_free]
    holds = {v: np.zeros((9, len(v))) for v in free}
    for f, part in zip(problem.factors, seen, strict=True):
        p, counted, share = f.residual_size, part.counted, sums.mean(part.counted)
        for slot in (s for s in f.slots if s.variables in holds):
            n, hold = len(slot.variables), holds[slot.variables]
            m = np.bincount(slot.index, minlength=n).astype(float)
            if not 0 < share < 1:
                hold[0] += (share == 1) * p * m
                continue
            s = np.bincount(slot.index[counted], minlength=n).astype(float)
            fit = np.bincount(slot.index[counted], part.u[counted], minlength=n) / (2 * part.sigma**2)
            spread = max(4 * part.typical, sqrt(2 * pi) * part.sigma)  # also where all residuals are 0
            density = log(sqrt(2 * pi) * part.sigma / spread)  # √2π σ g
            prior = s * log(share) + (m - s) * log(1 - share)
            hold += [np.zeros(n), m, s, share * m, p * s, p * m, prior, p * s * density, fit]
    return {v: _chance(v.manifold.tangent, _Hold(*sums.by_variable(v, hold))) for v, hold in holds.items()}


def _chance(d: int, hold: _Hold) -> Floats:
    from scipy.special import bdtr

    m = np.maximum(hold.m, 1.0)
    left = np.maximum(d - hold.n_sure, 0.0)  # unknowns that those beyond doubt do not determine
    k = np.ceil(left / np.maximum(hold.n_all / m, 1.0))
    spare = np.maximum(hold.n_numbers - left, 0.0)
    most = np.clip(np.where(spare > 0, k - 1, k), 0, m)
    fewer = bdtr(most, m.astype(int), hold.expected / m) - np.where(spare > 0, 0.0, np.exp(hold.log_prior))
    fewer = np.where(k > 0, np.maximum(fewer, 0.0), 0.0)
    shown = np.log(1 - 1 / np.maximum(hold.s, 2.0)) / 2  # √((s−1)/s)
    density = hold.log_density / np.maximum(hold.n_numbers, 1.0) - shown
    with np.errstate(divide="ignore"):
        odds = np.log(fewer) - hold.log_prior + spare * np.minimum(density, 0.0) + hold.log_fit
    return 1 / (1 + np.exp(-np.clip(odds, -700, 700)))

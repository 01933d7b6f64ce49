"""Two Gaussians in one sample: residuals with a small variance σ², a share π, and all others with a larger one, S².

Algorithm   (1) expectation and maximisation, two steps: an inlier has as many numbers as a fit has left of it
            (2) a leap: where the second step is λ times as long as the first, 0 < λ < 1, all further ones would go
                λ/(1 − λ) times as far as the second.  (Steps shorten slowly where σ and S are close.)  No leap goes
                farther than 4 times: longer ones miss the nearest end
            (3) back to (1) until σ is at rest
            (4) two variances that explain no more than one does are one

Many fits to one sample, from other first numbers, run together: a row for each.
"""

from math import inf, log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asker.problem.reductions import Sums
from asker.tracing.array_namespace import dots

Floats = NDArray[np.float64]

AT_REST = 1e-3
"""The change of σ² in a step, as a part of it."""
SLOWEST = 0.8
"""λ of a leap, at most."""
DISTINCT = 2.0
"""S over σ, below which the others are the tail of one noise, and no outliers."""
SMALLEST = 1e-26
"""σ² over the mean square: below it residuals count as exact."""
TINY = float(np.finfo(float).tiny)
RAREST = 1e-9
"""π or 1 − π, at least."""
TELLING = 0.5
"""Numbers of inliers that are left, below which they tell nothing."""
LEAST_ODDS = -1e200
"""Of a residual that is too far off for its square to be a number."""


class Fits(NamedTuple):
    """Fits from several first σ; of every number one for each, the last axis."""

    variance: Floats
    """σ²"""
    inlier_ratio: Floats
    """The share of all residuals that are inliers; π is that of the votes."""
    n_spare: Floats
    """How many numbers of the inliers are left: by the fit or by the votes, whichever leaves fewer, since both take off
    what was used up."""
    gain: Floats
    """The logarithm of the likelihood beside one variance for everything, less what more numbers cost (BIC); −∞ where
    no observation has a number to spare."""
    ratio: Floats
    """π"""
    broad: Floats
    """S², 0 where it is not known"""

    def only(self, chosen: Any) -> "Fits":
        """Those from the chosen first σ."""
        return Fits(*(x[..., chosen] for x in self))


def first_fits(variances: ArrayLike) -> Fits:
    """Nothing but the first σ²."""
    variance = np.asarray(variances, dtype=float)
    none = np.zeros_like(variance)
    return Fits(variance, none, none, none, none + 0.5, none)


class Sample(NamedTuple):
    """What was seen, with a row for each fit."""

    u: Floats
    """The squared norm of every residual; the same for all fits."""
    p: int
    """Numbers of a residual."""
    left: Floats
    """How many of them a fit has left."""
    vote: Floats
    """How much each residual counts."""
    least: float
    """σ² is no less."""
    sums: Sums

    def added(self, *rows: Floats) -> Floats:
        """Sums over the sample, of all processes."""
        return self.sums.of_array(np.array(rows))


def fitted(sample: Sample, fits: Fits, n_pairs: int, compare: bool) -> Fits:
    """From earlier fits, with so many pairs of steps at most; `compare`: (4) by the likelihood, too."""
    u, p, left, vote, least, _ = sample
    spare_each = np.minimum(left, p * vote)
    n, of_u, of_left, spare_of_all = sample.added(
        vote.sum(axis=1), dots(vote, u), dots(vote, left), spare_each.sum(axis=1)
    )
    is_lost, is_exact = ~(n > 0), ~(of_u > p * n * (TINY / SMALLEST))
    n, goes_on = np.where(is_lost, 1.0, n), ~(is_lost | is_exact)
    first = np.where(goes_on, np.maximum(fits.variance, least), 1.0)
    mean, of_one = np.where(goes_on, [of_u / (p * n), np.maximum(of_u / np.maximum(of_left, TELLING), least)], 1.0)
    broad = np.where(fits.broad > 0, np.maximum(fits.broad, first), np.maximum(mean, 4 * first))
    at, lowest = np.log([first, broad, fits.ratio / (1 - fits.ratio)]), np.log(np.maximum(SMALLEST * mean, least))
    totals = np.array([n, of_u])
    for _ in range(n_pairs):
        if not goes_on.any():
            break
        one, spare = _step(sample, totals, lowest, at)
        two, spare_then = _step(sample, totals, lowest, one)
        is_lost |= goes_on & (np.minimum(spare, spare_then) < TELLING)
        goes_on &= ~is_lost & (np.abs(two[0] - one[0]) >= AT_REST)  # (3)
        at = np.where(goes_on, _leapt(one - at, two - one, two, lowest), two)
    odds, outlier = _odds(sample, at), _odds(sample, np.array([at[1], np.log(of_one), 0 * n]))
    inlier = _probability(odds)
    gain, spare, inliers, seen = sample.added(
        dots(vote, outlier + _log_either(odds, at)), dots(inlier, spare_each), inlier.sum(axis=1), 0 * n + len(u)
    )
    gain = gain - np.log(n)  # S and π are two numbers more: each costs ½ log n
    is_one = is_exact | (at[1] - at[0] < 2 * log(DISTINCT)) | (compare & (gain < 0))  # (4)
    is_lost |= ~is_exact & (np.where(is_one, spare_of_all, spare) < TELLING)
    of_one, plain = np.where(is_exact, max(TINY, least), of_one), is_lost | is_one
    return Fits(
        np.where(is_lost, fits.variance, np.where(is_one, of_one, np.exp(at[0]))),
        np.where(plain, 1.0, inliers / np.maximum(seen, 1.0)),
        np.where(is_lost, 0.0, np.where(is_one, spare_of_all, spare)),
        np.where(is_lost, -inf, np.where(is_one, 0.0, gain)),
        np.where(plain, 0.5, _probability(at[2])),
        np.where(plain, 0.0, np.exp(at[1])),
    )


def _step(sample: Sample, totals: Floats, lowest: Floats, at: Floats) -> tuple[Floats, Floats]:
    """(1) from log σ², log S² and log π/(1 − π), and how many numbers of inliers are left there."""
    n, of_u = totals
    inlier = sample.vote * _probability(_odds(sample, at))
    n_in, u_in, spare = sample.added(inlier.sum(axis=1), dots(inlier, sample.u), dots(inlier, sample.left))
    n_out, u_out = n - n_in, np.maximum(of_u - u_in, TINY)
    small = np.maximum(np.log(np.maximum(u_in, TINY) / np.maximum(spare, TELLING)), lowest)
    large = np.maximum(np.log(u_out / np.maximum(sample.p * n_out, 1e-3)), small)
    return np.array([small, large, np.log(np.maximum(n_in, RAREST * n) / np.maximum(n_out, RAREST * n))]), spare


def _leapt(first: Floats, second: Floats, end: Floats, lowest: Floats) -> Floats:
    """(2), with no less σ² than the lowest."""
    small, large, ratio = leap(first, second, end)
    small = np.maximum(small, lowest)
    return np.array([small, np.maximum(large, small), np.clip(ratio, log(RAREST), -log(RAREST))])


def leap(first: Floats, second: Floats, end: Floats) -> Floats:
    """(2): where steps lead, a number in each row, from the end of the second one."""
    shorter = (first * second).sum(axis=0) / np.maximum((first * first).sum(axis=0), TINY)
    shorter = np.where((shorter > 0) & (shorter < 1), np.minimum(shorter, SLOWEST), 0.0)
    return end + shorter / (1 - shorter) * second


def _odds(sample: Sample, at: Floats) -> Floats:
    """How much likelier each residual is with the small variance than with the large one: the logarithm."""
    small, large, ratio = at
    precision = np.exp(-small) - np.exp(-large)
    odds = sample.left * ((large - small) / 2)[:, None]
    odds += ratio[:, None]
    with np.errstate(over="ignore"):
        odds -= sample.u * (precision / 2)[:, None]
    return np.maximum(odds, LEAST_ODDS, out=odds)


def _probability(odds: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-odds))


def _log_either(odds: Floats, at: Floats) -> Floats:
    """log((1 − π)(1 + exp odds)): how much likelier a residual is with both variances than with the large one."""
    return np.maximum(odds, 0.0) + np.log1p(np.exp(-np.abs(odds))) - np.log1p(np.exp(at[2]))[:, None]

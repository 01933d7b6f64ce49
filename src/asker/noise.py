"""The noise of each factor group, seen in the residuals of a solution.

Model       A residual has p numbers.  Those of an inlier are Gaussian with variance σ²; those of all others are
            Gaussian with a larger variance S²; a share π are inliers.
Leverage    A fit has used up some of the numbers: a point with m observations in images has used 3 of their 2m, so
            its residuals are smaller than the noise.  An observation with weight w keeps p·a of its p numbers, with

                a = 1 − Σ w·d/(p·Σw)        over its variables; d: unknowns of one, Σw: over its observations

            A residual of which nothing is left (a = 0) says nothing.  In all no more is left than numbers less
            unknowns: along a spanning tree, whose edges are exact, nothing.
Votes       A point that is put where two of its observations meet has found them, and not they the noise: among many
            observations two meet by chance.  So the ⌈d/p⌉ observations that determine a variable are used up whole, and
            all observations of a variable count with the share that is left then; in all no more is left than
            observations less those.
Algorithm   (1) many first σ, from that of everything downwards; the likeliest after a few steps go on
            (2) w = 1/(1 + u/4σ²), and a from it
            (3) σ, S and π by expectation and maximisation: in the likelihood an inlier has p·a numbers
            (4) back to (2) until σ is at rest; the likeliest end counts
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isnan, log, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.arrays import dot
from asker.factors import Factors
from asker.sums import ALONE, Sums
from asker.variables import Variables

Floats = NDArray[np.float64]

ROUNDS, STEPS, AT_REST = 10, 200, 1e-4
REACH = 5.0
"""τ over σ: the smooth truncated kernel then gives an inlier at 3σ two thirds of the full weight."""
SCALES = tuple(4.0**-k for k in range(13))
"""The first σ², as parts of the mean square: σ from all of it to 1/4096."""
STEPS_FIRST, LIKELY = 5, 2
TINY = float(np.finfo(float).tiny)
NEAR = 3.0
"""How far an observation may be off, in σ, that votes for a variable."""
FARTHEST = 3.0
"""How far an outlier counts, in roots of the mean square."""
DISTINCT = 2.0
"""S over σ, below which the others are the tail of one noise, and no outliers."""
FEW = 10
"""Spare numbers below which σ is not told: it could be wrong by a factor."""
SMALLEST = 1e-26
"""σ² over the mean square: below it residuals count as exact."""
EXACT = sqrt(10 * SMALLEST)
"""The same of σ, once it is found."""


@dataclass(frozen=True)
class Noise:
    """The noise of a factor group."""

    sigma: float
    """The standard deviation of each number of an inlier's residual, the p numbers taken as independent; 0 where they
    are exact, NaN where it cannot be told."""
    inlier_ratio: float
    """The share of the observations that have this noise, about."""
    n_spare: float
    """How many numbers of the inliers the fit has not used up: what σ rests on."""
    rounding: float = 0.0
    """The step that the data are rounded to, where many of them fit exactly (`asker.rounding`); σ is that of rounding
    at least.  0 where no such thing was seen."""

    @property
    def is_known(self) -> bool:
        """Whether enough observations agree to tell σ."""
        return self.n_spare >= FEW

    @property
    def tau(self) -> float:
        """The width of a smooth truncated kernel that fits the noise."""
        return REACH * self.sigma

    @property
    def uncertainty(self) -> float:
        """The standard deviation of σ itself, as a part of it: by the number of observations alone, if the solution is
        right."""
        return 1 / sqrt(2 * self.n_spare) if self.is_known else inf

    def __str__(self) -> str:
        if not self.is_known:
            return "cannot be told: too few observations agree"
        rounded = f", rounded to {self.rounding:.3g}" if self.rounding else ""
        return f"{self.sigma:.3g} ± {100 * self.uncertainty:.1g} %, inliers {self.inlier_ratio:.1%}{rounded}"


def rounding_variance(step: float) -> float:
    """The variance of numbers that were rounded to multiples of a step: they are off by up to half of it, evenly
    spread (Sheppard 1898)."""
    return step**2 / 12


def estimate(
    factors: Sequence[Factors],
    u: Sequence[Floats],
    broad: Sequence[float] | None = None,
    sums: Sums = ALONE,
    grids: Sequence[float] | None = None,
    near: Sequence[Noise] = (),
) -> tuple[Noise, ...]:
    """The noise of each factor group, from the squared norms u of all residuals, weights included.

    `sums` adds up over the processes that hold portions of the problem.

    `broad` is the mean square of a number in a plain fit, where it is known: an outlier does not count for more than
    `FARTHEST` times that.  (Those that a fit has blown up would make all others look like inliers.)

    `grids` are the steps that the data are rounded to, 0 where they are not.

    `near` is the noise of a solution close by, where it is known: then (1) is left out.
    """
    grids = [0.0] * len(factors) if grids is None else grids
    least = list(map(rounding_variance, grids))
    u = u if broad is None else capped(factors, u, broad)
    means = [sums.mean(x) for x in u]
    whole = [1.0 if isnan(m) else max(m / f.residual_size, TINY) for f, m in zip(factors, means, strict=True)]
    if near and all(n.is_known and n.sigma > 0 for n in near):
        likely = [[_Fit(n.sigma**2) for n in near]]
    else:
        first = [[_Fit(scale * variance) for variance in whole] for scale in SCALES]
        tried = [_round(factors, u, fits, STEPS_FIRST, sums, least) for fits in first]  # (1)
        likely = sorted(tried, key=partial(_gain, tried), reverse=True)[:LIKELY]
    ends = [_at_rest(factors, u, fits, sums, least) for fits in likely]
    best = max(ends, key=partial(_gain, ends))
    return tuple(_noise(fit, mean, grid) for fit, mean, grid in zip(best, means, grids, strict=True))


def capped(factors: Sequence[Factors], u: Sequence[Floats], broad: Sequence[float]) -> list[Floats]:
    """u, in which no outlier counts for more than `FARTHEST` times the mean square of a number in a plain fit."""
    each = zip(factors, u, broad, strict=True)
    return [np.minimum(x, FARTHEST**2 * f.residual_size * Q) for f, x, Q in each]


def _round(
    factors: Sequence[Factors], u: Sequence[Floats], fits: list["_Fit"], n_steps: int, sums: Sums, least: list[float]
) -> list["_Fit"]:
    """(2) and (3)"""
    each = zip(factors, u, *shares(factors, u, [fit.variance for fit in fits], sums), fits, least, strict=True)
    return [
        _mixture(x, f.residual_size, a, vote, fit, n_steps, sums, at_least) for f, x, a, vote, fit, at_least in each
    ]


def _at_rest(
    factors: Sequence[Factors], u: Sequence[Floats], fits: list["_Fit"], sums: Sums, least: list[float]
) -> list["_Fit"]:
    """(2) to (4)"""
    for _ in range(ROUNDS):
        before, fits = fits, _round(factors, u, fits, STEPS, sums, least)
        if np.allclose([fit.variance for fit in fits], [fit.variance for fit in before], rtol=AT_REST, atol=0):  # (4)
            break
    return fits


def shares(
    factors: Sequence[Factors], u: Sequence[Floats], variances: Sequence[float], sums: Sums = ALONE
) -> tuple[list[Floats], list[Floats]]:
    """a and the vote of every observation."""
    near = [np.exp(-x / (2 * NEAR**2)) for x in _in_units(u, variances)]
    return fitted_shares(factors, u, variances, sums), kept_shares(factors, near, voting=True, sums=sums)


def fitted_shares(
    factors: Sequence[Factors], u: Sequence[Floats], variances: Sequence[float], sums: Sums = ALONE
) -> list[Floats]:
    """a of every observation."""
    return kept_shares(factors, [1 / (1 + x / 4) for x in _in_units(u, variances)], sums=sums)


def _in_units(u: Sequence[Floats], variances: Sequence[float]) -> list[Floats]:
    """u/σ²"""
    with np.errstate(over="ignore"):
        return [x / max(s, TINY) for x, s in zip(u, variances, strict=True)]


def kept_shares(
    factors: Sequence[Factors], weights: Sequence[Floats], voting: bool = False, sums: Sums = ALONE
) -> list[Floats]:
    """The share of its numbers that a fit with these weights has not used up, of every observation.

    `voting`: what its variables have left, whatever its own weight, where each has used up whole observations.
    """
    totals: dict[Variables, Any] = {}
    for f, w in zip(factors, weights, strict=True):
        for v, index in ((s.variables, s.index) for s in f.slots if s.variables.is_free):
            numbers = np.bincount(index, w * f.residual_size, minlength=len(v))
            totals[v] = totals.get(v, 0.0) + numbers
    totals = {v: sums.by_variable(v, numbers) for v, numbers in totals.items()}
    keeps = []
    for f, w in zip(factors, weights, strict=True):
        used = np.zeros(f.n)
        for v, index in ((s.variables, s.index) for s in f.slots if s.variables.is_free):
            d, p = v.manifold.tangent, f.residual_size
            d = -(-d // p) * p if voting else d
            share = np.where(v.fixed, 0.0, d / np.maximum(totals[v], d))[index]
            used += share if voting else w * share
        keeps.append(1 - used)
    kept = [np.clip(x, 0.0, 1.0) for x in keeps]
    each = [(f.residual_size * w, x, y) for f, w, x, y in zip(factors, weights, keeps, kept, strict=True)]
    left, counted = sums.of(sum(dot(n, x) for n, x, _ in each), sum(dot(n, y) for n, _, y in each))
    return [x * max(left, 0.0) / max(counted, TINY) for x in kept]


class _Fit(NamedTuple):
    variance: float
    """σ²"""
    inlier_ratio: float = 0.0
    n_spare: float = 0.0
    gain: float = 0.0
    """The logarithm of the likelihood beside one variance for everything, less what more numbers cost (BIC)."""
    ratio: float = 0.5
    """π"""
    broad: float = 0.0
    """S², 0 where it is not known"""


NOTHING = _Fit(1.0, 1.0, gain=-inf)
"""Where no observation has a number to spare."""


def _gain(all_fits: Sequence[Sequence[_Fit]], fits: Sequence[_Fit]) -> float:
    """The gain of all groups, less those of which no fit says anything."""
    told = [any(fit is not NOTHING for fit in of_group) for of_group in zip(*all_fits, strict=True)]
    return sum(fit.gain for fit, is_told in zip(fits, told, strict=True) if is_told)


def _mixture(u: Floats, p: int, a: Floats, vote: Floats, fit: _Fit, n_steps: int, sums: Sums, least: float) -> _Fit:
    """(3), from an earlier fit"""
    n, of_u, of_a = sums.of(float(vote.sum()), dot(vote, u), dot(vote, a))
    if not n > 0:
        return NOTHING
    everything = of_u / (p * n)
    if not everything > TINY / SMALLEST:  # all are exact
        return _Fit(max(TINY, least), 1.0, p * of_a)
    variance, smallest, ratio = max(fit.variance, least), max(SMALLEST * everything, least), fit.ratio
    broad = max(fit.broad, variance) if fit.broad else max(everything, 4 * variance)
    for _ in range(n_steps):
        odds = log(ratio / (1 - ratio)) + p * a / 2 * log(broad / variance) - u / 2 * (1 / variance - 1 / broad)
        inlier = 1 / (1 + np.exp(-np.clip(odds, -700, 700)))
        voting, other = vote * inlier, vote - vote * inlier
        inliers, others = (voting.sum(), dot(voting, u), dot(voting, a)), (other.sum(), dot(other, u))
        n_in, u_in, a_in, n_out, u_out = sums.of(*inliers, *others)
        spare = p * a_in
        if spare < 0.5:
            return NOTHING
        before, variance = variance, max(u_in / spare, smallest)
        broad = max(u_out / max(p * n_out, 1e-3), variance)
        ratio = min(max(n_in / n, 1e-9), 1 - 1e-9)
        if abs(log(variance / before)) < AT_REST:
            break
    alone = _Fit(max(of_u / (p * of_a), least), 1.0, p * of_a) if p * of_a >= 0.5 else NOTHING
    if broad < DISTINCT**2 * variance:
        return alone
    outlier = log(1 - ratio) + p * a / 2 * log(everything / broad) - u / 2 * (1 / broad - 1 / everything)
    (gain,) = sums.of(dot(vote, outlier + np.logaddexp(0.0, np.clip(odds, -700, 700))))
    gain -= log(n)  # S and π are two numbers more: each costs ½ log n
    is_worse = gain < 0 and n_steps == STEPS  # of two variances, at their end
    return alone if is_worse else _Fit(variance, sums.mean(inlier), spare, gain, ratio, broad)


def _noise(fit: _Fit, mean: float, grid: float) -> Noise:
    if fit.n_spare < FEW:
        return Noise(float("nan"), fit.inlier_ratio, fit.n_spare, grid)
    exact = isnan(mean) or fit.variance <= max(EXACT**2 * mean, TINY)
    return Noise(0.0 if exact else sqrt(fit.variance), fit.inlier_ratio, fit.n_spare, grid)

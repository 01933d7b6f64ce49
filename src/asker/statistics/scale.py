"""The noise of each factor group, seen in the residuals of a solution.

Model       A residual has p numbers.  Those of an inlier are Gaussian with variance σ²; those of all others are
            Gaussian with a larger variance S²; a share π are inliers.
Leverage    A fit has used up some of the numbers: a point with m observations in images has used 3 of their 2m, so
            its residuals are smaller than the noise.  An observation with weight w keeps p·a of its p numbers, with

                a = 1 − Σ w·d/(p·Σw)        over its variables; d: unknowns of one, Σw: over its observations

            or w/σ² in the place of w where factor groups have other σ: a variable uses up what is precise.  A residual
            of which nothing is left (a = 0) says nothing.  In all no more is left than numbers less
            unknowns: along a spanning tree, whose edges are exact, nothing.
Votes       A point that is put where two of its observations meet has found them, and not they the noise: among many
            observations two meet by chance.  So the ⌈d/p⌉ observations that determine a variable are used up whole, and
            all observations of a variable count with the share that is left then; in all no more is left than
            observations less those.
Algorithm   (1) many first σ, from that of everything downwards; the likeliest after a few steps go on.  Of many
                observations a part is enough for that
            (2) w = 1/(1 + u/4σ²), and a from it
            (3) σ, S and π by expectation and maximisation: in the likelihood an inlier has p·a numbers
            (4) back to (2) until σ is at rest; the likeliest end counts
"""

from collections.abc import Callable, Sequence
from math import inf, isnan, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.problem.factors import Factors
from asker.problem.reductions import ALONE, Sums
from asker.problem.variables import Variables
from asker.statistics.gaussian_mixture import AT_REST, SMALLEST, TINY, Fits, Sample, first_fits, fitted
from asker.statistics.noise import FEW, Noise, rounding_variance
from asker.tracing.array_namespace import dots

Floats = NDArray[np.float64]
Variances = Sequence[float] | Floats
"""σ² of every factor group; or a column of several, and there is a row for each in what follows."""

ROUNDS, PAIRS = 10, 100
SCALES = 16.0 ** -np.arange(7)
"""The first σ², as parts of the mean square: σ from all of it to 1/4096."""
PAIRS_FIRST, LIKELY = 2, 2
ROOM = 2**15
"""Observations times first σ that are looked at together, as many numbers as a processor holds close by; of more, (1)
looks at a part."""
GOLDEN = (sqrt(5) - 1) / 2
NEAR = 3.0
"""How far an observation may be off, in σ for each number, that votes for a variable."""
FARTHEST = 3.0
"""How far an outlier counts, in roots of the mean square."""
NOTHING = 1e-290
"""Numbers of observations that all weigh next to nothing."""
EXACT = sqrt(10 * SMALLEST)
"""σ over the root of the mean square: below it residuals count as exact."""


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
    seen = _Seen(factors, u, sums, least)
    if near and all(n.is_known and n.sigma > 0 for n in near):
        likely = first_fits([[n.sigma**2] for n in near])
    else:
        tried = seen.in_parts(seen.tried, first_fits(np.outer(whole, SCALES)))
        likely = tried.only(np.argsort(-_gains(tried), kind="stable")[:LIKELY])
    ends = seen.in_parts(seen.at_rest, likely)
    best = ends.only(_gains(ends).argmax())
    numbers = (x.tolist() for x in (best.variance, best.inlier_ratio, best.n_spare))
    return tuple(_noise(*each) for each in zip(*numbers, means, grids, strict=True))


def capped(factors: Sequence[Factors], u: Sequence[Floats], broad: Sequence[float]) -> list[Floats]:
    """u, in which no outlier counts for more than `FARTHEST` times the mean square of a number in a plain fit."""
    each = zip(factors, u, broad, strict=True)
    return [np.minimum(x, FARTHEST**2 * f.residual_size * Q) for f, x, Q in each]


class _Seen(NamedTuple):
    """Residuals, of all factor groups."""

    factors: Sequence[Factors]
    u: Sequence[Floats]
    sums: Sums
    least: Sequence[float]

    def in_parts(self, improved: Callable[[Fits], Fits], fits: Fits) -> Fits:
        """Fits that are improved, as many at once as there is room for."""
        room = max(ROOM // max(1, *self.sizes), 1)
        parts = [fits.only(slice(k, k + room)) for k in range(0, fits.variance.shape[1], room)]
        return Fits(*np.concatenate([improved(part) for part in parts], axis=2))

    @property
    def sizes(self) -> list[int]:
        """Of all groups."""
        return [int(n) for n in self.sums.of(*(f.n for f in self.factors))]

    def tried(self, fits: Fits) -> Fits:
        """(1)"""
        return self._round(fits, PAIRS_FIRST, [max(n * len(SCALES) // ROOM, 1) for n in self.sizes], compare=False)

    def at_rest(self, fits: Fits) -> Fits:
        """(2) to (4)"""
        everyone = [1] * len(self.factors)
        for _ in range(ROUNDS):
            before, fits = fits, self._round(fits, PAIRS, everyone, compare=True)
            if np.allclose(fits.variance, before.variance, rtol=AT_REST, atol=0):  # (4)
                break
        return fits

    def _round(self, fits: Fits, n_pairs: int, of_each: Sequence[int], compare: bool) -> Fits:
        """(2), and (3) by one of so many observations of each group."""
        factors, u, sums, least = self
        a, vote = shares(factors, u, fits.variance[..., None], sums)
        found = []
        for k, f in enumerate(factors):
            some, p = spread(f.n, of_each[k]), f.residual_size
            sample = Sample(u[k][some], p, p * a[k][:, some], vote[k][:, some], least[k], sums)
            found.append(fitted(sample, Fits(*(x[k] for x in fits)), n_pairs, compare))
        return Fits(*np.stack(found, axis=1))


def spread(n: int, every: int) -> Any:
    """One of every so many observations, where in them changes from one to the next: data may repeat a pattern."""
    if every == 1:
        return slice(None)
    k = np.arange(n // every)
    return k * every + (every * (k * GOLDEN % 1)).astype(int)


def _gains(fits: Fits) -> Floats:
    """The gain from each first σ, of all groups but those of which no fit says anything."""
    return fits.gain[np.any(fits.gain > -inf, axis=1)].sum(axis=0)


def shares(
    factors: Sequence[Factors], u: Sequence[Floats], variances: Variances, sums: Sums = ALONE
) -> tuple[list[Floats], list[Floats]]:
    """a and the vote of every observation."""
    each = zip(factors, _in_units(u, variances), strict=True)
    near = [np.exp(-x / (2 * NEAR**2 * f.residual_size)) for f, x in each]
    return fitted_shares(factors, u, variances, sums), kept_shares(factors, near, voting=True, sums=sums)


def fitted_shares(
    factors: Sequence[Factors], u: Sequence[Floats], variances: Variances, sums: Sums = ALONE
) -> list[Floats]:
    """a of every observation."""
    weights = [1 / (1 + x / 4) for x in _in_units(u, variances)]
    return kept_shares(factors, weights, sums=sums, precisions=_precisions(variances))


def _precisions(variances: Variances) -> list[Any]:
    """1/σ² of every factor group, over the largest."""
    least = np.maximum(np.min(np.asarray(variances, dtype=float), axis=0), TINY)
    return [least / np.maximum(s, TINY) for s in variances]


def _in_units(u: Sequence[Floats], variances: Variances) -> list[Floats]:
    """u/σ²"""
    with np.errstate(over="ignore"):
        return [x / np.maximum(s, TINY) for x, s in zip(u, variances, strict=True)]


def kept_shares(
    factors: Sequence[Factors],
    weights: Sequence[Floats],
    voting: bool = False,
    sums: Sums = ALONE,
    precisions: Sequence[Any] | None = None,
    without: Variables | None = None,
) -> list[Floats]:
    """The share of its numbers that a fit with these weights has not used up, of every observation.

    voting      what its variables have left, whatever its own weight, where each has used up whole observations
    precisions  1/σ² of each factor group: a variable uses up what is precise, and hardly anything of what is not
    without     variables that are held
    """
    moving = [
        [(s.variables, s.index) for s in f.slots if s.variables.is_free and s.variables is not without] for f in factors
    ]
    totals: dict[Variables, Any] = {}
    precisions = precisions if precisions is not None else [1.0] * len(factors)
    for f, slots, w, precision in zip(factors, moving, weights, precisions, strict=True):
        for v, index in slots:
            totals[v] = totals.get(v, 0.0) + _counted(index, precision * w * f.residual_size, len(v))
    totals = {v: sums.by_variable(v, numbers) for v, numbers in totals.items()}
    keeps = []
    for f, slots, w, precision in zip(factors, moving, weights, precisions, strict=True):
        used = np.zeros(w.shape)
        for v, index in slots:
            d, p = v.manifold.tangent, f.residual_size
            d = -(-d // p) * p if voting else d
            share = np.where(v.fixed, 0.0, d / np.maximum(totals[v], NOTHING))[..., index]
            used += np.minimum(share, 1.0) if voting else w * np.minimum(precision * share, 1.0)
        keeps.append(1 - used)
    kept = [np.clip(x, 0.0, 1.0) for x in keeps]
    each = [(f.residual_size * w, x, y) for f, w, x, y in zip(factors, weights, keeps, kept, strict=True)]
    left, counted = sums.of_array(np.array([sum(dots(n, x) for n, x, _ in each), sum(dots(n, y) for n, _, y in each)]))
    return [x * (np.maximum(left, 0.0) / np.maximum(counted, TINY))[..., None] for x in kept]


def _counted(index: Any, numbers: Floats, n: int) -> Floats:
    """For each of n variables the sum of the numbers of its observations; of several rows for each row."""
    if numbers.ndim == 1:
        return np.bincount(index, numbers, minlength=n).astype(float, copy=False)
    return np.stack([_counted(index, row, n) for row in numbers])


def _noise(variance: float, inlier_ratio: float, n_spare: float, mean: float, grid: float) -> Noise:
    if n_spare < FEW:
        return Noise(float("nan"), inlier_ratio, n_spare, grid)
    exact = isnan(mean) or variance <= max(EXACT**2 * mean, TINY)
    return Noise(0.0 if exact else sqrt(variance), inlier_ratio, n_spare, grid)

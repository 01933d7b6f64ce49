"""Whether all residuals are Gaussian noise of one scale: then the likeliest solution so far is beyond doubt.

Law         No two variables of a group share a factor, as the points of a scene: then the squares of each add up by
            themselves.  In Gaussian noise Σu/σ² over the observations of a variable is χ² with as many degrees of
            freedom as the fit has left of its numbers, Σp·a (`asker.noise`); the share of this distribution that lies
            below the sum is evenly spread between 0 and 1 over all variables.  An outlier puts its variable to 1; at a
            wrong solution variables are more or less at odds as a rule; not where most observations are outliers that
            a descent has spread evenly: there the estimate of the noise finds a smaller one, and it proves nothing.
Test        Kolmogorov's: the largest difference of the shares from an even spread, which chance exceeds with a
            probability of 1 % at 1.63/√n.  It proves something where n is so large that one variable in twenty shows.

Inliers     The same of a solution with outliers, by what is left without them (`inliers_are_noise`).  There a second
            law is asked for, which no outliers pass that a descent has spread evenly: in sums over a variable they
            look like noise, one by one they do not.  u/σ²a of a single observation is χ² with p degrees of freedom,
            where its variables have so many others that the fit has used up little of it.

Kolmogorov: Sulla determinazione empirica di una legge di distribuzione, Giornale dell'Istituto Italiano degli Attuari
1933.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.factors import Factors
from asker.kernels import SmoothTruncated
from asker.noise import Noise, kept_shares
from asker.problem import Problem
from asker.sums import ALONE, Sums
from asker.variables import Variables

Floats = NDArray[np.float64]
CHANCE = 1.63
"""√n times the difference that chance exceeds with a probability of 1 %."""
SHOWN = 0.05
"""The part of the variables that must show."""
ROUNDS = 2
"""Of σ and what the fit has left."""
LEAST = 0.5
"""Degrees of freedom that tell something."""
KEPT = 0.8
"""What a fit leaves of an observation that is looked at by itself, at least.  Where parts of h = 1 − a of the variance
are used up that differ by as much as h itself, the shares differ from an even spread by ½·0.46·(h/a)² < 0.015."""
SINGLE = round(2 * (CHANCE / SHOWN) ** 2)
"""How many are looked at one by one, at most: those of which most is left, twice as many as must show."""


def one_noise(
    problem: Problem, u: Sequence[Floats], given: Sequence[Any], sums: Sums = ALONE
) -> tuple[Noise, ...] | None:
    """The noise of each factor group where the squared norms u prove that there is nothing else; None where they do
    not.  `given`: kernels where it is not sought, whose factors prove nothing.  Each of the other groups must prove it,
    and where a process has a portion of the observations, those of each process."""
    v = apart(problem)
    if v is None or not can_be_proved(problem, sums) or not all(_is_positive(sums.mean(x)) for x in u):
        return None
    variances = [sums.mean(x) / f.residual_size for f, x in zip(problem.factors, u, strict=True)]
    for _ in range(ROUNDS):
        left = kept_shares(
            problem.factors, [1 / (1 + x / (4 * s)) for x, s in zip(u, variances, strict=True)], sums=sums
        )
        spare = [f.residual_size * sums.of(float(a.sum()))[0] for f, a in zip(problem.factors, left, strict=True)]
        variances = [sums.of(float(x.sum()))[0] / max(n, 1.0) for x, n in zip(u, spare, strict=True)]
    for f, x, a, kernel in zip(problem.factors, u, left, given, strict=True):
        if kernel is not None:
            continue
        total = np.zeros((2, len(v)))
        for slot in (slot for slot in f.slots if slot.variables is v):
            total += [np.bincount(slot.index, y, minlength=len(v)) for y in (x, f.residual_size * a)]
        squares, freedom = sums.by_variable(v, total)
        tells = freedom > LEAST
        if sums.any(not _is_even(squares[tells], freedom[tells])):
            return None
    return tuple(Noise(sqrt(s), 1.0, n) for s, n in zip(variances, spare, strict=True))


def inliers_are_noise(
    problem: Problem,
    u: Sequence[Floats],
    inliers: Sequence[NDArray[np.bool_]],
    noises: Sequence[Noise],
    given: Sequence[Any],
    sums: Sums = ALONE,
) -> bool:
    """Whether the squared norms u prove that all inliers have Gaussian noise of one scale, in each factor group whose
    noise is sought, by both laws.

    `noises` are as they were estimated; the fit is one under truncated kernels of that noise.  `given` and portions as
    in `one_noise`.
    """
    v = apart(problem)
    if v is None or not can_be_proved(problem, sums):
        return False
    alike = [inlier.astype(float) for inlier in inliers]
    truncated = [
        SmoothTruncated(n.tau).omega(x) if kernel is None else 1.0
        for x, n, kernel in zip(u, noises, given, strict=True)
    ]
    left = kept_shares(problem.factors, [m * w for m, w in zip(alike, truncated, strict=True)], sums=sums)
    of_all = kept_shares(problem.factors, alike, sums=sums)
    for f, x, m, a, b, kernel in zip(problem.factors, u, inliers, left, of_all, given, strict=True):
        x, a, b = np.where(m, (x, a, b), 0.0)
        if kernel is None and sums.any(not _is_noise(f, v, x, a, b, sums)):
            return False
    return True


def _is_noise(f: Factors, v: Variables, u: Floats, left: Floats, of_all: Floats, sums: Sums) -> bool:
    """Both laws for one factor group, with 0 for what is no inlier; `of_all`: what would be left if all inliers had the
    same weight.  It does not depend on the residuals, and so decides which are looked at one by one."""
    total = np.zeros((2, len(v)))
    for slot in (slot for slot in f.slots if slot.variables is v):
        total += [np.bincount(slot.index, y, minlength=len(v)) for y in (u, f.residual_size * left)]
    squares, freedom = sums.by_variable(v, total)
    tells = freedom > LEAST
    single = np.argsort(-of_all, kind="stable")[:SINGLE]
    single = single[of_all[single] > KEPT]
    is_even = _is_even(u[single] / left[single], np.full(len(single), float(f.residual_size)))
    return is_even and _is_even(squares[tells], freedom[tells])


def noise_of_all(f: Factors, median: float) -> Noise:
    """The noise of a factor group if all its residuals were noise, from the median of their norms."""
    from scipy.special import gammaincinv

    return Noise(median / sqrt(2 * float(gammaincinv(f.residual_size / 2, 0.5))), 1.0, np.inf)


def can_be_proved(problem: Problem, sums: Sums = ALONE) -> bool:
    """Whether there is a group of so many variables no two of which share a factor."""
    v = apart(problem)
    return not sums.any(v is None or not _is_enough(len(v)))


def inliers_can_be_proved(problem: Problem, given: Sequence[Any], sums: Sums = ALONE) -> bool:
    """The same, and whether there are enough observations to look at one by one, if all are inliers."""
    of_all = kept_shares(problem.factors, [np.ones(f.n) for f in problem.factors], sums=sums)
    sought = [a for a, kernel in zip(of_all, given, strict=True) if kernel is None]
    enough = all(_is_enough(int(np.count_nonzero(a > KEPT))) for a in sought)
    return can_be_proved(problem, sums) and not sums.any(not enough)


def _is_positive(x: float) -> bool:
    return 0 < x < np.inf


def _is_enough(n: int) -> bool:
    return SHOWN * sqrt(n) > CHANCE


def _is_even(squares: Floats, freedom: Floats) -> bool:
    from scipy.special import gammainc

    n = len(squares)
    if not _is_enough(n):
        return False
    share = np.sort(gammainc(freedom / 2, squares * (freedom.sum() / squares.sum()) / 2))
    steps = np.arange(n + 1) / n
    return bool(max((steps[1:] - share).max(), (share - steps[:-1]).max()) < CHANCE / sqrt(n))


def apart(problem: Problem) -> Variables | None:
    """The largest free group no two variables of which share a factor."""
    free = [v for v in problem.variables if v.is_free]
    apart = [v for v in free if all(sum(s.variables is v for s in f.slots) <= 1 for f in problem.factors)]
    return max(apart, key=problem.count, default=None)

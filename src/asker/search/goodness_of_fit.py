"""Whether all residuals are Gaussian noise of one scale: then the likeliest solution so far is beyond doubt.

Law         No two variables of a group share a factor, as the points of a scene: then the squares of each add up by
            themselves.  In Gaussian noise Σu/σ² over the observations of a variable is χ² with as many degrees of
            freedom as the fit has left of its numbers, Σp·a (`asker.statistics.scale`); the share of this distribution
            that lies below the sum is evenly spread between 0 and 1 over all variables.  An outlier puts its variable
            to 1; at a wrong solution variables are more or less at odds as a rule; not where most observations are
            outliers that a descent has spread evenly: there the estimate of the noise finds a smaller one, and it
            proves nothing.
Test        Kolmogorov's: the largest difference of the shares from an even spread, which chance exceeds with a
            probability of 1 % at 1.63/√n.  It proves something where n is so large that one variable in twenty shows.

Inliers     The same of a solution with outliers, by what is left without them (`hidden_ratio`).  There a second
            law is asked for, which no outliers pass that a descent has spread evenly: in sums over a variable they
            look like noise, one by one they do not (`asker.uncertainty.studentized_residuals`).

Kolmogorov: Sulla determinazione empirica di una legge di distribuzione, Giornale dell'Istituto Italiano degli Attuari
1933.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.kernels.kernels import SmoothTruncated
from asker.problem.factors import Factors
from asker.problem.problem import Problem
from asker.problem.reductions import ALONE, Sums
from asker.problem.variables import Variables
from asker.statistics.scale import Noise, kept_shares
from asker.uncertainty.studentized_residuals import Mask, studentised

Floats = NDArray[np.float64]
CHANCE = 1.63
"""√n times the difference that chance exceeds with a probability of 1 %."""
SHOWN, ROUGHLY = 0.05, 0.2
"""The part of the variables that must show; the same where all fit far better than before: a wrong solution would have
to be wrong for most of them."""
ROUNDS = 2
"""Of σ and what the fit has left."""
LEAST = 0.5
"""Degrees of freedom that tell something."""
SINGLY = 0.03
"""The part of single observations that must show where no outliers may be near, and a difference that is none: what a
fit has left is known only so well.  Of 70 % near outliers, which a fit has spread evenly, one in twenty shows."""
SINGLE = round(2 * (CHANCE / SINGLY) ** 2)
"""How many of a factor group are looked at one by one, about: twice as many as that takes."""


def one_noise(
    problem: Problem, u: Sequence[Floats], given: Sequence[Any], sums: Sums = ALONE
) -> tuple[Noise, ...] | None:
    """The noise of each factor group where the squared norms u prove that there is nothing else; None where they do
    not.  `given`: kernels where it is not sought, whose factors prove nothing.  Each of the other groups must prove it,
    and where a process has a portion of the observations, those of each process."""
    v = apart(problem)
    if v is None or not can_be_proved(problem, sums, SHOWN) or not all(_is_positive(sums.mean(x)) for x in u):
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
        squares, freedom = sums.by_variable(v, _by_variable(f, v, x, f.residual_size * a))
        tells = freedom > LEAST
        if sums.any(not _is_even(squares[tells], freedom[tells], SHOWN)):
            return None
    return tuple(Noise(sqrt(s), 1.0, n) for s, n in zip(variances, spare, strict=True))


def hidden_ratio(
    problem: Problem,
    theta: Sequence[Floats],
    u: Sequence[Floats],
    inliers: Sequence[Mask],
    noises: Sequence[Noise],
    given: Sequence[Any],
    shown: float = SHOWN,
    sums: Sums = ALONE,
) -> float:
    """The part of the inliers that may be no noise without showing one by one.  It is 1 unless the squared norms u, at
    these rows of all variables, prove that the inliers have Gaussian noise of one scale, in each factor group whose
    noise is sought, by both laws.

    `noises` are as they were estimated; the fit is one under truncated kernels of that noise.  `given` and portions as
    in `one_noise`.  `shown`: the part of the variables that must show.
    """
    v, sought = apart(problem), [k for k, kernel in enumerate(given) if kernel is None]
    is_spread = sums.added is not None and v is not sums.dealt  # over the processes: none sees a whole variable
    if v is None or is_spread or not can_be_proved(problem, sums, shown):
        return 1.0
    truncated = [
        SmoothTruncated(n.tau).omega(x) if kernel is None else 1.0
        for x, n, kernel in zip(u, noises, given, strict=True)
    ]
    left = kept_shares(problem.factors, [m * w for m, w in zip(inliers, truncated, strict=True)], sums=sums)
    for k in sought:
        f, m = problem.factors[k], inliers[k]
        squares, freedom = _by_variable(f, v, *np.where(m, (u[k], f.residual_size * left[k]), 0.0))
        tells = freedom > LEAST
        if sums.any(not _is_even(squares[tells], freedom[tells], shown)):
            return 1.0
    of_others = kept_shares(problem.factors, [m.astype(float) for m in inliers], sums=sums, without=v)
    each = studentised(problem, theta, v, inliers, of_others, SINGLE)
    for k in sought:
        freedom = np.full(len(each[k]), float(problem.factors[k].residual_size))
        if sums.any(not _is_even(each[k], freedom, ROUGHLY, SINGLY)):
            return 1.0
    return sums.largest(np.array([max(CHANCE / sqrt(len(each[k])), SINGLY) for k in sought]))


def _by_variable(f: Factors, v: Variables, *each: Floats) -> Floats:
    """Sums of numbers of the observations over those of every variable, a row for each."""
    total = np.zeros((len(each), len(v)))
    for slot in (slot for slot in f.slots if slot.variables is v):
        total += [np.bincount(slot.index, x, minlength=len(v)) for x in each]
    return total


def noise_of_all(f: Factors, median: float) -> Noise:
    """The noise of a factor group if all its residuals were noise, from the median of their norms."""
    from scipy.special import gammaincinv

    return Noise(median / sqrt(2 * float(gammaincinv(f.residual_size / 2, 0.5))), 1.0, np.inf)


def can_be_proved(problem: Problem, sums: Sums = ALONE, shown: float = ROUGHLY) -> bool:
    """Whether there is a group of so many variables no two of which share a factor."""
    v = apart(problem)
    return not sums.any(v is None or not _is_enough(len(v), shown))


def _is_positive(x: float) -> bool:
    return 0 < x < np.inf


def _is_enough(n: int, shown: float) -> bool:
    return shown * sqrt(n) > CHANCE


def _is_even(squares: Floats, freedom: Floats, shown: float, nothing: float = 0.0) -> bool:
    """Whether the shares are evenly spread; `nothing`: a difference that is none."""
    from scipy.special import gammainc

    n = len(squares)
    if not _is_enough(n, shown):
        return False
    share = np.sort(gammainc(freedom / 2, squares * (freedom.sum() / squares.sum()) / 2))
    steps = np.arange(n + 1) / n
    return bool(max((steps[1:] - share).max(), (share - steps[:-1]).max()) < max(CHANCE / sqrt(n), nothing))


def apart(problem: Problem) -> Variables | None:
    """The largest free group no two variables of which share a factor."""
    free = [v for v in problem.variables if v.is_free]
    apart = [v for v in free if all(sum(s.variables is v for s in f.slots) <= 1 for f in problem.factors)]
    return max(apart, key=problem.count, default=None)

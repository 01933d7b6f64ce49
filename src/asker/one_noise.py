"""Whether all residuals are Gaussian noise of one scale: then the likeliest solution so far is beyond doubt.

Law         No two variables of a group share a factor, as the points of a scene: then the squares of each add up by
            themselves.  In Gaussian noise Σu/σ² over the observations of a variable is χ² with as many degrees of
            freedom as the fit has left of its numbers, Σp·a (`asker.noise`); the share of this distribution that lies
            below the sum is evenly spread between 0 and 1 over all variables.  An outlier puts its variable to 1; at a
            wrong solution variables are more or less at odds as a rule; not where most observations are outliers that
            a descent has spread evenly: there the estimate of the noise finds a smaller one, and it proves nothing.
Test        Kolmogorov's: the largest difference of the shares from an even spread, which chance exceeds with a
            probability of 1 % at 1.63/√n.  It proves something where n is so large that one variable in twenty shows.

Inliers     The same of a solution with outliers, by what is left without them (`hidden_share`).  There a second
            law is asked for, which no outliers pass that a descent has spread evenly: in sums over a variable they
            look like noise, one by one they do not.  A single residual r has the covariance σ²C, with

                C = aI − J B⁻¹ Jᵀ,   B = ΣJᵀJ over the inliers of the variable, a: what others have left of it

            so that rᵀC⁻¹r/σ² is χ² with p degrees of freedom, whatever its variable has used up.

Kolmogorov: Sulla determinazione empirica di una legge di distribuzione, Giornale dell'Istituto Italiano degli Attuari
1933.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.engines.cpu.linear_model import LinearModel
from asker.factors import Factors
from asker.kernels import SmoothTruncated
from asker.mixture import TINY
from asker.noise import Noise, kept_shares
from asker.problem import Problem
from asker.sums import ALONE, Sums
from asker.trials import with_rows
from asker.variables import Slot, Variables

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
CHANCE = 1.63
"""√n times the difference that chance exceeds with a probability of 1 %."""
SHOWN, ROUGHLY = 0.05, 0.2
"""The part of the variables that must show; the same where all fit far better than before: a wrong solution would have
to be wrong for most of them."""
ROUNDS = 2
"""Of σ and what the fit has left."""
LEAST = 0.5
"""Degrees of freedom that tell something."""
KEPT = 0.5
"""What a fit leaves of every number of an observation that is looked at by itself, at least."""
SINGLY = 0.025
"""The part of single observations that must show where no outliers may be near, and a difference that is none, since
what a fit has left is known so well.  Of 70 % near outliers, which a fit has spread evenly, one in twenty shows."""
SINGLE = round(2 * (CHANCE / SINGLY) ** 2)
"""How many are looked at one by one, about: twice as many as that takes."""
RIDGE = 1e-12
"""Of the trace of B."""


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


def hidden_share(
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
    v = apart(problem)
    if v is None or not can_be_proved(problem, sums, shown):
        return 1.0
    truncated = [
        SmoothTruncated(n.tau).omega(x) if kernel is None else 1.0
        for x, n, kernel in zip(u, noises, given, strict=True)
    ]
    weights = [m * w for m, w in zip(inliers, truncated, strict=True)]
    left = kept_shares(problem.factors, weights, sums=sums)
    of_others = kept_shares(problem.factors, [m.astype(float) for m in inliers], sums=sums, without=v)
    single, hidden = _one_by_one(problem, theta, v, inliers, of_others), []
    for f, x, m, a, alone, kernel in zip(problem.factors, u, inliers, left, single, given, strict=True):
        squares, freedom = sums.by_variable(v, _by_variable(f, v, *np.where(m, (x, f.residual_size * a), 0.0)))
        tells = freedom > LEAST
        p = np.full(len(alone), float(f.residual_size))
        is_noise = _is_even(squares[tells], freedom[tells], shown) and _is_even(alone, p, ROUGHLY)
        if kernel is None and sums.any(not is_noise):
            return 1.0
        if kernel is None:
            hidden.append(CHANCE / sqrt(len(alone)))
    return sums.largest(np.array(hidden))


def _by_variable(f: Factors, v: Variables, *each: Floats) -> Floats:
    """Sums of numbers of the observations over those of every variable, a row for each."""
    total = np.zeros((len(each), len(v)))
    for slot in (slot for slot in f.slots if slot.variables is v):
        total += [np.bincount(slot.index, x, minlength=len(v)) for x in each]
    return total


def _one_by_one(
    problem: Problem, theta: Sequence[Floats], v: Variables, inliers: Sequence[Mask], left: Sequence[Floats]
) -> list[Floats]:
    """rᵀC⁻¹r of single inliers, of each factor group: of those of some variables, of which enough is left."""
    groups = zip(problem.factors, inliers, strict=True)
    numbers = np.sum([_by_variable(f, v, np.where(m, float(f.residual_size), 0.0))[0] for f, m in groups], axis=0)
    some = np.flatnonzero((numbers > v.manifold.tangent) & ~v.fixed)
    wanted = SINGLE * max(f.residual_size for f in problem.factors)
    some = some[:: max(int(numbers[some].sum()) // wanted, 1)]
    number = np.full(len(v), -1)
    number[some] = np.arange(len(some))
    rows = dict(zip(problem.variables, theta, strict=True))
    few = with_rows(v, rows[v][some], v.fixed[some])
    rows[few] = few.rows
    made, kept = [], []
    for f, m, a in zip(problem.factors, inliers, left, strict=True):
        of = next((number[s.index] for s in f.slots if s.variables is v), np.full(f.n, -1))
        chosen = np.flatnonzero(m & (of >= 0))
        slots = [Slot(few, of[chosen]) if s.variables is v else Slot(s.variables, s.index[chosen]) for s in f.slots]
        made.append(f.on(slots, chosen))
        kept.append(a[chosen])
    part = Problem(*made)
    linear = LinearModel(part, tuple(rows[x] for x in part.variables))
    B = linear.own_blocks([np.ones(f.n) for f in made])[few]
    ridge = RIDGE * np.trace(B, axis1=1, axis2=2)[:, None, None] * np.eye(B.shape[1])
    inverse = np.linalg.inv(B + np.maximum(ridge, TINY * np.eye(B.shape[1])))
    return [
        _studentised(*at, inverse, a) if at is not None else np.zeros(0)
        for at, a in zip(linear.derivatives(few), kept, strict=True)
    ]


def _studentised(J: Floats, r: Floats, of: Any, inverse: Floats, left: Floats) -> Floats:
    """rᵀC⁻¹r of residuals r with derivatives J, by variables `of` with these B⁻¹, where enough is left."""
    C = left[:, None, None] * np.eye(r.shape[1]) - J @ inverse[of] @ np.swapaxes(J, 1, 2)
    C, r = (x[np.isfinite(C).all(axis=(1, 2))] for x in (C, r))
    enough = np.linalg.eigvalsh(C)[:, 0] > KEPT
    return np.einsum("np,np->n", r[enough], np.linalg.solve(C[enough], r[enough][..., None])[..., 0])


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


def _is_even(squares: Floats, freedom: Floats, shown: float) -> bool:
    from scipy.special import gammainc

    n = len(squares)
    if not _is_enough(n, shown):
        return False
    share = np.sort(gammainc(freedom / 2, squares * (freedom.sum() / squares.sum()) / 2))
    steps = np.arange(n + 1) / n
    return bool(max((steps[1:] - share).max(), (share - steps[:-1]).max()) < max(CHANCE / sqrt(n), SINGLY))


def apart(problem: Problem) -> Variables | None:
    """The largest free group no two variables of which share a factor."""
    free = [v for v in problem.variables if v.is_free]
    apart = [v for v in free if all(sum(s.variables is v for s in f.slots) <= 1 for f in problem.factors)]
    return max(apart, key=problem.count, default=None)

"""Diagnosis of a solution: alternatives that the data do not exclude, and doubts."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Point
from asker.engines.inverse_blocks import SingularError
from asker.engines.linearised import linear_model
from asker.problem.problem import Problem
from asker.problem.variables import Variables
from asker.search.context import SearchContext
from asker.search.refinement import gain_on_agreed, inlier_masks, is_exact_minority
from asker.search.state import Candidate
from asker.solver.doubts import Doubt
from asker.statistics.inliers import Classified
from asker.statistics.noise import FEW, Noise, rounding_variance
from asker.statistics.scale_mixture import Outliers, log_likelihoods
from asker.uncertainty.observability import n_undetermined

Mask = NDArray[np.bool_]
CONFIDENCE = 0.05
"""Level at which a solution within the confidence region of another one is the same solution."""


def has_lost_a_variable(context: SearchContext, candidate: Candidate) -> bool:
    """Return whether the observations of a variable are explained hardly better by the model than as outliers.

    Their evidence then exceeds 0 by less than what the unknowns of the variable may gain by chance.  Variables of the
    largest group no two of which share a factor are omitted: block moves can repair them.
    """
    nats = {v: np.zeros((2, len(v))) for v in _shared_variables(context.problem)}
    for k in context.estimated:
        model = candidate.models[k]
        assert model is not None
        of = context.residuals(candidate.point, candidate.leverage, k)
        each = log_likelihoods(model, of)
        for slot in (s for s in context.problem.factors[k].slots if s.variables in nats):
            n = len(slot.variables)
            nats[slot.variables] += [np.bincount(slot.index, each, n), np.bincount(slot.index, minlength=n)]
    lost = False
    for v, of_own in nats.items():
        total, count = context.sums.by_variable(v, of_own)
        by_chance = context.settings.alternative_nats + v.manifold.tangent
        lost |= bool(((total < by_chance) & (count > 0) & ~v.fixed).any())
    return context.sums.any(lost)


def _shared_variables(problem: Problem) -> list[Variables]:
    """Return the free groups without the largest one no two variables of which share a factor."""
    free = [v for v in problem.variables if v.is_free]
    apart = [v for v in free if all(sum(s.variables is v for s in f.slots) <= 1 for f in problem.factors)]
    largest = max(apart, key=problem.count, default=None) if len(free) > 1 else None
    return [v for v in free if v is not largest]


def alternatives_of(context: SearchContext, best: Candidate, others: Sequence[Candidate]) -> list[Candidate]:
    """Return the solutions that the data do not exclude, the best first.

    They have redundant inliers, and are within `alternative_nats` of the best, or a majority whose fit of the agreed
    observations is better by more than that; they lie outside the confidence region of the best and of better
    alternatives; and outliers are part of them only if they explain more than noise alone would, whose evidence is 0.
    """
    nats, found = context.settings.alternative_nats, [best]
    for other in sorted(others, key=lambda c: -c.evidence):
        explains = other.hypothesis is Outliers.NONE or other.mixture_evidence > 0
        if not explains or not _is_redundant(context, other):
            continue
        if is_exact_minority(context, other) or context.is_degenerate(other.point):
            continue
        if not differs(context, found, other):
            continue
        is_close = other.evidence > best.evidence - nats
        is_majority = other.inlier_ratio > 0.5
        if is_close or (is_majority and gain_on_agreed(context, best, other) > nats + context.n_unknowns / 2):
            found.append(other)
    return found[1:]


def _is_redundant(context: SearchContext, candidate: Candidate) -> bool:
    """Return whether the inliers leave degrees of freedom: else any point has as many.

    A minority must leave as many as the noise of a group needs, since a few of many observations agree by chance.
    """
    masks = inlier_masks(context, candidate)
    (numbers,) = context.sums.of(float(sum(p * mask.sum() for p, mask in zip(context.p, masks, strict=True))))
    return numbers - context.n_unknowns >= (1 if candidate.inlier_ratio > 0.5 else FEW)


def differs(context: SearchContext, known: Sequence[Candidate], other: Candidate) -> bool:
    """Return whether a solution lies outside the confidence regions of known ones: Σ w u under their weights w."""
    from scipy.special import chdtri

    least = float(chdtri(context.n_unknowns, CONFIDENCE))
    for one in known:
        w = context.weights(one.point, one.models, one.leverage)
        here, there = context.squares(one.point), context.squares(other.point)
        each = zip(w, there, here, strict=True)
        increase = sum(float((w[w > 0] * (b[w > 0] - a[w > 0])).sum()) for w, b, a in each)
        if not context.sums.of(increase)[0] > least:
            return False
    return True


def doubts_of(
    context: SearchContext,
    best: Candidate,
    classified: Classified,
    noises: Sequence[Noise],
    n_alternatives: int,
) -> tuple[Doubt, ...]:
    """Return the reasons not to rely on the best candidate.

    `classified` has the inliers of the result, with the noise in the units of the user.
    """
    doubts = [*_doubts_of_scales(context, classified, noises)]
    doubts += _doubts_of_few(context, best.point, classified)
    doubts += _doubts_of_weak_variables(context, classified)
    if n_alternatives:
        many = f"{n_alternatives} other solutions explain" if n_alternatives > 1 else "another solution explains"
        text = f"{many} the data nearly as well: see `result.alternatives`"
        doubts.append(Doubt(text, Doubt.AMBIGUOUS, n_alternatives=n_alternatives))
    if context.is_degenerate(best.point):
        text = (
            "the solution may be degenerate: its residuals depend ten times less on the data than at the initial "
            "guess, and may be small because unknowns diverged; bound the unknowns, or give a kernel"
        )
        doubts.append(Doubt(text, Doubt.DEGENERATE))
    for f, unique in zip(context.problem.factors, context.unique, strict=True):
        if unique is not None:
            n = f.n - len(unique)
            text = (
                f"{n} of {f.n} {f.name} are exact duplicates of others: they count in the solution, but not in the "
                "noise estimate, so that intervals are too narrow; remove them"
            )
            doubts.append(Doubt(text, Doubt.DUPLICATES, group=f.name, n=n, of=f.n))
    return tuple(doubts)


def _doubts_of_scales(context: SearchContext, classified: Classified, noises: Sequence[Noise]) -> Iterator[Doubt]:
    """Yield a doubt for each group whose scale is unknown, exact for a minority only, or hidden by rounding."""
    factors = context.problem.factors
    for k in context.estimated:
        f, noise, n, of = factors[k], noises[k], classified.n_inliers[k], classified.n_informative[k]
        if of and not noise.is_known:
            text = (
                f"the noise of {f.name} cannot be estimated: too few observations agree, so that none is rejected as "
                "an outlier; give a kernel whose width suits the noise"
            )
            yield Doubt(text, Doubt.SCALE_UNKNOWN, group=f.name)
        elif noise.sigma == 0 and 2 * n < of:
            text = (
                f"{n} of {of} {f.name} fit exactly, and all others are outliers: rounded data or a stuck sensor may "
                "be the reason; then give a kernel whose width suits the noise"
            )
            yield Doubt(text, Doubt.EXACT_MINORITY, group=f.name, n=n, of=of)
        elif noise.inlier_ratio < 0.5 and 2 * n < of:
            text = f"{n} of {of} {f.name} support the solution, a minority: all others are outliers"
            yield Doubt(text, Doubt.MINORITY, group=f.name, n=n, of=of)
        if noise.rounding and noise.sigma <= rounding_variance(noise.rounding) ** 0.5 * (1 + 1e-6):
            text = (
                f"{f.name} are rounded to {noise.rounding:.3g}, which hides their noise: its estimate is the standard "
                f"deviation of rounding, {noise.sigma:.3g}; rounding errors need not average out, so that intervals "
                "may be too narrow"
            )
            yield Doubt(text, Doubt.ROUNDED, group=f.name, step=noise.rounding, sigma=noise.sigma)


def _doubts_of_few(context: SearchContext, point: Point, classified: Classified) -> Iterator[Doubt]:
    """Yield a doubt if the inliers leave fewer degrees of freedom than there are unknowns, and few at all."""
    sizes = zip(classified.n_inliers, context.p, strict=True)
    numbers, n_unknowns = sum(n * p for n, p in sizes), context.n_unknowns
    if numbers - n_unknowns >= min(n_unknowns, FEW):
        return
    d = n_unknowns - _n_open(context, point, classified)
    if (spare := numbers - d) < min(d, FEW):
        text = (
            f"few observations are redundant: {sum(classified.n_inliers)} inliers with {numbers} residual components "
            f"for {d} unknowns leave {spare} degrees of freedom; add observations"
        )
        yield Doubt(text, Doubt.FEW_OBSERVATIONS, n_numbers=numbers, n_unknowns=d, n_spare=spare)


def _n_open(context: SearchContext, point: Point, classified: Classified) -> int:
    """Return how many directions the inliers do not determine; 0 if that cannot be counted."""
    if context.problem.portion is not None:
        return 0
    model = linear_model(context.engine.name, context.problem, context.engine.rows_here(point))
    try:
        return n_undetermined(model, [inlier.astype(float) for inlier in classified.inliers])
    except SingularError:
        return 0


def _doubts_of_weak_variables(context: SearchContext, classified: Classified) -> Iterator[Doubt]:
    """Yield a doubt for each group of variables some of which have no redundant inlier."""
    problem = context.problem
    for v in (v for v in problem.variables if v.is_free and problem.count(v) > 1):
        numbers, smallest = np.zeros(len(v)), np.inf
        for f, inlier in zip(problem.factors, classified.inliers, strict=True):
            for slot in (s for s in f.slots if s.variables is v):
                numbers += f.residual_size * np.bincount(slot.index, inlier, minlength=len(v))
                smallest = min(smallest, f.residual_size)
        spare = (context.sums.by_variable(v, numbers) - v.manifold.tangent) / smallest
        few = int(np.count_nonzero(~v.fixed & (spare < 1)))
        few = int(context.sums.of(few)[0]) if v is context.sums.dealt else few
        if few:
            of = problem.count(v)
            text = f"{few} of {of} {v.name} have no redundant inlier: their inliers cannot be cross-checked"
            yield Doubt(text, Doubt.UNVERIFIED, variables=v.name, n=few, of=of)

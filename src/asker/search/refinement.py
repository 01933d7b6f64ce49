"""Refinement of a candidate: descent under the posterior weights and fit of the mixture, in turn.

Algorithm   (1) fit the mixture of every group and compute the leverage, until they agree; only then the evidence means
                something, since a stale leverage would let minorities win
            (2) descend on the likelihood with the mixture and the leverage fixed
            (3) back to (1) until the evidence rises by less than `gain_nats`
Descent     Levenberg-Marquardt on the likelihood: w = posterior · tail / s², solve (Σ w JᵀJ + λ diag) δ = −Σ w Jᵀr,
            accept if the likelihood rises
Exact       Where the inliers fit exactly because the data are rounded (`asker.search.data_checks`), the scale is at
            least that of rounding, for all candidates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine, Model, Point
from asker.search.context import Leverage, Models, SearchContext
from asker.search.data_checks import rounding
from asker.search.state import Candidate
from asker.statistics.noise import rounding_variance
from asker.statistics.scale_mixture import (
    TINY,
    Outliers,
    Residuals,
    ScaleMixture,
    best_fit,
    evidence,
    posterior,
)
from asker.strategies.strategy import ROUNDING, S, State, attempt, lowered, refused

Mask = NDArray[np.bool_]
GOLDEN = (5**0.5 - 1) / 2
"""Golden ratio, whose multiples sample observations without a pattern."""


@dataclass(frozen=True, eq=False)
class MixtureDescent:
    """Descent on the negative log likelihood, which is the cost of its states."""

    context: SearchContext
    models: Models
    leverage: Leverage
    damping: float = 1e-3
    """λ at the start."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> State:
        return State(start, self.context.cost(start, self.models, self.leverage), self.damping)

    def step(self, engine: Engine, state: S) -> S:
        w = self.context.for_solve(self.context.weights(state.point, self.models, self.leverage))  # (1)
        trial = attempt(engine, state.point, Model(w, None, w), state.damping)  # (2)
        cost = float("nan") if trial is None else self.context.cost(trial, self.models, self.leverage)
        if trial is None or not cost < state.cost:  # (3)
            at_rest = cost - state.cost <= ROUNDING * abs(state.cost)
            return replace(refused(state, cost, trial), at_rest=at_rest)
        return replace(state, point=trial, cost=cost, damping=lowered(state.damping), accepted=True, at_rest=False)


def evaluated(
    context: SearchContext,
    name: str,
    hypothesis: Outliers,
    point: Point,
    models: Models | None = None,
    h: Leverage | None = None,
) -> Candidate:
    """Return the candidate at a point: mixtures and leverage that agree, and the evidence."""  # (1)
    settings, h = context.settings, h or context.even_leverage()
    for k in range(settings.max_agreement_rounds):
        before = models
        models = fitted(context, point, hypothesis, models, h, with_tails=k == 0)
        h = context.leverage(point, context.weights(point, models, h))
        if before is not None and _agree(before, models, settings.scale_rtol):
            break
    assert models is not None
    candidate = Candidate(name, hypothesis, point, tuple(models), h, evidence_of(context, point, models, h))
    if _raises_least_variance(context, candidate):
        candidate = evaluated(context, name, hypothesis, point, None, h)
    return candidate


def fitted(
    context: SearchContext,
    point: Point,
    hypothesis: Outliers,
    models: Models | None,
    h: Leverage,
    with_tails: bool = True,
) -> list[ScaleMixture | None]:
    """Return the mixture of every group of unknown scale: near the one before, or from several first scales."""
    found: list[ScaleMixture | None] = [None] * len(context.p)
    for k in context.estimated:
        of = context.residuals(point, h, k, are_distinct=True)
        known = models[k] if models is not None else None
        found[k] = _fit(context, of, context.p[k], hypothesis, known, with_tails)
    return found


def _fit(
    context: SearchContext,
    of: Residuals,
    p: int,
    hypothesis: Outliers,
    known: ScaleMixture | None,
    with_tails: bool,
) -> ScaleMixture:
    """Return the mixture of one group, with the tails that have the most evidence."""
    settings, price = context.settings, context.settings.alternative_nats
    if known is None:
        sample = of.only(_sample(len(of.u), settings.fit_sample))
        firsts = _first_mixtures(context, sample, p, hypothesis)
        known = best_fit(sample, firsts, (), settings.fit_rtol, settings.max_first_fit_steps, price)
    dofs = settings.tail_dofs if with_tails else ()
    return best_fit(of, [known], dofs, settings.fit_rtol, settings.max_fit_steps, price)


def _first_mixtures(context: SearchContext, of: Residuals, p: int, hypothesis: Outliers) -> list[ScaleMixture]:
    """Return initial mixtures: a variance for each quantile of the residuals; all of them without outliers."""
    settings = context.settings
    if hypothesis is Outliers.NONE:
        total, left = of.sums.of(float(of.u[np.isfinite(of.u)].sum()), float(of.m.sum()))
        return [ScaleMixture(max(total / max(left, TINY), of.least_variance), 1.0, outliers=hypothesis)]
    of_all = of.u[np.isfinite(of.u)]
    at = [q for q in settings.initial_quantiles if hypothesis is Outliers.CLUTTER or q >= 0.5]
    local = [float(np.quantile(of_all, q)) if len(of_all) else 0.0 for q in at]
    count = float(len(of_all))
    totals = of.sums.of(count, *(count * x for x in local))  # the mean over processes; the same in all
    variances = [max(x / max(totals[0], 1.0) / p, of.least_variance) for x in totals[1:]]
    return [ScaleMixture(x, settings.initial_inlier_ratio, outliers=hypothesis) for x in variances]


def _sample(n: int, size: int) -> NDArray | slice:
    """Return the numbers of about `size` of n observations, without a pattern: data may repeat one."""
    every = n // max(size, 1)
    if every < 2:
        return slice(None)
    k = np.arange(n // every)
    return k * every + (every * (k * GOLDEN % 1)).astype(int)


def _agree(before: Models, after: Models, rtol: float) -> bool:
    """Return whether the variances of two fits are the same."""
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a and b]
    return all(abs(log(a.variance / b.variance)) < rtol for a, b in pairs)


def evidence_of(context: SearchContext, point: Point, models: Models, h: Leverage) -> float:
    """Return the evidence of a point in nats, over all factor groups."""
    total = -context.fixed_cost(point)
    for k, model in enumerate(models):
        if model is not None:
            of = context.residuals(point, h, k, are_distinct=True)
            total += evidence(model, of, context.settings.alternative_nats)
    return total


def _raises_least_variance(context: SearchContext, found: Candidate) -> bool:
    """Raise the least variance of groups that fit exactly on rounded data; return whether that changes one."""
    changed = False
    for k in context.estimated if context.problem.portion is None else ():
        model = found.models[k]
        assert model is not None
        if model.variance < context.settings.exact_ratio * context.reference_variance[k]:
            least = rounding_variance(rounding(context.engine, found.point, k))
            if least > context.least_variance[k]:
                context.least_variance[k], changed = least, True
    return changed


def refined(
    context: SearchContext, candidate: Candidate, on_round: Callable[[Candidate], None] = lambda candidate: None
) -> Candidate:
    """Return the candidate after descents and fits, until its evidence rises no more."""
    for _ in range(context.settings.max_refinement_rounds):
        new = improved(context, candidate)
        if not new.evidence > candidate.evidence + context.gain_nats:  # (3)
            break
        candidate = new
        on_round(candidate)
    return candidate


def improved(context: SearchContext, candidate: Candidate) -> Candidate:
    """Return the candidate after one descent and one fit."""
    if not context.goes_on():
        return candidate
    descent = MixtureDescent(context, candidate.models, candidate.leverage, context.damping)
    n = context.settings.max_descent_iterations
    point = context.run(context.engine, descent, candidate.point, n, candidate.name)  # (2)
    return evaluated(context, candidate.name, candidate.hypothesis, point, candidate.models, candidate.leverage)


def moved(context: SearchContext, candidate: Candidate, point: Point) -> Candidate:
    """Return the candidate with its mixtures at another point, refined."""
    there = evaluated(context, candidate.name, candidate.hypothesis, point, candidate.models, candidate.leverage)
    return refined(context, there)


def inlier_masks(context: SearchContext, candidate: Candidate) -> list[Mask]:
    """Return the observations of each group that are inliers with a probability above a half."""
    return [
        posterior(model, context.residuals(candidate.point, candidate.leverage, k)) > 0.5
        if model is not None
        else np.ones(len(candidate.leverage[k]), dtype=bool)
        for k, model in enumerate(candidate.models)
    ]


def is_exact_minority(context: SearchContext, candidate: Candidate) -> bool:
    """Return whether a minority fits exactly, as the readings of a stuck sensor do."""
    ratio = context.settings.exact_ratio
    each = zip(candidate.models, context.reference_variance, strict=True)
    return any(model and model.inlier_ratio < 0.5 and model.variance < ratio * x for model, x in each)


def gain_on_agreed(context: SearchContext, best: Candidate, other: Candidate) -> float:
    """Return the nats by which `other` fits the observations that both accept better than `best`."""
    gain = 0.0
    masks: Sequence[tuple[Mask, Mask]] = list(
        zip(inlier_masks(context, best), inlier_masks(context, other), strict=True)
    )
    for k in context.estimated:
        model = other.models[k]
        assert model is not None
        both = masks[k][0] & masks[k][1]
        difference = context.squares(best.point)[k][both] - context.squares(other.point)[k][both]
        gain += float(difference.sum()) / (2 * model.variance)
    return context.sums.of(gain)[0]

"""The search for the solution of a problem whose noise scale is unknown.

Model   `asker.statistics.scale_mixture`: inliers and outliers of every factor group, and the evidence of a solution.
Loop    generate starts, refine each, keep the best, polish it, diagnose it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from asker.engines.interface import Point
from asker.search.context import SearchContext
from asker.search.diagnosis import differs, has_lost_a_variable
from asker.search.generators import BlockMoves, Generator, least_squares
from asker.search.independent_variables import marginalised, with_sample_evidence
from asker.search.refinement import evaluated, gain_on_agreed, is_exact_minority, moved, refined
from asker.search.state import Candidate, SearchState
from asker.statistics.scale_mixture import Outliers

Save = Callable[[SearchState], None]


def search(
    context: SearchContext, generators: Sequence[Generator], state: SearchState, save: Save
) -> tuple[list[Candidate], SearchState]:
    """Return all candidates, the best first and polished, and the final state.

    Parameters
    ----------
    context
        Problem on an engine.
    generators
        Sources of starts, in the order of their cost.
    state
        State of an earlier run of the same search, or a new one.
    save
        Function that stores a state.
    """
    state = with_background(context, state)
    for generator in generators:
        if generator.name in state.finished or not generator.suits(context) or _is_decided(context, state):
            continue
        for name, point in _starts(context, generator, state):
            for hypothesis in _hypotheses(context, generator):
                start = f"{name}, {hypothesis.name.lower()}"
                if start not in state.finished and context.goes_on():
                    state = _with_start(context, state, start, generator.name, hypothesis, point, save)
        state = replace(state, finished=(*state.finished, generator.name))
    if not state.candidates:  # a limit was reached before the first was refined
        each = [evaluated(context, "start", h, context.first) for h in (Outliers.NONE, Outliers.CLUTTER)]
        state = state.with_candidate("start", max(each, key=lambda c: c.evidence), is_new=True)
    best, *others = ranked(context, state.candidates)
    return [polished(context, best), *others], state


def _starts(context: SearchContext, generator: Generator, state: SearchState) -> Iterator[tuple[str, Point]]:
    """Yield the starts of a generator with their names; a resumed search has those that it knows in its history."""
    points = generator.starts(context, state)
    for k in count(1):
        name = f"{generator.name} {k}"
        context.is_known = state.has_begun(name)
        point = next(points, None)
        context.is_known = False
        if point is None:
            return
        yield name, point


def _hypotheses(context: SearchContext, generator: Generator) -> list[Outliers]:
    """Return the hypotheses of a generator: single outliers decide only where there are few observations."""
    return [h for h in generator.hypotheses if context.is_small or h is not Outliers.SPARSE]


def with_background(context: SearchContext, state: SearchState) -> SearchState:
    """Return the state with the background, which the context then uses."""
    background = state.background or least_squares(context)
    context.use_background(background)
    return replace(state, background=background)


def _with_start(
    context: SearchContext,
    state: SearchState,
    start: str,
    name: str,
    hypothesis: Outliers,
    point: Point,
    save: Save,
) -> SearchState:
    """Return the state after the refinement of one start."""
    if state.under_way is not None and state.under_way[0] == start:
        _, candidate, least_so_far = state.under_way
        context.least_variance = list(least_so_far)
    else:
        candidate = evaluated(context, name, hypothesis, point)

    def save_round(candidate: Candidate) -> None:
        save(replace(state, under_way=(start, candidate, tuple(context.least_variance))))

    candidate = refined(context, candidate, save_round)
    if not context.goes_on():
        return replace(state, candidates=(*state.candidates, candidate))
    candidate = replace(candidate, mixture_evidence=candidate.evidence)
    if not _is_decisive(context, candidate):
        candidate = with_sample_evidence(context, candidate)
    state = state.with_candidate(start, candidate, _is_new(context, state, candidate))
    least = tuple(context.least_variance)
    if state.background is not None and least != (state.background.least_variance or least):
        again = (evaluated(context, c.name, c.hypothesis, c.point, None, c.leverage) for c in state.candidates)
        state = replace(state, candidates=tuple(refined(context, c) for c in again))
    if state.background is not None:
        state = replace(state, background=replace(state.background, least_variance=least))
    save(state)
    return state


def _is_new(context: SearchContext, state: SearchState, candidate: Candidate) -> bool:
    """Return whether no known candidate has the same hypothesis, the same evidence and the same observations."""
    nats = min(10 * context.gain_nats, context.settings.alternative_nats)
    same = (c for c in state.candidates if c.hypothesis is candidate.hypothesis)
    return not any(abs(c.evidence - candidate.evidence) < nats and not differs(context, [c], candidate) for c in same)


def ranked(context: SearchContext, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates, the best first.

    The largest evidence wins, but minorities that fit exactly and degenerate solutions come last.  Among solutions that
    the data do not exclude, one of a majority is preferred if the observations that both accept prefer it: a breakdown
    point of a half, as in robust regression.  The difference must exceed what d fitted unknowns gain by chance, d/2.
    """
    nats = context.settings.alternative_nats

    def is_misleading(c: Candidate) -> tuple[bool, bool]:
        return context.is_degenerate(c.point), is_exact_minority(context, c)

    order = sorted(candidates, key=lambda c: (not _is_decisive(context, c), *is_misleading(c), -c.evidence))
    best = order[0]
    for other in order[1:]:
        is_possible = other.evidence > best.evidence - nats and other.inlier_ratio > 0.5
        is_possible &= not any(is_misleading(other))
        if is_possible and gain_on_agreed(context, best, other) > nats + context.n_unknowns / 2:
            return [other, *(c for c in order if c is not other)]
    return order


def _is_decided(context: SearchContext, state: SearchState) -> bool:
    """Return whether no further candidate is expected to win.

    A majority explains the data, or the evidence exceeds what d unknowns may gain by chance, and no variable has fewer
    inliers than others.  In small problems all generators are cheap, and all are tried.
    """
    if context.is_small or not state.candidates:
        return False
    best = ranked(context, state.candidates)[0]
    is_noise = best.hypothesis is Outliers.NONE and best.support == 1
    is_majority = min(best.inlier_ratio, best.support) > 0.5
    return is_noise or (is_majority and not has_lost_a_variable(context, best)) or _is_decisive(context, best)


def _is_decisive(context: SearchContext, candidate: Candidate) -> bool:
    """Return whether the evidence exceeds what d unknowns may gain by chance, and no variable is lost."""
    exceeds = candidate.mixture_evidence > context.n_unknowns
    return exceeds and not context.is_small and not has_lost_a_variable(context, candidate)


def polished(context: SearchContext, best: Candidate) -> Candidate:
    """Return the best candidate after block moves and EM over inlier sets."""
    again = evaluated(context, best.name, best.hypothesis, best.point, best.models, best.leverage)
    return replace(marginalised(context, block_moved(context, again)), evidence=best.evidence)


def block_moved(context: SearchContext, candidate: Candidate) -> Candidate:
    """Return a candidate after block moves, as long as they raise its evidence."""
    moves = BlockMoves(context)
    for seed in range(context.settings.max_move_rounds):
        point = moves(context, candidate, seed) if context.goes_on() else None
        new = candidate if point is None else moved(context, candidate, point)
        if not new.evidence > candidate.evidence + context.gain_nats:
            break
        candidate = new
    return candidate

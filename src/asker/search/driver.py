"""A search on an engine: descents with limits, history and checkpoints, the final solve, and the result."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite, sqrt

import numpy as np

from asker.engines.interface import Engine, Point
from asker.io.files import FilePath
from asker.kernels.efficiency import efficient_width
from asker.kernels.kernels import Cauchy, Kernel
from asker.problem.by_group import Groups
from asker.problem.problem import Problem
from asker.search.context import SearchContext
from asker.search.diagnosis import alternatives_of, doubts_of
from asker.search.generators import GENERATORS, SMALLEST_WIDTH, Generator, mixture_kernels
from asker.search.refinement import MixtureDescent, evaluated, inlier_masks
from asker.search.search import search
from asker.search.settings import SearchSettings
from asker.search.state import Candidate, SearchCheckpoint, SearchSnapshot, SearchState
from asker.solver.doubts import Alternative
from asker.solver.iteration import CurrentIteration, by_factor, values_at
from asker.solver.loop import OnIteration, SolveLoop, result_of
from asker.solver.result import Iteration, Result, Status
from asker.statistics.inliers import Classified
from asker.statistics.noise import EXACT_RATIO, Noise, noise_of
from asker.statistics.scale import estimate
from asker.statistics.scale_mixture import Outliers
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Strategy, cost
from asker.strategies.weighted import Weighted
from asker.tracing.jaxpr_digest import ADDRESS
from asker.uncertainty.analysis import ANALYSIS

STAGE_TOL = 1e-4
"""Relative decrease of the cost at which a first descent ends: others follow."""
RTOL = 1e-6
"""Relative difference of a variance from its lower bound, below which it is the bound."""
LIMITS = (Status.TIME_LIMIT, Status.STOPPED, Status.INTERRUPTED)
"""Reasons for which no further descent begins."""


@dataclass(frozen=True)
class Balance:
    """Factors by which the residuals of each group are multiplied in the final solve, from their noise.

    Observations with noise σ count as 1/σ² (Aitken, Proceedings of the Royal Society of Edinburgh 1936).  A group under
    a kernel of the user counts as it is stated: beside one, every other group is in units of its σ.  Without one only
    ratios matter, and the largest group counts as it is.
    """

    multipliers: tuple[float, ...]

    @staticmethod
    def by_noise(problem: Problem, sigmas: Sequence[float]) -> "Balance":
        """Return the balance for these noise scales; groups of unknown scale or noise 0 count as the largest."""
        estimated = [k for k, f in enumerate(problem.factors) if not f.noise_is_known]
        usable = [k for k in estimated if isfinite(sigmas[k]) and sigmas[k] > 0]
        has_fixed = any(f.noise_is_known and f.n for f in problem.factors)
        if not usable or (len(estimated) == 1 and not has_fixed):
            return Balance((1.0,) * len(problem.factors))
        sizes = problem.n_observations
        largest = max(usable, key=lambda k: sizes[k] * problem.factors[k].residual_size)
        unit = 1.0 if has_fixed else sigmas[largest]
        scales = [sigmas[k] if k in usable else unit for k in range(len(sigmas))]
        return Balance(tuple(unit / s if k in estimated else 1.0 for k, s in enumerate(scales)))

    def of(self, problem: Problem) -> Problem:
        """Return the same problem with balanced groups."""
        if all(m == 1 for m in self.multipliers):
            return problem
        pairs = zip(problem.factors, self.multipliers, strict=True)
        return problem.with_factors([f if m == 1 else f.balanced(m) for f, m in pairs])


@dataclass(frozen=True)
class Search:
    """The default method: candidates from a list of generators, compared by evidence."""

    generators: Sequence[Generator] = GENERATORS
    """Sources of starts, in the order of their cost."""
    settings: SearchSettings = field(default_factory=SearchSettings)
    """Every number of the search."""

    def __str__(self) -> str:
        return "estimation of the noise scale"


class SearchRun:
    """One call of the search: descents in turn, whose histories follow each other."""

    def __init__(
        self,
        method: Search,
        begin: float,
        on_iteration: OnIteration | None,
        max_iterations: int,
        tol: float,
        time_limit: float | None,
        engine_for: Callable[[Problem], Engine],
    ):
        """`engine_for` returns an engine of the same kind for the same problem with other weights."""
        self.method, self.engine_for = method, engine_for
        self.begin, self.on_iteration = begin, on_iteration
        self.max_iterations, self.tol, self.time_limit = max_iterations, tol, time_limit
        self.history: list[Iteration] = []
        self.earlier = 0.0
        """Seconds of the run that this one resumes."""
        self.file: SearchCheckpoint | None = None
        self.ended: Status | None = None
        """Reason for which no further descent begins."""
        self.engine: Engine
        self.context: SearchContext
        self.saved = SearchSnapshot(SearchState(), [], 0.0)
        """State that was saved last, with the history up to there."""
        self.n_written = 0
        """Length of the history in the file."""

    def keep(self, path: FilePath, every: int, engine: Engine) -> None:
        """Write checkpoints to a file, and resume from it if it exists."""
        self.file = SearchCheckpoint(path, every, engine, IRLS())
        self.file.of["strategy"] = ADDRESS.sub("", f"estimated noise, {self.method!r}, tol {self.tol!r}")

    def result(self, engine: Engine, start: Point) -> Result:
        """Return the best of all candidates under the kernels that its noise suggests."""
        self.engine = engine
        state = self._resumed(engine, start)
        context = self.context = SearchContext(engine, start, self.method.settings, self.descend, self.goes_on)
        try:
            candidates, state = search(context, self.method.generators, state, self._save)
        except KeyboardInterrupt:
            self.ended = Status.INTERRUPTED
            candidates, state = search(context, (), self.saved.state, lambda state: None)
        final, point, best, noises = self._final(context, candidates[0])
        self._write(at_the_end=True)
        loop = SolveLoop(self.begin, None)
        loop.best, loop.history = IRLS().init(final, point, 0), self.history
        status = self.ended or self.last
        result = result_of(final, self.method, loop, status, ANALYSIS, tuple(noises))
        initial_cost = cost(final, final.evaluate(engine.rows(start)))
        others = alternatives_of(context, best, candidates[1:])
        found = [_alternative(context, best, other) for other in others]
        doubts = doubts_of(context, best, _classified_here(result), noises, len(found))
        return replace(
            result,
            initial_cost=initial_cost,
            history=_from_start_to_result(self.history, initial_cost, result.cost),
            found_doubts=(*doubts, *result.found_doubts),
            alternatives=tuple(found),
            unwritten=self.file.unwritten if self.file else "",
            continued_from=self.file.continued_from if self.file else 0,
        )

    last = Status.CONVERGED
    """Status of the final descent."""

    def _resumed(self, engine: Engine, start: Point) -> SearchState:
        """Return the state of the checkpoint, or a new one; record the start."""
        template = IRLS().init(engine, start, 0)
        earlier = self.file.read_search(template) if self.file else None
        if earlier is not None:
            self.history, self.earlier, self.saved = list(earlier.history), earlier.seconds, earlier
            self.n_written = len(self.history)
            return earlier.state
        begun = SolveLoop(self.begin, partial(self._record, "start"))
        self._note(begun.run(engine, IRLS(), start, 0, self.tol, None))
        self.saved = SearchSnapshot(SearchState(), list(self.history), self.earlier)
        return self.saved.state

    def _save(self, state: SearchState) -> None:
        """Store a state in memory, and in the checkpoint if there is one; not what a limit has cut short."""
        if self.goes_on():
            self.saved = SearchSnapshot(state, list(self.history), self.earlier + time.perf_counter() - self.begin)
            self._write()

    def _write(self, at_the_end: bool = False) -> None:
        """Write the saved state to the checkpoint, if there is one, after `every` iterations and at the end."""
        n = len(self.saved.history)
        if self.file is not None and (at_the_end or n >= self.n_written + self.file.every):
            self.file.save(self.saved, at_the_end)
            self.n_written = n

    def goes_on(self) -> bool:
        """Return whether no limit was reached."""
        late = self.time_limit is not None and self.engine.any(time.perf_counter() - self.begin > self.time_limit)
        if self.ended is None and (late or self._left() <= 0):
            self.ended = Status.TIME_LIMIT if late else Status.MAX_ITERATIONS
        return self.ended is None

    def _left(self) -> int:
        return self.max_iterations - (len(self.history) - 1)

    def descend(self, engine: Engine, strategy: Strategy, point: Point, n: int, stage: str) -> Point:
        """Return the best point of a descent of at most n iterations."""
        if not self.goes_on():
            return point
        is_likelihood = isinstance(strategy, MixtureDescent)
        least = strategy.context.gain_nats / 10 if isinstance(strategy, MixtureDescent) else 0.0
        tol = 0.0 if is_likelihood else max(self.tol, STAGE_TOL)
        is_new = not self.context.is_known
        loop = SolveLoop(self.begin, partial(self._record, stage) if is_new else None, None, self.earlier)
        n = min(n, self._left()) if is_new else n
        self._note(loop.run(engine, strategy, point, n, tol, self.time_limit, least, certified=False))
        return loop.best.point

    def _note(self, status: Status) -> None:
        """Store the status of a descent that a limit or the user has ended, after which none begins."""
        if status in LIMITS:
            self.ended = status

    def _record(self, stage: str, line: CurrentIteration) -> bool:
        """Append a line to the whole history; the start of a stage is where the last one was, and no iteration."""
        if line.iteration == 0 and self.history:
            return False
        whole = replace(line, iteration=len(self.history), details={"stage": stage} | line.details)
        assert isinstance(whole, CurrentIteration)
        self.history.append(whole.recorded)
        return bool(self.on_iteration and self.on_iteration(whole))

    def _final(self, context: SearchContext, best: Candidate) -> tuple[Engine, Point, Candidate, list[Noise]]:
        """Return the engine, the point, the candidate and the noises of the result: the minimum under kernels.

        Small problems with Gaussian inliers have the kernel of their mixture.  Others have Cauchy's of 95 % efficiency,
        as the second stage of an MM-estimator: the evidence chooses the solution, not the shape of the tails.
        """
        sigmas = [sqrt(model.variance) if model else float("nan") for model in best.models]
        balance = Balance.by_noise(context.problem, sigmas)
        kernels = _final_kernels(context, best, balance)
        problem = balance.of(context.problem)
        engine = self.engine if problem is context.problem else self.engine_for(problem)
        engine = engine.under(kernels)
        if best.is_marginal:
            return engine, engine.evaluate(context.engine.rows(best.point)), best, noises_of(context, best)
        point = self._minimised(context, engine, best, kernels)
        at = context.engine.evaluate(engine.rows(point))
        best = evaluated(context, best.name, best.hypothesis, at, best.models, best.leverage)
        return engine, point, best, noises_of(context, best)

    def _minimised(self, context: SearchContext, engine: Engine, best: Candidate, kernels: Sequence[Kernel]) -> Point:
        """Return the minimum under the final kernels; observations that are impossible do not count."""
        start = engine.evaluate(context.engine.rows(best.point))
        if not self.goes_on():
            return start
        taus = [kernel.tau for k, kernel in enumerate(kernels) if k in context.estimated]
        least = 0.0 if context.has_few_unknowns else context.settings.gain_nats * min(taus, default=0.0) ** 2 / 100
        strategy: Strategy = IRLS()
        if any(f.valid is not None for f in context.problem.factors):
            impossible = context.conditions.impossible(context.engine.rows_here(best.point))
            if context.sums.any(any(mask.any() for mask in impossible)):
                possible = tuple(np.where(mask, 0.0, 1.0) for mask in impossible)
                strategy = Weighted(engine.in_own_order(engine.whole(possible)))
        loop = SolveLoop(self.begin, partial(self._record, "final"), None, self.earlier)
        self.last = loop.run(engine, strategy, start, self._left(), self.tol, self.time_limit, least, certified=False)
        self._note(self.last)
        return loop.best.point


def noises_of(context: SearchContext, candidate: Candidate) -> list[Noise]:
    """Return the noise of every group: of its mixture, or estimated from the residuals if its kernel is specified."""
    noises = list(estimate(context.problem.factors, context.all_squares(candidate.point), sums=context.sums))
    for k in context.estimated:
        model = candidate.models[k]
        assert model is not None
        of = context.residuals(candidate.point, candidate.leverage, k, are_distinct=True)
        exact, least = context.settings.exact_ratio * context.reference_variance[k], context.least_variance[k]
        is_rounded = least > context.settings.exact_ratio**2 * context.reference_variance[k]
        rounding = sqrt(12 * least) if is_rounded and model.variance <= least * (1 + RTOL) else 0.0
        noises[k] = noise_of(model, of, context.p[k], rounding, 0.0 if rounding else exact)
    return noises


def _final_kernels(context: SearchContext, best: Candidate, balance: Balance) -> list[Kernel]:
    """Return the kernels of the final solve, in the units of the balanced problem."""
    kernels = []
    for k, kernel in enumerate(mixture_kernels(context, best)):
        model, m = best.models[k], balance.multipliers[k]
        if model is None or not context.problem.n_observations[k]:
            kernels.append(kernel)
            continue
        least = EXACT_RATIO * sqrt(context.reference_variance[k])
        sigma = max(sqrt(model.variance), least, SMALLEST_WIDTH)
        has_outliers = best.hypothesis is not Outliers.NONE
        is_gaussian = model.dof == float("inf") and (context.is_small or not has_outliers)
        width = kernel.tau * sigma / sqrt(model.variance) if is_gaussian else efficient_width(context.p[k]) * sigma
        kernels.append(replace(kernel, tau=m * width) if is_gaussian else Cauchy(m * width))
    return kernels


def _alternative(context: SearchContext, best: Candidate, other: Candidate) -> Alternative:
    """Return an alternative in the terms of the user."""
    problem = context.problem
    own, of_best = (inlier_masks(context, c) for c in (other, best))
    differ = [np.flatnonzero(a != b) for a, b in zip(own, of_best, strict=True)]
    names = [f.name for f in problem.factors]
    numbers = [np.asarray(f.numbers)[x] for f, x in zip(problem.factors, differ, strict=True)]
    return Alternative(
        values=values_at(context.engine, other.point),
        noise=Groups(noises_of(context, other), names, problem.factors),
        inliers=by_factor(problem, own),
        evidence_difference=other.evidence - best.evidence,
        deciding=Groups(numbers, names, problem.factors),
        source=other.name,
    )


def _from_start_to_result(history: list[Iteration], initial_cost: float, final_cost: float) -> list[Iteration]:
    """Return the history with the costs of the start and of the result under the final kernels in its first and last
    line; in between every stage has a cost of its own."""
    first = replace(history[0], cost=initial_cost, best_cost=initial_cost)
    lines = [first, *history[1:]]
    return [*lines[:-1], replace(lines[-1], cost=final_cost, best_cost=final_cost)]


def _classified_here(result: Result) -> Classified:
    """Return the inliers among the observations that this process has, without those of weight 0."""
    problem = result.problem
    assert problem is not None
    if problem.portion is None:
        return result.of_informative.classified
    found = result.classified
    if problem.portion.in_parts:
        return found
    each = zip(found.inliers, problem.portion.observations, strict=True)
    return found._replace(inliers=tuple(mask[own] for mask, own in each))

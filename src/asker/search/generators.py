"""Generators of candidates: starts of the search, in the order of their cost.

A generator has a `name`, the `hypotheses` on the outliers under which its starts are refined, `suits(context)`, and
`starts(context, state)`, which yields points.  A user-defined one is passed as `asker.Search(generators=[...])`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Protocol

import numpy as np

from asker.engines.interface import Point
from asker.kernels.kernels import Cauchy, Kernel, Mixture, PseudoHuber, Quadratic
from asker.search.context import Floats, SearchContext
from asker.search.minimal_subsets import Score, Subsets, a_contrario_score, trimmed_score
from asker.search.refinement import inlier_masks
from asker.search.state import Background, Candidate, SearchState
from asker.statistics.inliers import inlier_radius
from asker.statistics.noise import EXACT_RATIO
from asker.statistics.scale_mixture import LOGIT_RANGE, TINY, Outliers
from asker.strategies.asker import ASKER
from asker.strategies.composite.block_moves import Moves
from asker.strategies.irls import IRLS
from asker.strategies.weighted import Weighted

MIXED = (Outliers.SPARSE, Outliers.CLUTTER)
"""Hypotheses of a start that may have outliers."""
MAX_ODDS = 14.0
"""Largest log density of inliers over outliers in the kernel of moves, an integer, since each one is compiled.
Residuals of many numbers need more: a kernel reaches √2 times as far as the largest inlier."""
SMALLEST_WIDTH = 1e-140
"""Width of a kernel if all residuals are 0."""
SMOOTHING = 0.03
"""Width of the pseudo-Huber kernel of least absolute deviations, in median residual norms."""
ABSOLUTE_ROUNDS = 3
"""Number of rounds of least absolute deviations, each with the medians of the one before as units."""


class Generator(Protocol):
    """A source of starts."""

    @property
    def name(self) -> str:
        """Name in the history and in `Candidate.name`."""

    @property
    def hypotheses(self) -> Sequence[Outliers]:
        """Hypotheses on the outliers under which each start is refined."""

    def suits(self, context: SearchContext) -> bool:
        """Return whether the generator is of use for the problem."""

    def starts(self, context: SearchContext, state: SearchState) -> Iterator[Point]:
        """Yield points; each is computed when it is asked for."""


@dataclass(frozen=True)
class LeastSquares:
    """The least-squares solution: best without outliers, and independent of the start if the problem is linear."""

    name: str = "least squares"
    hypotheses: Sequence[Outliers] = (Outliers.NONE, *MIXED)

    def suits(self, context: SearchContext) -> bool:
        return True

    def starts(self, context: SearchContext, state: SearchState) -> Iterator[Point]:
        yield context.least_squares


@dataclass(frozen=True)
class FromStart:
    """Cauchy descent from the initial values, with a width of half the median residual."""

    name: str = "from the start"
    hypotheses: Sequence[Outliers] = MIXED

    def suits(self, context: SearchContext) -> bool:
        return True

    def starts(self, context: SearchContext, state: SearchState) -> Iterator[Point]:
        yield context.first


@dataclass(frozen=True)
class FromLeastSquares:
    """Cauchy descent from the least-squares solution."""

    name: str = "from least squares"
    hypotheses: Sequence[Outliers] = MIXED

    def suits(self, context: SearchContext) -> bool:
        return True

    def starts(self, context: SearchContext, state: SearchState) -> Iterator[Point]:
        yield cauchy_descent(context, context.least_squares, self.name)


@dataclass(frozen=True)
class LeastAbsolute:
    """Least absolute deviations from the least-squares solution, in units of the median of each group."""

    name: str = "least absolute deviations"
    hypotheses: Sequence[Outliers] = MIXED

    def suits(self, context: SearchContext) -> bool:
        return True

    def starts(self, context: SearchContext, state: SearchState) -> Iterator[Point]:
        yield absolute_descent(context, context.least_squares, self.name)


@dataclass(frozen=True)
class LeadingGroup:
    """Least absolute deviations in which the observations of one factor group count a hundred times as much."""

    name: str = "one group leads"
    hypotheses: Sequence[Outliers] = MIXED

    def suits(self, context: SearchContext) -> bool:
        return len(context.estimated) > 1

    def starts(self, context: SearchContext, state: SearchState) -> Iterator[Point]:
        for k in context.estimated:
            yield absolute_descent(context, context.least_squares, self.name, k)


@dataclass(frozen=True)
class MinimalSubsets:
    """Solutions from minimal subsets, scored a contrario: no share of inliers is assumed."""

    name: str = "minimal subsets"
    hypotheses: Sequence[Outliers] = MIXED
    score: Score = a_contrario_score

    def suits(self, context: SearchContext) -> bool:
        return Subsets.suit(context)

    def starts(self, context: SearchContext, state: SearchState) -> Iterator[Point]:
        for rows in Subsets(context, self.score).best():
            point = context.engine.evaluate(rows)
            if point.finite:
                yield point


@dataclass(frozen=True)
class TrimmedSubsets(MinimalSubsets):
    """Least trimmed squares from minimal subsets: the majority with the smallest scale (Rousseeuw, Van Driessen)."""

    name: str = "least trimmed squares"
    hypotheses: Sequence[Outliers] = (Outliers.SPARSE,)
    score: Score = trimmed_score


@dataclass(frozen=True)
class Graduated:
    """ASKER on a narrow Cauchy kernel, for problems with too many unknowns for subsets."""

    name: str = "graduated"
    hypotheses: Sequence[Outliers] = (Outliers.CLUTTER,)

    def suits(self, context: SearchContext) -> bool:
        return not context.has_few_unknowns

    def starts(self, context: SearchContext, state: SearchState) -> Iterator[Point]:
        kernels = cauchy_kernels(context, context.start)
        n = context.settings.max_first_iterations
        yield context.run(context.engine.under(kernels), ASKER(), context.start, n, self.name)


GENERATORS: tuple[Generator, ...] = (
    FromStart(),
    LeastSquares(),
    FromLeastSquares(),
    LeastAbsolute(),
    LeadingGroup(),
    MinimalSubsets(),
    TrimmedSubsets(),
    Graduated(),
)
"""Generators in the order of their cost."""


def least_squares(context: SearchContext) -> Background:
    """Return the least-squares solution with the scales of all groups.

    The scales of several groups are variance components: σ² = Σu/Σ(p − h) at the solution with weights 1/σ² (Förstner,
    Allgemeine Vermessungs-Nachrichten 1979).  Residuals that are 0 because the start interpolates them have h = p, and
    so carry no information on σ.  A linear problem has no start: its least-squares solution takes the place.
    """
    settings, problem = context.settings, context.problem
    begins_at_start = context.is_small or problem.is_linear
    n = settings.max_first_iterations if begins_at_start else settings.max_background_iterations
    first = context.start if problem.is_linear else cauchy_descent(context, context.start, FromStart.name)
    point, variances = context.start if begins_at_start else first, _initial_variances(context)
    h = context.even_leverage()
    has_one_scale = len(context.estimated) == 1 and all(
        k is None or not f.n for k, f in zip(context.fixed_kernels, problem.factors, strict=True)
    )
    for _ in range(settings.max_variance_rounds):
        before = list(variances)
        q = context.for_solve([np.full(f.n, 1 / s) for f, s in zip(problem.factors, variances, strict=True)])
        point = context.run(context.engine, Weighted(q, context.damping), point, n, "least squares")
        h = context.leverage(point, _precisions(context, point, variances))
        for k in context.estimated:
            total, left = context.sums.of(
                float(context.all_squares(point)[k].sum()), float((context.p[k] - h[k]).sum())
            )
            variances[k] = max(total / max(left, 1e-3), TINY)
        ratios = [abs(log(variances[k] / before[k])) for k in context.estimated]
        if has_one_scale or max(ratios, default=0.0) < 0.1:
            break
    first = cauchy_descent(context, point, FromStart.name) if problem.is_linear else first
    return Background(first, point, h, tuple(variances))


def _initial_variances(context: SearchContext) -> list[float]:
    """Return the mean square of a number at the start for each group of unknown scale, and 1 for the others."""
    means = [context.sums.mean(u) / p for u, p in zip(context.all_squares(context.start), context.p, strict=True)]
    return [means[k] if k in context.estimated and means[k] > TINY else 1.0 for k in range(len(means))]


def _precisions(context: SearchContext, point: Point, variances: Sequence[float]) -> list[Floats]:
    """Return the weight of every residual in least squares."""
    w = context.weights(point, [None] * len(context.p), ())
    for k in context.estimated:
        w[k] = np.full(len(w[k]), 1 / variances[k])
    return w


def median_norms(context: SearchContext, point: Point) -> list[float]:
    """Return the median residual norm of each group; of groups that fit exactly, a small part of the reference."""
    medians = [context.sums.median(u) for u in context.all_squares(point)]
    means = [context.sums.mean(u) for u in context.all_squares(point)]
    each = zip(medians, means, strict=True)
    return [max(sqrt(m), EXACT_RATIO * sqrt(Q), SMALLEST_WIDTH) if m >= 0 and Q >= 0 else 1.0 for m, Q in each]


def cauchy_kernels(context: SearchContext, point: Point) -> list[Kernel]:
    """Return a Cauchy kernel for each group of unknown scale, whose width is a part of its median residual."""
    widths = [context.settings.narrow_width * r for r in median_norms(context, point)]
    return [kernel or Cauchy(tau) for kernel, tau in zip(context.fixed_kernels, widths, strict=True)]


def cauchy_descent(context: SearchContext, start: Point, name: str) -> Point:
    """Return the end of a descent under narrow Cauchy kernels; for several groups, in units of their width."""
    kernels = cauchy_kernels(context, start)
    q = [1.0 if fixed else 2 / kernel.tau**2 for fixed, kernel in zip(context.fixed_kernels, kernels, strict=True)]
    return _weighted_descent(context, kernels, q, start, name)


def absolute_descent(context: SearchContext, start: Point, name: str, leader: int | None = None) -> Point:
    """Return the least absolute deviations in units of the medians; a group that leads counts more."""
    point = start
    for _ in range(ABSOLUTE_ROUNDS):
        r = median_norms(context, point)
        kernels = [kernel or PseudoHuber(SMOOTHING * x) for kernel, x in zip(context.fixed_kernels, r, strict=True)]
        q = [
            1.0 if fixed else (context.settings.lead_factor if k == leader else 1.0) / (SMOOTHING * x * x)
            for k, (fixed, x) in enumerate(zip(context.fixed_kernels, r, strict=True))
        ]
        point = _weighted_descent(context, kernels, q, point, name)
    return point


def _weighted_descent(
    context: SearchContext, kernels: Sequence[Kernel], q: Sequence[float], start: Point, name: str
) -> Point:
    """Return the end of a descent under kernels with one factor for each group."""
    engine, n = context.engine.under(kernels), context.settings.max_first_iterations
    if len(q) == 1:
        return context.run(engine, IRLS(context.damping), start, n, name)
    factors = context.for_solve([np.full(f.n, x) for f, x in zip(context.problem.factors, q, strict=True)])
    return context.run(engine, Weighted(factors, context.damping), start, n, name)


class BlockMoves:
    """Moves of single variables from the best candidate (`asker.strategies.composite.block_moves`)."""

    name = "block moves"

    def __init__(self, context: SearchContext):
        settings = context.settings
        trials = settings.max_move_trials
        self.moves = Moves(context.problem, trials=trials if context.is_small else max(trials // 8, 1))

    def __call__(self, context: SearchContext, candidate: Candidate, seed: int) -> Point | None:
        """Return the point after the moves that lower the cost, or None if there is none."""
        if not any(self.moves.colours.values()):
            return None
        self.moves.rng, self.moves.seed = np.random.default_rng(seed), seed
        engine = context.engine.under(mixture_kernels(context, candidate))

        def inliers_at(point: Point) -> list[np.ndarray]:
            return inlier_masks(context, replace(candidate, point=point))

        point, n = self.moves(engine, candidate.point, inliers_at)
        return point if n else None


def mixture_kernels(context: SearchContext, candidate: Candidate) -> list[Kernel]:
    """Return the mixture of each group as a kernel of ‖r‖, with a common background."""
    kernels: list[Kernel] = []
    for k, (model, fixed) in enumerate(zip(candidate.models, context.fixed_kernels, strict=True)):
        if model is None or not context.problem.n_observations[k]:
            kernels.append(fixed or Quadratic())
            continue
        density = context.sums.median(np.exp(context.log_background[k]))
        density = density if density > TINY else TINY  # NaN of a group without observations
        ratio = min(max(model.inlier_ratio, 1e-6), 1 - 1e-6)
        odds = log(ratio / (1 - ratio)) - context.p[k] * (
            0.5 * log(2 * np.pi * model.variance) + log(max(density, TINY))
        )
        most = min(max(MAX_ODDS, round(inlier_radius(context.p[k], 1.0) ** 2)), LOGIT_RANGE)
        c = min(max(round(odds), 1.0), most)
        kernels.append(Mixture(sqrt(2 * c * max(model.variance, TINY)), float(c)))
    return kernels

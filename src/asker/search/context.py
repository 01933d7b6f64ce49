"""What a search for the noise stands on: descents, the noise and the likelihood of where they end, and moves.

`asker.search.search` has the candidates, `asker.search.refinement` what becomes of the best one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isnan, sqrt
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine, Point
from asker.engines.validity import Conditions, squares
from asker.kernels.kernels import Cauchy, Kernel, Quadratic
from asker.problem.factors import Factors
from asker.search.degeneracy import Dependence, has_fled
from asker.search.duplicates import without_repeats
from asker.search.evidence import likelihood, mean_squares
from asker.search.minimal_subsets import Subsets
from asker.search.quantization import rounding
from asker.statistics.a_contrario import told
from asker.statistics.diagnostics import Support
from asker.statistics.gaussian_mixture import DISTINCT
from asker.statistics.scale import EXACT, Noise, estimate
from asker.strategies.composite.block_moves import Moves

Floats = NDArray[np.float64]
CAUCHY = 2.0
"""The width of the Cauchy kernel, in σ, while σ is sought: under a wider one outliers pull, and look like noise."""
AGAIN = 15
"""Iterations of a round at another σ."""
ROUNDS = 10
"""Rounds at another σ, at most: until it is at rest."""
TOLD = 0.01
"""What a step must gain, in the logarithm of the likelihood, for a descent with many unknowns to go on: one that gains
it along a single direction moves by √(2 · 0.01) = 0.14 standard deviations there."""
SOME, MANY, SEVERAL = 200, 64, 8
"""Unknowns up to which moves from the start are a candidate; the trials of a move up to there, and beyond."""
MOST_UNLIKE = 1e6
"""The ratio of residuals in two factor groups, at most: smaller ones are exact, but for rounding."""
SMALLEST = 1e-150
"""The width of a kernel where all is exact."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """Where a descent has ended."""

    name: str
    point: Point
    noises: tuple[Noise, ...]
    kernels: tuple[Kernel, ...] = ()
    """Under which it ended."""


class Ground:
    """One problem on an engine, and all candidates so far."""

    def __init__(
        self,
        engine: Engine,
        descend: Callable[..., Point],
        goes_on: Callable[[], bool],
        graduated: Any,
        plain: Any,
        remember: Callable[[str, Callable[[], Any]], Any],
    ):
        """
        descend    called as descend(engine, strategy, point, n, stage, least); gives the point that it leads to
                   after n iterations, or, for n None, when a step lowers the cost by no more than `least`
        goes_on    whether no limit was met yet
        graduated  the strategy that gets out of poor minima
        plain      the one that does not
        remember   called as remember(name, find); gives what `find` does, or what it gave before the run was killed
        """
        self.engine, self.graduated, self.plain = engine, graduated, plain
        self.descend, self.goes_on, self.remember = descend, goes_on, remember
        self.given = [f.kernel if f.noise_is_known else None for f in engine.problem.factors]
        """Kernels that stay."""
        self.trusted = [given is not None and given.convex for given in self.given]
        self.has_few_unknowns = Subsets.suit(engine, self.trusted)
        self.moves = Moves(engine.problem, trials=MANY if engine.problem.n_unknowns <= SOME else SEVERAL)
        self.found: list[Candidate] = []
        """Candidates so far, the best first."""
        self.firsts: list[Candidate] = []
        """Candidates before the first was refined, where there are few unknowns."""
        self.conditions = Conditions(engine)
        self.dependence: Dependence | None = None
        """Of few unknowns,"""
        self.depended: list[float] = []
        """and what it is at the start."""
        self._fled: WeakKeyDictionary[Point, bool] = WeakKeyDictionary()
        """Whether unknowns have fled, at points that are still of use."""
        looked_at = [self.has_few_unknowns and given is None for given in self.given]
        self.once = [
            without_repeats(f) if ok else None for f, ok in zip(engine.problem.factors, looked_at, strict=True)
        ]
        """Of each factor group in which observations repeat others: the factors without these, and which they are."""
        self._seen_squares: WeakKeyDictionary[Point, tuple[Floats, ...]] = WeakKeyDictionary()
        """‖r‖² at points that are still of use."""
        self._seen_costs: WeakKeyDictionary[Candidate, tuple[list[float], float]] = WeakKeyDictionary()
        """Q² of all factor groups and L with it, of candidates that are still of use."""
        self.broad: list[float] = []
        """Q² of each factor group, of what was seen so far."""
        self.exact_below = [0.0] * len(self.given)
        """Q² of each factor group below which residuals are exact, and say nothing: where it was exact at the start."""
        self.typical: list[float] = []
        """‖r‖ of each factor group at the start, in the median."""

    def _begin(self, start: Point) -> None:
        """See where a search begins.  What a factor group fits exactly there, as a path its odometry, says nothing of
        its residuals: those of least squares with everything do."""
        self._see(start)
        self.typical = self._medians(start)
        if self.has_few_unknowns:
            pairs = zip(self.engine.problem.factors, self.given, strict=True)
            self.dependence = Dependence(self.engine, [f for f, given in pairs if given is None])
            self.depended = self.dependence.at(self.engine.rows(start))
        largest = max((r for r, given in zip(self.typical, self.given, strict=True) if given is None), default=0.0)
        exact = [given is None and r * MOST_UNLIKE < largest for r, given in zip(self.typical, self.given, strict=True)]
        if any(exact) and self.goes_on():
            plain = [given or Quadratic(1.0) for given in self.given]
            point = self._run(plain, self.plain, start, AGAIN, "least squares first")
            for k, r, Q in zip(range(len(exact)), self._medians(point), mean_squares(self.engine, point), strict=True):
                if exact[k]:
                    self.typical[k], self.broad[k], self.exact_below[k] = r, Q, Q / MOST_UNLIKE**2

    def _medians(self, point: Point) -> list[float]:
        """‖r‖ of each factor group, in the median."""
        medians = [self.engine.sums.median(u) for u in self._squares(point)]
        return [1.0 if isnan(median) else max(sqrt(median), SMALLEST) for median in medians]

    def _remembered(self, name: str, find: Callable[[], Any]) -> Any:
        """A finding, with where the draws of the moves are after it."""
        value, self.moves.drawn_so_far = self.remember(name, lambda: (find(), self.moves.drawn_so_far))
        return value

    def _support_of(self, found: Candidate) -> Support:
        return self._support(found.point, found.noises)

    def _support(self, point: Point, noises: Sequence[Noise]) -> Support:
        engine = self.engine
        return Support(engine.problem, self._squares(point), noises, self.given, engine.sums)

    def _run(self, kernels: list[Kernel], strategy: Any, point: Point, n: int, stage: str) -> Point:
        return self.descend(self.engine.under(kernels), strategy, point, n, stage)

    def _to_rest(
        self, kernels: Sequence[Kernel], noises: Sequence[Noise], strategy: Any, point: Point, stage: str
    ) -> Point:
        """Until a step gains less than the noise lets one tell.  With few unknowns more digits cost nothing."""
        variances = [n.sigma**2 for n, given in zip(noises, self.given, strict=True) if given is None and n.is_known]
        least = 0.0 if self.has_few_unknowns else TOLD * min(variances, default=0.0)  # ψ is about u/2, and u/2σ² in L
        return self.descend(self.engine.under(kernels), strategy, point, None, stage, least)

    def _see(self, point: Point) -> None:
        seen = mean_squares(self.engine, point)
        each = zip(self.broad or seen, seen, self.exact_below, strict=True)
        self.broad = [min(Q, new) if new > exact else Q for Q, new, exact in each]

    def _candidate(self, name: str, point: Point) -> Candidate:
        return Candidate(name, point, self._noises(point))

    def _noises(self, point: Point, before: Sequence[Noise] = (), is_close: bool = False) -> tuple[Noise, ...]:
        """The noise at a point.

        What the candidates so far, and the noises `before`, say of rounding holds here, too; `is_close`: those are of a
        point close by.
        """
        grids = self._grids([before] if before else [])
        near = before if is_close else ()
        found = partial(self._estimated, self._squares_once(point))
        noises = found(grids, near)
        exact = [k for k, n in enumerate(noises) if self.given[k] is None and n.is_known and n.sigma == 0]
        more = {k: rounding(self.engine, point, k) for k in exact}
        return found([more.get(k, grid) for k, grid in enumerate(grids)]) if any(more.values()) else noises

    def _estimated(self, u: Sequence[Floats], grids: Sequence[float], near: Sequence[Noise] = ()) -> tuple[Noise, ...]:
        factors = self._factors_once
        noises = estimate(factors, u, self.broad, self.engine.sums, grids, near)
        if not self.has_few_unknowns:
            return noises
        each = zip(noises, u, factors, self.broad, strict=True)
        return tuple(told(noise, x, f.residual_size, self.engine.problem.n_unknowns, Q) for noise, x, f, Q in each)

    def _grids(self, more: Sequence[Sequence[Noise]] = ()) -> list[float]:
        """What the data of each factor group are rounded to, by the candidates so far and more."""
        known = [*(c.noises for c in self.found), *more]
        return [max((n[k].rounding for n in known), default=0.0) for k in range(len(self.given))]

    def _cost(self, found: Candidate) -> float:
        """L of a candidate, with what was seen so far."""
        broad, L = self._seen_costs.get(found, ([], 0.0))
        if broad != self.broad:
            factors, u = self._factors_once, self._squares_once(found.point)
            L = likelihood(self.engine, found.point, u, found.noises, self.broad, factors)
            self._seen_costs[found] = self.broad, L
        return L

    def _squares(self, point: Point) -> tuple[Floats, ...]:
        if point not in self._seen_squares:
            self._seen_squares[point] = squares(self.engine, point, self.conditions)
        return self._seen_squares[point]

    @property
    def _factors_once(self) -> list[Factors]:
        """The factors, in which no observation repeats another."""
        return [f if once is None else once[0] for f, once in zip(self.engine.problem.factors, self.once, strict=True)]

    def _squares_once(self, point: Point) -> list[Floats]:
        return [u if once is None else u[once[1]] for u, once in zip(self._squares(point), self.once, strict=True)]

    def _rank(self, found: list[Candidate]) -> None:
        """All candidates, the best first, with what was seen so far."""
        self.found = found
        grids = self._grids()
        if any([n.rounding for n in c.noises] != grids for c in found):  # one has shown that the data are rounded
            found = [replace(c, noises=self._noises(c.point)) for c in found]
        self.found = self._ordered(found)

    def _ordered(self, found: list[Candidate]) -> list[Candidate]:
        """The best first, by the likelihood.  Last come those that have fled (`asker.search.degeneracy`), and those
        that fit a minority exactly, where another one explains most: a sensor that is stuck meets its own value, and so
        does a start at 0."""
        if len(found) < 2:
            return found
        outvoted = {c for c in found if self._is_exact_minority(c) and any(self._outvotes(d, c) for d in found)}
        return sorted(found, key=lambda c: (self._has_fled(c.point), c in outvoted, self._cost(c)))

    def _has_fled(self, point: Point) -> bool:
        """Whether residuals hardly depend on the data any more; of few unknowns."""
        if self.dependence is None:
            return False
        if point not in self._fled:
            self._fled[point] = has_fled(self.depended, self.dependence.at(self.engine.rows(point)))
        return self._fled[point]

    def _is_exact_minority(self, found: Candidate) -> bool:
        """Whether few observations count, because they fit exactly."""
        each = zip(found.noises, self.given, strict=True)
        return any(given is None and n.is_known and n.sigma == 0 and n.inlier_ratio < 0.5 for n, given in each)

    def _outvotes(self, found: Candidate, exact: Candidate) -> bool:
        """Whether most observations have far less noise than where a minority fits exactly."""
        groups = zip(found.noises, self._medians(exact.point), self.engine.problem.factors, self.given, strict=True)
        sought = [(n, r / sqrt(f.residual_size)) for n, r, f, given in groups if given is None]
        return all(n.is_known and n.inlier_ratio > 0.5 and 0 < DISTINCT * n.sigma < r for n, r in sought)

    def _moved(self, kernels: list[Kernel], point: Point, noises: Sequence[Noise] = ()) -> Point:
        """After the moves that pay; the noise, where it is known, tells for which variables they may."""
        if not self.goes_on():
            return point
        each = zip(noises, self.given, strict=True)
        is_known = noises and all(given is not None or n.is_known for n, given in each)
        inliers_at = (lambda at: self._support(at, noises).inliers) if is_known else None
        return self._remembered("moves", lambda: self.moves(self.engine.under(kernels), point, inliers_at)[0])

    def _possible(self, point: Point) -> list[Floats] | None:
        """0 for every observation that is not possible at a point, else 1; None where all are."""
        if all(f.valid is None for f in self.engine.problem.factors):
            return None
        impossible = self.conditions.impossible(self.engine.rows_here(point))
        any_ = self.engine.sums.any(any(no.any() for no in impossible))
        return [np.where(no, 0.0, 1.0) for no in impossible] if any_ else None

    def _kernels(self, kernel: Callable[[Noise, int, float], Kernel], noises: Sequence[Noise]) -> list[Kernel]:
        """One for each factor group; where the noise cannot be told, everything counts as noise, and none is exact."""
        found = []
        each = zip(self.engine.problem.factors, self.given, noises, self.broad, self.typical, strict=True)
        for f, given, noise, Q, typical in each:
            sigma = max(noise.sigma if noise.is_known else sqrt(Q), EXACT * typical, SMALLEST)
            found.append(given or kernel(replace(noise, sigma=sigma), f.residual_size, Q))
        return found

    def _settled(self, found: Candidate, strategy: Any = None) -> Candidate:
        """The descent goes on under kernels as wide as the noise asks for."""
        return self._remembered(f"settle {found.name}", partial(self._settle, found, strategy or self.plain))

    def _settle(self, found: Candidate, strategy: Any) -> Candidate:
        before = [0.0]
        for k in range(ROUNDS):
            kernels = self._kernels(cauchy, found.noises)
            widths = [kernel.tau for kernel in kernels]
            if np.allclose(widths, before, rtol=0.02, atol=0):
                break
            point = self._run(kernels, strategy, found.point, AGAIN, found.name)
            point = self._moved(kernels, point, found.noises) if k == 0 else point
            found, before = Candidate(found.name, point, self._noises(point, found.noises, is_close=k > 0)), widths
        return found


def cauchy(noise: Noise, p: int, Q: float) -> Kernel:
    return Cauchy(CAUCHY * noise.sigma)

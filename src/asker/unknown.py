"""The solver for problems whose noise is not known: what `asker.solve` does when nothing is given.

Following   First one way down from the start under a Cauchy kernel that is 2σ wide all the way, σ as it is estimated
            after every few steps: this does where inliers are the majority, as a rule.  It counts where it is proved
            that all inliers have Gaussian noise of one scale (`asker.one_noise`), and no variable is lost: then nothing
            else is tried.  Where it is not proved, all goes on as if it had not been.
Candidates  Several ways down from the start, the cheap ones first, each under Cauchy kernels, whose weights do not
            depend on a scale for large residuals: (1) from the start itself; (2) from the least squares solution with
            everything; (3) from minimal subsets of the observations, where there are few unknowns (`asker.subsets`),
            or graduated, by ASKER, where there are many.
Noise       At each end the noise σ of every factor group is estimated (`asker.noise`; `asker.few` where observations
            are few), the kernel is made 2σ wide, and the descent goes on, until σ is at rest.
Likelihood  Candidates are compared by one likelihood (`asker.likelihood`).  One that explains far less than the best
            is dropped before it is refined; with few unknowns all are there before the first is.  Where many
            observations fit exactly because the data are rounded (`asker.rounding`), the noise of all candidates is
            that of rounding at least.  Once a candidate is beyond doubt, no other one is tried: also where it leaves
            nothing but noise of one scale, or its inliers are proved to have that.
End         The best one is refined with moves of single variables in between (`asker.moves`): under the kernel of the
            likelihood where there are few unknowns, else under the smooth truncated one with τ = 5σ; under Cauchy's
            where inliers and outliers are not clearly apart, or the noise has heavy tails (`asker.tails`).  What is
            not possible (`valid=`) does not count, however well it fits.  Where variables may have been lost, the end
            is repeated while that pays.
Chance      Some variables hang on observations that may agree by chance (`asker.chance`): a point on two of them, where
            most are outliers.  Such a point would pull at its cameras no less than a right one.  So at last the
            observations of a variable count with the probability that it is right.
Near        Where many outliers are a few times as far off as inliers, weights are averaged over where the variables may
            be (`asker.near_outliers`), unless that leaves one noise for all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isnan, log, sqrt
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from asker.chance import rightness
from asker.conditions import Conditions
from asker.efficiency import efficient_width
from asker.engines.point import Engine, Point
from asker.factors import Factors
from asker.few import doubts as doubts_of_few
from asker.few import told
from asker.inlier_sets import InlierSets
from asker.kernels import Cauchy, Kernel, Mixture, Quadratic, SmoothTruncated
from asker.likelihood import likelihood, mean_squares, squares
from asker.mixture import DISTINCT
from asker.moves import Moves
from asker.near_outliers import NearOutliers
from asker.noise import REACH, Noise, estimate
from asker.one_noise import apart, inliers_are_noise, inliers_can_be_proved, noise_of_all, one_noise
from asker.repeats import without_repeats
from asker.rounding import rounding
from asker.strategies.weighted import Weighted
from asker.subsets import Subsets, n_unknowns
from asker.support import Support
from asker.tails import excess
from asker.variables import Variables

Floats = NDArray[np.float64]
CAUCHY = 2.0
"""The width of the Cauchy kernel, in σ, while σ is sought: under a wider one outliers pull, and look like noise."""
NARROW = 0.05
"""The first width, in median residuals at the start: one that is too narrow hardly matters."""
FIRST, AGAIN = 40, 15
"""Iterations of a first descent, and of each round at another σ."""
FOLLOWED = 3
"""Iterations of a round while the width follows the noise: one more estimate takes as long as two."""
ROUNDS = 10
"""Rounds at another σ, at most: until it is at rest."""
OUTRIGHT = 3
"""Rounds of moves from the start."""
TOLD = 0.01
"""What a step must gain, in the logarithm of the likelihood, for a descent with many unknowns to go on: one that gains
it along a single direction moves by √(2 · 0.01) = 0.14 standard deviations there."""
SUBSETS = 3
"""How many solutions from subsets are candidates."""
SOME, MANY, SEVERAL = 200, 64, 8
"""Unknowns up to which moves from the start are a candidate; the trials of a move up to there, and beyond."""
HOPELESS = 0.5
"""A first descent with less than this part of the best one's likelihood is not refined."""
CLEAR = 10.0
"""Q over σ from which the noise of a majority leaves no doubt; also the residuals at the start over σ, where hardly an
observation is no inlier."""
NEARLY = 5.0
"""The difference of two likelihoods, in logarithms, that does not decide."""
PAYS = 1.0
"""What a cycle must gain."""
WEIGHED = 2
"""How often it is found out which variables may be right by chance."""
AVERAGED = 50
"""Steps with averaged weights, at most."""
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


class Search:
    """Candidates from one start, and the best of them."""

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
        self.moves = Moves(engine.problem, trials=MANY if n_unknowns(engine) <= SOME else SEVERAL)
        self.found: list[Candidate] = []
        """Candidates so far, the best first."""
        self.firsts: list[Candidate] = []
        """Candidates before the first was refined, where there are few unknowns."""
        self.conditions = Conditions(engine)
        self.once = [without_repeats(f) if self.has_few_unknowns else None for f in engine.problem.factors]
        """Of each factor group in which observations repeat others: the factors without these, and which they are."""
        self._seen_squares: WeakKeyDictionary[Point, tuple[Floats, ...]] = WeakKeyDictionary()
        """‖r‖² at points that are still of use."""
        self._seen_costs: WeakKeyDictionary[Candidate, tuple[list[float], float]] = WeakKeyDictionary()
        """Q² of all factor groups and L with it, of candidates that are still of use."""
        self.broad: list[float] = []
        """Q² of each factor group, of what was seen so far."""
        self.typical: list[float] = []
        """‖r‖ of each factor group at the start, in the median."""

    def best(self, start: Point) -> list[Candidate]:
        """The best one, refined at last, then all others, the best first."""
        self._begin(start)
        followed, is_proved, self.broad = self._remembered("following", partial(self._follow, start))
        ended = [tuple(self._kernels(self._end_kernel, c.noises)) for c in followed]
        self.found = [replace(c, kernels=k) for c, k in zip(followed, ended, strict=True)] if is_proved else []
        for name, point in self._ends(start) if self.goes_on() and not is_proved else ():
            is_hopeless, self.found, self.broad = self._remembered(
                f"compare {name}", partial(self._compare, name, point, start)
            )
            if is_hopeless:
                continue
            if not self.goes_on() or self._is_done():
                break
        if not self.found:
            self._rank([self._candidate("start", start)])
        if followed and not is_proved and not self.goes_on():  # others may have been cut short
            self._see(followed[0].point)
            self._rank([*self.found, *followed])
        self.firsts = self.found
        for name in [c.name for c in self.found if c.name != "start"] if self.has_few_unknowns else ():
            if self.goes_on() and self._has_hope(name):
                self._rank([self._settled(c) if c.name == name else c for c in self.found])
        return [self._averaged(self._cycled(self.found[0])), *self.found[1:]]

    def again(self, end: Point, broad: list[float]) -> Candidate:
        """The end once more, from where it was; `broad`: Q² of each factor group, of what was seen before."""
        self._begin(end)
        self.broad = broad
        self._rank([self._candidate("again", end)])
        return self._averaged(self._cycled(self.found[0]))

    def _begin(self, start: Point) -> None:
        self._see(start)
        medians = [self.engine.sums.median(u) for u in self._squares(start)]
        self.typical = [1.0 if isnan(median) else max(sqrt(median), SMALLEST) for median in medians]

    def _follow(self, start: Point) -> tuple[list[Candidate], bool, list[float]]:
        """A candidate from the start under kernels as wide as the noise asks for where the descent is, whether it is
        proved that all its inliers have noise of one scale and no variable is lost, and what was seen then.  Where it
        is not proved, nothing was seen or drawn."""
        if self.has_few_unknowns or not inliers_can_be_proved(self.engine.problem, self.given, self.engine.sums):
            return [], False, self.broad
        seen, drawn, found = self.broad, self.moves.drawn_so_far, []
        point, before, has_moved = start, [0.0], False
        noises = tuple(noise_of_all(f, r) for f, r in zip(self.engine.problem.factors, self.typical, strict=True))
        for _ in range(ROUNDS):
            kernels = self._kernels(_cauchy, noises)
            widths = [kernel.tau for kernel in kernels]
            is_at_rest = np.allclose(widths, before, rtol=0.02, atol=0)
            kernels = self._kernels(self._end_kernel, noises) if is_at_rest else kernels
            point = self._run(kernels, self.plain, point, AGAIN if is_at_rest else FOLLOWED, "following")
            self._see(point)
            noises, before = self._noises(point, noises, is_close=True), widths
            found = [Candidate("following", point, noises)]
            if not self.goes_on() or not self._most_are_inliers(noises):
                break
            if not is_at_rest:
                continue
            if not self._support_of(found[0]).has_lost_a_variable():
                if self._is_proved(found[0]):
                    return found, True, self.broad
                break
            if has_moved:
                break
            point, has_moved = self._moved(kernels, point, noises), True
        self.moves.drawn_so_far = drawn
        return found, False, seen

    def _most_are_inliers(self, noises: Sequence[Noise]) -> bool:
        sought = [n for n, given in zip(noises, self.given, strict=True) if given is None]
        return all(n.is_known and n.inlier_ratio > 0.5 for n in sought)

    def _compare(self, name: str, point: Point, start: Point) -> tuple[bool, list[Candidate], list[float]]:
        """Rank one more candidate, and, with many unknowns, refine it if there is hope; whether there is none, and what
        was found so far."""
        self._see(point)
        self._rank([*self.found, self._candidate(name, point)])
        if len(self.found) == 1 and not self._is_done():
            self._rank([self._candidate("start", start), *self.found])
        is_hopeless = not self._has_hope(name)
        if not is_hopeless and not self.has_few_unknowns:
            self._rank([self._settled(c) if c.name == name else c for c in self.found])
        return is_hopeless, self.found, self.broad

    def _has_hope(self, name: str) -> bool:
        """Whether a candidate may be the best once it is refined."""
        best, found = self.found[0], next(c for c in self.found if c.name == name)
        return found is best or self._cost(found) <= HOPELESS * self._cost(best)

    def _is_done(self) -> bool:
        """Whether no other candidate need be tried."""
        return not self.has_few_unknowns and self._is_beyond_doubt(self.found[0])

    def _remembered(self, name: str, find: Callable[[], Any]) -> Any:
        """A finding, with where the draws of the moves are after it."""
        value, self.moves.drawn_so_far = self.remember(name, lambda: (find(), self.moves.drawn_so_far))
        return value

    def so_far(self, start: Point) -> Candidate:
        """The best one as it is."""
        if not self.broad:
            self._see(start)
        best = self.found[0] if self.found else Candidate("start", start, self._noises(start))
        return replace(best, kernels=tuple(self._kernels(self._end_kernel, best.noises)))

    def doubts(self, best: Candidate) -> tuple[str, ...]:
        """What a user should know before relying on the best one; nothing where all is well."""
        rivals = [c for c in self.found if c.name != best.name]
        near = [c for c in rivals if self._cost(c) < min(self._cost(best) + NEARLY, -NEARLY)]  # 0 explains nothing
        of_support = self._support_of(best).doubts(n_unknowns(self.engine), [self._support_of(c) for c in near])
        return (*of_support, *self._doubts_of_few(best), *self._doubts_of_repeats())

    def _doubts_of_few(self, best: Candidate) -> Iterator[str]:
        """Whether too few agree to be sure which are inliers."""
        seen = [self._squares_once(c.point) for c in (*self.firsts, *self.found)] if self.has_few_unknowns else []
        for k, f in enumerate(self._factors_once if seen else ()):
            if self.given[k] is None:
                u, each = self._squares_once(best.point)[k], [x[k] for x in seen]
                of = f.residual_size, n_unknowns(self.engine)
                yield from doubts_of_few(f.name, *of, best.noises[k], self.broad[k], u, each)

    def _doubts_of_repeats(self) -> Iterator[str]:
        for f, once in zip(self.engine.problem.factors, self.once, strict=True):
            if once is not None:
                cure = "they count once in the noise, and each in the result: leave them out if they are copies"
                yield f"{f.n - len(once[1])} of {f.n} {f.name} repeat others exactly; {cure}"

    def _support_of(self, found: Candidate) -> Support:
        return self._support(found.point, found.noises)

    def _support(self, point: Point, noises: Sequence[Noise]) -> Support:
        engine = self.engine
        return Support(engine.problem, self._squares(point), noises, self.given, engine.sums)

    def _ends(self, start: Point) -> Iterator[tuple[str, Point]]:
        """The names and ends of the first descents; each is made when it is asked for."""
        each = list(zip(self.given, self.typical, strict=True))
        narrow = [given or Cauchy(max(NARROW * r, SMALLEST)) for given, r in each]
        plain = [given or Quadratic(r) for given, r in each]
        yield "from the start", self._run(narrow, self.plain, start, FIRST, "from the start")
        everything = self._run(plain, self.plain, start, AGAIN, "least squares")
        yield "least squares", everything
        yield "from least squares", self._run(narrow, self.plain, everything, FIRST, "from least squares")
        if self.has_few_unknowns:
            for k, point in enumerate(self.remember("subsets", partial(self._from_subsets, start))):
                yield f"subset {k + 1}", point
            return
        yield "graduated", self._run(narrow, self.graduated, start, FIRST, "graduated")
        if n_unknowns(self.engine) <= SOME:
            point = start
            for _ in range(OUTRIGHT):
                point = self._moved(narrow, point)
            yield "moves", self._run(narrow, self.plain, point, FIRST, "moves")

    def _from_subsets(self, start: Point) -> list[Point]:
        subsets = Subsets(self.engine, start, self.trusted)
        return [self.engine.evaluate(rows) for rows in subsets.best(SUBSETS, self.broad, self._share(self.found[0]))]

    def _share(self, found: Candidate) -> float:
        """The share of the observations that a candidate explains; 0 where they do not stand out."""
        groups = zip(found.noises, self.broad, self.trusted, strict=True)
        return min(
            n.inlier_ratio if n.is_known and DISTINCT**2 * n.sigma**2 < Q else 0.0 for n, Q, sure in groups if not sure
        )

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
        self.broad = [min(pair) for pair in zip(self.broad or seen, seen, strict=True)]

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
        return tuple(told(noise, x, f.residual_size, n_unknowns(self.engine), Q) for noise, x, f, Q in each)

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
        """The best first, by the likelihood with what was seen so far."""
        self.found = found
        grids = self._grids()
        if any([n.rounding for n in c.noises] != grids for c in found):  # one has shown that the data are rounded
            found = [replace(c, noises=self._noises(c.point)) for c in found]
        self.found = sorted(found, key=self._cost) if len(found) > 1 else found

    def _settled(self, found: Candidate, strategy: Any = None) -> Candidate:
        """The descent goes on under kernels as wide as the noise asks for."""
        return self._remembered(f"settle {found.name}", partial(self._settle, found, strategy or self.plain))

    def _settle(self, found: Candidate, strategy: Any) -> Candidate:
        before = [0.0]
        for k in range(ROUNDS):
            kernels = self._kernels(_cauchy, found.noises)
            widths = [kernel.tau for kernel in kernels]
            if np.allclose(widths, before, rtol=0.02, atol=0):
                break
            point = self._run(kernels, strategy, found.point, AGAIN, found.name)
            point = self._moved(kernels, point, found.noises) if k == 0 else point
            found, before = Candidate(found.name, point, self._noises(point, found.noises, is_close=k > 0)), widths
        return found

    def _cycled(self, best: Candidate) -> Candidate:
        """To the end, again and again while that pays, from where variables that may be right by chance count less."""
        end = self._refined(best)
        while self.goes_on() and not self.has_few_unknowns and not self._is_beyond_doubt(end):
            weighed = self._weighed(end)
            again = self._refined(self._settled(weighed, self._doubting(weighed)))
            if self._cost(again) > self._cost(end) - PAYS:
                return weighed
            end = again
        return self._weighed(end)

    def _refined(self, best: Candidate) -> Candidate:
        """To the end: under Cauchy's kernel where inliers and outliers are not clearly apart, where tails are heavy, or
        where it explains more.

        Where all fit, the kernel hardly matters.
        """
        if not self.has_few_unknowns and (self._support_of(best).is_blurred or self._has_heavy_tails(best)):
            return self._ended(best, _efficient)
        end = self._ended(best, self._end_kernel)
        if all(self._support_of(end).explained) or self._cost(end) <= self._cost(best):
            return end
        return min(end, self._ended(best, _efficient), key=self._cost)

    def _has_heavy_tails(self, found: Candidate) -> bool:
        """Whether Student's noise explains the factor groups whose noise is sought better than Gaussian noise does."""
        engine = self.engine
        each = excess(engine.problem.factors, self._squares(found.point), found.noises, self.broad, engine.sums)
        sought = [gain for gain, given in zip(each, self.given, strict=True) if given is None and gain > -np.inf]
        return sum(sought) > 0

    def _ended(self, best: Candidate, kernel: Callable[[Noise, int, float], Kernel]) -> Candidate:
        """With moves in between; once for a candidate that has come under such kernels before, else twice."""
        point, noises, kernels = best.point, best.noises, []
        for converge in (True,) if best.kernels else (False, True):
            kernels = self._kernels(kernel, noises)
            moved = self._moved(kernels, point, noises)
            descent = self._counting_possible(moved)
            if converge:
                point = self._to_rest(kernels, noises, descent, moved, "end")
            else:
                point = self._run(kernels, descent, moved, AGAIN, "end")
            noises = self._noises(point, noises, is_close=True)
        return Candidate(best.name, point, noises, tuple(kernels))

    def _counting_possible(self, point: Point) -> Any:
        """A descent in which observations do not count that are not possible where it begins; its cost is without
        them."""
        possible = self._possible(point)
        return self.plain if possible is None else self._with_weights(possible)

    def _possible(self, point: Point) -> list[Floats] | None:
        """0 for every observation that is not possible at a point, else 1; None where all are."""
        if all(f.valid is None for f in self.engine.problem.factors):
            return None
        impossible = self.conditions.impossible(self.engine.rows_here(point))
        any_ = self.engine.sums.any(any(no.any() for no in impossible))
        return [np.where(no, 0.0, 1.0) for no in impossible] if any_ else None

    def _with_weights(self, weights: Sequence[Floats]) -> Weighted:
        return Weighted(self.engine.in_own_order(self.engine.whole(tuple(weights))))

    def _weighed(self, end: Candidate) -> Candidate:
        """With every observation as likely as its variables are right."""
        if self.has_few_unknowns:
            return end
        for _ in range(WEIGHED):
            if (strategy := self._doubting(end)) is self.plain:
                return end
            point = self._to_rest(end.kernels, end.noises, strategy, end.point, "weighed")
            end = replace(end, point=point, noises=self._noises(point, end.noises, is_close=True))
        return end

    def _averaged(self, end: Candidate) -> Candidate:
        """With weights that are averaged over where the variables may be, where outliers are near."""
        if not self.goes_on() or not self._may_have_near_outliers(end):
            return end
        problem, v = self.engine.problem, apart(self.engine.problem)
        if InlierSets.suit(problem, v) and v is not None:
            return self._remembered("inlier sets", partial(self._by_sets, end, v))
        blurred = self._support_of(end).is_blurred
        return self._by_averages(end) if blurred and self._possible(end.point) is None else end

    def _by_sets(self, end: Candidate, v: Variables) -> Candidate:
        """Over all sets of observations that may be the inliers of each variable."""
        sets = InlierSets(self.engine.problem, v, self.broad, self._possible(end.point))
        found = sets.averaged(self.engine, self.engine.rows(end.point), end.noises, self.goes_on)
        if found is None:
            return end
        kernels = self._kernels(_efficient, found[1])
        return Candidate(end.name, self.engine.evaluate(found[0]), found[1], tuple(kernels))

    def _by_averages(self, end: Candidate) -> Candidate:
        """Over where each variable may be by all of its observations."""
        point = end.point
        near = NearOutliers(self.engine.problem, self._squares(point), end.noises, self.broad)
        for _ in range(AVERAGED):
            near.step(self.engine.rows(point), self._squares(point))
            if not near.stand_out:
                return end
            kernels = self._kernels(_quadratic, near.noises)
            point = self._run(kernels, self._with_weights(near.weights), point, 1, "averaged")
            if near.is_at_rest or not self.goes_on():
                break
        return Candidate(end.name, point, near.noises, tuple(self._kernels(_efficient, near.noises)))

    def _may_have_near_outliers(self, found: Candidate) -> bool:
        """Whether many observations lie just beyond the inliers, or all seem to be inliers, and the noise is Gaussian;
        it is sought in all factor groups, by one process."""
        each = zip(self.given, found.noises, strict=True)
        are_sought = all(given is None and n.sigma > 0 for given, n in each)
        if self.has_few_unknowns or not are_sought or self.engine.problem.portion is not None:
            return False
        is_one = all(n.inlier_ratio == 1 for n in found.noises)
        return (is_one or self._support_of(found).is_blurred) and not self._has_heavy_tails(found)

    def _doubting(self, found: Candidate) -> Any:
        """A descent in which an observation counts as its variables are likely to be right, and not where it is not
        possible; the plain one where all are beyond doubt, or exact.  Its cost is weighted so."""
        if any(noise.is_known and noise.sigma == 0 for noise in found.noises):
            return self.plain
        support = self._support_of(found)
        right = rightness(support.problem, self._squares(found.point), support.inliers, found.noises, support.sums)
        if (possible := self._possible(found.point)) is not None:
            right = tuple(q * can for q, can in zip(right, possible, strict=True))
        in_doubt = self.engine.sums.of(sum(float((1 - q).sum()) for q in right))[0]
        return self._with_weights(right) if in_doubt >= 1 else self.plain

    def _end_kernel(self, noise: Noise, p: int, Q: float) -> Kernel:
        """That of the likelihood where there are few unknowns; truncated at 5σ where many follow single residuals."""
        if not self.has_few_unknowns or noise.inlier_ratio > 0.999:
            return SmoothTruncated(REACH * noise.sigma)
        odds = log(noise.inlier_ratio / (1 - noise.inlier_ratio)) + p * log(sqrt(Q) / noise.sigma)
        c = min(max(round(odds), 1), 14)  # of few values, since each is compiled
        return Mixture(sqrt(2 * c) * noise.sigma, float(c))

    def _moved(self, kernels: list[Kernel], point: Point, noises: Sequence[Noise] = ()) -> Point:
        """After the moves that pay; the noise, where it is known, tells for which variables they may."""
        if not self.goes_on():
            return point
        each = zip(noises, self.given, strict=True)
        is_known = noises and all(given is not None or n.is_known for n, given in each)
        inliers_at = (lambda at: self._support(at, noises).inliers) if is_known else None
        return self._remembered("moves", lambda: self.moves(self.engine.under(kernels), point, inliers_at)[0])

    def _is_beyond_doubt(self, found: Candidate) -> bool:
        """Whether most observations agree far better than all do, or nearly all far better than at the start, and those
        of every variable no less than others; or all are noise, and nothing else, or all inliers."""
        support, sizes = self._support_of(found), [f.residual_size for f in self.engine.problem.factors]
        each = zip(self.broad, self.typical, sizes, support.explained, strict=True)
        seen = [max(sqrt(Q), r / sqrt(p) if all_fit else 0.0) for Q, r, p, all_fit in each]
        groups = [g for g in zip(found.noises, seen, self.given, strict=True) if g[2] is None]
        if not all(n.is_known and n.inlier_ratio > 0.5 for n, _, _ in groups) or support.has_lost_a_variable():
            return False
        return (
            all(CLEAR * n.sigma < most for n, most, _ in groups)
            or self._is_noise_alone(found)
            or self._is_proved(found)
        )

    def _is_proved(self, found: Candidate) -> bool:
        """Whether it is proved that all inliers have noise of one scale."""
        if any(n.rounding or n.sigma == 0 for n in found.noises):
            return False
        u, inliers, engine = self._squares(found.point), self._support_of(found).inliers, self.engine
        return inliers_are_noise(engine.problem, u, inliers, found.noises, self.given, engine.sums)

    def _is_noise_alone(self, found: Candidate) -> bool:
        """Whether it is proved that there is nothing but noise, and the estimate does not find a smaller one."""
        if any(self._grids()):
            return False
        proven = one_noise(self.engine.problem, self._squares(found.point), self.given, self.engine.sums)
        each = zip(proven or (), found.noises, self.given, strict=False)
        return proven is not None and all(p.sigma < DISTINCT * n.sigma for p, n, given in each if given is None)

    def _kernels(self, kernel: Callable[[Noise, int, float], Kernel], noises: Sequence[Noise]) -> list[Kernel]:
        """One for each factor group; where the noise cannot be told, everything counts as noise, and none is exact."""
        found = []
        for f, given, noise, Q in zip(self.engine.problem.factors, self.given, noises, self.broad, strict=True):
            sigma = max(noise.sigma if noise.is_known else sqrt(Q), SMALLEST)
            found.append(given or kernel(replace(noise, sigma=sigma), f.residual_size, Q))
        return found


def _quadratic(noise: Noise, p: int, Q: float) -> Kernel:
    return Quadratic(noise.sigma)


def _cauchy(noise: Noise, p: int, Q: float) -> Kernel:
    return Cauchy(CAUCHY * noise.sigma)


def _efficient(noise: Noise, p: int, Q: float) -> Kernel:
    return Cauchy(efficient_width(p) * noise.sigma)

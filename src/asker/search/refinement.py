"""The end of a search for the noise: what becomes of the best candidate.

End         The best one is refined with moves of single variables in between
            (`asker.strategies.composite.block_moves`): under the kernel of the likelihood where there are few unknowns,
            else under the smooth truncated one with τ = 5σ; under Cauchy's where inliers and outliers are not clearly
            apart, or the noise has heavy tails (`asker.statistics.student_t`).  What is not possible (`valid=`) does
            not count, however well it fits.  Where variables may have been lost, the end is repeated while that pays.
Proved      A candidate whose inliers are proved to be noise (`asker.search.goodness_of_fit`) is moved once and goes to
            rest; near outliers are looked for only where few observations proved it.
Chance      Some variables hang on observations that may agree by chance (`asker.statistics.coincidence`): a point on
            two of them, where most are outliers.  Such a point would pull at its cameras no less than a right one.  So
            at last the observations of a variable count with the probability that it is right.
Near        Where many outliers are a few times as far off as inliers, points are averaged out for every set of their
            observations that may be the inliers (`asker.search.latent_inliers`), unless one noise for all explains as
            much.  In other problems weights are averaged over where the variables may be
                   (`asker.search.variational_em`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log, sqrt
from typing import Any

import numpy as np

from asker.engines.interface import Point
from asker.kernels.efficiency import efficient_width
from asker.kernels.kernels import Cauchy, Kernel, Mixture, Quadratic, SmoothTruncated
from asker.problem.variables import Variables
from asker.search.context import AGAIN, Candidate, Floats, Ground
from asker.search.goodness_of_fit import ROUGHLY, SHOWN, SINGLY, apart, hidden_ratio, one_noise
from asker.search.latent_inliers import InlierSets
from asker.search.variational_em import NearOutliers
from asker.statistics.coincidence import rightness
from asker.statistics.gaussian_mixture import DISTINCT
from asker.statistics.scale import REACH, Noise
from asker.statistics.student_t import excess
from asker.strategies.weighted import Weighted

CLEAR = 10.0
"""Q over σ from which the noise of a majority leaves no doubt; also the residuals at the start over σ, where hardly an
observation is no inlier."""
PAYS = 1.0
"""What a cycle must gain."""
WEIGHED = 2
"""How often it is found out which variables may be right by chance."""
AVERAGED = 50
"""Steps with averaged weights, at most."""


class Ending(Ground):
    """The way of one candidate to the end."""

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

    def _proved_end(self, proved: Candidate, hidden: float) -> Candidate:
        """The end of a candidate whose inliers are proved to be noise but for a hidden part, with no variable lost.
        Where little is hidden, no outliers are near."""
        kernels = list(proved.kernels)
        moved = self._moved(kernels, proved.point, proved.noises)
        point = self._to_rest(kernels, proved.noises, self._counting_possible(moved), moved, "end")
        noises = self._noises(point, proved.noises, is_close=True)
        end = self._weighed(replace(proved, point=point, noises=noises))
        return end if hidden <= SINGLY else self._averaged(end)

    def _refined(self, best: Candidate) -> Candidate:
        """To the end: under Cauchy's kernel where inliers and outliers are not clearly apart, where tails are heavy, or
        where it explains more.

        Where all fit, the kernel hardly matters.
        """
        if not self.has_few_unknowns and (self._support_of(best).is_blurred or self._has_heavy_tails(best)):
            return self._ended(best, efficient)
        end = self._ended(best, self._end_kernel)
        if all(self._support_of(end).explained) or self._cost(end) <= self._cost(best):
            return end
        return min(end, self._ended(best, efficient), key=self._cost)

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
            return self._by_sets(end, v)
        has_outliers = all(n.inlier_ratio < 1 for n in end.noises) and self._support_of(end).is_blurred
        return self._by_averages(end) if has_outliers and self._possible(end.point) is None else end

    def _by_sets(self, end: Candidate, v: Variables) -> Candidate:
        """Over all sets of observations that may be the inliers of each variable."""
        sets = InlierSets(self.engine.problem, v, self.broad, self._possible(end.point))

        def averaged() -> Candidate | None:
            found = sets.averaged(self.engine.rows(end.point), end.noises, self.goes_on)
            return found and Candidate(end.name, self.engine.evaluate(found[0]), found[1])

        found = self._remembered("inlier sets", averaged)
        return end if found is None else replace(found, kernels=tuple(self._kernels(efficient, found.noises)))

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
        return Candidate(end.name, point, near.noises, tuple(self._kernels(efficient, near.noises)))

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

    def _is_beyond_doubt(self, found: Candidate) -> bool:
        """Whether most observations agree far better than all do, or nearly all far better than at the start, and those
        of every variable no less than others; or all are noise, and nothing else, or all inliers."""
        if not self._most_are_inliers(found) or self._support_of(found).has_lost_a_variable():
            return False
        return self._stands_out(found, CLEAR) or self._is_noise_alone(found) or self._hidden_ratio(found) < 1

    def _most_are_inliers(self, found: Candidate) -> bool:
        sought = [n for n, given in zip(found.noises, self.given, strict=True) if given is None]
        return all(n.is_known and n.inlier_ratio > 0.5 for n in sought)

    def _stands_out(self, found: Candidate, times: float) -> bool:
        """Whether noises that are sought are so many times smaller than what else was seen: all residuals in a plain
        fit, or, where hardly an observation is no inlier, those at the start."""
        sizes = [f.residual_size for f in self.engine.problem.factors]
        each = zip(self.broad, self.typical, sizes, self._support_of(found).explained, strict=True)
        seen = [max(sqrt(Q), r / sqrt(p) if all_fit else 0.0) for Q, r, p, all_fit in each]
        groups = zip(found.noises, seen, self.given, strict=True)
        return all(times * n.sigma < most for n, most, given in groups if given is None)

    def _hidden_ratio(self, found: Candidate) -> float:
        """The part of the inliers that may be no noise without showing, where they are proved to have noise of one
        scale, and all fit, or they check most variables; else 1.  Where so much is hidden that outliers may be near,
        nothing is proved unless they are looked for at the end."""
        engine, support, v = self.engine, self._support_of(found), apart(self.engine.problem)
        is_exact = any(n.rounding or n.sigma == 0 for n in found.noises)
        if v is None or is_exact or not (all(support.explained) or support.checks_most(v)):
            return 1.0
        at, shown = (engine.rows_here(found.point), self._squares(found.point)), self._shown(found)
        hidden = hidden_ratio(engine.problem, *at, support.inliers, found.noises, self.given, shown, engine.sums)
        return hidden if hidden <= SINGLY or InlierSets.suit(engine.problem, v) else 1.0

    def _shown(self, found: Candidate) -> float:
        """The part of the variables that must show in a proof."""
        return ROUGHLY if all(self._support_of(found).explained) and self._stands_out(found, DISTINCT) else SHOWN

    def _is_noise_alone(self, found: Candidate) -> bool:
        """Whether it is proved that there is nothing but noise, and the estimate does not find a smaller one."""
        if any(self._grids()):
            return False
        proven = one_noise(self.engine.problem, self._squares(found.point), self.given, self.engine.sums)
        each = zip(proven or (), found.noises, self.given, strict=False)
        return proven is not None and all(p.sigma < DISTINCT * n.sigma for p, n, given in each if given is None)


def _quadratic(noise: Noise, p: int, Q: float) -> Kernel:
    return Quadratic(noise.sigma)


def efficient(noise: Noise, p: int, Q: float) -> Kernel:
    return Cauchy(efficient_width(p) * noise.sigma)

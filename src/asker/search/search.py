"""The solver for problems whose noise is not known: what `asker.solve` does when nothing is given.

Following   First one way down from the start under a Cauchy kernel that is 2σ wide all the way, σ as it is estimated
            after every few steps: this does where inliers are the majority, as a rule.  It counts where it is proved
            that all inliers have Gaussian noise of one scale (`asker.search.goodness_of_fit`), and no variable is lost:
            then nothing else is tried.  Where it is not proved, all goes on as if it had not been.
Candidates  Several ways down from the start, the cheap ones first, each under Cauchy kernels, whose weights do not
            depend on a scale for large residuals: (1) from the start itself; (2) from the least squares solution with
            everything; (3) from minimal subsets of the observations, where there are few unknowns
            (`asker.search.minimal_subsets`), or graduated, by ASKER, where there are many.
Noise       At each end the noise σ of every factor group is estimated (`asker.statistics.scale`;
            `asker.statistics.a_contrario` where observations are few), the kernel is made 2σ wide, and the descent goes
            on, until σ is at rest.
Likelihood  Candidates are compared by one likelihood (`asker.search.evidence`); those that have fled from the data
            (`asker.search.degeneracy`), or fit a minority exactly, come last.  One that explains far less than the best
            is dropped before it is refined; with few unknowns all are there before the first is.  Where many
            observations fit exactly because the data are rounded (`asker.search.quantization`), the noise of all
            candidates is that of rounding at least.  Once a candidate is beyond doubt, no other one is tried: also
            where it leaves nothing but noise of one scale, or its inliers are proved to have that.
End         What becomes of the best one: `asker.search.refinement`.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from asker.engines.interface import Point
from asker.engines.inverse_blocks import SingularError
from asker.kernels.kernels import Cauchy, Quadratic
from asker.search.context import AGAIN, ROUNDS, SMALLEST, SOME, Candidate, cauchy
from asker.search.goodness_of_fit import can_be_proved, noise_of_all
from asker.search.minimal_subsets import Subsets
from asker.search.refinement import Ending
from asker.statistics.a_contrario import doubts as doubts_of_few
from asker.statistics.gaussian_mixture import DISTINCT
from asker.statistics.inliers import Classified
from asker.uncertainty.covariance import linear_model
from asker.uncertainty.observability import n_undetermined

NARROW = 0.05
"""The first width, in median residuals at the start: one that is too narrow hardly matters."""
FIRST = 40
"""Iterations of a first descent."""
FOLLOWED = 3
"""Iterations of a round while the width follows the noise: one more estimate takes as long as two."""
OUTRIGHT = 3
"""Rounds of moves from the start."""
SUBSETS = 3
"""How many solutions from subsets are candidates."""
HOPELESS = 0.5
"""A first descent with less than this part of the best one's likelihood is not refined."""
FLED = (
    "the solution may be degenerate: its residuals depend ten times less on the data than at the initial guess, and "
    "may be small because unknowns diverged; bound the unknowns, or give a kernel"
)
NEARLY = 5.0
"""The difference of two likelihoods, in logarithms, that does not decide."""


class Search(Ending):
    """Candidates from one start, and the best of them."""

    def best(self, start: Point) -> list[Candidate]:
        """The best one, refined at last, then all others, the best first."""
        self._begin(start)
        followed, hidden, self.broad = self._remembered("followed", partial(self._follow, start))
        ended = [tuple(self._kernels(self._end_kernel, c.noises)) for c in followed]
        self.found = [replace(c, kernels=k) for c, k in zip(followed, ended, strict=True)]
        if hidden < 1:
            self.found = [self._proved_end(c, hidden) for c in self.found]
            return self.found
        self.found = []
        for name, point in self._ends(start) if self.goes_on() else ():
            is_hopeless, self.found, self.broad = self._remembered(
                f"compare {name}", partial(self._compare, name, point, start)
            )
            if is_hopeless:
                continue
            if not self.goes_on() or self._is_done():
                break
        if not self.found:
            self._rank([self._candidate("start", start)])
        if followed and not self.goes_on():  # others may have been cut short
            self._see(followed[0].point)
            self._rank([*self.found, *followed])
        self.firsts = self.found
        for name in [c.name for c in self.found if c.name != "start"] if self.has_few_unknowns else ():
            if self.goes_on() and self._has_hope(name):
                self._rank([self._likelier(c) if c.name == name else c for c in self.found])
        self.found = [self._cycled(self.found[0]), *self.found[1:]]
        return [self._averaged(self.found[0]), *self.found[1:]]

    def again(self, end: Point, broad: list[float], before: "Search") -> Candidate:
        """The end once more, from where it was; `broad`: Q² of each factor group, of what was seen before.  The other
        candidates of that search are candidates here, too."""
        self._begin(end)
        self.broad = broad

        def here(found: list[Candidate]) -> list[Candidate]:
            rows = [(c.name, before.engine.rows(c.point)) for c in found]
            return [self._candidate(name, self.engine.evaluate(theta)) for name, theta in rows]

        self.firsts = here(before.firsts)
        self._rank([self._candidate("again", end), *here(before.found[1:])])
        self.found = [self._cycled(self.found[0]), *self.found[1:]]
        return self._averaged(self.found[0])

    def _follow(self, start: Point) -> tuple[list[Candidate], float, list[float]]:
        """A candidate from the start under kernels as wide as the noise asks for where the descent is, the hidden part
        of its inliers, and what was seen then.  The part is 1 where they are not proved to have noise of one scale, or
        a variable is lost: then nothing was seen or drawn."""
        if self.has_few_unknowns or not can_be_proved(self.engine.problem, self.engine.sums):
            return [], 1.0, self.broad
        seen, drawn, found = self.broad, self.moves.drawn_so_far, []
        point, before, has_moved = start, [0.0], False
        noises = tuple(noise_of_all(f, r) for f, r in zip(self.engine.problem.factors, self.typical, strict=True))
        for _ in range(ROUNDS):
            kernels = self._kernels(cauchy, noises)
            widths = [kernel.tau for kernel in kernels]
            is_at_rest = np.allclose(widths, before, rtol=0.02, atol=0)
            kernels = self._kernels(self._end_kernel, noises) if is_at_rest else kernels
            point = self._run(kernels, self.plain, point, AGAIN if is_at_rest else FOLLOWED, "following")
            self._see(point)
            noises, before = self._noises(point, noises, is_close=True), widths
            found = [Candidate("following", point, noises)]
            if not self.goes_on() or not self._may_be_proved(found[0]):
                break
            if not is_at_rest:
                continue
            if not self._support_of(found[0]).has_lost_a_variable():
                if (hidden := self._hidden_ratio(found[0])) < 1:
                    return found, hidden, self.broad
                break
            if has_moved:
                break
            point, has_moved = self._moved(kernels, point, noises), True
        self.moves.drawn_so_far = drawn
        return found, 1.0, seen

    def _may_be_proved(self, found: Candidate) -> bool:
        """Whether most observations are inliers, of so many variables that something can be proved."""
        problem, sums = self.engine.problem, self.engine.sums
        return self._most_are_inliers(found) and can_be_proved(problem, sums, self._shown(found))

    def _compare(self, name: str, point: Point, start: Point) -> tuple[bool, list[Candidate], list[float]]:
        """Rank one more candidate, and, with many unknowns, refine it if there is hope; whether there is none, and what
        was found so far."""
        if not self._has_fled(point):
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

    def _likelier(self, first: Candidate) -> Candidate:
        """A candidate, refined where that explains more: Cauchy's kernel follows outliers where the observations hardly
        hold the unknowns."""
        return self._ordered([self._settled(first), first])[0]

    def _is_done(self) -> bool:
        """Whether no other candidate need be tried."""
        return not self.has_few_unknowns and self._is_beyond_doubt(self.found[0])

    def so_far(self, start: Point) -> Candidate:
        """The best one as it is."""
        if not self.typical:
            self._begin(start)
        best = self.found[0] if self.found else Candidate("start", start, self._noises(start))
        return replace(best, kernels=tuple(self._kernels(self._end_kernel, best.noises)))

    def doubts(self, best: Candidate, classified: Classified) -> tuple[str, ...]:
        """Return the reasons not to rely on the best candidate.

        `classified`: its inliers, with the noise in the units of the user.
        """
        rivals = [c for c in self.found if c.name != best.name]
        near = [c for c in rivals if self._cost(c) < min(self._cost(best) + NEARLY, -NEARLY)]  # 0 explains nothing
        n_open = partial(self._n_open, best.point, classified)
        of_near = [self._support_of(c) for c in near]
        of_support = self._support_of(best).doubts(self.engine.problem.n_unknowns, n_open, of_near, classified)
        fled = (FLED,) if self._has_fled(best.point) else ()
        return (*of_support, *fled, *self._doubts_of_few(best, classified), *self._doubts_of_repeats())

    def _n_open(self, point: Point, classified: Classified) -> int:
        """How many directions of the unknowns the inliers of a point do not determine; 0 where that cannot be counted:
        a process has a portion of the problem, or there are too many."""
        engine = self.engine
        if engine.problem.portion is not None:
            return 0
        model = linear_model(engine.name, engine.problem, engine.rows_here(point))
        try:
            return n_undetermined(model, [inlier.astype(float) for inlier in classified.inliers])
        except SingularError:
            return 0

    def _doubts_of_few(self, best: Candidate, classified: Classified) -> Iterator[str]:
        """Yield a doubt for each factor group in which too few observations agree to be sure which are inliers."""
        seen = [self._squares_once(c.point) for c in (*self.firsts, *self.found)] if self.has_few_unknowns else []
        for k, f in enumerate(self._factors_once if seen else ()):
            if self.given[k] is None:
                u, each = self._squares_once(best.point)[k], [x[k] for x in seen]
                of = f.residual_size, self.engine.problem.n_unknowns
                once, inliers = self.once[k], classified.inliers[k]
                agree = inliers if once is None else inliers[once[1]]
                yield from doubts_of_few(f.name, *of, best.noises[k], self.broad[k], u, each, agree)

    def _doubts_of_repeats(self) -> Iterator[str]:
        """Yield a doubt for each factor group with exact duplicates."""
        for f, once in zip(self.engine.problem.factors, self.once, strict=True):
            if once is not None:
                yield (
                    f"{f.n - len(once[1])} of {f.n} {f.name} are exact duplicates of others: they count in the "
                    "solution, but not in the noise estimate, so that intervals are too narrow; remove them"
                )

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
        if self.engine.problem.n_unknowns <= SOME:
            point = start
            for _ in range(OUTRIGHT):
                point = self._moved(narrow, point)
            yield "moves", self._run(narrow, self.plain, point, FIRST, "moves")

    def _from_subsets(self, start: Point) -> list[Point]:
        found = Subsets(self.engine, start, self.trusted).best(SUBSETS, self.broad, self._share(self.found[0]))
        return [point for point in map(self.engine.evaluate, found) if point.finite]

    def _share(self, found: Candidate) -> float:
        """The share of the observations that a candidate explains; 0 where they do not stand out."""
        groups = zip(found.noises, self.broad, self.trusted, strict=True)
        return min(
            n.inlier_ratio if n.is_known and DISTINCT**2 * n.sigma**2 < Q else 0.0 for n, Q, sure in groups if not sure
        )

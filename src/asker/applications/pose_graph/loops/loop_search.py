"""The search for the loops to believe, where a pose graph may announce more noise than it has.

Where too much noise is announced, a false loop can be had for a little bent odometry: Ψ itself is lower with it.  The
noise can be seen in what was kept (`noise`):

(0) least squares with all loops: from the start, where that turns no edge by a right angle.  Where all edges are as
    near as noise lets them be, and a kernel for CLOSE times the noise that is seen refuses none where they are, that is
    all; in a large graph whose loops do not contradict each other (`support`), a kernel as wide as in (5) decides.
    Else least squares, then a plain descent: from where linear systems close the loops (`chordal`) or from the start,
    whichever fits better, and from where a narrow Cauchy kernel leads.  The same proof ends it.
    Where a descent refuses none, it is (1); else the lowest of them and (1) goes on.
    Where an iteration is dear, the first of them alone is tried, and least squares end when a step gains little.
    Where a graph is large and its loops contradict each other, all loops at once fill the matrix in, and
    least squares take the better supported half of them, then more as long as these fit together and do not show much
    more noise.  Where that is much less than announced, (4) goes on from there; else a descent from there is (1),
    by way of a kernel TAIL times as wide, and where what it keeps is as near as the noise lets it be, that is all.
    Either is believed where it keeps what was fitted together;
(1) solve with the noise as announced;
(2) the share of it that is there: Σ‖r‖² over what was kept, for each number that the poses have not used up, in units
    of what was announced.  The mean of ‖r‖² is seen in medians, one over the loops and one over odometry, so that up to
    half of the loops kept may be false;
(3) where that is much less, solve again with that share of τ, from where the last solution ended; back to (2).  The
    kernels of ASKER's default begin as wide as the last ones: what those gave up is not pulled at again, and fills no
    matrix in.  Where an iteration is dear, few of them are made;
(4) descend on Ψ with TAIL times the last share, from each of these solutions, and take the lowest: right loops in
    the tails come back, and a solution that (3) left for a worse one does too;
(5) descend from there once more, with TAIL times the share that 95 % quantiles show in place of medians.  Where tails
    are long this is wider than (4), though no more than WIDER times, and more right loops come back; else it is
    narrower.  It does not choose between solutions: a kernel this wide may prefer false loops;
(6) where loops are refused, single ones are put in and out of those that are believed (`asker.Exchanges`), with CLOSE
    times the share; from the start of the graph, too, but where loops are many only if the first pays, or leaves edges
    further off than the noise.  What is believed on trial begins where linear systems close it, if it fits better
    there: a long chain of odometry has poor minima of its own.  Where much less noise is seen there, back to (4).  Else
    the last descent is repeated from there; where it has given loops up and brought none back, it is believed if Ψ of
    (4) is lower with it: a narrow kernel gives up right loops in the tails.

Where TAIL times the first share is 1 or more, Ψ is right as it is, and (6) comes after (1).

Landmarks and priors have the noise that is announced for them: the share is that of the edges.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.initial.chordal_init import chordal, chordal_rows, is_turned
from asker.applications.pose_graph.loops import work_budget
from asker.applications.pose_graph.loops.inlier_refit import TOL, plain_from
from asker.applications.pose_graph.loops.loop_consistency import LoopSupport
from asker.applications.pose_graph.loops.noise_scale import (
    CLOSE,
    MUCH_LESS,
    TAIL,
    Round,
    Solved,
    announces_too_much,
    is_noisier,
    keeps,
    lowest,
    noise_share,
)
from asker.applications.pose_graph.options import Robust
from asker.applications.pose_graph.problem import INLIERS, PoseGraphProblem, default_tau, pose_graph_problem
from asker.kernels.kernel import Kernel
from asker.kernels.kernels import Cauchy, SmoothTruncated
from asker.solver.result import Result, Status
from asker.solver.time_budget import Clock
from asker.strategies.asker import ASKER
from asker.strategies.composite.inlier_exchange import Exchanges
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Strategy

NARROW = 0.1
"""The width of the Cauchy kernel of (0), in τ."""
TAIL_QUANTILE = 0.95
WIDER = 2.0
"""With 5 in its place, false loops come in."""
ROUGHLY, CLOSELY = 0.1, 1e-2
"""The part of the cost that a step of least squares must gain where they need not be exact: loops that do not fit are
not worth many steps.  The latter where others are compared with the end."""
GROWTH = 1 / 64
"""Of the loops: the smallest number that is added to those that fit."""
REFUSED = 0.5
"""Of the full weight."""
PAYS = 1e-3
"""The part by which Ψ falls where an exchange has changed something."""


def solve_pose_graph(
    graph: PoseGraph,
    solve: Callable[..., Result],
    strategy: Strategy,
    kernel: Callable[..., Kernel] = SmoothTruncated,
    tau: float | None = None,
    robust: Robust = "loops",
    time_limit: float | None = None,
    noise: Literal["announced", "estimated"] = "estimated",
    thorough: bool = False,
) -> Solved:
    """Solve a pose graph by the steps (0) to (6) above.

    solve       called for each round as solve(problem, strategy, time_limit=…)
    kernel      called with tau=…, which is `tau` times the share of the noise
    tau         for the noise as announced; `default_tau` when not given
    time_limit  seconds, for all rounds together; a round that is cut short is the last one
    noise       "announced": (1) is all
    thorough    whether (0) and (6) are done
    """
    tau = default_tau(graph.kind) if tau is None else tau
    if noise == "estimated" and (robust == "none" or kernel(tau=tau).convex):
        raise ValueError("the noise is estimated under a kernel that is not convex, on the loops or on all edges")
    search = GraphSearch(graph, solve, strategy, kernel, tau, robust, Clock(time_limit), noise == "estimated", thorough)
    try:
        return search.solved()
    except KeyboardInterrupt:  # between two solves; one that is under way ends by itself
        if not (search.rounds or search.descents):
            raise
        return search.so_far()


@dataclass
class GraphSearch:
    """The rounds of one graph."""

    graph: PoseGraph
    solve: Callable[..., Result]
    strategy: Strategy
    kernel: Callable[..., Kernel]
    tau: float
    robust: Robust
    clock: Clock
    estimates: bool
    thorough: bool
    rounds: list[Round] = field(default_factory=list)
    """(0) to (3): the last one is the best."""
    descents: list[Round] = field(default_factory=list)
    """(4) to (6)"""
    fit: Round | None = None
    """Least squares with all edges, from the start of the graph."""
    is_begun: bool = False
    """Whether the first descent of (0) was made."""

    def solved(self) -> Solved:
        if self.thorough and self.estimates and not is_turned(self.graph):
            self.fit = self._fitted(self.graph)
            if found := self._proven(self.fit):
                return found
        if self.thorough and self.estimates and self.is_large and (found := self._fitted_first()):
            return found
        if found := self._with_all_loops(self._first()):
            return found
        self.rounds.sort(key=lambda r: -r.result.cost)
        return self._with_the_noise_seen() if self.estimates else Solved(self.rounds[-1], self.rounds)

    def so_far(self) -> Solved:
        """After an interrupt."""
        chosen = lowest(self.descents) if self.descents else self.rounds[-1]
        *done, newest = self.rounds + self.descents
        return Solved(chosen, [*done, replace(newest, result=replace(newest.result, status=Status.INTERRUPTED))])

    @cached_property
    def support(self) -> LoopSupport:
        return LoopSupport(self.graph)

    @property
    def few(self) -> dict[str, int]:
        """The limit of descents that need not be exact."""
        return {"max_iterations": work_budget.few_iterations(self.graph)} if self.thorough else {}

    @cached_property
    def is_dear(self) -> bool:
        return work_budget.is_dear(self.graph)

    @cached_property
    def is_large(self) -> bool:
        return work_budget.is_large(self.graph)

    def _first(self) -> Iterator[Round]:
        """(0) and (1); each is made when it is asked for."""
        if any(r.fits_together for r in self.rounds):
            return
        if self.thorough and not self.is_begun:
            yield from self._from_least_squares(self._better_begun(self.graph))
        if self.thorough and not self.is_dear:
            made = pose_graph_problem(self.graph, Cauchy(NARROW * self.tau), self.robust)
            yield from self._from_least_squares(made.refined(self._solve(made.problem, IRLS(), **self.few).values))
        yield self._run(self.graph, 1.0, self.strategy)

    def _better_begun(self, graph: PoseGraph) -> PoseGraph:
        """A graph where its loops are closed, if it fits better there than where it is."""
        found = chordal(graph)
        if found is None:
            return graph
        made = [pose_graph_problem(start, robust="none") for start in (graph, found)]
        before, after = (self._solve(one.problem, IRLS(), max_iterations=0).cost for one in made)
        return found if after < before else graph

    def _from_least_squares(self, start: PoseGraph) -> Iterator[Round]:
        """Least squares with all edges, and a descent from there."""
        fit = self.fit if self.fit and start is self.graph else self._fitted(start)
        yield fit
        yield self._run(fit.refined, 1.0, IRLS(), **self.few)

    def _fitted(self, start: PoseGraph) -> Round:
        """Least squares with all edges."""
        everything = pose_graph_problem(start, robust="none")
        tol = ROUGHLY if self.is_dear else TOL
        return Round(np.inf, everything, self._solve(everything.problem, IRLS(), tol=tol, **self.few))

    def _with_all_loops(self, tried: Iterator[Round]) -> Solved | None:
        """The first one that keeps all edges, also with the noise that is seen.  Without such, the descents are rounds,
        up to one that keeps all edges with the noise as announced."""
        for one in tried:
            if self.thorough and self.estimates and (found := self._proven(one)):
                return found
            if np.isfinite(one.noise_share):
                self.rounds.append(one)
                if self.thorough and one.fits_together:
                    break
        return None

    def _proven(self, one: Round) -> Solved | None:
        """All edges, where one that keeps them does so with the noise that is seen, too."""
        if not (one.result.status is Status.CONVERGED and one.fits_together):
            return None
        done = [*self.rounds, one]
        if self.is_dear:  # it was rough
            end = self._solve(one.made.problem, plain_from(one.result), tol=TOL, start=one.result.values)
            done.append(one := replace(one, result=end))
        share = noise_share(one.made, one.result)
        close = self._seen(one, self._close(share))
        if not close.fits_together and self.is_large and not self.support.contradicts:
            close = self._seen(one, self._tail(one.made, one.result, share or 1.0))
        if not close.fits_together:
            return None
        return Solved(close, [*done, close], one if np.isinf(one.noise_share) else None)

    def _fitted_first(self) -> Solved | None:
        """(0), where a graph is large"""
        if not self.support.contradicts:
            self.is_begun = True
            return self._with_all_loops(self._from_least_squares(self._better_begun(self.graph)))
        found = self._grown(self.support)
        if found is None:
            return None
        grown, fitted = found
        start, share = self._whole(grown.refined), noise_share(grown.made, grown.result)
        if share is not None and announces_too_much(share):
            close = self._run(start, TAIL * share, IRLS(), **self.few)
            if close.is_cut_short:
                return Solved(close, [close])
            if not keeps(close, fitted):
                return None
            self.descents.append(close)
            return self._widened([close.refined], share)
        wide = self._run(start, TAIL, IRLS(), **self.few)
        if wide.is_cut_short:
            return Solved(wide, [wide])
        self.rounds.append(self._run(wide.refined, 1.0, IRLS()))
        if not (self.rounds[-1].is_cut_short or keeps(self.rounds[-1], fitted)):
            self.rounds.append(self._run(start, 1.0, IRLS()))
        best = lowest(self.rounds)
        if self.rounds[-1].is_cut_short:
            return Solved(best, self.rounds)
        if not keeps(best, fitted):
            return None
        return Solved(best, self.rounds) if best.is_likely else self._exchanged(best)

    def _grown(self, support: LoopSupport) -> tuple[Round, np.ndarray] | None:
        """Least squares with the better supported loops, half of them, then more, as many as fit together, and a mask
        of the edges in it; None where half of the loops do not."""
        grown, n, step = None, (support.n + 1) // 2, support.n // 4
        while step > GROWTH * support.n:
            fitted = support.first(n)
            start = grown[0].refined if grown else self.graph
            part = replace(self.graph.with_edges(fitted), poses=start.poses, landmarks=start.landmarks)
            made = pose_graph_problem(self._better_begun(part), robust="none")
            fit = Round(np.inf, made, self._solve(made.problem, IRLS(), tol=ROUGHLY if grown else CLOSELY))
            fits = self._fits(made, fit.result) and not (grown and is_noisier(fit, grown[0]))
            if not fits and grown is None:
                return None
            if fits:
                grown = fit, fitted
            n, step = n + (step if fits else -step), step // 2
        return grown

    def _fits(self, made: PoseGraphProblem, result: Result) -> bool:
        """Whether least squares leave all edges where the noise lets them be, but for as many loops as are so far off
        by chance."""
        u = made.per_edge([(r**2).sum(axis=1) for r in result.residuals])[~made.graph.is_odometry]
        kernel = self.kernel(tau=self._tail(made, result, noise_share(made, result) or 1.0) * self.tau)
        n_far = np.count_nonzero(kernel.omega(u) <= REFUSED)
        return Round(1.0, made, result).is_likely and bool(n_far <= (1 - INLIERS) * len(u))

    def _tail(self, made: PoseGraphProblem, result: Result, share: float) -> float:
        """The share that a kernel allows for which is as wide as the tails of what was kept; (5)"""
        seen = noise_share(made, result, TAIL_QUANTILE)
        return 1.0 if seen is None else min(TAIL * min(seen, WIDER * share), 1.0)

    def _whole(self, part: PoseGraph) -> PoseGraph:
        """The graph with the poses of one that has some of its edges."""
        return replace(self.graph, poses=part.poses, landmarks=part.landmarks)

    def _with_the_noise_seen(self) -> Solved:
        """(2) to (6)"""
        while not self.rounds[-1].is_cut_short:
            share = noise_share(self.rounds[-1].made, self.rounds[-1].result)  # (2)
            if share is None or not announces_too_much(share) or share > MUCH_LESS * self.rounds[-1].noise_share:
                break
            how = _narrowing(self.strategy, self.rounds[-1].noise_share / share)
            limits = self.few if self.is_dear else {}
            self.rounds.append(self._run(self.rounds[-1].refined, share, how, **limits))  # (3)
        last = self.rounds[-1]
        if last.noise_share == 1:
            return self._exchanged(last)
        if last.is_cut_short:  # its kernel gives up right loops in the tails
            wide = self._run(last.refined, TAIL * last.noise_share, IRLS(), max_iterations=0)
            wide = replace(wide, result=replace(wide.result, status=last.result.status))
            return Solved(wide, [*self.rounds, wide])
        return self._widened([r.refined for r in reversed(self.rounds)], last.noise_share)

    def _widened(self, starts: list[PoseGraph], seen: float) -> Solved:
        """(4) to (6)"""
        for k, start in enumerate(starts):  # (4), first that a cut should not cost
            self.descents.append(self._run(start, TAIL * seen, IRLS(), **(self.few if k else {})))
            if self.descents[-1].is_cut_short:
                return Solved(lowest(self.descents), self.rounds + self.descents)
        chosen = lowest(self.descents)
        if noise_share(chosen.made, chosen.result) is not None:
            chosen = self._run(chosen.refined, self._tail(chosen.made, chosen.result, seen), IRLS())  # (5)
            self.descents.append(chosen)
        return self._exchanged(chosen)

    def _exchanged(self, found: Round) -> Solved:
        """(6)"""
        before = self.rounds + self.descents
        if not self.thorough or found.is_cut_short or found.fits_together:
            return Solved(found, before)
        n = work_budget.exchange_iterations(self.graph, sum(r.result.iterations for r in before))
        if not n:
            return Solved(found, before)
        share = noise_share(found.made, found.result) or 1.0
        width = self._close(share)
        done = [self._run(found.refined, width, IRLS())]
        for start in (done[0].refined, self.graph):
            if not done[-1].is_cut_short:
                done.append(self._exchange(start, width, n))
            if done[-1].is_cut_short:
                return Solved(found, before + done)
            pays = done[-1].result.cost < (1 - PAYS) * done[0].result.cost
            if self.is_large and done[-1].is_likely and not pays:
                break
        best = lowest(done)
        seen = noise_share(best.made, best.result)
        if seen is not None and announces_too_much(seen) and seen <= MUCH_LESS * share:
            self.rounds, self.descents = before + done, []
            return self._widened([best.refined], seen)
        last = self._run(best.refined, found.noise_share, IRLS())
        if last.is_cut_short:
            return Solved(found, [*before, *done, last])
        if np.any(found.made.refused(found.result) & ~last.made.refused(last.result)):
            return Solved(last, [*before, *done, last])
        ends = [self._run(end.refined, min(TAIL * share, 1.0), IRLS()) for end in (found, last)]
        is_better = not any(end.is_cut_short for end in ends) and ends[1].result.cost < ends[0].result.cost
        return Solved(last if is_better else found, [*before, *done, last, *ends])

    def _exchange(self, start: PoseGraph, share: float, n: int) -> Round:
        made = self._made(start, share)
        return Round(
            share, made, self._solve(made.problem, Exchanges(restart=partial(chordal_rows, made)), max_iterations=n)
        )

    def _close(self, share: float | None) -> float:
        """The share that a kernel allows for which chooses between solutions."""
        return min(CLOSE * (share or 1.0), 1.0)

    def _run(self, start: PoseGraph, share: float, how: Strategy, **limits: int) -> Round:
        made = self._made(start, share)
        return Round(share, made, self._solve(made.problem, how, **limits))

    def _seen(self, found: Round, share: float) -> Round:
        """A round as it is under the kernel for a share of the noise."""
        made = found.made.under(self.kernel(tau=share * self.tau), self.robust, self.kernel(tau=self.tau))
        return Round(share, made, made.seen(found.result))

    def _made(self, start: PoseGraph, share: float) -> PoseGraphProblem:
        return pose_graph_problem(start, self.kernel(tau=share * self.tau), self.robust, self.kernel(tau=self.tau))

    def _solve(self, problem: Any, how: Strategy, **limits: Any) -> Result:
        return self.solve(problem, how, time_limit=self.clock.left(), **limits)


def _narrowing(how: Strategy, times: float) -> Strategy:
    """Our mode of ASKER with kernels that begin so many times as wide as they end; another method as it is."""
    if not (isinstance(how, ASKER) and how.reach):
        return how
    return replace(how, s0=float(np.sqrt(times - 1)), reach=0.0)

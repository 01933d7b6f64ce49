"""Search for the true loop closures of a pose graph whose stated noise may be too large.

If the stated noise is too large, a false loop closure costs less than the odometry that it bends: Ψ itself is lower
with it.  The actual noise scale is estimated from the inliers (`noise_scale`).

Algorithm
(0) Least squares with all loop closures, from the initial poses, unless these have an edge with a rotation error of 90°
    or more.  If the χ² test passes, and a kernel for SELECTION_FACTOR times the observed noise rejects no edge, the
    search ends; in a large graph with consistent loop closures (`loop_consistency`), a kernel as wide as in (5)
    suffices.
    Otherwise least squares, then a descent on Ψ: from the chordal initialisation or the initial poses, whichever has
    the lower cost, and from a solution with a narrow Cauchy kernel.  The search ends after the same test.
    If a descent rejects no edge, it replaces (1); otherwise the search continues from the best of them and (1).
    If iterations are expensive, only the first start is tried, and least squares terminates when a step gains little.
    In a large graph with inconsistent loop closures, all of them together would cause fill-in.  Least squares takes the
    more consistent half, then more as long as they fit together and the noise scale does not grow much.  If that is
    much smaller than stated, (4) follows; otherwise a descent from there replaces (1), by way of a kernel TAIL_FACTOR
    times as wide, and the search ends if the inliers pass the χ² test.  Either result is discarded if it rejects loop
    closures that were fitted together.
(1) Solve with the stated noise.
(2) Estimate the noise scale: Σ‖r‖² over the inliers, per degree of freedom, relative to the stated noise.  The mean of
    ‖r‖² is estimated from two medians, over loop closures and over odometry, so that up to half of the accepted loop
    closures may be false.
(3) If it is much smaller, solve again with τ times the noise scale, from the last solution; back to (2).  The kernels
    of ASKER's default begin as wide as the last ones: edges rejected so far have no weight and cause no fill-in.  If
    iterations are expensive, few of them are made.
(4) Minimise Ψ with TAIL_FACTOR times the last noise scale from each of these solutions, and take the lowest: inliers in
    the tails are accepted again, and a solution that (3) replaced by a worse one is recovered.
(5) Minimise once more from there, with TAIL_FACTOR times the noise scale that 95 % quantiles yield in place of medians.
    With heavy tails this is wider than (4), by at most MAX_TAIL_RATIO, and accepts more inliers; otherwise it is
    narrower.  It does not select between solutions: a kernel this wide may prefer false loop closures.
(6) If loop closures are rejected, exchange single inliers (`asker.Exchanges`) with SELECTION_FACTOR times the noise
    scale; also from the initial poses, but in a large graph only if the first exchange lowers Ψ or fails the χ² test.
    Each trial set of inliers starts from its chordal initialisation if that has a lower cost: a long chain of odometry
    has poor local minima.  If the noise scale is much smaller then, back to (4).  Otherwise the last descent is
    repeated from there; if it has rejected loop closures and accepted none, it is chosen only if Ψ of (4) is lower: a
    narrow kernel rejects inliers in the tails.

If TAIL_FACTOR times the first noise scale is 1 or more, Ψ with the stated noise is suitable, and (6) follows (1).

The noise scale is that of the edges; landmarks and priors keep their stated noise.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.initial.chordal_init import has_large_rotation_error
from asker.applications.pose_graph.loops import work_budget
from asker.applications.pose_graph.loops.inlier_refit import TOL, plain_from
from asker.applications.pose_graph.loops.noise_scale import (
    NOISE_DROP_RATIO,
    TAIL_FACTOR,
    Round,
    SearchResult,
    is_noisier,
    lowest,
    noise_scale,
    overstates_noise,
    retains_loops,
)
from asker.applications.pose_graph.loops.round_solver import INEXACT_TOL, RoundSolver
from asker.applications.pose_graph.options import Robust
from asker.applications.pose_graph.problem import default_tau, pose_graph_problem
from asker.kernels.kernel import Kernel
from asker.kernels.kernels import Cauchy, SmoothTruncated
from asker.solver.result import Result, Status
from asker.solver.time_budget import Clock
from asker.strategies.asker import ASKER
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Strategy

CAUCHY_TAU_FACTOR = 0.1
"""Width of the Cauchy kernel of (0), as a fraction of τ."""
COMPARISON_TOL = 1e-2
"""Relative decrease of the cost at which the least squares terminates with which larger sets are compared."""
MIN_GROWTH_FRACTION = 1 / 64
"""Smallest number of loop closures added to those that fit, as a fraction of all."""
MIN_EXCHANGE_GAIN = 1e-3
"""Relative decrease of Ψ above which an exchange was successful."""


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
) -> SearchResult:
    """Solve a pose graph by steps (0) to (6) above.

    Parameters
    ----------
    graph
        Poses, landmarks and measurements.
    solve
        Function called for each round as solve(problem, strategy, time_limit=…).
    strategy
        Strategy of (1) and (3).
    kernel
        Function called with tau=…, which is `tau` times the noise scale.
    tau
        Kernel width for the stated noise; `default_tau` by default.
    robust
        Edges with a robust kernel, as in `pose_graph_problem`.
    time_limit
        Time limit of all rounds together, in seconds; a round that exceeds it is the last one.
    noise
        "announced" stops after (1).
    thorough
        Whether (0) and (6) are run.

    Raises
    ------
    ValueError
        If the noise is to be estimated without a kernel that can reject edges.
    """
    tau = default_tau(graph.kind) if tau is None else tau
    if noise == "estimated" and (robust == "none" or kernel(tau=tau).convex):
        raise ValueError('noise="estimated" needs a non-convex kernel on the loop closures or on all edges')
    search = GraphSearch(graph, solve, strategy, kernel, tau, robust, Clock(time_limit), noise == "estimated", thorough)
    try:
        return search.search()
    except KeyboardInterrupt:  # between two solves; a running one handles it itself
        if not (search.rounds or search.descents):
            raise
        return search.interrupted()


@dataclass
class GraphSearch(RoundSolver):
    """Search for the true loop closures of one graph."""

    rounds: list[Round] = field(default_factory=list)
    """Rounds of (0) to (3); the last one is the best."""
    descents: list[Round] = field(default_factory=list)
    """Rounds of (4) to (6)."""
    fit: Round | None = None
    """Least squares with all edges, from the initial poses."""
    has_initial_descent: bool = False
    """True if the first descent of (0) was made."""

    def search(self) -> SearchResult:
        """Run all steps."""
        if self.thorough and self.estimates_noise and not has_large_rotation_error(self.graph):
            self.fit = self.least_squares(self.graph)
            if result := self._accepted(self.fit):
                return result
        if self.thorough and self.estimates_noise and self.is_large and (result := self._from_consistent_loops()):
            return result
        if result := self._first_accepted(self._initial_solutions()):
            return result
        self.rounds.sort(key=lambda r: -r.result.cost)
        return self._with_estimated_noise() if self.estimates_noise else SearchResult(self.rounds[-1], self.rounds)

    def interrupted(self) -> SearchResult:
        """Return the best solution so far, with the status of an interrupt."""
        chosen = lowest(self.descents) if self.descents else self.rounds[-1]
        *done, newest = self.rounds + self.descents
        return SearchResult(chosen, [*done, replace(newest, result=replace(newest.result, status=Status.INTERRUPTED))])

    def _initial_solutions(self) -> Iterator[Round]:
        """Yield the solutions of (0) and (1), each solved on demand."""
        if any(r.accepts_all for r in self.rounds):
            return
        if self.thorough and not self.has_initial_descent:
            yield from self._from_least_squares(self.better_start(self.graph))
        if self.thorough and not self.is_expensive:
            made = pose_graph_problem(self.graph, Cauchy(CAUCHY_TAU_FACTOR * self.tau), self.robust)
            result = self.run_problem(made.problem, IRLS(), **self.inexact_limits)
            yield from self._from_least_squares(made.refined(result.values))
        yield self.run(self.graph, 1.0, self.strategy)

    def _from_least_squares(self, start: PoseGraph) -> Iterator[Round]:
        """Yield least squares with all edges, and a descent from there."""
        fit = self.fit if self.fit and start is self.graph else self.least_squares(start)
        yield fit
        yield self.run(fit.refined, 1.0, IRLS(), **self.inexact_limits)

    def _first_accepted(self, solutions: Iterator[Round]) -> SearchResult | None:
        """Return the first solution that accepts all edges, also with the observed noise.

        Otherwise the descents become rounds, up to one that accepts all edges with the stated noise.
        """
        for one in solutions:
            if self.thorough and self.estimates_noise and (result := self._accepted(one)):
                return result
            if np.isfinite(one.noise_scale):
                self.rounds.append(one)
                if self.thorough and one.accepts_all:
                    break
        return None

    def _accepted(self, one: Round) -> SearchResult | None:
        """Return the result with all edges, if a solution accepts all of them also with the observed noise."""
        if not (one.result.status is Status.CONVERGED and one.accepts_all):
            return None
        done = [*self.rounds, one]
        if self.is_expensive:  # the solution is inexact so far
            end = self.run_problem(one.graph_problem.problem, plain_from(one.result), tol=TOL, start=one.result.values)
            done.append(one := replace(one, result=end))
        scale = noise_scale(one.graph_problem, one.result)
        narrow = self.reweighted(one, self.selection_scale(scale))
        if not narrow.accepts_all and self.is_large and not self.consistency.has_inconsistent_loops:
            narrow = self.reweighted(one, self.tail_scale(one.graph_problem, one.result, scale or 1.0))
        if not narrow.accepts_all:
            return None
        return SearchResult(narrow, [*done, narrow], one if np.isinf(one.noise_scale) else None)

    def _from_consistent_loops(self) -> SearchResult | None:
        """Run (0) for a large graph; None if its result is discarded."""
        if not self.consistency.has_inconsistent_loops:
            self.has_initial_descent = True
            return self._first_accepted(self._from_least_squares(self.better_start(self.graph)))
        grown = self._largest_consistent_fit()
        if grown is None:
            return None
        fit, fitted = grown
        start, scale = self.with_poses_of(fit.refined), noise_scale(fit.graph_problem, fit.result)
        if scale is not None and overstates_noise(scale):
            narrow = self.run(start, TAIL_FACTOR * scale, IRLS(), **self.inexact_limits)
            if narrow.stopped_early:
                return SearchResult(narrow, [narrow])
            if not retains_loops(narrow, fitted):
                return None
            self.descents.append(narrow)
            return self._widen_kernel([narrow.refined], scale)
        wide = self.run(start, TAIL_FACTOR, IRLS(), **self.inexact_limits)
        if wide.stopped_early:
            return SearchResult(wide, [wide])
        self.rounds.append(self.run(wide.refined, 1.0, IRLS()))
        if not (self.rounds[-1].stopped_early or retains_loops(self.rounds[-1], fitted)):
            self.rounds.append(self.run(start, 1.0, IRLS()))
        best = lowest(self.rounds)
        if self.rounds[-1].stopped_early:
            return SearchResult(best, self.rounds)
        if not retains_loops(best, fitted):
            return None
        return SearchResult(best, self.rounds) if best.passes_chi2_test else self._exchange_inliers(best)

    def _largest_consistent_fit(self) -> tuple[Round, np.ndarray] | None:
        """Return least squares with as many of the most consistent loop closures as fit together, and their mask.

        The first half of the loop closures must fit, otherwise the result is None.
        """
        grown, n, step = None, (self.consistency.n + 1) // 2, self.consistency.n // 4
        while step > MIN_GROWTH_FRACTION * self.consistency.n:
            fitted = self.consistency.most_consistent(n)
            start = grown[0].refined if grown else self.graph
            part = replace(self.graph.with_edges(fitted), poses=start.poses, landmarks=start.landmarks)
            made = pose_graph_problem(self.better_start(part), robust="none")
            result = self.run_problem(made.problem, IRLS(), tol=INEXACT_TOL if grown else COMPARISON_TOL)
            fit = Round(np.inf, made, result)
            fits = self.fits_all_edges(made, fit.result) and not (grown and is_noisier(fit, grown[0]))
            if not fits and grown is None:
                return None
            if fits:
                grown = fit, fitted
            n, step = n + (step if fits else -step), step // 2
        return grown

    def _with_estimated_noise(self) -> SearchResult:
        """Run (2) to (6)."""
        while not self.rounds[-1].stopped_early:
            last = self.rounds[-1]
            scale = noise_scale(last.graph_problem, last.result)  # (2)
            if scale is None or not overstates_noise(scale) or scale > NOISE_DROP_RATIO * last.noise_scale:
                break
            strategy = _narrowing(self.strategy, last.noise_scale / scale)
            limits = self.inexact_limits if self.is_expensive else {}
            self.rounds.append(self.run(last.refined, scale, strategy, **limits))  # (3)
        last = self.rounds[-1]
        if last.noise_scale == 1:
            return self._exchange_inliers(last)
        if last.stopped_early:  # its kernel rejects inliers in the tails
            wide = self.run(last.refined, TAIL_FACTOR * last.noise_scale, IRLS(), max_iterations=0)
            wide = replace(wide, result=replace(wide.result, status=last.result.status))
            return SearchResult(wide, [*self.rounds, wide])
        return self._widen_kernel([r.refined for r in reversed(self.rounds)], last.noise_scale)

    def _widen_kernel(self, starts: list[PoseGraph], scale: float) -> SearchResult:
        """Return the lowest of the descents with wider kernels from several starts, after the exchange: (4) to (6)."""
        for k, start in enumerate(starts):  # (4), the best start first in case of an early stop
            limits = self.inexact_limits if k else {}
            self.descents.append(self.run(start, TAIL_FACTOR * scale, IRLS(), **limits))
            if self.descents[-1].stopped_early:
                return SearchResult(lowest(self.descents), self.rounds + self.descents)
        chosen = lowest(self.descents)
        if noise_scale(chosen.graph_problem, chosen.result) is not None:
            width = self.tail_scale(chosen.graph_problem, chosen.result, scale)
            chosen = self.run(chosen.refined, width, IRLS())  # (5)
            self.descents.append(chosen)
        return self._exchange_inliers(chosen)

    def _exchange_inliers(self, solution: Round) -> SearchResult:
        """Run (6)."""
        before = self.rounds + self.descents
        if not self.thorough or solution.stopped_early or solution.accepts_all:
            return SearchResult(solution, before)
        n = work_budget.exchange_iterations(self.graph, sum(r.result.iterations for r in before))
        if not n:
            return SearchResult(solution, before)
        scale = noise_scale(solution.graph_problem, solution.result) or 1.0
        width = self.selection_scale(scale)
        done = [self.run(solution.refined, width, IRLS())]
        for start in (done[0].refined, self.graph):
            if not done[-1].stopped_early:
                done.append(self.exchange(start, width, n))
            if done[-1].stopped_early:
                return SearchResult(solution, before + done)
            gains = done[-1].result.cost < (1 - MIN_EXCHANGE_GAIN) * done[0].result.cost
            if self.is_large and done[-1].passes_chi2_test and not gains:
                break
        best = lowest(done)
        new_scale = noise_scale(best.graph_problem, best.result)
        if new_scale is not None and overstates_noise(new_scale) and new_scale <= NOISE_DROP_RATIO * scale:
            self.rounds, self.descents = before + done, []
            return self._widen_kernel([best.refined], new_scale)
        return self._compare(solution, best, before + done, scale)

    def _compare(self, solution: Round, exchanged: Round, before: list[Round], scale: float) -> SearchResult:
        """Repeat the last descent from exchanged inliers and choose between the two solutions, the end of (6)."""
        last = self.run(exchanged.refined, solution.noise_scale, IRLS())
        if last.stopped_early:
            return SearchResult(solution, [*before, last])
        rejected, rejected_now = (r.graph_problem.rejected(r.result) for r in (solution, last))
        if np.any(rejected & ~rejected_now):
            return SearchResult(last, [*before, last])
        ends = [self.run(end.refined, min(TAIL_FACTOR * scale, 1.0), IRLS()) for end in (solution, last)]
        is_better = not any(end.stopped_early for end in ends) and ends[1].result.cost < ends[0].result.cost
        return SearchResult(last if is_better else solution, [*before, last, *ends])


def _narrowing(strategy: Strategy, ratio: float) -> Strategy:
    """Return ASKER's default with initial kernels `ratio` times as wide as the final ones; others are unchanged."""
    if not (isinstance(strategy, ASKER) and strategy.reach):
        return strategy
    return replace(strategy, s0=float(np.sqrt(ratio - 1)), reach=0.0)

"""The search for the loops to believe, where a pose graph may announce more noise than it has.

Where too much noise is announced, a false loop can be had for a little bent odometry: Ψ itself is lower with it.  The
noise can be seen in what was kept (`noise`):

(0) least squares with all loops, then a plain descent: from the start, and from where a narrow Cauchy kernel leads.
    Where no loop is refused then, and Ψ is as low as noise lets it be, that is (1), and all, where CLOSE times the
    noise that is seen refuses none either; else the lowest of them and (1) goes on.  Where an iteration is dear, the
    first of them alone is tried, and least squares end when a step gains little;
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
    times the share.  Where that pays, or leaves edges further off than the noise, it is done from the start of the
    graph, too.  The last descent is repeated from there.

Where TAIL times the first share is 1 or more, Ψ is right as it is, and (6) comes after (1).

Landmarks and priors have the noise that is announced for them: the share is that of the edges.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from asker.applications.pose_graph.clock import Clock
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.noise import TAIL, Round, Solved, announces_too_much, noise_share
from asker.applications.pose_graph.options import Robust
from asker.applications.pose_graph.problem import default_tau, pose_graph_problem
from asker.geometry.poses import N_DOF
from asker.kernels import Cauchy, Kernel, SmoothTruncated
from asker.result import Result, Status
from asker.strategies.default import ASKER
from asker.strategies.exchanges import Exchanges
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Strategy

NARROW = 0.1
"""The width of the Cauchy kernel of (0), in τ."""
MUCH_LESS = 0.5
"""Of the share that a solution had: below this another round is worth it."""
TAIL_QUANTILE = 0.95
WIDER = 2.0
"""With 5 in its place, false loops come in."""
CLOSE = 2.0
"""What TAIL is in (4), where solutions are chosen."""
FIRST, FEW = 3e6, (20, 100)
"""The work of a descent in (0), as iterations · poses · (unknowns of a pose)³; iterations at least and at most."""
LITTLE = 0.1
"""The part of the cost that a step of least squares must gain where FIRST allows for less than FEW."""
EXCHANGES = 8e5
"""(6) may take a quarter of the iterations so far, or the square of this over the work of one, if that is more."""
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
        if not search.rounds:
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

    def solved(self) -> Solved:
        for one in self._first():
            self.rounds.append(one)
            if self.thorough and one.fits_together:
                break
        self.rounds.sort(key=lambda r: -r.result.cost)
        if not self.estimates:
            return Solved(self.rounds[-1], self.rounds)
        return self._all_loops() or self._with_the_noise_seen()

    def so_far(self) -> Solved:
        """After an interrupt."""
        chosen = _lowest(self.descents) if self.descents else self.rounds[-1]
        *done, newest = self.rounds + self.descents
        return Solved(chosen, [*done, replace(newest, result=replace(newest.result, status=Status.INTERRUPTED))])

    @property
    def work(self) -> int:
        """Of one iteration, about."""
        return self.graph.n_poses * N_DOF[self.graph.kind] ** 3

    @property
    def few(self) -> dict[str, int]:
        """The limit of descents that need not be exact."""
        return {"max_iterations": int(np.clip(FIRST / self.work, *FEW))} if self.thorough else {}

    @property
    def is_dear(self) -> bool:
        """Whether an iteration is dear."""
        return FIRST / self.work < FEW[0]

    def _first(self) -> Iterator[Round]:
        """(0) and (1); each is made when it is asked for."""
        if self.thorough:
            yield self._from_least_squares(self.graph)
        if self.thorough and not self.is_dear:
            made = pose_graph_problem(self.graph, Cauchy(NARROW * self.tau), self.robust)
            yield self._from_least_squares(made.refined(self._solve(made.problem, IRLS(), **self.few).values))
        yield self._run(self.graph, 1.0, self.strategy)

    def _from_least_squares(self, start: PoseGraph) -> Round:
        everything = pose_graph_problem(start, robust="none")
        rough = {"tol": LITTLE} if self.is_dear else {}
        found = self._solve(everything.problem, IRLS(), **self.few, **rough)
        return self._run(everything.refined(found.values), 1.0, IRLS(), **self.few)

    def _all_loops(self) -> Solved | None:
        """Where all of them fit, also with the noise that is seen; else nothing."""
        best = self.rounds[-1]
        if not (self.thorough and best.fits_together):
            return None
        close = self._run(best.refined, self._close(noise_share(best.made, best.result)), IRLS())
        return None if close.is_cut_short or not close.fits_together else Solved(close, [*self.rounds, close])

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
        if last.noise_share == 1 or last.is_cut_short:
            return self._exchanged(last, noise_share(last.made, last.result))
        for k, start in enumerate(r.refined for r in reversed(self.rounds)):  # (4), first that a cut should not cost
            self.descents.append(self._run(start, TAIL * last.noise_share, IRLS(), **(self.few if k else {})))
            if self.descents[-1].is_cut_short:
                return Solved(_lowest(self.descents), self.rounds + self.descents)
        chosen = _lowest(self.descents)
        share = noise_share(chosen.made, chosen.result, TAIL_QUANTILE)
        if share is not None:
            width = min(TAIL * min(share, WIDER * last.noise_share), 1.0)
            chosen = self._run(chosen.refined, width, IRLS())  # (5)
            self.descents.append(chosen)
        return self._exchanged(chosen, last.noise_share)

    def _exchanged(self, found: Round, share: float | None) -> Solved:
        """(6), from a solution that shows this share of the noise"""
        before = self.rounds + self.descents
        if not self.thorough or found.is_cut_short or found.fits_together:
            return Solved(found, before)
        n = int(max((EXCHANGES / self.work) ** 2, sum(r.result.iterations for r in before) / 4))
        width = self._close(share)
        done = [self._run(found.refined, width, IRLS())]
        for start in (done[0].refined, self.graph):
            if not done[-1].is_cut_short:
                done.append(self._run(start, width, Exchanges(), max_iterations=n))
            if done[-1].is_cut_short:
                return Solved(found, before + done)
            if done[-1].is_likely and not done[-1].result.cost < (1 - PAYS) * done[0].result.cost:
                break
        done.append(self._run(_lowest(done).refined, found.noise_share, IRLS()))
        return Solved(done[-1], before + done)

    def _close(self, share: float | None) -> float:
        """The share that a kernel allows for which chooses between solutions."""
        return min(CLOSE * (share or 1.0), 1.0)

    def _run(self, start: PoseGraph, share: float, how: Strategy, **limits: int) -> Round:
        made = pose_graph_problem(start, self.kernel(tau=share * self.tau), self.robust, self.kernel(tau=self.tau))
        return Round(share, made, self._solve(made.problem, how, **limits))

    def _solve(self, problem: Any, how: Strategy, **limits: float) -> Result:
        return self.solve(problem, how, time_limit=self.clock.left(), **limits)


def _narrowing(how: Strategy, times: float) -> Strategy:
    """Our mode of ASKER with kernels that begin so many times as wide as they end; another method as it is."""
    if not (isinstance(how, ASKER) and how.reach):
        return how
    return replace(how, s0=float(np.sqrt(times - 1)), reach=0.0)


def _lowest(rounds: list[Round]) -> Round:
    return min(rounds, key=lambda r: r.result.cost)

"""Pose graphs that announce more noise than they have.

Information matrices are often guesses.  Those of public graphs announce 1.5 to 170 times the noise that their loops
show, and then a false loop can be had for a little bent odometry: Ψ itself is lower with it.  The noise can be seen in
what was kept:

(0) least squares with all loops, then a plain descent: from the start, and from where a narrow Cauchy kernel leads.
    Where no loop is refused then, and Ψ is as low as noise lets it be, that is (1), and all, where CLOSE times the
    noise that is seen refuses none either; else the lowest of them and (1) goes on;
(1) solve with the noise as announced;
(2) the share of it that is there: Σ‖r‖² over what was kept, for each number that the poses have not used up, in units
    of what was announced.  The mean of ‖r‖² is seen in medians, one over the loops and one over odometry, so that up to
    half of the loops kept may be false;
(3) where that is much less, solve again with that share of τ, from where the last solution ended; back to (2);
(4) descend on Ψ with TAIL times the last share, from each of these solutions, and take the lowest: right loops in
    the tails come back, and a solution that (3) left for a worse one does too;
(5) descend from there once more, with TAIL times the share that 95 % quantiles show in place of medians.  Where tails
    are long this is wider than (4), though no more than WIDER times, and more right loops come back; else it is
    narrower.  It does not choose between solutions: a kernel this wide may prefer false loops;
(6) where loops are refused, single ones are put in and out of those that are believed (`asker.Exchanges`), with CLOSE
    times the share.  Where that pays, or leaves edges further off than the noise, it is done from the start of the
    graph, too.  The last descent is repeated from there.

Where TAIL times the first share is 1 or more, Ψ is right as it is, and (6) comes after (1).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from asker.applications.pose_graph.clock import Clock
from asker.applications.pose_graph.g2o import PoseGraph
from asker.applications.pose_graph.options import Robust
from asker.applications.pose_graph.problem import PoseGraphProblem, default_tau, pose_graph_problem
from asker.geometry.poses import N_DOF
from asker.kernels import Cauchy, Kernel, SmoothTruncated
from asker.result import Result, Status
from asker.strategies.exchanges import Exchanges
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Strategy

NARROW = 0.1
"""The width of the Cauchy kernel of (0), in τ."""
MUCH_LESS = 0.5
"""Of the share that a solution had: below this another round is worth it."""
TAIL = 4.0
"""What the kernels of (4) and (5) allow for, beyond the share: noise has longer tails than its quantiles say."""
TAIL_QUANTILE = 0.95
WIDER = 2.0
"""With 5 in its place, false loops come in."""
FIRST, FEW = 3e6, (20, 100)
"""The work of a descent in (0), as iterations · poses · (unknowns of a pose)³; iterations at least and at most."""
EXCHANGES = 8e5
"""(6) may take a quarter of the iterations so far, or the square of this over the work of one, if that is more."""
UNLIKELY = 1e-3
"""The chance of a cost that loops which fit together do not have."""
CLOSE = 2.0
"""The same for (6), which chooses between solutions."""
PAYS = 1e-3
"""The part by which Ψ falls where an exchange has changed something."""
LEAST = 1e-3
"""Data without noise would leave no τ at all."""
CUT_SHORT = (Status.TIME_LIMIT, Status.INTERRUPTED, Status.STOPPED)


@dataclass(frozen=True, eq=False)
class Round:
    """One solve on the way."""

    noise_share: float
    """The share of the announced noise that its kernel allows for."""
    made: PoseGraphProblem
    result: Result

    @property
    def refined(self) -> PoseGraph:
        return self.made.refined(self.result.values)

    @property
    def is_cut_short(self) -> bool:
        return self.result.status in CUT_SHORT

    @property
    def fits_together(self) -> bool:
        """Whether no edge is refused, and all of them are as near as noise lets them be."""
        return self.is_likely and not self.made.refused(self.result).any()

    @property
    def is_likely(self) -> bool:
        """Whether the edges that are kept are no further off than the announced noise allows for."""
        from scipy.special import chdtrc

        kept = ~self.made.refused(self.result)
        u = self.made.per_edge([(r**2).sum(axis=1) for r in self.result.residuals])
        n_spare = max(int(np.count_nonzero(kept)) - int(np.count_nonzero(~self.made.poses.fixed)), 1)
        return bool(chdtrc(N_DOF[self.made.graph.kind] * n_spare, u[kept].sum()) > UNLIKELY)


@dataclass(frozen=True, eq=False)
class Solved:
    """A solved graph: the round that counts, and all of them."""

    chosen: Round
    rounds: list[Round]

    @property
    def is_cut_short(self) -> bool:
        return self.rounds[-1].is_cut_short

    @property
    def ended(self) -> Result:
        """Says why the solving ended."""
        return self.rounds[-1].result if self.is_cut_short else self.chosen.result


def announces_too_much(share: float) -> bool:
    """Whether a solution that shows this share of the announced noise should be solved again."""
    return TAIL * share < 1


def noise_share(made: PoseGraphProblem, result: Result, quantile: float = 0.5) -> float | None:
    """How much of the announced noise the inliers show; None where no loop is among them, which says nothing.

    quantile: of ‖r‖, which is compared with what was announced.
    """
    from scipy.stats import chi2

    inliers = ~made.is_robust | made.per_edge(result.inliers)
    loops, odometry = ~made.graph.is_odometry & inliers, made.graph.is_odometry & inliers
    if not loops.any():
        return None
    norms = made.per_edge([np.linalg.norm(r, axis=1) for r in result.residuals])
    unit = chi2.ppf(quantile, N_DOF[made.graph.kind])
    squares = sum(
        np.count_nonzero(of) * float(np.quantile(norms[of], quantile)) ** 2 / unit
        for of in (loops, odometry)
        if of.any()
    )
    n_spare = max(np.count_nonzero(inliers) - np.count_nonzero(~made.poses.fixed), 1)
    return max(float(np.sqrt(squares / n_spare)), LEAST)


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
    clock = Clock(time_limit)

    work = graph.n_poses * N_DOF[graph.kind] ** 3
    few = {"max_iterations": int(np.clip(FIRST / work, *FEW))} if thorough else {}

    def plainly(start: PoseGraph) -> Round:
        everything = pose_graph_problem(start, robust="none")
        found = solve(everything.problem, IRLS(), time_limit=clock.left(), **few)
        return run(everything.refined(found.values), 1.0, IRLS(), **few)

    def narrowly() -> PoseGraph:
        made = pose_graph_problem(graph, Cauchy(NARROW * tau), robust)
        return made.refined(solve(made.problem, IRLS(), time_limit=clock.left(), **few).values)

    def run(start: PoseGraph, share: float, how: Strategy, **limits: int) -> Round:
        made = pose_graph_problem(start, kernel(tau=share * tau), robust)
        return Round(share, made, solve(made.problem, how, time_limit=clock.left(), **limits))

    def exchanged(found: Round, share: float | None, before: list[Round]) -> Solved:
        """(6), from a solution that shows this share of the noise"""
        if not thorough or noise == "announced" or found.is_cut_short or found.fits_together:
            return Solved(found, before)
        width = min(CLOSE * (share or 1.0), 1.0)
        so_far = sum(r.result.iterations for r in before)
        n = int(max((EXCHANGES / work) ** 2, so_far / 4))
        done = [run(found.refined, width, IRLS())]
        for start in (done[0].refined, graph):
            if done[-1].is_cut_short:
                return Solved(found, before + done)
            made = pose_graph_problem(start, kernel(tau=width * tau), robust)
            result = solve(made.problem, Exchanges(), time_limit=clock.left(), max_iterations=n)
            done.append(Round(width, made, result))
            if done[-1].is_likely and not result.cost < (1 - PAYS) * done[0].result.cost:
                break
        done.append(run(_lowest(done).refined, found.noise_share, IRLS()))
        return Solved(done[-1], before + done)

    rounds: list[Round] = []
    descents: list[Round] = []
    try:
        first = [lambda: plainly(graph), lambda: plainly(narrowly())] if thorough else []  # (0)
        for way in [*first, lambda: run(graph, 1.0, strategy)]:  # (1)
            rounds.append(way())
            if thorough and rounds[-1].fits_together:
                break
        rounds.sort(key=lambda r: -r.result.cost)
        if thorough and noise == "estimated" and rounds[-1].fits_together:
            share = noise_share(rounds[-1].made, rounds[-1].result)
            close = run(rounds[-1].refined, min(CLOSE * (share or 1.0), 1.0), IRLS())
            if not close.is_cut_short and close.fits_together:
                return Solved(close, [*rounds, close])
        while noise == "estimated" and not rounds[-1].is_cut_short:
            share = noise_share(rounds[-1].made, rounds[-1].result)  # (2)
            if share is None or not announces_too_much(share) or share > MUCH_LESS * rounds[-1].noise_share:
                break
            rounds.append(run(rounds[-1].refined, share, strategy))  # (3)
        last = rounds[-1]
        if last.noise_share == 1 or last.is_cut_short:
            return exchanged(last, noise_share(last.made, last.result), rounds)
        for k, start in enumerate(r.refined for r in reversed(rounds)):  # (4), first that a cut should not cost
            descents.append(run(start, TAIL * last.noise_share, IRLS(), **(few if k else {})))
            if descents[-1].is_cut_short:
                return Solved(_lowest(descents), rounds + descents)
        chosen = _lowest(descents)
        share = noise_share(chosen.made, chosen.result, TAIL_QUANTILE)
        if share is not None:
            chosen = run(chosen.refined, min(TAIL * min(share, WIDER * last.noise_share), 1.0), IRLS())  # (5)
            descents.append(chosen)
        return exchanged(chosen, last.noise_share, rounds + descents)
    except KeyboardInterrupt:  # between two solves; one that is under way ends by itself
        if not rounds:
            raise
        chosen = _lowest(descents) if descents else rounds[-1]
        *done, newest = rounds + descents
        return Solved(chosen, [*done, replace(newest, result=replace(newest.result, status=Status.INTERRUPTED))])


def _lowest(rounds: list[Round]) -> Round:
    return min(rounds, key=lambda r: r.result.cost)

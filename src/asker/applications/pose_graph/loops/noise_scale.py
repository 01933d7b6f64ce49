"""Noise scale of a pose graph: observed relative to stated standard deviations.

Information matrices are often guesses: those of public graphs state 1.5 to 170 times the noise that their loop closures
have.  The noise scale is the square root of the variance factor (reduced χ²), estimated from quantiles.
"""

from dataclasses import dataclass

import numpy as np

from asker.applications.pose_graph.formats.g2o_tags import MEASUREMENT_TAGS
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.problem import INLIER_PROBABILITY, PoseGraphProblem
from asker.geometry.poses import N_DOF
from asker.solver.result import Result, Status

TAIL_FACTOR = 4.0
"""Width of a kernel relative to the noise scale that also accepts inliers in heavy tails."""
SELECTION_FACTOR = 2.0
"""Width of a kernel relative to the noise scale that selects between solutions."""
CHI2_SIGNIFICANCE = 1e-3
"""Significance level of χ² tests."""
NOISE_DROP_RATIO = 0.5
"""Noise scale relative to the previous one below which another round is solved."""
MIN_NOISE_SCALE = 1e-3
"""Lower bound of the noise scale: noise-free data would leave no τ at all."""
EARLY_STOPS = (Status.TIME_LIMIT, Status.INTERRUPTED, Status.STOPPED)


@dataclass(frozen=True, eq=False)
class Round:
    """One solve of the search."""

    noise_scale: float
    """Noise scale for which the kernel is chosen; infinite for least squares."""
    graph_problem: PoseGraphProblem
    result: Result

    @property
    def refined(self) -> PoseGraph:
        return self.graph_problem.refined(self.result.values)

    @property
    def stopped_early(self) -> bool:
        return self.result.status in EARLY_STOPS

    @property
    def accepts_all(self) -> bool:
        """True if no measurement is rejected and the χ² test passes."""
        edges = self.graph_problem.rejected(self.result)
        others = self.graph_problem.rejected_measurements(self.result).values()
        return self.passes_chi2_test and not edges.any() and not any(map(np.any, others))

    @property
    def passes_chi2_test(self) -> bool:
        """True if the accepted measurements pass a χ² test with the stated noise."""
        from scipy.special import chdtrc

        made, result = self.graph_problem, self.result
        kept = ~made.rejected(result)
        squares = [(r**2).sum(axis=1) for r in result.residuals]
        n = N_DOF[made.graph.kind] * int(np.count_nonzero(kept))
        total = made.per_edge(squares)[kept].sum()
        others = made.per_measured(squares)
        for tag, rejected in made.rejected_measurements(result).items():
            n += MEASUREMENT_TAGS[tag].n_dof * int(np.count_nonzero(~rejected))
            total += others[tag][~rejected].sum()
        return bool(chdtrc(max(n - made.n_unknown, N_DOF[made.graph.kind]), total) > CHI2_SIGNIFICANCE)


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Result of a search: the selected round, and all rounds."""

    chosen: Round
    rounds: list[Round]
    fit: Round | None = None
    """Least squares with all edges if these are all accepted: no refit is required then."""

    @property
    def stopped_early(self) -> bool:
        return self.rounds[-1].stopped_early

    @property
    def last_result(self) -> Result:
        """Result whose status states why the search terminated."""
        return self.rounds[-1].result if self.stopped_early else self.chosen.result


def overstates_noise(scale: float) -> bool:
    """Return whether a graph with this noise scale should be solved again with a narrower kernel."""
    return TAIL_FACTOR * scale < 1


def noise_scale(made: PoseGraphProblem, result: Result, quantile: float = 0.5) -> float | None:
    """Estimate the noise scale from the edges within the inflection point of their kernels.

    Parameters
    ----------
    made
        Solved problem.
    result
        Its solution.
    quantile
        Quantile of ‖r‖ that is compared with that of the χ distribution, for loop closures and odometry separately.

    Returns
    -------
    float or None
        Observed divided by stated standard deviations, corrected for the degrees of freedom; None if no loop closure is
        an inlier.
    """
    from scipy.special import chdtri

    inliers = ~made.is_robust | made.per_edge(result.within_inflection)
    loops, odometry = ~made.graph.is_odometry & inliers, made.graph.is_odometry & inliers
    if not loops.any():
        return None
    norms = made.per_edge([np.linalg.norm(r, axis=1) for r in result.residuals])
    unit = chdtri(N_DOF[made.graph.kind], 1 - quantile)
    squares = sum(
        np.count_nonzero(mask) * float(np.quantile(norms[mask], quantile)) ** 2 / unit
        for mask in (loops, odometry)
        if mask.any()
    )
    n = N_DOF[made.graph.kind] * np.count_nonzero(inliers)
    others = made.per_measured(result.within_inflection)
    n_others = sum(MEASUREMENT_TAGS[tag].n_dof * np.count_nonzero(mask) for tag, mask in others.items())
    n_used = made.n_unknown * (n / (n + n_others)) / N_DOF[made.graph.kind]  # in edges, each with N_DOF residuals
    n_redundant = max(np.count_nonzero(inliers) - n_used, 1)
    return max(float(np.sqrt(squares / n_redundant)), MIN_NOISE_SCALE)


def is_noisier(one: Round, other: Round) -> bool:
    """Return whether the noise scale of a round far exceeds that of another, as if false loops bent odometry."""
    scales = [noise_scale(r.graph_problem, r.result) or 1.0 for r in (one, other)]
    return NOISE_DROP_RATIO * scales[0] > scales[1]


def retains_loops(round_: Round, mask: np.ndarray) -> bool:
    """Return whether the loop closures of a mask are accepted, up to the expected number of false rejections."""
    loops = mask & ~round_.graph_problem.graph.is_odometry
    n_rejected = np.count_nonzero(round_.graph_problem.rejected(round_.result) & loops)
    return bool(n_rejected <= (1 - INLIER_PROBABILITY) * np.count_nonzero(loops))


def lowest(rounds: list[Round]) -> Round:
    """Return the round with the lowest cost."""
    return min(rounds, key=lambda r: r.result.cost)

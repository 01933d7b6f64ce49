"""The noise that a solution of a pose graph shows, beside what its information matrices announce.

Those are often guesses: the matrices of public graphs announce 1.5 to 170 times the noise that their loops show.
"""

from dataclasses import dataclass

import numpy as np

from asker.applications.pose_graph.formats.g2o_tags import MEASURED
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.problem import INLIERS, PoseGraphProblem
from asker.geometry.poses import N_DOF
from asker.solver.result import Result, Status

TAIL = 4.0
"""What a kernel allows for, beyond the share that is seen: noise has longer tails than its quantiles say."""
CLOSE = 2.0
"""The same, where solutions are chosen."""
UNLIKELY = 1e-3
"""The chance of a cost that edges which fit together do not have."""
MUCH_LESS = 0.5
"""Of the share that a solution had: below this another round is worth it."""
LEAST = 1e-3
"""Data without noise would leave no τ at all."""
CUT_SHORT = (Status.TIME_LIMIT, Status.INTERRUPTED, Status.STOPPED)


@dataclass(frozen=True, eq=False)
class Round:
    """One solve on the way."""

    noise_share: float
    """The share of the announced noise that its kernel allows for; infinite for least squares."""
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
        others = self.made.refused_measured(self.result).values()
        return self.is_likely and not self.made.refused(self.result).any() and not any(map(np.any, others))

    @property
    def is_likely(self) -> bool:
        """Whether the edges that are kept are no further off than the announced noise allows for."""
        from scipy.special import chdtrc

        made, result = self.made, self.result
        kept = ~made.refused(result)
        squares = [(r**2).sum(axis=1) for r in result.residuals]
        n = N_DOF[made.graph.kind] * int(np.count_nonzero(kept))
        total = made.per_edge(squares)[kept].sum()
        others = made.per_measured(squares)
        for tag, refused in made.refused_measured(result).items():
            n += MEASURED[tag].n_dof * int(np.count_nonzero(~refused))
            total += others[tag][~refused].sum()
        return bool(chdtrc(max(n - made.n_unknown, N_DOF[made.graph.kind]), total) > UNLIKELY)


@dataclass(frozen=True, eq=False)
class Solved:
    """A solved graph: the round that counts, and all of them."""

    chosen: Round
    rounds: list[Round]
    fit: Round | None = None
    """Least squares with all edges, where that is all: nothing is left to fit."""

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
    """How much of the announced noise the edges show that lie within the inflection point of their kernel; None where
    no loop is among them.

    quantile: of ‖r‖, which is compared with what was announced.
    """
    from scipy.special import chdtri

    inliers = ~made.is_robust | made.per_edge(result.within_inflection)
    loops, odometry = ~made.graph.is_odometry & inliers, made.graph.is_odometry & inliers
    if not loops.any():
        return None
    norms = made.per_edge([np.linalg.norm(r, axis=1) for r in result.residuals])
    unit = chdtri(N_DOF[made.graph.kind], 1 - quantile)
    squares = sum(
        np.count_nonzero(of) * float(np.quantile(norms[of], quantile)) ** 2 / unit
        for of in (loops, odometry)
        if of.any()
    )
    n = N_DOF[made.graph.kind] * np.count_nonzero(inliers)
    others = made.per_measured(result.within_inflection)
    n_others = sum(MEASURED[tag].n_dof * np.count_nonzero(of) for tag, of in others.items())
    used = made.n_unknown * (n / (n + n_others)) / N_DOF[made.graph.kind]  # by the edges, if all are used alike
    n_spare = max(np.count_nonzero(inliers) - used, 1)
    return max(float(np.sqrt(squares / n_spare)), LEAST)


def is_noisier(one: Round, other: Round) -> bool:
    """Whether much more noise is seen; one that bends for false loops may still be within what is announced."""
    seen = [noise_share(r.made, r.result) or 1.0 for r in (one, other)]
    return MUCH_LESS * seen[0] > seen[1]


def keeps(found: Round, fitted: np.ndarray) -> bool:
    """Whether the loops of a mask are kept, but for as many as are far off by chance."""
    loops = fitted & ~found.made.graph.is_odometry
    n_refused = np.count_nonzero(found.made.refused(found.result) & loops)
    return bool(n_refused <= (1 - INLIERS) * np.count_nonzero(loops))


def lowest(rounds: list[Round]) -> Round:
    """The one with the lowest cost."""
    return min(rounds, key=lambda r: r.result.cost)

"""Candidates of the search and its state: frozen data, which a checkpoint stores as they are."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Point
from asker.statistics.scale_mixture import Outliers, ScaleMixture

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A solution, with the noise of every factor group that agrees with it."""

    name: str
    """Generator that proposed it."""
    hypothesis: Outliers
    """Hypothesis on the outliers under which it was refined."""
    point: Point
    models: tuple[ScaleMixture | None, ...]
    """Mixture of each factor group; None if its noise is specified."""
    leverage: tuple[Floats, ...]
    """Degrees of freedom that the fit uses up in each observation."""
    evidence: float
    """L in nats (`asker.statistics.scale_mixture`), or from enumerated inlier sets, for all candidates alike."""
    mixture_evidence: float = 0.0
    """L of the mixtures by leverage, which is 0 if all observations are noise."""
    support: float = 1.0
    """Inlier ratio by which the evidence explains the data."""
    is_marginal: bool = False
    """True if the point is that of EM over inlier sets, which a descent under kernels would leave."""

    @property
    def inlier_ratio(self) -> float:
        """Lowest inlier ratio of the groups whose scale is unknown."""
        return min((model.inlier_ratio for model in self.models if model), default=1.0)


@dataclass(frozen=True, eq=False)
class Background:
    """The explanation of all observations as noise, which defines the density of outliers."""

    first: Point
    """End of the Cauchy descent from the initial values, where least squares begin if there are many unknowns."""
    point: Point
    """Least-squares solution."""
    leverage: tuple[Floats, ...]
    """Degrees of freedom that it uses up in each observation."""
    variances: tuple[float, ...]
    """Variance of each factor group."""
    least_variance: tuple[float, ...] = ()
    """Lower bounds of the variances; empty for those of rounding in double precision."""


@dataclass(frozen=True, eq=False)
class SearchState:
    """Everything that the search has found so far."""

    background: Background | None = None
    """Background of the evidence; None before it is computed."""
    candidates: tuple[Candidate, ...] = ()
    """Distinct refined candidates, in the order in which they were found."""
    finished: tuple[str, ...] = field(default=())
    """Names of the starts that were refined, so that a resumed search omits them."""
    under_way: tuple[str, Candidate] | None = None
    """Start whose refinement has begun, and its candidate so far."""

    def with_candidate(self, start: str, candidate: Candidate, nats: float) -> "SearchState":
        """Return the state after the refinement of a start; evidence within `nats` means the same solution."""
        is_new = all(
            abs(candidate.evidence - other.evidence) >= nats or candidate.hypothesis is not other.hypothesis
            for other in self.candidates
        )
        candidates = (*self.candidates, candidate) if is_new else self.candidates
        return replace(self, candidates=candidates, finished=(*self.finished, start), under_way=None)

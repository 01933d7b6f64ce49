"""Which observations support a solution, and what speaks against relying on it."""

from collections.abc import Callable, Iterator, Sequence
from math import isnan, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.problem.problem import Problem
from asker.problem.reductions import ALONE, Sums
from asker.problem.variables import Variables
from asker.statistics.inliers import NO_NOISE, SMALLEST, Classified
from asker.statistics.scale import FEW, UNLIKELY, Noise, rounding_variance

Mask = NDArray[np.bool_]
REACH = 3.0
"""The border by which the search compares candidates and proves their noise, in σ for each number; the inliers of its
result are those of `asker.statistics.inliers`."""
BLURRED = 0.05
"""The part of the observations just beyond the inliers, from which on there is no clear border; what is beyond them
altogether, where it is less, is hardly worth another solution."""
ALIKE = 0.95
"""Two solutions that share more of their inliers are one."""


class Support:
    """The observations that support a candidate of the search, where the noise of each factor group was estimated, and
    the doubts about the result; `given`: where the noise was not sought.

    The doubts count the inliers of the result, which are those of `asker.statistics.inliers`.
    """

    def __init__(
        self, problem: Problem, u: Sequence[Any], noises: Sequence[Noise], given: Sequence[Any], sums: Sums = ALONE
    ):
        """`u`: ‖r‖² of the observations; where a process has a portion of them, `sums` adds up over all."""
        self.problem, self.noises, self.sums = problem, noises, sums
        self.judged = [kernel is None and noise.is_known for kernel, noise in zip(given, noises, strict=True)]
        """Groups whose noise tells inliers; of the others all observations count."""
        sought = zip(problem.factors, problem.n_observations, noises, given, strict=True)
        self.untold = [f.name for f, n, noise, kernel in sought if n and kernel is None and not noise.is_known]
        """Names of the groups whose noise was to be estimated, and cannot be."""
        groups = zip(problem.factors, u, noises, self.judged, strict=True)
        self.v = [
            x / _largest(sums.mean(x), f.residual_size, n.sigma) if judged else np.zeros(len(x))
            for f, x, n, judged in groups
        ]
        """‖r‖² of each observation, in units of the largest one of an inlier."""
        self.inliers: list[Mask] = [v <= 1 for v in self.v]

    @property
    def is_blurred(self) -> bool:
        """Whether many observations lie just beyond the inliers: in Gaussian noise among gross outliers few do."""
        near, n = self.sums.of(
            sum(int(np.count_nonzero((v > 1) & (v <= 4))) for v in self.v),
            sum(len(v) for v, ok in zip(self.v, self.judged, strict=True) if ok),
        )
        return near > BLURRED * n

    @property
    def explained(self) -> list[bool]:
        """Whether hardly an observation of a factor group lies beyond its inliers, for each."""
        return [self.sums.mean(inlier) > 1 - BLURRED for inlier in self.inliers]

    def has_lost_a_variable(self) -> bool:
        """Whether one has fewer inliers than chance allows, at the share of its factor group."""
        from scipy.special import bdtr

        counts: dict[Variables, Any] = {v: np.zeros((3, len(v))) for v in self.problem.variables if v.is_free}
        for f, inlier, ok in zip(self.problem.factors, self.inliers, self.judged, strict=True):
            ratio = self.sums.mean(inlier) if ok else 0.0
            for s in (s for s in f.slots if s.variables.is_free and ok):
                for row, w in enumerate((np.ones(f.n), inlier, np.full(f.n, ratio))):
                    counts[s.variables][row] += np.bincount(s.index, w, minlength=len(s.variables))
        lost = False
        for v, of_own in counts.items():
            n, k, e = self.sums.by_variable(v, of_own)
            chances = bdtr(k, n.astype(int), e / np.maximum(n, 1)) * self.problem.count(v)
            lost |= bool((chances < UNLIKELY).any())
        return self.sums.any(lost)

    def checks_most(self, v: Variables) -> bool:
        """Whether most variables of a group have an inlier to spare."""
        return 2 * self._n_weak(v, self.inliers) < self.problem.count(v)

    def differs(self, other: "Support") -> bool:
        """Whether another solution has other inliers."""
        pairs = list(zip(self.inliers, other.inliers, strict=True))
        shared, either = self.sums.of(
            sum(int(np.count_nonzero(a & b)) for a, b in pairs), sum(int(np.count_nonzero(a | b)) for a, b in pairs)
        )
        return shared < ALIKE * either

    def doubts(
        self, n_unknowns: int, n_open: Callable[[], int], rivals: Sequence["Support"], classified: Classified
    ) -> tuple[str, ...]:
        """Return the reasons not to rely on the solution.

        n_open      function that returns the number of directions of the unknowns that the inliers do not determine
        rivals      solutions that are nearly as likely
        classified  inliers of the result, with the noise in the units of the user
        """
        told = [
            f"the noise of {name} cannot be estimated: too few observations agree, so that none is rejected as an "
            "outlier; give a kernel whose width suits the noise"
            for name in self.untold
        ]
        factors = self.problem.factors
        n, counts = classified.n_inliers, zip(classified.n_inliers, classified.n_informative, strict=True)
        for f, (k, of), noise, ok in zip(factors, counts, classified.noises, self.judged, strict=True):
            if ok and noise.sigma == 0 and 2 * k < of:  # a minority
                told.append(
                    f"{k} of {of} {f.name} fit exactly, and all others are outliers: rounded data or a stuck sensor "
                    "may be the reason; then give a kernel whose width suits the noise"
                )
            if ok and noise.rounding and noise.sigma <= sqrt(rounding_variance(noise.rounding)):
                told.append(
                    f"{f.name} are rounded to {noise.rounding:.3g}, which hides their noise: its estimate is the "
                    f"standard deviation of rounding, {noise.sigma:.3g}; rounding errors need not average out, so that "
                    "intervals may be too narrow"
                )
        told += self._few_told(n, n_unknowns, n_open)
        for v in (v for v in self.problem.variables if v.is_free and self.problem.count(v) > 1):
            if few := self._n_weak(v, classified.inliers):
                of = self.problem.count(v)
                told.append(f"{few} of {of} {v.name} have no redundant inlier: their inliers cannot be cross-checked")
        if any(self.differs(rival) for rival in rivals):
            told.append(
                "another solution explains the data nearly as well: solve from other initial guesses to find it"
            )
        return tuple(told)

    def _few_told(self, n: Sequence[int], n_unknowns: int, n_open: Callable[[], int]) -> Iterator[str]:
        """Yield a doubt if the inliers, n of each factor group, leave fewer degrees of freedom than there are unknowns,
        and too few to estimate the noise."""
        numbers = sum(k * f.residual_size for k, f in zip(n, self.problem.factors, strict=True))
        if numbers - n_unknowns < min(n_unknowns, FEW):
            d = n_unknowns - n_open()
            if (spare := numbers - d) < min(d, FEW):
                yield (
                    f"few observations are redundant: {sum(n)} inliers with {numbers} residual components for {d} "
                    f"unknowns leave {spare} degrees of freedom; add observations"
                )

    def _n_spare(self, v: Variables, inliers: Sequence[Mask]) -> NDArray[np.float64]:
        """Inliers of each variable beyond those that determine it, at the smallest size of a residual."""
        numbers, smallest = np.zeros(len(v)), np.inf
        for f, inlier in zip(self.problem.factors, inliers, strict=True):
            for s in (s for s in f.slots if s.variables is v):
                numbers += f.residual_size * np.bincount(s.index, inlier, minlength=len(v))
                smallest = min(smallest, f.residual_size)
        return (self.sums.by_variable(v, numbers) - v.manifold.tangent) / smallest

    def _n_weak(self, v: Variables, inliers: Sequence[Mask]) -> int:
        """How many variables have not one inlier to spare."""
        few = int(np.count_nonzero(~v.fixed & (self._n_spare(v, inliers) < 1)))
        return int(self.sums.of(few)[0]) if v is self.sums.dealt else few


def _largest(mean: float, p: int, sigma: float) -> float:
    """‖r‖² within the border, at most, from the mean of all; where all is exact: as good as nothing."""
    return max(REACH**2 * p * sigma**2, 0.0 if isnan(mean) else NO_NOISE * mean, SMALLEST)

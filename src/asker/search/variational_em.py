"""The weights of observations among which outliers are near: a few times as far off as inliers.

Model       That of `asker.statistics.scale`: a share π of the observations are inliers, Gaussian with variance σ² of
            each of p numbers; all others are Gaussian with a larger variance S².
Averages    A fit moves variables towards the observations that it has, and what it goes through looks right: a point
            goes through two near outliers as well as through two inliers.  So squares are averaged over where the
            variables may be, each with all others known, as if that did not depend on who is an inlier:

                e = u + tr(J B⁻¹ Jᵀ),   B = Σ w/σ² JᵀJ        summed over the variables of the observation

Algorithm   (1) w = q + (1−q) σ²/S², and e from it
            (2) q = 1/(1 + (1−π)/π (σ/S)^p exp(e/2σ² − e/2S²)), the probability of an inlier
            (3) σ² = Σqe/pΣq,   S² = Σ(1−q)e/pΣ(1−q),   π = mean of q
            (4) a step of least squares with the weights w; back to (1) until σ, S and π are at rest

Attias: Inferring Parameters and Structure of Latent Variable Models by Variational Bayes, UAI 1999.
"""

from collections.abc import Sequence
from math import log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.engines.cpu.linearized_problem import LinearModel
from asker.problem.problem import Problem
from asker.statistics.gaussian_mixture import DISTINCT, RAREST
from asker.statistics.scale import Noise, capped
from asker.tracing.array_namespace import dot

Floats = NDArray[np.float64]
AT_REST = 1e-3


class NearOutliers:
    """What is found of every factor group, from step to step."""

    def __init__(self, problem: Problem, u: Sequence[Floats], noises: Sequence[Noise], broad: Sequence[float]):
        """
        u       the squared norms of all residuals, weights included
        noises  the noise that was found so far; every group has outliers
        broad   the mean square of a number in a plain fit, as in `asker.statistics.scale`
        """
        self.problem, self.broad = problem, broad
        groups = zip(problem.factors, capped(problem.factors, u, broad), noises, strict=True)
        self.groups = [_Group.begun(x, f.residual_size, noise) for f, x, noise in groups]
        self.noises = tuple(noises)
        self.is_at_rest = False

    def step(self, theta: tuple[Floats, ...], u: Sequence[Floats]) -> None:
        """(1) to (3), at a point with these rows of all variables."""
        known = [group.weights / group.variance for group in self.groups]
        more = LinearModel(self.problem, theta).predicted_alone(known)
        seen = capped(self.problem.factors, u, self.broad)
        before, self.groups = self.groups, [g.step(x + h) for g, x, h in zip(self.groups, seen, more, strict=True)]
        self.is_at_rest = np.allclose([g[1:4] for g in self.groups], [g[1:4] for g in before], rtol=AT_REST, atol=0)
        each = zip(self.groups, known, more, self.noises, strict=True)
        self.noises = tuple(
            Noise(sqrt(g.variance), g.ratio, dot(g.inlier, g.p - a * h), noise.rounding) for g, a, h, noise in each
        )

    @property
    def weights(self) -> list[Floats]:
        """w of every observation."""
        return [group.weights for group in self.groups]

    @property
    def stand_out(self) -> bool:
        """Whether outliers are no tail of the noise of inliers."""
        return all(group.others > DISTINCT**2 * group.variance for group in self.groups)


class _Group(NamedTuple):
    p: int
    variance: float
    """σ²"""
    others: float
    """S²"""
    ratio: float
    """π"""
    inlier: Floats
    """q"""

    @staticmethod
    def begun(u: Floats, p: int, noise: Noise) -> "_Group":
        variance, ratio = noise.sigma**2, noise.inlier_ratio
        others = max((u.mean() / p - ratio * variance) / (1 - ratio), DISTINCT**2 * variance)
        return _Group(p, variance, others, ratio, _inlier(u, p, variance, others, ratio))

    @property
    def weights(self) -> Floats:
        return self.inlier + (1 - self.inlier) * self.variance / self.others  # (1)

    def step(self, e: Floats) -> "_Group":
        q = _inlier(e, self.p, self.variance, self.others, self.ratio)  # (2)
        n, e_in = len(e), dot(q, e)
        n_in = min(max(float(q.sum()), RAREST * n), (1 - RAREST) * n)
        return _Group(self.p, e_in / (self.p * n_in), (e.sum() - e_in) / (self.p * (n - n_in)), n_in / n, q)  # (3)


def _inlier(e: Floats, p: int, variance: float, others: float, ratio: float) -> Floats:
    odds = log(ratio / (1 - ratio)) + p / 2 * log(others / variance) - e / 2 * (1 / variance - 1 / others)
    return 1 / (1 + np.exp(-np.clip(odds, -700, 700)))

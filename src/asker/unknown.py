"""The solver for problems whose noise is not known: what `asker.solve` does when nothing is given.

Candidates  Several descents from the start, each under Cauchy kernels, whose weights do not depend on a scale for
            large residuals: (1) from the start itself, with a wide and a narrow kernel; (2) from the least squares
            solution with everything; (3) graduated, by ASKER; (4) from minimal subsets of the observations, where
            there is one variable (`asker.subsets`).
Noise       At each end the noise σ of every factor group is estimated (`asker.noise`), the kernel is made 2σ wide, and
            the descent goes on, until σ is at rest.
Likelihood  Candidates are compared by one likelihood, in which σ and the share π of inliers are free and the density of
            outliers is the same for all:

                L = Σ −log(π (Q/σ)^(p·a) exp(−u/2σ²) + 1 − π)

            Q² is the lowest mean square of all candidates, about that of least squares.  So L = 0 is "all is noise
            around the least squares solution", and a candidate is the better, the more observations it explains
            with the less noise.  An outlier costs the same however far it is off.  (A density with a scale of the
            candidate's own would reward residuals that blow up, or a fit that makes all of them middling.)
End         The best one is refined under the smooth truncated kernel with τ = 5σ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.engines.point import Engine, Point
from asker.kernels import Cauchy, Kernel, Quadratic, SmoothTruncated
from asker.noise import REACH, Noise, estimate, kept_shares

Floats = NDArray[np.float64]
CAUCHY = 2.0
"""The width of the Cauchy kernel, in σ."""
WIDE, NARROW = 0.5, 0.05
"""The first widths, in median residuals at the start."""
FIRST, AGAIN, ROUNDS = 40, 15, 3
"""Iterations of a first descent, and of each round at another σ; rounds."""
END = (15, 100)
"""Iterations of the end, before and after σ is estimated for the last time; the last ones are to converge."""
STEPS, AT_REST = 200, 1e-5
SMALLEST = 1e-150
"""The width of a kernel where all is exact."""


def squares(engine: Engine, point: Point) -> tuple[Floats, ...]:
    """‖r‖² of every observation, weights included, in the user's order."""
    return engine.in_user_order(point.u)


def mean_squares(engine: Engine, point: Point) -> list[float]:
    """Of one number, for each factor group."""
    factors = engine.problem.factors
    return [
        max(float(u.mean()) / f.residual_size, 1e-300) if len(u) else 1.0
        for f, u in zip(factors, squares(engine, point), strict=True)
    ]


def likelihood(engine: Engine, point: Point, noises: Sequence[Noise], broad: Sequence[float]) -> float:
    """L of a point, from the noise that was estimated there; `broad` is Q² of each group."""
    u, factors = squares(engine, point), engine.problem.factors
    variances = [min(max(n.sigma**2, 1e-24 * Q), Q) if n.is_known else Q for n, Q in zip(noises, broad, strict=True)]
    keeps = kept_shares(factors, [1 / (1 + x / (4 * s)) for x, s in zip(u, variances, strict=True)])
    groups = zip(factors, u, keeps, variances, broad, strict=True)
    return sum(_likelihood(x, f.residual_size, a, s, Q) for f, x, a, s, Q in groups if len(x))


def _likelihood(u: Floats, p: int, a: Floats, variance: float, Q: float) -> float:
    """The lowest L of a group, from a first σ²."""
    ratio, odds = 0.5, np.zeros(len(u))
    for _ in range(STEPS):
        odds = np.clip(log(ratio / (1 - ratio)) + p * a / 2 * log(Q / variance) - u / (2 * variance), -700, 700)
        inlier = 1 / (1 + np.exp(-odds))
        spare = float(p * (inlier * a).sum())
        if spare < 0.5:
            return 0.0
        before, variance = variance, min(max(float((inlier * u).sum()) / spare, 1e-26 * Q), Q)
        ratio = min(max(float(inlier.mean()), 1e-9), 1 - 1e-9)
        if abs(log(variance / before)) < AT_REST:
            break
    return min(-float((np.logaddexp(0.0, odds) + log(1 - ratio)).sum()), 0.0)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Where a descent has ended."""

    name: str
    point: Point
    noises: tuple[Noise, ...]
    cost: float
    """L"""
    kernels: tuple[Kernel, ...] = ()
    """Under which it ended."""


class Search:
    """Candidates from one start, and the best of them."""

    def __init__(self, engine: Engine, descend: Callable[..., Point], graduated: Any, plain: Any):
        """
        descend    called as descend(engine, strategy, point, n, stage); gives the point that it leads to
        graduated  the strategy that gets out of poor minima
        plain      the one that does not
        """
        self.engine, self.descend, self.graduated, self.plain = engine, descend, graduated, plain
        self.given = [f.kernel if f.kernel.convex else None for f in engine.problem.factors]
        """Kernels that stay: factors under a convex one are trusted."""

    def best(self, start: Point) -> list[Candidate]:
        """All candidates, the best first, the best one refined at last."""
        ends = self._ends(start)
        broad = [min(each) for each in zip(*(mean_squares(self.engine, p) for _, p in ends), strict=True)]
        found = [self._settled(name, point, broad) for name, point in ends]
        found.sort(key=lambda candidate: candidate.cost)
        return [self._refined(found[0], broad), *found]

    def _ends(self, start: Point) -> list[tuple[str, Point]]:
        """Of the first descents."""
        typical = [float(np.sqrt(np.median(u))) if len(u) else 1.0 for u in squares(self.engine, start)]

        def cauchy(part: float) -> list[Kernel]:
            return self._kernels(Cauchy, [part * r for r in typical])

        everything = self._run(self._kernels(Quadratic, typical), self.plain, start, AGAIN, "least squares")
        return [
            ("least squares", everything),
            ("narrow", self._run(cauchy(NARROW), self.plain, start, FIRST, "narrow")),
            ("wide", self._run(cauchy(WIDE), self.plain, start, FIRST, "wide")),
            ("from least squares", self._run(cauchy(NARROW), self.plain, everything, FIRST, "from least squares")),
            ("graduated", self._run(cauchy(NARROW), self.graduated, start, FIRST, "graduated")),
        ]

    def _run(self, kernels: list[Kernel], strategy: Any, point: Point, n: int, stage: str) -> Point:
        return self.descend(self.engine.under(kernels), strategy, point, n, stage)

    def noises(self, point: Point) -> tuple[Noise, ...]:
        return estimate(self.engine.problem.factors, squares(self.engine, point))

    def _settled(self, name: str, point: Point, broad: list[float]) -> Candidate:
        """The descent goes on under kernels as wide as the noise asks for."""
        noises, before = self.noises(point), [0.0]
        for _ in range(ROUNDS):
            widths = [self._width(n, Q, CAUCHY) for n, Q in zip(noises, broad, strict=True)]
            if np.allclose(widths, before, rtol=0.02, atol=0):
                break
            point = self._run(self._kernels(Cauchy, widths), self.plain, point, AGAIN, name)
            noises, before = self.noises(point), widths
        return Candidate(name, point, noises, likelihood(self.engine, point, noises, broad))

    def _refined(self, best: Candidate, broad: list[float]) -> Candidate:
        point, noises, kernels = best.point, best.noises, []
        for n_iterations in END:
            widths = [self._width(n, Q, REACH) for n, Q in zip(noises, broad, strict=True)]
            kernels = self._kernels(SmoothTruncated, widths)
            point = self._run(kernels, self.plain, point, n_iterations, "end")
            noises = self.noises(point)
        cost = likelihood(self.engine, point, noises, broad)
        return Candidate(best.name, point, noises, cost, tuple(kernels))

    def _kernels(self, kind: type[Kernel], widths: Sequence[float]) -> list[Kernel]:
        return [kind(max(w, SMALLEST)) if given is None else given for given, w in zip(self.given, widths, strict=True)]

    def _width(self, noise: Noise, Q: float, reach: float) -> float:
        """Of a kernel; where the noise cannot be told, everything counts as noise."""
        return reach * (noise.sigma if noise.is_known else float(np.sqrt(Q)))

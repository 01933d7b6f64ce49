"""S-estimate: the parameters whose residuals have the smallest M-scale.

Rousseeuw, Yohai: Robust Regression by Means of S-Estimators, Robust and Nonlinear Time Series Analysis, 1984.
Salibian-Barrera, Yohai: A Fast Algorithm for S-Regression Estimates, J. Comput. Graph. Stat. 2006.

Problem     min over x of s(r(x)) with Σ ρ(rᵢ/s) = b n
Symbols     s -> scale    b -> breakdown    t -> N_REFINED    k -> N_LOCAL_STEPS
Algorithm   (1) candidates from random minimal subsets (subsets.py)
            (2) k steps of reweighted least squares from each candidate, with one step for its scale
            (3) keep the t candidates of smallest scale; the scale of a candidate is computed only if
                Σ ρ(rᵢ/s_t) < b n for the largest scale s_t among them
            (4) refine these until convergence; the one of smallest scale is the estimate
            (5) for the weights of an M-estimate, s is divided by 1 − (1.29 − 6.02/n) p/n (Maronna, Yohai: Correcting MM
                Estimates for "Fat" Data Sets, Comput. Stat. Data Anal. 2010)
Deviations  The residuals may be nonlinear, so that steps have a trust region (descent.py); the initial guess and the
            least-squares fit from it are candidates, too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.estimators.descent import Descended, Evaluated, Objective, Residuals, descend, weighted_squares
from asker.estimators.m_scale import m_scale
from asker.estimators.subsets import fit_of_subset, n_subsets, subsets
from asker.kernels.tuning import supremum

Floats = NDArray[np.float64]
N_REFINED = 5
BIAS, BIAS_OVER_N, MAX_BIAS = 1.29, -6.02, 0.5
"""Constants of Maronna and Yohai for a breakdown point of 50 %, and the largest bias that is corrected."""
N_LOCAL_STEPS = 2
EXACT_RTOL = 1e-11
"""Scale of the residuals, relative to the terms of which they consist, at or below which a fit is exact."""
SAME_RTOL = 1e-4
"""Relative difference of the scales of refined candidates that are counted as the same."""


@dataclass(frozen=True)
class Estimate:
    """Point of smallest scale, and the search for it."""

    point: Descended
    scale: float
    n_candidates: int
    n_agreeing: int
    """Number of the refined candidates with the same scale."""
    n_refined: int


@dataclass(frozen=True)
class Scale:
    """M-scale of the residuals with n − p degrees of freedom."""

    kernel: Any
    breakdown: float
    n_parameters: int

    def __call__(self, r: Floats, start: float = 0.0) -> float:
        """Return s."""
        return m_scale(r, self.kernel, self.breakdown, start)

    def corrected(self, s: float, n: int) -> float:
        """Return a scale corrected for its bias in small samples (5)."""
        p = self.n_parameters
        return s / (1 - min((BIAS + BIAS_OVER_N / n) * p / n, MAX_BIAS))

    def is_below(self, r: Floats, s: float) -> bool:
        """Return whether the scale of these residuals is below s (3)."""
        if s == np.inf:
            return True
        largest = supremum(self.kernel)
        return s > 0 and float(np.mean(self.kernel.psi((r / s) ** 2))) < self.breakdown * largest

    def weights(self, r: Floats, s: float) -> Floats:
        """Return the weights ω(r²/s²); if s = 0, 1 for residuals of 0."""
        return self.kernel.omega((r / s) ** 2) if s > 0 else 1.0 * (r == 0)


def scale_objective(scale: Scale) -> Objective:
    """Return s(r) with its weights."""

    def objective(r: Floats) -> Evaluated:
        s = scale(r)
        return Evaluated(s, scale.weights(r, s))

    return objective


def candidates(functions: Residuals, best: Callable[[], Floats | None], seed: int, count: int) -> Iterator[Floats]:
    """Yield points with finite residuals: the initial guess, its least-squares fit, and fits of subsets (1)."""
    x0 = functions.start
    n, p = len(functions(x0)), len(x0)
    yield x0
    yield descend(functions, x0, weighted_squares(np.ones(n))).x
    for k, subset in enumerate(subsets(n, p, count, np.random.default_rng(seed))):
        known = best()
        x = fit_of_subset(functions, x0 if k % 2 or known is None else known, subset)
        if x is not None:
            yield x


@np.errstate(over="ignore", invalid="ignore")
def s_search(functions: Residuals, scale: Scale, seed: int = 0, count: int | None = None) -> Estimate:
    """Return the S-estimate."""
    n, p = len(functions(functions.start)), len(functions.start)
    kept: list[tuple[float, Floats]] = []
    n_candidates = 0
    drawn = candidates(functions, lambda: kept[0][1] if kept else None, seed, count or n_subsets(n, p))
    for x in drawn:
        n_candidates += 1
        moved, r = _local_steps(functions, x, scale)
        worst = kept[-1][0] if len(kept) == N_REFINED else np.inf
        if scale.is_below(r, worst):  # (3)
            kept = sorted([*kept, (scale(r), moved)], key=lambda item: item[0])[:N_REFINED]
    refined = [descend(functions, x, scale_objective(scale)) for _, x in kept]  # (4)
    best = min(refined, key=lambda point: point.value)
    agreeing = sum(point.value <= (1 + SAME_RTOL) * best.value for point in refined)
    s = best.value if best.value > rounding(functions, best.x) else 0.0
    return Estimate(best, s, n_candidates, agreeing, len(refined))


def rounding(functions: Residuals, x: Floats) -> float:
    """Return a scale of residuals that may consist of rounding errors only."""
    return EXACT_RTOL * float(np.median(np.abs(functions.derivatives(x)) @ np.abs(x)))


def _local_steps(functions: Residuals, x: Floats, scale: Scale) -> tuple[Floats, Floats]:
    """Return a candidate after k steps (2), and its residuals."""
    r = functions(x)
    s, largest = 0.0, supremum(scale.kernel)
    for _ in range(N_LOCAL_STEPS):
        s = s or 1.4826 * float(np.median(np.abs(r)))
        if s == 0:
            break
        u = (r / s) ** 2
        s *= float(np.sqrt(np.mean(scale.kernel.psi(u)) / (largest * scale.breakdown)))
        if s == 0:
            break
        point = descend(functions, x, weighted_squares(scale.weights(r, s)), max_steps=1)
        x, r = point.x, point.residuals
    return x, r

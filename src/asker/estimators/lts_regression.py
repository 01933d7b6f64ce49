"""LTS: the parameters with the smallest sum of the h smallest squared residuals.

Rousseeuw, Van Driessen: Computing LTS Regression for Large Data Sets, Data Min. Knowl. Discov. 2006.

Problem     min over x of Σ over the h smallest r²(x)
Symbols     h -> n_kept
Algorithm   (1) candidates from random minimal subsets (subsets.py)
            (2) two C-steps from each: least squares of the h observations with the smallest residuals
            (3) C-steps until convergence from the ten best
            (4) the scale of the kept residuals, with the factor that makes it consistent for Gaussian errors
Deviations  A C-step is one step with a trust region, since the residuals may be nonlinear (descent.py).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.estimators.descent import Evaluated, Objective, Residuals, descend
from asker.estimators.s_regression import Estimate, candidates, rounding
from asker.estimators.subsets import n_subsets

Floats = NDArray[np.float64]
N_REFINED = 10
N_LOCAL_STEPS = 2
SAME_RTOL_LTS = 0.05
"""Relative difference of the objectives of candidates that are counted as the same: the objective has many minima of
nearly the same value, which differ in few observations and have almost the same reweighted estimate."""


def n_kept(n: int, p: int, breakdown: float) -> int:
    """Return h, the number of observations that are not trimmed; (n + p + 1)/2 for the largest breakdown point."""
    least = (n + p + 1) // 2
    return min(n, max(least, n - int(breakdown * n)))


def trimmed_squares(h: int) -> Objective:
    """Return half the sum of the h smallest squared residuals, with weights 1 for these and 0 for the others."""

    def objective(r: Floats) -> Evaluated:
        u = r * r
        kept = np.argpartition(u, h - 1)[:h]
        weights = np.zeros(len(r))
        weights[kept] = 1.0
        return Evaluated(0.5 * float(np.sum(u[kept])), weights)

    return objective


def trimmed_scale(r: Floats, h: int) -> float:
    """Return the consistent scale of the h smallest residuals (4)."""
    u = np.sort(r * r)[:h]
    return float(np.sqrt(np.mean(u) / consistency(h / len(r))))


def consistency(share: float) -> float:
    """Return the mean of the smallest squares of Gaussian errors, of which this share is kept."""
    if share >= 1:
        return 1.0
    from scipy.special import ndtri

    q = float(ndtri((1 + share) / 2))
    return 1 - 2 * q * float(np.exp(-q * q / 2)) / np.sqrt(2 * np.pi) / share


@np.errstate(over="ignore", invalid="ignore")
def lts_search(
    functions: Residuals, breakdown: float = 0.5, seed: int = 0, count: int | None = None
) -> tuple[Estimate, int]:
    """Return the LTS estimate and h."""
    n, p = len(functions(functions.start)), len(functions.start)
    h = n_kept(n, p, breakdown)
    objective = trimmed_squares(h)
    kept: list[Any] = []
    n_candidates = 0
    drawn = candidates(functions, lambda: kept[0].x if kept else None, seed, count or n_subsets(n, p))
    for x in drawn:
        n_candidates += 1
        point = descend(functions, x, objective, max_steps=N_LOCAL_STEPS)  # (2)
        kept = sorted([*kept, point], key=lambda one: one.value)[:N_REFINED]
    refined = [descend(functions, point.x, objective) for point in kept]  # (3)
    best = min(refined, key=lambda one: one.value)
    agreeing = sum(one.value <= (1 + SAME_RTOL_LTS) * best.value for one in refined)
    s = trimmed_scale(best.residuals, h)
    s = s if s > rounding(functions, best.x) else 0.0
    return Estimate(best, s, n_candidates, agreeing, len(refined)), h

"""Classification of observations as inliers by their weights at a point, and trials that flip some of them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine, PerFactor, Point, omega

MAX_OUTLIER_WEIGHT = 0.5
"""Weight up to which an observation is rejected, as a share of the full weight."""
ADDED_INLIER_WEIGHT = 100.0
"""Weight of an observation that a trial adds; it exceeds that of the inliers, some of which may contradict it."""
Flipped = tuple[NDArray[np.intp], ...]
"""Observations of each factor group, in the user's order, whose classification a trial flips."""
Restart = Callable[[tuple[NDArray, ...]], tuple[NDArray, ...] | None]
"""Function of the weights of each factor group, in the user's order, that returns rows of all variables, or None."""


def weights_of(engine: Engine, point: Point, flipped: Flipped) -> PerFactor:
    """Return the weights of all observations in a trial: inliers at the point have 1, and flipped ones are changed."""
    kept = [(~rejected).astype(float) for rejected in rejected_at(engine, point)]
    for mask, chosen in zip(kept, flipped, strict=True):
        mask[chosen] = np.where(mask[chosen] > 0, 0.0, ADDED_INLIER_WEIGHT)
    return engine.in_own_order(tuple(kept))


def rejected_at(engine: Engine, point: Point) -> list[NDArray[np.bool_]]:
    """Return masks of the rejected observations in the user's order; a convex kernel rejects none."""
    weights = engine.in_user_order(engine.each(omega, point))
    return [
        (w <= MAX_OUTLIER_WEIGHT * float(f.kernel.omega(0.0))) & (not f.kernel.convex)
        for f, w in zip(engine.problem.factors, weights, strict=True)
    ]


def exchanges_at(engine: Engine, point: Point, n: int) -> tuple[Flipped, ...]:
    """Return the first n trials.

    They flip each rejected observation, the smallest residual first; the 2, 4, 8, … inliers with the largest residuals;
    and each inlier alone, the largest residual first.
    """
    rejected, factors = rejected_at(engine, point), engine.problem.factors
    distance = [u / f.tau**2 for f, u in zip(factors, engine.in_user_order(point.u), strict=True)]
    group = np.concatenate([np.full(f.n, g) for g, f in enumerate(factors)])
    number = np.concatenate([np.arange(f.n) for f in factors])
    may_be_outlier = np.concatenate([np.full(f.n, not f.kernel.convex) for f in factors])
    order = np.argsort(np.concatenate(distance), kind="stable")
    is_rejected = np.concatenate(rejected)[order]
    smallest, largest = order[is_rejected], order[~is_rejected & may_be_outlier[order]][::-1]
    several = [largest[: 2**k] for k in range(1, max(len(largest) - 1, 0).bit_length())]
    chosen = [*smallest[:, None], *several, *largest[:, None]][:n]
    return tuple(tuple(number[c[group[c] == g]] for g in range(len(factors))) for c in chosen)


def restarted(engine: Engine, restart: Restart, w: PerFactor) -> Point | None:
    """Return the point that `restart` proposes for these weights, or None if there is none with finite residuals."""
    rows = restart(engine.in_user_order(w))
    point = None if rows is None else engine.evaluate(rows)
    return point if point and point.finite else None

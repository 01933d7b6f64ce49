"""Which observations a point believes, and what it would be to decide some of them the other way."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine, PerFactor, Point, omega

REFUSED = 0.5
"""Of the full weight."""
FIRMLY = 100.0
"""The weight of an observation that a trial believes, beside those that were kept: some of these may contradict it."""
Flipped = tuple[NDArray[np.intp], ...]
"""The observations of each factor group, in the user's order, that a trial decides the other way."""
Restart = Callable[[tuple[NDArray, ...]], tuple[NDArray, ...] | None]
"""Called with the weights of each factor group, in the user's order: gives rows of all variables that suit them."""


def weights_of(engine: Engine, point: Point, flipped: Flipped) -> PerFactor:
    """Of all observations, where the flipped ones are decided the other way than at the point."""
    kept = [(~refused).astype(float) for refused in refused_at(engine, point)]
    for mask, chosen in zip(kept, flipped, strict=True):
        mask[chosen] = np.where(mask[chosen] > 0, 0.0, FIRMLY)
    return engine.in_own_order(tuple(kept))


def refused_at(engine: Engine, point: Point) -> list[NDArray[np.bool_]]:
    """Of each factor group, in the user's order; none where a kernel is convex."""
    weights = engine.in_user_order(engine.each(omega, point))
    return [
        (w <= REFUSED * float(f.kernel.omega(0.0))) & (not f.kernel.convex)
        for f, w in zip(engine.problem.factors, weights, strict=True)
    ]


def exchanges_at(engine: Engine, point: Point, n: int) -> tuple[Flipped, ...]:
    """The first n that are worth a trial: each refused one, the nearest first; the farthest 2, 4, 8, … of those kept;
    each of these alone."""
    refused, factors = refused_at(engine, point), engine.problem.factors
    distance = [u / f.tau**2 for f, u in zip(factors, engine.in_user_order(point.u), strict=True)]
    group = np.concatenate([np.full(f.n, g) for g, f in enumerate(factors)])
    number = np.concatenate([np.arange(f.n) for f in factors])
    in_doubt = np.concatenate([np.full(f.n, not f.kernel.convex) for f in factors])
    order = np.argsort(np.concatenate(distance), kind="stable")
    out = np.concatenate(refused)[order]
    nearest, farthest = order[out], order[~out & in_doubt[order]][::-1]
    several = [farthest[: 2**k] for k in range(1, max(len(farthest) - 1, 0).bit_length())]
    chosen = [*nearest[:, None], *several, *farthest[:, None]][:n]
    return tuple(tuple(number[c[group[c] == g]] for g in range(len(factors))) for c in chosen)


def restarted(engine: Engine, restart: Restart, believed: PerFactor) -> Point | None:
    """Where a trial with these weights may begin; None where it is not told, or nothing finite."""
    rows = restart(engine.in_user_order(believed))
    point = None if rows is None else engine.evaluate(rows)
    return point if point and point.finite else None

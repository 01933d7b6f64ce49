"""Starting values of a curve from its data, by variable projection.

Golub, Pereyra: The Differentiation of Pseudo-Inverses and Nonlinear Least Squares Problems Whose Variables Separate,
SIAM J. Numer. Anal. 1973.

Problem     a point from which a descent reaches the best fit, without knowledge of the curve
Algorithm   (1) the parameters in which the curve is affine, alone and together, are detected by second differences
            (2) draw the other parameters: from given candidates, or with magnitudes of the units of the data
            (3) for each draw, the affine parameters follow by linear regression, reweighted for least absolute values
            (4) refine the draws with the smallest mean absolute residual by a descent with a robust loss
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.problem.variables import ProblemError
from asker.scipy_compat.least_squares import least_squares

Floats = NDArray[np.float64]
Curve = Callable[..., Any]
N_DRAWS = 1500
"""Number of draws of the parameters that are not affine."""
N_REFINED = 6
N_REWEIGHTED = 3
"""Number of reweighted linear regressions for each draw."""
AFFINE_RTOL = 1e-6
"""Second difference, relative to the values, below which a curve is affine in a parameter."""
N_DIGITS = 3
"""Magnitudes of parameters are drawn up to 10 to this power above and below a unit of the data."""
POSITIVE = 0.75
"""Probability of a positive parameter."""
MAX_CALLS = 200
"""Maximum number of calls of the curve in a refinement."""


def starting_values(
    f: Curve,
    x: Any,
    y: Any,
    names: Sequence[str],
    *,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    known: Mapping[str, float] | None = None,
    candidates: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Return starting values of the parameters of a curve.

    Parameters
    ----------
    f
        Function f(x, *parameters), with NumPy.
    x, y
        Data; x may have several rows.
    names
        Names of the parameters.
    bounds
        Pairs of lower and upper bounds, by names.
    known
        Values of parameters that are kept.
    candidates
        Values from which parameters are drawn, by names.
    seed
        Seed of the draws.

    Returns
    -------
    dict
        Values by names.

    Raises
    ------
    ProblemError
        If the curve is not finite for any draw.
    """
    x, y, known = np.asarray(x, dtype=float), np.asarray(y, dtype=float), dict(known or {})
    box = {name: (bounds or {}).get(name, (-np.inf, np.inf)) for name in names}
    rng = np.random.default_rng(seed)
    free = [name for name in names if name not in known]
    curve = _Named(f, x, tuple(names))
    with np.errstate(all="ignore"):
        affine = [] if not free else affine_parameters(curve, free, known, candidates or {}, rng)
        draws = _draws(curve, y, [n for n in free if n not in affine], candidates or {}, box, rng)
        scored = []
        for draw in draws:
            point = _projected(curve, y, known | draw, affine, box)
            if point is not None:
                scored.append(point)
        if not scored:
            raise ProblemError("the curve is not finite at any starting values that were tried: give some")
        scored.sort(key=lambda item: item[0])
        refined = [_refined(curve, y, values, free, box, error) for error, values in scored[:N_REFINED]]
    return min(refined, key=lambda item: item[0])[1]


class _Named:
    """A curve as a function of a dictionary of parameters."""

    def __init__(self, f: Curve, x: Floats, names: tuple[str, ...]):
        self.f, self.x, self.names = f, x, names

    def __call__(self, values: Mapping[str, float], size: tuple[int, ...] | None = None) -> Floats:
        """Return the values of the curve, as one vector."""
        y = np.asarray(self.f(self.x, *(values[name] for name in self.names)), dtype=float)
        return np.broadcast_to(y, size).ravel() if size is not None else y.ravel()


def affine_parameters(
    curve: Any, free: Sequence[str], known: Mapping[str, float], candidates: Mapping[str, Any], rng: np.random.Generator
) -> list[str]:
    """Return parameters in which a curve is affine jointly (1)."""
    points: list[dict[str, float]] = []
    for _ in range(20):
        point = {n: float(rng.choice(candidates[n]) if n in candidates else rng.uniform(0.3, 1.7)) for n in free}
        point |= known
        if np.isfinite(curve(point)).all():
            points.append(point)
        if len(points) == 3:
            break
    affine: list[str] = []
    for name in free:
        if name not in candidates and points and all(_is_affine(curve, p, name, [*affine, name]) for p in points):
            affine.append(name)
    return affine


def _is_affine(curve: Any, point: dict[str, float], name: str, others: Sequence[str]) -> bool:
    """Return whether the mixed second differences in a parameter and each of the others vanish."""
    at = curve(point)
    for other in others:
        one, two = point | {name: point[name] + 0.37}, point | {other: point[other] + 0.41}
        both = two | {name: two[name] + 0.37}
        a, b, c = curve(one), curve(two), curve(both)
        scale = max(float(np.max(np.abs(v), initial=0.0)) for v in (at, a, b, c))
        if not np.isfinite(scale) or float(np.max(np.abs(c - a - b + at), initial=0.0)) > AFFINE_RTOL * scale:
            return False
    return True


def _draws(
    curve: _Named,
    y: Floats,
    names: Sequence[str],
    candidates: Mapping[str, Any],
    box: Mapping[str, tuple[float, float]],
    rng: np.random.Generator,
) -> list[dict[str, float]]:
    """Return draws of the parameters that are not affine (2)."""
    if not names:
        return [{}]
    columns = [*np.atleast_2d(curve.x), y.ravel()]
    units = [1.0, 1.0]
    for column in columns:
        span, size = float(np.ptp(column)), float(np.median(np.abs(column)))
        units += [u for s in (span, size) if s > 0 for u in (s, 1 / s)]
    draws = []
    for _ in range(N_DRAWS):
        draw = {}
        for name in names:
            low, high = box[name]
            if name in candidates:
                value = float(rng.choice(np.asarray(candidates[name], dtype=float)))
            elif np.isfinite(low) and np.isfinite(high):
                value = float(rng.uniform(low, high))
            elif rng.random() < 0.25:  # a location
                value = float(rng.choice(columns[rng.integers(len(columns))].ravel()))
            else:
                magnitude = units[rng.integers(len(units))] * 10 ** rng.uniform(-N_DIGITS, N_DIGITS)
                value = float(magnitude if rng.random() < POSITIVE else -magnitude)
            draw[name] = float(np.clip(value, low, high))
        draws.append(draw)
    return draws


def _projected(
    curve: _Named, y: Floats, values: dict[str, float], affine: Sequence[str], box: Mapping[str, tuple[float, float]]
) -> tuple[float, dict[str, float]] | None:
    """Return the mean absolute residual and the values with the affine parameters fitted (3); None if not finite."""
    flat = y.ravel()
    zero = curve(values | dict.fromkeys(affine, 0.0), y.shape)
    if not np.isfinite(zero).all():
        return None
    if affine:
        A = np.stack([curve(values | {n: 1.0 * (n == k) for n in affine}, y.shape) - zero for k in affine], axis=1)
        if not np.isfinite(A).all():
            return None
        size = np.linalg.norm(A, axis=0)
        A, w = A / np.where(size > 0, size, 1.0), np.ones(len(flat))
        for _ in range(N_REWEIGHTED):
            root = np.sqrt(w)
            c = np.linalg.lstsq(root[:, None] * A, root * (flat - zero), rcond=1e-10)[0]
            r = np.abs(flat - zero - A @ c)
            w = 1 / np.maximum(r, 1e-3 * max(float(np.median(r)), np.finfo(float).tiny))
            w /= w.max()
        fitted = c / np.where(size > 0, size, 1.0)
        values = values | {n: float(np.clip(v, *box[n])) for n, v in zip(affine, fitted, strict=True)}
    r = curve(values, y.shape) - flat
    return (float(np.mean(np.abs(r))), values) if np.isfinite(r).all() else None


def _refined(
    curve: _Named,
    y: Floats,
    values: dict[str, float],
    free: Sequence[str],
    box: Mapping[str, tuple[float, float]],
    error: float,
) -> tuple[float, dict[str, float]]:
    """Return the mean absolute residual and the values after a descent with a robust loss (4)."""
    flat = y.ravel()
    if not free or error == 0:
        return error, values
    low, high = (np.array([box[n][k] for n in free]) for k in (0, 1))

    def residuals(p: Floats) -> Floats:
        r = curve(values | dict(zip(free, p, strict=True)), y.shape) - flat
        return np.nan_to_num(r, nan=1e150, posinf=1e150, neginf=-1e150)

    start = np.array([values[n] for n in free])
    try:
        fit = least_squares(
            residuals, start, bounds=(low, high), loss="soft_l1", f_scale=0.5 * error, max_nfev=MAX_CALLS
        )
    except (ValueError, FloatingPointError, np.linalg.LinAlgError):
        return error, values
    better = float(np.mean(np.abs(fit.fun)))
    if not better < error:
        return error, values
    return better, values | dict(zip(free, map(float, fit.x), strict=True))

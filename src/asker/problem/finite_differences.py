"""Derivatives of a NumPy function by finite differences, between bounds."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Function = Callable[[NDArray], NDArray]
POWERS = {"2-point": 1 / 2, "3-point": 1 / 3, "cs": 1 / 2}
"""Exponent of the machine precision in the step of each method, which balances rounding and truncation errors."""


def differences(
    fun: Function,
    x: Floats,
    f: NDArray,
    method: str = "2-point",
    lower: Floats | float = -np.inf,
    upper: Floats | float = np.inf,
    relative_step: Floats | float | None = None,
    pattern: NDArray[np.bool_] | None = None,
) -> Floats:
    """Return the derivatives (n, d) of a function (d,) -> (n,) by finite differences.

    Parameters
    ----------
    fun, x, f
        Function, its argument, and its value there.
    method
        "2-point"; "3-point", which is more exact and takes twice the work; or "cs", a complex step, for functions that
        accept complex arguments.
    lower, upper
        Bounds of x, within which the function is evaluated.
    relative_step
        Step relative to |x|; by default it follows from the machine precision.  A default step that hardly changes the
        values, of an unknown near 0, is lengthened.
    pattern
        Sparsity pattern of the derivatives, (n, d); unknowns without a common row are varied together.
    """
    h = _steps(x, f, POWERS[method], relative_step)
    groups = [np.array([k]) for k in range(len(x))] if pattern is None else _apart(pattern)
    J = _columns(fun, x, f, h, method, lower, upper, groups, np.zeros((*f.shape, len(x))))
    if relative_step is None and method != "cs":
        J = J if pattern is None else np.where(pattern, J, 0.0)
        longer = _lengthened(f, J, h, POWERS[method])
        again = [group for group in groups if (longer != h)[group].any()]
        J = _columns(fun, x, f, longer, method, lower, upper, again, J)
    return J if pattern is None else np.where(pattern, J, 0.0)


def _columns(
    fun: Function,
    x: Floats,
    f: NDArray,
    h: Floats,
    method: str,
    lower: Floats | float,
    upper: Floats | float,
    groups: list[NDArray[np.intp]],
    J: Floats,
) -> Floats:
    """Return J with the columns of these groups of unknowns replaced by the differences for steps h."""
    lower, upper = np.broadcast_to(lower, x.shape), np.broadcast_to(upper, x.shape)
    is_central = (method == "3-point") & (np.minimum(x - lower, upper - x) >= np.abs(h))
    far = _within(2 * h if method == "3-point" else h, lower - x, upper - x)
    for group in groups:
        if method == "cs":
            change = fun(_moved(x, group, 1j * h)).imag[..., None] / h[group]
        elif method == "2-point":
            to = _moved(x, group, far)
            change = (fun(to) - f)[..., None] / (to - x)[group]
        else:
            one = _moved(x, group, np.where(is_central, -h, far / 2))
            two = _moved(x, group, np.where(is_central, h, far))
            a, b = fun(one)[..., None], fun(two)[..., None]
            aside = (4 * a - b - 3 * f[..., None]) / (two - x)[group]
            change = np.where(is_central[group], (b - a) / (two - one)[group], aside)
        J[..., group] = change
    return J


def _within(far: Floats, least: Floats, most: Floats) -> Floats:
    """Return steps within the bounds: reversed if necessary, else up to the farther bound."""
    longest = np.where(np.abs(least) >= np.abs(most), least, most)
    other = np.where((least <= -far) & (-far <= most), -far, longest)
    return np.where((least <= far) & (far <= most), far, other)


def _apart(pattern: NDArray[np.bool_]) -> list[NDArray[np.intp]]:
    """Return groups of columns without a common row, by the greedy method of Curtis, Powell and Reid (1974)."""
    groups: list[list[int]] = []
    taken: list[NDArray[np.bool_]] = []
    for k in np.argsort(-pattern.sum(axis=0), kind="stable"):
        rows = pattern[:, k]
        at = next((g for g, there in enumerate(taken) if not (there & rows).any()), len(groups))
        if at == len(groups):
            groups.append([])
            taken.append(np.zeros(len(pattern), dtype=bool))
        groups[at].append(int(k))
        taken[at] |= rows
    return [np.array(group) for group in groups]


def _steps(x: Floats, f: NDArray, power: float, relative: Floats | float | None) -> Floats:
    """Return steps away from 0 whose length follows from the precision of the function values."""
    rounding = np.finfo(f.dtype if f.dtype.kind == "f" else float).eps
    sign = np.where(x < 0, -1.0, 1.0)
    usual = rounding**power * sign * np.where(x == 0, 1.0, np.abs(x))
    if relative is None:
        return usual
    asked = relative * sign * np.abs(x)
    return np.where(x + asked == x, usual, asked)


def _lengthened(f: NDArray, J: Floats, h: Floats, power: float) -> Floats:
    """Return the steps, of which those that hardly change the values are lengthened.

    A step relative to |x| is too short if x is small compared with the change of x that matters.
    """
    longest = np.finfo(f.dtype if f.dtype.kind == "f" else float).eps ** power
    size = float(np.linalg.norm(f))
    change = np.abs(h) * np.linalg.norm(np.reshape(J, (-1, len(h))), axis=0)
    is_weak = (np.abs(h) < longest) & (change < longest * size)
    longer = np.abs(h) * longest * size / np.maximum(np.maximum(change, np.abs(h) * size), np.finfo(float).tiny)
    return np.where(is_weak, np.sign(h) * longer, h)


def _moved(x: Floats, group: NDArray[np.intp], h: NDArray) -> NDArray:
    """Return x with the steps of a group of unknowns added."""
    to = x.astype(np.result_type(x, h))
    to[group] += h[group]
    return to

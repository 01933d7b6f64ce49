"""Derivatives of a NumPy function by finite differences, between bounds."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Function = Callable[[NDArray], NDArray]
POWERS = {"2-point": 1 / 2, "3-point": 1 / 3, "cs": 1 / 2}
"""The ways, and the power of the rounding that a step is: where it and the neglected terms are balanced."""


def differences(
    fun: Function,
    x: Floats,
    f: NDArray,
    way: str = "2-point",
    lower: Floats | float = -np.inf,
    upper: Floats | float = np.inf,
    relative_step: Floats | float | None = None,
) -> Floats:
    """The derivatives (n, d) of a function (d,) -> (n,) at x, where it is f.

    way  "2-point"; "3-point": more exact, and twice the work; "cs": a complex step, for functions that allow it
    """
    lower, upper = np.broadcast_to(lower, x.shape), np.broadcast_to(upper, x.shape)
    steps = _steps(x, f, POWERS[way], relative_step)
    if way == "cs":
        columns = [fun(x + 1j * h * e).imag / h for h, e in zip(steps, np.eye(len(x)), strict=True)]
        return np.stack(columns, axis=-1)
    columns = []
    for k, h in enumerate(steps):
        room = np.array([lower[k] - x[k], upper[k] - x[k]])
        if way == "3-point" and min(-room[0], room[1]) >= abs(h):
            before, after = _moved(x, k, -h), _moved(x, k, h)
            columns.append((fun(after) - fun(before)) / (after[k] - before[k]))
            continue
        far = 2 * h if way == "3-point" else h
        if not room[0] <= far <= room[1]:  # to the other side, or as far as there is room
            far = -far if room[0] <= -far <= room[1] else room[np.argmax(np.abs(room))]
        to = _moved(x, k, far)
        if way == "2-point":
            columns.append((fun(to) - f) / (to[k] - x[k]))
        else:
            half = _moved(x, k, far / 2)
            columns.append((4 * fun(half) - fun(to) - 3 * f) / (to[k] - x[k]))
    return np.stack(columns, axis=-1)


def _steps(x: Floats, f: NDArray, power: float, relative: Floats | float | None) -> Floats:
    """Away from 0, as long as the rounding of the function's numbers asks for."""
    rounding = np.finfo(f.dtype if f.dtype.kind == "f" else float).eps
    sign = np.where(x < 0, -1.0, 1.0)
    usual = rounding**power * sign * np.maximum(1.0, np.abs(x))
    if relative is None:
        return usual
    asked = relative * sign * np.abs(x)
    return np.where(x + asked == x, usual, asked)


def _moved(x: Floats, k: int, h: float) -> Floats:
    to = x.copy()
    to[k] += h
    return to

"""Parameters at their bounds, which have no standard error: the estimate cannot move beyond the bound."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asker.problem.variables import Variables
from asker.solver.doubts import Doubt
from asker.solver.result import Result
from asker.uncertainty.observability import format_parameters

Mask = NDArray[np.bool_]


def at_bounds(variables: Sequence[Variables], theta: Sequence[NDArray[np.float64]]) -> dict[Variables, Mask]:
    """Return masks (n, d) of the parameters that are at a bound; groups without any are absent."""
    masks = {}
    for v, rows in zip(variables, theta, strict=True):
        if v.bounds is None or not v.is_free:
            continue
        x, low, high, _ = v.bounds.parts(rows)
        mask = ((x <= low) | (x >= high)) & ~v.fixed[:, None]
        if mask.any():
            masks[v] = mask
    return masks


def report(masks: dict[Variables, Mask]) -> str:
    """Return a sentence about the parameters at bounds; "" if there are none."""
    if not masks:
        return ""
    one = sum(int(mask.sum()) for mask in masks.values()) == 1
    verb, have = ("is at a bound", "has") if one else ("are at bounds", "have")
    return (
        f"{format_parameters(masks)} {verb} and {have} no standard error; those of all others are as without the bound"
    )


def doubts_of_bounds(result: Result) -> tuple[Doubt, ...]:
    """Return a sentence about the parameters at bounds, whose intervals are NaN."""
    if result.problem is None:
        return ()
    variables = result.problem.variables
    theta = [v.at(x).rows if v.bounds else v.rows for v, x in zip(variables, result.values, strict=True)]
    sentence = report(at_bounds(variables, theta))
    return (Doubt(sentence, Doubt.UNDETERMINED),) if sentence else ()

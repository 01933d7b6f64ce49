"""Bounds, the same on every engine: a step ends at a bound that it would cross.

Which directions are left out of a step before that is said by the engines' `barred_out`.
"""

from collections.abc import Sequence
from typing import Any

from asker.problem.variables import Variables

Delta = dict[Variables, Any]
"""A step of each group of variables, as arrays of an engine."""


def shortened(
    variables: Sequence[Variables], theta: Sequence[Any], delta: dict[Variables, Any]
) -> dict[Variables, Any]:
    """The part of a step that bounds let through."""
    rows = zip(variables, theta, strict=True)
    return delta | {v: v.bounds.shortened(x, delta[v]) for v, x in rows if v in delta and v.bounds}

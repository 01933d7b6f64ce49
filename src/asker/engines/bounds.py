"""Bounds on variables, the same on every engine: a step is truncated at each bound that it would cross.

The engines exclude directions at active bounds before they solve for a step.
"""

from collections.abc import Sequence

from asker.engines.interface import A
from asker.problem.variables import Variables


def truncate_at_bounds(
    variables: Sequence[Variables], theta: Sequence[A], delta: dict[Variables, A]
) -> dict[Variables, A]:
    """Return a step of each variable group, truncated at the bounds; `theta` are the rows of all variables."""
    rows = zip(variables, theta, strict=True)
    return delta | {v: v.bounds.shortened(x, delta[v]) for v, x in rows if v in delta and v.bounds}

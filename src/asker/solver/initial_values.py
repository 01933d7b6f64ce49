"""Initial values of a solve that replace those of the variables."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from asker.problem.by_group import Groups, count
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError, Variables
from asker.solver.result import Result
from asker.tracing.trees import leaves_of

Start = Result | Groups[Any] | Mapping[Any, Any]
"""Result, its values, or a mapping from groups of variables or their names to values."""


def rows_to_start(problem: Problem, start: Start) -> tuple[np.ndarray, ...]:
    """Return the rows of all variables; groups that are missing in the start keep their values."""
    values: Any = start.values if isinstance(start, Result) else start
    if not isinstance(values, Groups | Mapping):
        raise ProblemError(f"start is {type(start).__name__}, expected a result, its values, or a mapping to values")
    items = [next((values[key] for key in (v, v.name) if key in values), None) for v in problem.variables]
    if all(item is None for item in items):
        raise ProblemError(f"start has none of the variables {', '.join(v.name for v in problem.variables)}")
    return tuple(v.rows if x is None else _rows(v, x) for v, x in zip(problem.variables, items, strict=True))


def _rows(v: Variables, values: Any) -> np.ndarray:
    leaves = leaves_of(values)
    if not leaves or np.ndim(leaves[0]) == 0:
        raise ProblemError(f"{v.name}: start is {values!r}, expected an array with a row for each variable")
    if count(values) != len(v):
        shape = np.shape(values) if len(leaves) == 1 else f"{count(values)} rows"
        expected = (len(v), *getattr(v.manifold, "shape", ("...",)))
        raise ProblemError(f"{v.name}: start has shape {shape}, expected ({', '.join(map(str, expected))})")
    return v.at(values).rows

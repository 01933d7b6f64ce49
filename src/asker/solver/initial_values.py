"""Values to begin a solve with, in place of those that the variables were given."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from asker.problem.by_group import Groups, count
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError, Variables
from asker.solver.result import Result

Start = Result | Groups[Any] | Mapping[Any, Any]
"""A result, its values, or a table with values for variables or their names."""


def rows_to_start(problem: Problem, start: Start) -> tuple[np.ndarray, ...]:
    """The rows of all variables; those that the start does not have stay as they are."""
    values: Any = start.values if isinstance(start, Result) else start
    if not isinstance(values, Groups | Mapping):
        raise ProblemError(f"start is {type(start).__name__}, expected a result, its values, or a table of values")
    found = [next((values[key] for key in (v, v.name) if key in values), None) for v in problem.variables]
    if all(item is None for item in found):
        raise ProblemError(f"start has none of the variables {', '.join(v.name for v in problem.variables)}")
    return tuple(v.rows if x is None else _rows(v, x) for v, x in zip(problem.variables, found, strict=True))


def _rows(v: Variables, values: Any) -> np.ndarray:
    if np.ndim(values[0] if isinstance(values, tuple) and values else values) == 0:
        raise ProblemError(f"{v.name}: start is {values!r}, expected an array with a row for each variable")
    if count(values) != len(v):
        shape = np.shape(values) if not isinstance(values, tuple) else f"{count(values)} rows"
        expected = (len(v), *getattr(v.manifold, "shape", ("...",)))
        raise ProblemError(f"{v.name}: start has shape {shape}, expected ({', '.join(map(str, expected))})")
    return v.at(values).rows

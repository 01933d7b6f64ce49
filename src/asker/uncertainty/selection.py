"""Arguments of an uncertainty analysis: the variables, the datum and the noise scales that a user names."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker._arguments import is_number
from asker.problem.by_group import Groups
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError, Slot, Variables

Indices = NDArray[np.int64]
Selection = Variables | Slot | str
"""A group of variables, some variables of it (`points[[3, 5]]`), or the name of a group."""
Datum = Selection | Sequence[Selection]


def select_variables(variables: Sequence[Variables], selection: Selection) -> tuple[Variables, Indices]:
    """Return the selected group and the indices of its selected variables."""
    if isinstance(selection, str):
        named = Groups(variables, [v.name for v in variables])[selection]
        return named, np.arange(len(named))
    if isinstance(selection, Variables):
        selection = selection[np.arange(len(selection))]
    if not isinstance(selection, Slot):
        raise ProblemError(f"expected variables, some of them (points[[3, 5]]) or a group's name, not {selection!r}")
    v, index = selection.variables, np.atleast_1d(selection.index)
    if v not in variables:
        raise ProblemError(f"{v!r} is not part of the problem that was solved")
    if index.dtype.kind not in "iu" or index.ndim != 1:
        raise ProblemError(f"{v.name}: the index must be integers, not {index.dtype} {index.shape}")
    bad = np.flatnonzero((index < 0) | (index >= len(v)))
    if bad.size:
        raise ProblemError(f"{v.name}: the index is {index[bad[0]]} at {bad[0]}, allowed are 0 to {len(v) - 1}")
    return v, index.astype(np.int64)


def select_datum(problem: Problem, datum: Datum) -> list[tuple[Variables, Indices]]:
    """Return the groups of a datum that are not fixed, each with the indices of its variables in the datum."""
    selections: Sequence[Any] = datum if isinstance(datum, list | tuple) else [datum]
    selected = [select_variables(problem.variables, selection) for selection in selections]
    if not selected:
        raise ProblemError("datum is empty: name at least one variable")
    if not any(v.is_free for v, _ in selected):
        raise ProblemError(f"datum: all {' and '.join(v.name for v, _ in selected)} are fixed")
    return [(v, np.unique(index)) for v, index in selected if v.is_free]


def stated_scales(sigma: float | Sequence[float] | None, n_groups: int) -> list[float | None]:
    """Return the noise scale that the user states for each factor group; None for one to be estimated."""
    if sigma is None:
        return [None] * n_groups
    scales: list[Any] = [sigma] * n_groups if np.ndim(sigma) == 0 else list(sigma)  # type: ignore[arg-type]
    if len(scales) != n_groups:
        raise ProblemError(f"sigma has {len(scales)} numbers for {n_groups} groups of factors")
    if not all(is_number(x) and 0 < x < np.inf for x in scales):
        raise ProblemError(f"sigma must be positive and finite, not {sigma!r}")
    return [float(x) for x in scales]

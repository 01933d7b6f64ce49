"""Which linear solver a problem gets, and what that needs to know of it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from asker.engines.solvers import CG, XLA_SOLVERS, LinearSolver
from asker.engines.xla.fronts import Fronts, batched, cheapest, dense_cost
from asker.engines.xla.layout import Layout
from asker.engines.xla.schur_pattern import Meetings, n_pairs

SMALL = 1000  # unknowns of the reduced system up to which nobody looks whether it is sparse
LARGEST_DENSE = 12_000  # unknowns: a matrix of 1.2 GB
MOST_PAIRS = 2e8  # pairs of observations in the sum for the matrix: lists of 2 GB
MOST_NUMBERS = 1.5e9  # in the fronts of a sparse one: 12 GB


class Choice(NamedTuple):
    """A linear solver."""

    cg: CG
    name: str
    meetings: Meetings | None = None
    """Where the matrix is formed."""
    fronts: Fronts | None = None
    """Where it is sparse."""


def chosen(solver: LinearSolver, layout: Layout, union: Callable[[np.ndarray], np.ndarray]) -> Choice:
    """As asked; `auto` takes the cheaper Cholesky, and CG where neither fits.  `union`: of `Meetings`."""
    if isinstance(solver, CG):
        return Choice(solver, "cg")
    if solver not in XLA_SOLVERS:
        raise ValueError(f"linear_solver must be one of {', '.join(XLA_SOLVERS)}, or CG(...), on xla, not {solver!r}")
    is_free = solver == "auto"
    if solver == "cg" or (is_free and n_pairs(layout) > MOST_PAIRS):
        return Choice(CG(), "cg")
    n, meetings = layout.structure.n_kept, Meetings(layout, union)
    if solver == "dense-cholesky" or n == 0 or (is_free and n <= SMALL):
        return Choice(CG(), "dense-cholesky", meetings)
    plan = cheapest(meetings.pattern(), layout.structure.kept_variables[1])
    if is_free and n <= LARGEST_DENSE and plan.cost > dense_cost(n):
        return Choice(CG(), "dense-cholesky", meetings)
    if is_free and plan.numbers > MOST_NUMBERS:
        return Choice(CG(), "cg")
    return Choice(CG(), "sparse-cholesky", meetings, batched(plan, meetings.places()))

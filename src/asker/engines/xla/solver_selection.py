"""Selection of the linear solver for a problem."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from asker.engines.solvers import CG, XLA_SOLVERS, LinearSolver
from asker.engines.xla.fronts import Fronts, batched, cheapest, dense_cost
from asker.engines.xla.layout import Layout
from asker.engines.xla.schur_pattern import SchurPattern, n_pairs

ALWAYS_DENSE_UNKNOWNS = 1000  # unknowns of the reduced system up to which sparsity is not considered
MAX_DENSE_UNKNOWNS = 12_000  # a matrix of 1.2 GB
MAX_PAIRS = 2e8  # pairs of observations in the sums for the matrix: lists of 2 GB
MAX_FRONT_NUMBERS = 1.5e9  # entries of the fronts of a sparse matrix: 12 GB


class SolverChoice(NamedTuple):
    """A linear solver, and the symbolic analysis that it needs."""

    cg: CG
    name: str
    pattern: SchurPattern | None = None
    """None if the reduced matrix is not formed."""
    fronts: Fronts | None = None
    """None unless the factorisation is sparse."""


def select_solver(solver: LinearSolver, layout: Layout, union: Callable[[np.ndarray], np.ndarray]) -> SolverChoice:
    """Return the requested solver; `auto` selects the cheaper Cholesky factorisation, or CG if neither fits.

    Parameters
    ----------
    union
        Returns the sorted union of the numbers of all processes, as `SchurPattern` needs it.
    """
    if isinstance(solver, CG):
        return SolverChoice(solver, "cg")
    if solver not in XLA_SOLVERS:
        raise ValueError(f"linear_solver must be one of {', '.join(XLA_SOLVERS)}, or CG(...), on xla, not {solver!r}")
    automatic = solver == "auto"
    if solver == "cg" or (automatic and n_pairs(layout) > MAX_PAIRS):
        return SolverChoice(CG(), "cg")
    n, pattern = layout.structure.n_kept, SchurPattern(layout, union)
    if solver == "dense-cholesky" or n == 0 or (automatic and n <= ALWAYS_DENSE_UNKNOWNS):
        return SolverChoice(CG(), "dense-cholesky", pattern)
    plan = cheapest(pattern.by_variable(), layout.structure.kept_variables[1])
    if automatic and n <= MAX_DENSE_UNKNOWNS and plan.cost > dense_cost(n):
        return SolverChoice(CG(), "dense-cholesky", pattern)
    if automatic and plan.numbers > MAX_FRONT_NUMBERS:
        return SolverChoice(CG(), "cg")
    return SolverChoice(CG(), "sparse-cholesky", pattern, batched(plan, pattern.entries()))

"""Test for stationary points that is independent of the damping.

Problem     a small decrease of the cost indicates a minimum only if neither damping nor a bound has shortened the step
Symbols     g = Σ ω Jᵀr    H = Σ ω JᵀJ    B its diagonal blocks    k the largest number of variables of an observation
Algorithm   (1) the quadratic model of Ψ, an upper bound of Ψ for linear residuals, decreases by ½ gᵀH⁻¹g
            (2) H ≤ k B, since ‖Σ Jᵢδᵢ‖² ≤ k Σ ‖Jᵢδᵢ‖² for the k variables of an observation;  so the decrease is at
                least gᵀB⁻¹g/2k, with equality for a single variable
            (3) coordinates with an active bound are excluded
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from asker.engines.null_space import regularised
from asker.problem.problem import Problem

if TYPE_CHECKING:
    from asker.engines.cpu.linearized_problem import LinearModel

Floats = NDArray[np.float64]
MAX_DENSE_UNKNOWNS = 12
"""Largest number of unknowns for which dense matrices of all unknowns are computed at the end of every solve."""


def has_few_unknowns(problem: Problem) -> bool:
    """Return whether dense matrices of all unknowns are cheap, and the problem is not distributed."""
    return problem.portion is None and problem.n_unknowns <= MAX_DENSE_UNKNOWNS


def predicted_decrease(model: "LinearModel", theta: Sequence[Floats], weights: Sequence[Floats]) -> float:
    """Return a lower bound of the decrease of Ψ predicted by its quadratic model; infinite without derivatives.

    Parameters
    ----------
    model : LinearModel
        Problem, linearised at the point.
    theta : sequence of arrays
        Rows of all variables at the point.
    weights : sequence of arrays
        Kernel weights ω of all observations, in the user's order.
    """
    if model.nonfinite_derivative():
        return np.inf
    g, B, total = model.gradients(list(weights)), model.diagonal_blocks(list(weights)), 0.0
    for v, rows in ((v, rows) for v, rows in zip(model.problem.variables, theta, strict=True) if v.is_free):
        moves = np.broadcast_to(~v.fixed[:, None], g[v].shape)
        if v.bounds:
            moves = moves & ~v.bounds.is_active(rows, g[v])  # (3)
        g_v = np.where(moves, g[v], 0.0)
        B_v = np.where(moves[:, :, None] & moves[:, None, :], B[v], 0.0)
        total += float(np.einsum("nq,nqs,ns->", g_v, np.linalg.inv(B_v + regularised(v, B_v).K), g_v))
    return total / (2 * max(len(f.free) for f in model.structure.factors))  # (2)

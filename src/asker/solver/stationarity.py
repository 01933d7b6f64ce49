"""Whether a point may be a minimum, whatever the damping of the steps that have led there.

Problem     a step that gains next to nothing tells of a minimum only if neither damping nor a bound has shortened it
Symbols     g = Σ ω Jᵀr    H = Σ ω JᵀJ    B its diagonal blocks    k the most variables that an observation touches
Algorithm   (1) the quadratic model of Ψ, whose ω make it lie above Ψ where residuals are linear, falls by ½ gᵀH⁻¹g
            (2) H ≤ k B, since ‖Σ Jᵢδᵢ‖² ≤ k Σ ‖Jᵢδᵢ‖² for the k variables of an observation;  so it falls by
                gᵀB⁻¹g/2k at least, and by exactly that where there is one variable
            (3) directions that bounds bar are left out
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from asker.engines.null_space import held
from asker.problem.problem import Problem

if TYPE_CHECKING:
    from asker.engines.cpu.linearized_problem import LinearModel

Floats = NDArray[np.float64]
FEW_UNKNOWNS = 12
"""The most unknowns for which dense matrices of all of them are made at the end of every solve."""


def has_few_unknowns(problem: Problem) -> bool:
    """Return whether dense matrices of all unknowns are cheap, and in this process."""
    return problem.portion is None and problem.n_unknowns <= FEW_UNKNOWNS


def promised_decrease(model: "LinearModel", theta: Sequence[Floats], weights: Sequence[Floats]) -> float:
    """Return a lower bound of the decrease of Ψ that its quadratic model promises; infinite without derivatives.

    Parameters
    ----------
    model : LinearModel
        The problem, linearised at the point.
    theta : sequence of arrays
        The rows of all variables there.
    weights : sequence of arrays
        ω of every observation, in the user's order.
    """
    if model.without_derivative():
        return np.inf
    g, B, total = model.gradients(list(weights)), model.own_blocks(list(weights)), 0.0
    for v, rows in ((v, rows) for v, rows in zip(model.problem.variables, theta, strict=True) if v.is_free):
        moves = np.broadcast_to(~v.fixed[:, None], g[v].shape)
        if v.bounds:
            moves = moves & ~v.bounds.is_active(rows, g[v])  # (3)
        g_v = np.where(moves, g[v], 0.0)
        B_v = np.where(moves[:, :, None] & moves[:, None, :], B[v], 0.0)
        total += float(np.einsum("nq,nqs,ns->", g_v, np.linalg.inv(B_v + held(v, B_v).K), g_v))
    return total / (2 * max(len(f.free) for f in model.structure.factors))  # (2)

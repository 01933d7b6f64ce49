"""Covariances relative to a datum, in the presence of gauge directions.

Gauge       Directions N in which many variables move together change no residual.  With any inverse M of A there,

                C = S M Sᵀ,   S = I − N T,   T = (NᵀDN)⁻¹ NᵀD

            with D = 1 for the variables of the datum and 0 for others: of all solutions this takes the one that moves
            the datum least.  With a datum of one pose in a pose graph, this fixes the pose.  Without a datum, the
            parameters that N moves are undetermined, and C = M for all others.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from asker.problem.variables import Variables

if TYPE_CHECKING:
    from asker.engines.inverse_blocks import Columns, RegularisedInverse

Floats = NDArray[np.float64]
RELATIVE_EIGENVALUE_TOL = 1e-12
"""NᵀDN over NᵀN, below which the datum does not fix a direction."""


class RelativeInverse:
    """C = S M Sᵀ for one inverse M.  `T` is transposed."""

    def __init__(self, inverse: "RegularisedInverse", N: "Columns", T: "Columns"):
        self.inverse, self.N = inverse, N
        self.X = inverse.solve(T) if next(iter(N.values())).shape[2] else N
        """M Tᵀ"""
        self.Q = sum(np.einsum("ndq,ndr->qr", T[v], self.X[v]) for v in N)
        """T M Tᵀ"""

    def pairs(self, v: Variables, i: Any, w: Variables, j: Any) -> Floats:
        """Return the blocks of C for the pairs (v[i], w[j])."""
        same = v is w and i is j
        M = self.inverse.blocks(v)[i] if same else self.inverse.pairs(v, i, w, j)
        if not self.N[v].shape[2]:
            return M
        N_i, X_i, N_j, X_j = self.N[v][i], self.X[v][i], self.N[w][j], self.X[w][j]
        return M - N_i @ np.swapaxes(X_j - N_j @ self.Q.T, 1, 2) - X_i @ np.swapaxes(N_j, 1, 2)


def datum_projection(N: "Columns", datum: list[tuple[Variables, NDArray[np.int64]]]) -> tuple["Columns", Floats]:
    """Return T, transposed, and the combinations of the columns of N that the datum does not fix."""
    from scipy.linalg import eigh

    D = {v: np.zeros(len(v)) for v in N}
    for v, index in datum:
        D[v][index] = 1.0
    NtN: Any = sum(np.einsum("ndq,ndr->qr", N[v], N[v]) for v in N)
    NtDN: Any = sum(np.einsum("n,ndq,ndr->qr", D[v], N[v], N[v]) for v in N)
    sizes, U = eigh(NtDN, NtN)  # Uᵀ NᵀN U = 1: N counts as orthonormal
    is_fixed = sizes > RELATIVE_EIGENVALUE_TOL * max(float(sizes.max()), 1e-300)
    inverse = (U[:, is_fixed] / sizes[is_fixed]) @ U[:, is_fixed].T
    return {v: D[v][:, None, None] * (N[v] @ inverse) for v in N}, U[:, ~is_fixed]

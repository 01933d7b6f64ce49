"""The linear solvers by name, which engine has which, and their settings."""

from dataclasses import dataclass

import numpy as np

CPU_SOLVERS = ("auto", "dense-cholesky", "sparse-cholesky", "cg", "reference")
XLA_SOLVERS = ("auto", "dense-cholesky", "sparse-cholesky", "cg")


@dataclass(frozen=True)
class CG:
    """Conjugate gradients on the reduced system, which is never formed.

    Steps far from the solution are solved inexactly: the relative residual at which a solve stops follows from the last
    decrease of the gradient (Eisenstat, Walker 1996), between `tightest` and `loosest`.
    """

    loosest: float = 1e-1
    tightest: float = 1e-3
    max_iterations: int = 200
    order: int = 0
    """Order of the preconditioner.  0: the diagonal blocks of S.  m > 0: m terms of the power series of S⁻¹ around the
    diagonal blocks of H_KK (Weber, Demmel, Chan, Cremers: Power Bundle Adjustment, CVPR 2023)."""

    def forcing(self, decrease: float) -> float:
        """Return the relative residual to stop at; `decrease` is the ratio of ‖g‖ to that of the last step."""
        return float(np.clip(0.9 * decrease**2, self.tightest, self.loosest))


LinearSolver = str | CG
"""A name, or `CG(...)` with its settings."""

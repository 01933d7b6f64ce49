"""The linear solvers by name, which engine has which, and their settings."""

from dataclasses import dataclass

import numpy as np

CPU_SOLVERS = ("auto", "dense-cholesky", "sparse-cholesky", "cg", "reference")
XLA_SOLVERS = ("auto", "dense-cholesky", "sparse-cholesky", "cg")


@dataclass(frozen=True)
class CG:
    """Conjugate gradients on the reduced system, which is never formed.

    A step far from the end need not be exact: a solve stops at the residual that the last fall of the gradient
    suggests (Eisenstat, Walker 1996), between `tightest` and `loosest`.
    """

    loosest: float = 1e-1
    tightest: float = 1e-3
    max_iterations: int = 200
    order: int = 0
    """0: preconditioned by the diagonal blocks of S.  m > 0: by m terms of the power series of S⁻¹ around the diagonal
    blocks of H_KK (Weber, Demmel, Chan, Cremers: Power Bundle Adjustment, CVPR 2023)."""

    def forcing(self, fall: float) -> float:
        """The relative residual to stop at, from the ratio of this gradient to the last."""
        return float(np.clip(0.9 * fall**2, self.tightest, self.loosest))


LinearSolver = str | CG
"""A name, or `CG(...)` with its settings."""

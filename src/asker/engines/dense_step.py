"""The step of a Levenberg-Marquardt method with a trust region, for dense derivatives.

Moré: The Levenberg-Marquardt Algorithm, Implementation and Theory, Numerical Analysis, Lecture Notes in Mathematics
630, 1978.

Problem     min over p of ‖Jp + f‖ with ‖Dp‖ ≤ Δ
Symbols     Δ -> radius    λ -> lam
Algorithm   (1) p = −(JᵀJ + λD²)⁻¹Jᵀf with λ = 0 if that step is short enough
            (2) otherwise λ by Newton's method on ‖Dp‖ = Δ, to 10 %
            (3) unknowns at active bounds are excluded; the step is clipped to the bounds
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MAX_SVD_UNKNOWNS = 300
"""Largest number of unknowns for which J is factorised by a singular value decomposition."""
RADIUS_TOL = 0.1
"""Tolerance of ‖Dp‖, relative to the radius."""
MAX_NEWTON_STEPS = 10


def column_norms(J: Floats) -> Floats:
    """Return the norm of each column; 0 for a column that is not finite."""
    norms = np.sqrt(np.einsum("nd,nd->d", J, J))
    return np.where(np.isfinite(norms), norms, 0.0)


def bounded_step(
    f: Floats, J: Floats, D: Floats, x: Floats, lower: Floats | float, upper: Floats | float, radius: float
) -> tuple[Floats, float]:
    """Return x after a step within the bounds, and its λ."""
    g = J.T @ f
    free = ~(((x <= lower) & (g > 0)) | ((x >= upper) & (g < 0)))  # (3)
    p, lam = np.zeros_like(x), 0.0
    if free.any() and np.isfinite(J).all():
        p[free], lam = constrained_step(J[:, free] / D[free], f, radius)
    return np.clip(x + p / D, lower, upper), lam


class Factorised(Protocol):
    """Factorised linear model of a step."""

    longest: Floats | None
    """The step for λ = 0, None if the columns of J are dependent."""
    gradient: Floats
    """Jᵀf"""

    def step(self, lam: float) -> tuple[Floats, float]:
        """Return p = −(JᵀJ + λI)⁻¹Jᵀf, and the derivative of ‖p‖ with respect to λ."""


class _BySVD:
    """Linear model of a step by a singular value decomposition of J."""

    def __init__(self, J: Floats, f: Floats):
        U, self.s, self.Vt = np.linalg.svd(J, full_matrices=False)
        self.sUf = self.s * (U.T @ f)
        self.gradient = self.Vt.T @ self.sUf
        has_full_rank = len(self.s) == J.shape[1] and self.s[-1] > np.finfo(float).eps * max(J.shape) * self.s[0]
        self.longest = -self.Vt.T @ (self.sUf / self.s**2) if has_full_rank else None

    def step(self, lam: float) -> tuple[Floats, float]:
        d = self.s**2 + lam
        q = np.divide(self.sUf, d, out=np.zeros_like(d), where=d > 0)
        size = np.linalg.norm(q)
        slope = np.sum(np.divide(q * q, d, out=np.zeros_like(d), where=d > 0))
        return -self.Vt.T @ q, -float(slope / size) if size > 0 else 0.0


class _ByCholesky:
    """Linear model of a step by the Cholesky factorisation of the normal equations."""

    def __init__(self, J: Floats, f: Floats):
        self.H, self.gradient = J.T @ J, J.T @ f
        try:
            self.longest: Floats | None = self.step(0.0)[0]
        except np.linalg.LinAlgError:
            self.longest = None

    def step(self, lam: float) -> tuple[Floats, float]:
        from scipy.linalg import cho_factor, cho_solve, solve_triangular

        L, is_lower = cho_factor(self.H + lam * np.eye(len(self.H)), lower=True)
        p = -cho_solve((L, is_lower), self.gradient)
        size = np.linalg.norm(p)
        q = solve_triangular(L, p, lower=True)
        return p, -float(q @ q / size) if size > 0 else 0.0


def constrained_step(J: Floats, f: Floats, radius: float) -> tuple[Floats, float]:
    """Return the step p that minimises ‖Jp + f‖ with ‖p‖ ≤ radius to 10 %, and its λ (Moré 1978, section 5)."""
    model: Factorised = (_BySVD if J.shape[1] <= MAX_SVD_UNKNOWNS else _ByCholesky)(J, f)
    longest, gradient = model.longest, float(np.linalg.norm(model.gradient))
    if longest is not None and np.linalg.norm(longest) <= (1 + RADIUS_TOL) * radius:
        return longest, 0.0
    if gradient == 0:
        return np.zeros(J.shape[1]), 0.0
    least, most = 0.0, gradient / radius
    if longest is not None:
        _, slope = model.step(0.0)
        least = float(np.linalg.norm(longest) - radius) / -slope if slope < 0 else 0.0
    lam = max(1e-3 * most, float(np.sqrt(least * most)))
    for _ in range(MAX_NEWTON_STEPS):
        if not least <= lam <= most:
            lam = max(1e-3 * most, float(np.sqrt(least * most)))
        p, slope = model.step(lam)
        excess = float(np.linalg.norm(p)) - radius
        if abs(excess) <= RADIUS_TOL * radius or slope == 0:
            break
        if excess < 0:
            most = lam
        least = max(least, lam - excess / slope)
        lam -= (excess + radius) / radius * excess / slope
    return p, lam

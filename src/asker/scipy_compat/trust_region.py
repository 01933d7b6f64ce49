"""Levenberg-Marquardt with a trust region and adaptive scales, for one vector of unknowns with dense derivatives.

Moré: The Levenberg-Marquardt Algorithm, Implementation and Theory, Numerical Analysis, Lecture Notes in Mathematics
630, 1978.

Problem     min over x of ½‖f(x)‖², within bounds
Symbols     D -> state.scales    Δ -> state.radius    λ -> state.damping    ρ -> ratio
Algorithm   (1) Dₖ is the largest norm so far of column k of J, unless the user has given the scales of the unknowns
            (2) solve min ‖Jp + f‖ with ‖Dp‖ ≤ Δ: p = −(JᵀJ + λD²)⁻¹Jᵀf, with λ by Newton's method on ‖Dp‖ = Δ
            (3) ρ is the decrease of the cost, divided by the decrease that the linear model predicts
            (4) accept if ρ > 1e-4; Δ is reduced if ρ ≤ ¼, and is 2‖Dp‖ if ρ ≥ ¾ or λ = 0
Deviations  The initial radius is ‖Dx‖ instead of 100 ‖Dx‖, since a first step of 100 ‖Dx‖ often reaches a region where
            the residuals no longer depend on some unknown.
            J is factorised by a singular value decomposition instead of QR with pivoting; if there are many unknowns,
            by the Cholesky factorisation of the normal equations.
            A step is solved without the unknowns at active bounds and then clipped to the bounds.
            For a robust loss, f and J are those of its Gauss-Newton model (losses.py).
"""

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular

from asker.engines.interface import Engine, Point
from asker.scipy_compat.losses import Loss, descent_model
from asker.strategies.strategy import Detail, State, cost

Floats = NDArray[np.float64]
MAX_SVD_UNKNOWNS = 300
"""Largest number of unknowns for which J is factorised by a singular value decomposition."""
RADIUS_TOL = 0.1
"""Tolerance of ‖Dp‖, relative to the radius."""
MIN_RATIO = 1e-4
"""Smallest ratio of the actual to the predicted decrease of an accepted step."""
MAX_NEWTON_STEPS = 10


@dataclass(frozen=True, eq=False)
class TrustRegionState(State):
    """State of `TrustRegion`."""

    radius: float = 1.0
    """Δ"""
    scales: Floats = field(default_factory=lambda: np.zeros(0))
    """D"""
    relative_radius: float = np.inf
    """Δ/‖Dx‖"""
    decrease: float = 0.0
    """Decrease of the cost in the last trial; negative if the cost would have increased."""
    predicted_decrease: float = 0.0
    """Decrease that the linear model predicted for the last trial."""

    @property
    def details(self) -> dict[str, Detail]:
        return super().details | {
            "relative_radius": self.relative_radius,
            "decrease": self.decrease,
            "predicted_decrease": self.predicted_decrease,
        }


@dataclass(frozen=True)
class TrustRegion:
    """Moré's method for the residuals of `functions` under a loss."""

    functions: Any = field(repr=False)
    """Residuals and derivatives of x (`vector_problem.Functions`)."""
    loss: Loss
    x_scale: tuple[float, ...] | None = None
    """Scale of each unknown; None to adapt the scales to the derivatives."""
    damping: float = 0.0
    """λ at the start; it follows from the radius."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> TrustRegionState:
        x = position(engine, start)
        f, J = self._model(x)
        scales = _norms(J) if self.x_scale is None else 1 / np.array(self.x_scale)
        unit = float(np.linalg.norm(f)) if self.x_scale is None else 1.0
        radius = float(np.linalg.norm(scales * x)) or unit or 1.0
        return TrustRegionState(start, cost(engine, start), self.damping, radius=radius, scales=scales)

    def step(self, engine: Engine, state: TrustRegionState) -> TrustRegionState:
        rows = engine.rows(state.point)[0]
        x, lower, upper = _parts(rows)
        f, J = self._model(x)
        g = J.T @ f
        D = np.maximum(state.scales, _norms(J)) if self.x_scale is None else state.scales  # (1)
        state = replace(state, scales=D)
        free = ~(((x <= lower) & (g > 0)) | ((x >= upper) & (g < 0)))
        D = np.where(D > 0, D, 1.0)
        p, lam = np.zeros_like(x), 0.0
        if free.any() and np.isfinite(J).all():
            p[free], lam = constrained_step(J[:, free] / D[free], f, state.radius)  # (2)
        to = np.clip(x + p / D, lower, upper)
        Jp = J @ (to - x)
        predicted = -float(f @ Jp + 0.5 * Jp @ Jp)
        trial = engine.evaluate((np.concatenate([to, rows[0, len(x) :]])[None],))
        trial_cost = cost(engine, trial)
        length = float(np.linalg.norm(D * (to - x)))
        state = _judged(state, trial, trial_cost, predicted, float(f @ Jp), length, lam)
        size = float(np.linalg.norm(D * (to if state.accepted else x)))
        return replace(state, relative_radius=state.radius / size if size > 0 else np.inf)

    def _model(self, x: Floats) -> tuple[Floats, Floats]:
        return descent_model(self.loss, self.functions(x), self.functions.derivatives(x))


def position(engine: Engine, point: Point) -> Floats:
    """Return x of a point."""
    return _parts(engine.rows(point)[0])[0]


def _parts(rows: Floats) -> tuple[Floats, Floats, Floats]:
    """Return x and its bounds from the row of a bounded variable: x, lower, upper, unit."""
    x, lower, upper, _ = np.split(np.array(rows[0], dtype=float), 4)
    return x, lower, upper


def _norms(J: Floats) -> Floats:
    """Return the norm of each column; 0 for a column that is not finite."""
    norms = np.sqrt(np.einsum("nd,nd->d", J, J))
    return np.where(np.isfinite(norms), norms, 0.0)


def _judged(
    state: TrustRegionState,
    trial: Point,
    trial_cost: float,
    predicted: float,
    slope: float,
    length: float,
    lam: float,
) -> TrustRegionState:
    """Return the state after a trial step of a length ‖Dp‖; `slope` is the derivative of the cost along the step."""
    is_finite = bool(np.isfinite(trial_cost))
    decrease = state.cost - trial_cost if is_finite else -np.inf
    ratio = decrease / predicted if predicted > 0 else 0.0  # (3)
    radius = state.radius
    if not is_finite:
        radius = 0.1 * min(radius, length)
    elif ratio <= 0.25:
        factor = 0.5 if decrease >= 0 or slope >= 0 else 0.5 * slope / (slope + decrease)
        radius = max(factor, 0.1) * min(radius, 10 * length)
    elif ratio >= 0.75 or lam == 0:
        radius = 2 * length  # (4)
    state = replace(state, radius=radius, damping=lam, decrease=decrease, predicted_decrease=predicted)
    if not (is_finite and ratio > MIN_RATIO):
        return replace(state, accepted=False, off_limits=not is_finite)
    return replace(state, point=trial, cost=trial_cost, accepted=True)


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
        except LinAlgError:
            self.longest = None

    def step(self, lam: float) -> tuple[Floats, float]:
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

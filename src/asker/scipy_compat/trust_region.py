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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.engines.dense_step import bounded_step, column_norms
from asker.engines.interface import Engine, Point
from asker.scipy_compat.losses import Loss, descent_model
from asker.strategies.strategy import Detail, State, cost

Floats = NDArray[np.float64]
MIN_RATIO = 1e-4
"""Smallest ratio of the actual to the predicted decrease of an accepted step."""


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
        scales = column_norms(J) if self.x_scale is None else 1 / np.array(self.x_scale)
        unit = float(np.linalg.norm(f)) if self.x_scale is None else 1.0
        radius = float(np.linalg.norm(scales * x)) or unit or 1.0
        return TrustRegionState(start, cost(engine, start), self.damping, radius=radius, scales=scales)

    def step(self, engine: Engine, state: TrustRegionState) -> TrustRegionState:
        rows = engine.rows(state.point)[0]
        x, lower, upper = _parts(rows)
        f, J = self._model(x)
        D = np.maximum(state.scales, column_norms(J)) if self.x_scale is None else state.scales  # (1)
        state = replace(state, scales=D)
        D = np.where(D > 0, D, 1.0)
        to, lam = bounded_step(f, J, D, x, lower, upper, state.radius)  # (2)
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

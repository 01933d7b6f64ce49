"""SciPy's losses, in the convention of kernels.

SciPy minimises ½ Σ s² ρ(f²/s²) with the scale s = `f_scale`; a kernel of width τ = s has ψ(u) = ½ s² ρ(u/s²), so that
ω = ρ' and dω/du = ρ''/s².
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from asker.kernels.kernel import Array, Kernel
from asker.kernels.kernels import Cauchy, Huber, PseudoHuber, Quadratic
from asker.tracing.array_namespace import namespace, shaped

Floats = NDArray[np.float64]
MIN_RADIAL_CURVATURE = 0.3
"""Smallest radial curvature of a residual in the model of a descent, relative to the tangential curvature ω."""


@dataclass(frozen=True)
class Arctan(Kernel):
    """Arctan, a redescending kernel as in SciPy: ψ = τ²/2 · arctan(v), ω = 1/(1+v²)."""

    unit_inflection = 3**-0.25

    def unit_psi(self, v: Array) -> Array:
        return namespace(v).arctan(v) / 2

    def unit_omega(self, v: Array) -> Array:
        return 1 / (1 + v * v)

    def unit_domega(self, v: Array) -> Array:
        return -2 * v / (1 + v * v) ** 2

    def unit_penalty(self, w: Array) -> Array:
        xp = namespace(w)
        v = xp.sqrt(xp.maximum(1 / xp.maximum(w, 1e-300) - 1, 0.0))  # where the weight is w
        return (xp.arctan(v) - w * v) / 2


LOSSES: dict[str, type[Kernel]] = {
    "linear": Quadratic,
    "huber": Huber,
    "soft_l1": PseudoHuber,
    "cauchy": Cauchy,
    "arctan": Arctan,
}
"""Kernels by SciPy's name of the loss."""


class Loss(Protocol):
    """Interface of kernels and losses for the evaluation of a solution."""

    def psi(self, u: Floats) -> Floats:
        """Return ψ, the cost of residuals with squares u."""

    def omega(self, u: Floats) -> Floats:
        """Return ω, the weights of residuals with squares u."""

    def domega(self, u: Floats) -> Floats:
        """Return dω/du."""


@dataclass(frozen=True)
class GivenLoss:
    """Loss from a user's function ρ of z = f²/s², which returns ρ, ρ' and ρ'' as an array (3, n)."""

    rho: Callable[[Floats], Any]
    scale: float

    def psi(self, u: Floats) -> Floats:
        return 0.5 * self.scale**2 * self._values(u)[0]

    def omega(self, u: Floats) -> Floats:
        return self._values(u)[1]

    def domega(self, u: Floats) -> Floats:
        return self._values(u)[2] / self.scale**2

    def _values(self, u: Floats) -> Floats:
        """Return ρ, ρ' and ρ'' of residuals with squares u."""
        return shaped("the value of loss", self.rho(u / self.scale**2), (3, len(u)))


class Rooted:
    """Residuals √(2ψ) with the sign of f, whose halved squares are the loss, and their derivatives.

    `functions` computes f when called, and its derivatives by the method `derivatives`.
    """

    is_linear = False

    def __init__(self, functions: Any, loss: Loss):
        self.functions, self.loss = functions, loss
        self.start, self.shape = functions.start, functions.shape

    def __call__(self, x: Floats) -> Floats:
        f = self.functions(x)
        return np.sign(f) * self._root(f)

    def derivatives(self, x: Floats) -> Floats:
        """Return the Jacobian of the rooted residuals √(2ψ(f²))."""
        f = self.functions(x)
        root = self._root(f)
        near = root <= 1e-8
        slope = np.where(near, 1.0, self.loss.omega(f * f) * np.abs(f) / np.where(near, 1.0, root))
        return slope[:, None] * self.functions.derivatives(x)

    def _root(self, f: Floats) -> Floats:
        """Return the rooted residuals √(2ψ(f²))."""
        return np.sqrt(np.maximum(2 * self.loss.psi(f * f), 0.0))


def in_model(loss: Loss, f: Floats, J: Floats) -> tuple[Floats, Floats]:
    """Return f and J as in SciPy's result: JᵀJ is the Gauss-Newton matrix of the loss, and Jᵀf its gradient."""
    u = f * f
    w = loss.omega(u)
    curvature = np.sqrt(np.maximum(w + 2 * u * loss.domega(u), np.finfo(float).eps))
    return f * w / curvature, J * curvature[:, None]


def descent_model(loss: Loss, f: Floats, J: Floats) -> tuple[Floats, Floats]:
    """Return f and J of a model whose gradient Jᵀf is that of the loss and whose curvature is bounded below.

    The radial curvature ω + 2u dω/du of a residual is at least 0.3 ω, as in `asker.Triggs`.
    """
    u = f * f
    w = loss.omega(u)
    c = np.sqrt(np.maximum(w + 2 * u * loss.domega(u), MIN_RADIAL_CURVATURE * w))
    return np.divide(f * w, c, out=np.zeros_like(f), where=c > 0), J * c[:, None]


def covariance(loss: Loss, f: Floats, J: Floats, weight: Floats) -> Floats:
    """Return the covariance s²(JᵀWJ)⁻¹ of a minimum of Σ wψ (Huber: Robust Statistics, 1981, 7.6).

    It is infinite if J does not have full rank.  s² = Σwψ'²/(n − d) / (mean ψ'')² is the variance of a residual of
    weight 1 if ψ is quadratic; n does not include residuals of weight 0.
    """
    f, J, weight = (x[weight > 0] for x in (f, J, weight))
    n, d = J.shape
    u = f * f
    w = loss.omega(u)
    unit = inverse_normal(np.sqrt(weight)[:, None] * J)
    if n <= d or unit is None or not (curvature := np.mean(w + 2 * u * loss.domega(u))) > 0:
        return np.full((d, d), np.inf)
    return unit * (np.sum(weight * w * w * u) / (n - d) / curvature**2)


def inverse_normal(J: Floats) -> Floats | None:
    """Return (JᵀJ)⁻¹ by a singular value decomposition, or None if J does not have full rank."""
    if not np.isfinite(J).all():
        return None
    _, s, Vt = np.linalg.svd(J, full_matrices=False)
    if len(s) < J.shape[1] or s[-1] <= np.finfo(float).eps * max(J.shape) * s[0]:
        return None
    scaled = Vt.T / s
    return scaled @ scaled.T

"""Robust kernels; `asker.kernels.kernel` states the convention that they follow."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from asker._arguments import is_number
from asker.kernels.kernel import Array, Kernel
from asker.tracing.array_namespace import namespace


@dataclass(frozen=True)
class SmoothTruncated(Kernel):
    """Smooth truncated kernel of the ASKER paper: ψ = τ²/4 · v(2−v), ω = 1−v with v = min(u/τ², 1).  Redescending."""

    unit_inflection = 1 / np.sqrt(3)

    def unit_psi(self, v: Array) -> Array:
        v = namespace(v).minimum(v, 1.0)
        return v * (2 - v) / 4

    def unit_omega(self, v: Array) -> Array:
        return 1 - namespace(v).minimum(v, 1.0)

    def unit_domega(self, v: Array) -> Array:
        return namespace(v).where(v < 1, -1.0, 0.0)

    def unit_penalty(self, w: Array) -> Array:
        return (w - 1) ** 2 / 4


@dataclass(frozen=True)
class Quadratic(Kernel):
    """Ordinary least squares: ψ = u/2.  τ only affects `Result.within_inflection`."""

    convex = True
    quadratic = True

    def unit_psi(self, v: Array) -> Array:
        return v / 2

    def unit_omega(self, v: Array) -> Array:
        return namespace(v).ones_like(v)

    def unit_domega(self, v: Array) -> Array:
        return namespace(v).zeros_like(v)


@dataclass(frozen=True)
class Huber(Kernel):
    """Huber's kernel: quadratic up to τ, linear beyond.  Convex: gross outliers have a bounded influence, but not 0."""

    convex = True

    def unit_psi(self, v: Array) -> Array:
        xp = namespace(v)
        return xp.where(v <= 1, v / 2, xp.sqrt(xp.maximum(v, 1.0)) - 0.5)

    def unit_omega(self, v: Array) -> Array:
        xp = namespace(v)
        return 1 / xp.sqrt(xp.maximum(v, 1.0))

    def unit_domega(self, v: Array) -> Array:
        xp = namespace(v)
        return xp.where(v <= 1, 0.0, -0.5 * xp.maximum(v, 1.0) ** -1.5)

    def unit_penalty(self, w: Array) -> Array:
        return (1 / w - 1) / 2


@dataclass(frozen=True)
class PseudoHuber(Kernel):
    """Smooth approximation of Huber's kernel: ψ = τ²(√(1+v) − 1).  Convex."""

    convex = True

    def unit_psi(self, v: Array) -> Array:
        return v / (namespace(v).sqrt(1 + v) + 1)  # √(1+v) − 1 without cancellation

    def unit_omega(self, v: Array) -> Array:
        return 1 / namespace(v).sqrt(1 + v)

    def unit_domega(self, v: Array) -> Array:
        return -0.5 * (1 + v) ** -1.5

    def unit_penalty(self, w: Array) -> Array:
        return (1 / w - 2 + w) / 2


@dataclass(frozen=True)
class Cauchy(Kernel):
    """Cauchy's kernel: ψ = τ²/2 · log(1+v), ω = 1/(1+v).  ψ is unbounded, but grows slowly."""

    def unit_psi(self, v: Array) -> Array:
        return namespace(v).log1p(v) / 2

    def unit_omega(self, v: Array) -> Array:
        return 1 / (1 + v)

    def unit_domega(self, v: Array) -> Array:
        return -1 / (1 + v) ** 2

    def unit_penalty(self, w: Array) -> Array:
        return (w - 1 - namespace(w).log(w)) / 2


@dataclass(frozen=True)
class GemanMcClure(Kernel):
    """Geman-McClure kernel: ψ = τ²/2 · v/(1+v), ω = 1/(1+v)².  Redescending."""

    unit_inflection = 1 / np.sqrt(3)

    def unit_psi(self, v: Array) -> Array:
        return v / (1 + v) / 2

    def unit_omega(self, v: Array) -> Array:
        return 1 / (1 + v) ** 2

    def unit_domega(self, v: Array) -> Array:
        return -2 / (1 + v) ** 3

    def unit_penalty(self, w: Array) -> Array:
        return (namespace(w).sqrt(w) - 1) ** 2 / 2


@dataclass(frozen=True)
class Welsch(Kernel):
    """Welsch's kernel: ψ = τ²/2 · (1 − exp(−v)), ω = exp(−v).  Redescending."""

    unit_inflection = 1 / np.sqrt(2)

    def unit_psi(self, v: Array) -> Array:
        return -namespace(v).expm1(-v) / 2

    def unit_omega(self, v: Array) -> Array:
        return namespace(v).exp(-v)

    def unit_domega(self, v: Array) -> Array:
        return -namespace(v).exp(-v)

    def unit_penalty(self, w: Array) -> Array:
        xp = namespace(w)
        return (1 - w + w * xp.log(xp.maximum(w, 1e-300))) / 2


@dataclass(frozen=True)
class Tukey(Kernel):
    """Tukey's biweight: ψ = τ²/6 · (1 − (1−v)³), ω = (1−v)² with v = min(u/τ², 1).  Redescending."""

    unit_inflection = 1 / np.sqrt(5)

    def unit_psi(self, v: Array) -> Array:
        v = namespace(v).minimum(v, 1.0)
        return v * (3 - v * (3 - v)) / 6  # 1 − (1−v)³ without cancellation

    def unit_omega(self, v: Array) -> Array:
        return (1 - namespace(v).minimum(v, 1.0)) ** 2

    def unit_domega(self, v: Array) -> Array:
        return -2 * (1 - namespace(v).minimum(v, 1.0))

    def unit_penalty(self, w: Array) -> Array:
        return (1 - 3 * w + 2 * w * namespace(w).sqrt(w)) / 6


@dataclass(frozen=True)
class LQQ(Kernel):
    """Linear-quadratic-quadratic kernel of Koller and Stahel (2011), with b = 1.5 c and s = 1.5.  Redescending.

    The influence is linear up to c = τ, decreases from 2τ on with a slope of at most 1/2, and is 0 beyond 8τ.
    """

    unit_inflection = 2.0

    def unit_psi(self, v: Array) -> Array:
        xp = namespace(v)
        x = xp.sqrt(xp.minimum(v, 64.0))
        y, z = x - 1, x - 2.5
        middle = x * x / 2 - y * y * y / 6
        far = 41 / 16 + z * (11 / 8 - z * (1 / 4 - z / 66))
        return xp.where(v <= 1, v / 2, xp.where(x <= 2.5, middle, far))

    def unit_omega(self, v: Array) -> Array:
        xp = namespace(v)
        x = xp.sqrt(xp.maximum(xp.minimum(v, 64.0), 1.0))
        y, z = x - 1, x - 2.5
        return xp.where(x <= 2.5, x - y * y / 2, 11 / 8 - z * (1 / 2 - z / 22)) / x

    def unit_domega(self, v: Array) -> Array:
        xp = namespace(v)
        x = xp.sqrt(xp.maximum(xp.minimum(v, 64.0), 1.0))
        y, z = x - 1, x - 2.5
        influence = xp.where(x <= 2.5, x - y * y / 2, 11 / 8 - z * (1 / 2 - z / 22))
        slope = xp.where(x <= 2.5, 2 - x, z / 11 - 1 / 2)
        return xp.where((v > 1) & (v < 64), (slope * x - influence) / (2 * x * x * x), 0.0)

    def unit_penalty(self, w: Array) -> Array:
        xp, h = namespace(w), 0.5 + w
        near = 2 - w + xp.sqrt(xp.maximum((2 - w) ** 2 - 1, 0.0))  # residual of weight w up to 2.5
        far = 2.5 + 11 * (h - xp.sqrt(xp.maximum(h * h - (2.75 - 5 * w) / 11, 0.0)))
        x = xp.where(w >= 0.55, near, far)
        return self.unit_psi(x * x) - w * x * x / 2


@dataclass(frozen=True)
class TruncatedQuadratic(Kernel):
    """Truncated least squares: ψ = min(u, τ²)/2, ω = 1 within τ and 0 beyond.  Redescending, not smooth."""

    def unit_psi(self, v: Array) -> Array:
        return namespace(v).minimum(v, 1.0) / 2

    def unit_omega(self, v: Array) -> Array:
        return namespace(v).where(v <= 1, 1.0, 0.0)

    def unit_domega(self, v: Array) -> Array:
        return namespace(v).zeros_like(v)

    def unit_penalty(self, w: Array) -> Array:
        return (1 - w) / 2


@dataclass(frozen=True)
class Barron(Kernel):
    """Barron's general kernel (CVPR 2019): α = 2 quadratic, 1 pseudo-Huber, 0 Cauchy, −2 Geman-McClure, −∞ Welsch.

    τ is Barron's c.  His special cases have factors of 2 in v that the other classes of this module do not have.
    """

    alpha: float = 0.0
    """Shape α: the smaller, the smaller the weights of outliers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.alpha) or not self.alpha <= 2:
            raise ValueError(f"alpha must be at most 2 and a number, not {self.alpha!r}")

    @property
    def convex(self) -> bool:  # type: ignore[override]
        return self.alpha >= 1

    @property
    def quadratic(self) -> bool:  # type: ignore[override]
        return self.alpha == 2

    @property
    def unit_inflection(self) -> float:  # type: ignore[override]
        a = self.alpha
        if a == -np.inf:
            return 1.0
        return float(np.sqrt((2 - a) / (1 - a))) if a < 1 else 1.0

    def unit_psi(self, v: Array) -> Array:
        xp, a = namespace(v), self.alpha
        if a == 2:
            return v / 2
        if a == 0:
            return xp.log1p(v / 2)
        if a == -np.inf:
            return -xp.expm1(-v / 2)
        b = 2 - a
        return b / a * xp.expm1(a / 2 * xp.log1p(v / b))

    def unit_omega(self, v: Array) -> Array:
        xp, a = namespace(v), self.alpha
        if a == -np.inf:
            return xp.exp(-v / 2)
        if a == 2:
            return xp.ones_like(v)
        return xp.exp((a / 2 - 1) * xp.log1p(v / (2 - a)))

    def unit_domega(self, v: Array) -> Array:
        xp, a = namespace(v), self.alpha
        if a == -np.inf:
            return -xp.exp(-v / 2) / 2
        if a == 2:
            return xp.zeros_like(v)
        return -0.5 * xp.exp((a / 2 - 2) * xp.log1p(v / (2 - a)))

    @property
    def has_penalty(self) -> bool:
        return self.alpha < 2

    def unit_penalty(self, w: Array) -> Array:
        xp, a = namespace(w), self.alpha
        if a == 2:
            raise TypeError("Barron(alpha=2) is quadratic and has no lifted penalty")
        if a == 0:
            return w - 1 - xp.log(w)
        if a == -np.inf:
            return 1 - w + w * xp.log(xp.maximum(w, 1e-300))
        return (2 - a) / a * ((1 - a / 2) * w ** (a / (a - 2)) + a * w / 2 - 1)


@dataclass(frozen=True)
class Mixture(Kernel):
    """Negative log-likelihood of Gaussian inliers and uniformly distributed outliers.

    ψ = −(1+ε)/2c · log((exp(−cv) + ε)/(1+ε)) with ε = exp(−c).  The weight of a residual is proportional to the
    posterior probability that it is an inlier, which is a half at τ.  The standard deviation of inliers is τ/√(2c).
    """

    c: float = 6.0
    """Logarithm of the density of inliers at 0, relative to the density of outliers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.c < np.inf:
            raise ValueError(f"c must be positive and finite, not {self.c!r}")

    @property
    def inlier_radius(self) -> Any:
        """Inflection point, the root of ω + 2vω′ = 0: with z = cv − ½, z eᶻ = exp(c − ½)/2, so z is Wright's ω."""
        from scipy.special import wrightomega

        v = min((float(wrightomega(self.c - 0.5 - np.log(2))) + 0.5) / self.c, 1.0)
        return self.tau * np.sqrt(v)

    @property
    def _background(self) -> float:
        """Constant ε = exp(−c) of the formulas."""
        return float(np.exp(-self.c))

    def unit_psi(self, v: Array) -> Array:
        xp, e = namespace(v), self._background
        near = xp.log1p(xp.expm1(-self.c * v) / (1 + e))
        far = xp.log((xp.exp(-self.c * v) + e) / (1 + e))
        return -(1 + e) / (2 * self.c) * xp.where(self.c * v < 0.5, near, far)

    def unit_omega(self, v: Array) -> Array:
        xp, e = namespace(v), self._background
        near = xp.exp(-self.c * v)
        return (1 + e) * near / (near + e)

    def unit_domega(self, v: Array) -> Array:
        xp, e = namespace(v), self._background
        near = xp.exp(-self.c * v)
        return -self.c * (1 + e) * e * near / (near + e) ** 2

    def unit_penalty(self, w: Array) -> Array:
        xp, e = namespace(w), self._background
        v = xp.log(((1 + e) / xp.maximum(w, 1e-300) - 1) / e) / self.c  # v of weight w
        return xp.maximum(self.unit_psi(v) - w * v / 2, 0.0)

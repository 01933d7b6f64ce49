"""Robust kernels, in one convention.

Every kernel is a function of u = ‖r‖², the *squared* norm of a residual:

    psi(u)      the cost ψ of one residual, ψ ≈ u/2 near 0
    omega(u)    its weight, ω = 2 dψ/du = ψ'(‖r‖)/‖r‖, with ω(0) = 1
    domega(u)   dω/du
    penalty(w)  the lifted penalty, with ψ(u) = min over w of  w·u/2 + penalty(w)

and is homogeneous in its width τ:  ψ_τ(u) = τ² ψ₁(u/τ²).  A class therefore writes its formulas once, for
τ = 1, as functions of v = u/τ².  They run on NumPy arrays and inside JAX alike.

To add a kernel, subclass `Kernel`, write `unit_psi`, `unit_omega` and `unit_domega`, and list it in `KERNELS`: then
`--kernel` has it, and the tests run for it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from asker._arguments import check_positive, is_number
from asker.tracing.array_namespace import namespace

if TYPE_CHECKING:
    import jax

SMALLEST_TAU, LARGEST_TAU = 1e-150, 1e150
"""Widths whose squares are still numbers: use other units beyond."""
Array = TypeVar("Array", np.ndarray, "jax.Array", float)
"""What a formula takes and gives: arrays of NumPy or JAX, or one number."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of width τ, made from the formulas of its unit kernel."""

    tau: float = 1.0
    """The width: residuals well beyond it count as outliers."""

    def __post_init__(self):
        number = isinstance(self.tau, int | float | np.integer | np.floating) and not isinstance(self.tau, bool)
        is_array = getattr(getattr(self.tau, "dtype", None), "kind", "b") not in "bcOUS"  # also one that JAX traces
        if not (number or is_array) or (number and not 0 < self.tau < np.inf):
            raise ValueError(f"tau must be positive, finite and a number, not {self.tau!r}")
        if number and not SMALLEST_TAU <= self.tau <= LARGEST_TAU:
            raise ValueError(f"tau must lie between {SMALLEST_TAU:g} and {LARGEST_TAU:g}, not {self.tau!r}")

    def psi(self, u: Array) -> Array:
        """ψ, the cost of residuals with squared norms u."""
        return self.tau**2 * self.unit_psi(u / self.tau**2)

    def omega(self, u: Array) -> Array:
        """ω = 2 dψ/du, their weights."""
        return self.unit_omega(u / self.tau**2)

    def domega(self, u: Array) -> Array:
        """dω/du"""
        return self.unit_domega(u / self.tau**2) / self.tau**2

    def penalty(self, w: Array) -> Array:
        """The lifted penalty: ψ(u) is the minimum over w of w·u/2 + penalty(w)."""
        return self.tau**2 * self.unit_penalty(w)

    @property
    def inlier_radius(self) -> Any:
        """‖r‖ at the inflection point, where ψ turns from convex to concave; `asker.statistics.inliers` goes by it
        where the noise cannot be estimated."""
        return self.tau * self.unit_inflection

    unit_inflection = 1.0
    convex = False
    """Whether ψ(‖r‖) is convex in r, so that there are no poor minima to leave (of the kernel's making)."""
    quadratic = False
    """Whether ω is 1 everywhere: then there is nothing to lift, and a method that lifts keeps the weight at 1."""

    def unit_psi(self, v: Array) -> Array:
        """ψ for τ = 1."""
        raise TypeError(f"{type(self).__name__} has no value ψ: write `unit_psi`")

    def unit_omega(self, v: Array) -> Array:
        """ω for τ = 1."""
        raise TypeError(f"{type(self).__name__} has no weight ω: write `unit_omega`")

    def unit_domega(self, v: Array) -> Array:
        """dω/dv for τ = 1."""
        raise TypeError(f"{type(self).__name__} has no slope of ω: write `unit_domega`")

    def unit_penalty(self, w: Array) -> Array:
        """The lifted penalty for τ = 1."""
        raise TypeError(f"{type(self).__name__} has no lifted penalty")

    @property
    def has_penalty(self) -> bool:
        """Whether the kernel can be lifted."""
        return type(self).unit_penalty is not Kernel.unit_penalty


@dataclass(frozen=True)
class SmoothTruncated(Kernel):
    """ψ = τ²/4 · v(2−v), ω = 1−v with v = min(u/τ², 1).  Redescending; the kernel of the ASKER paper."""

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
    """ψ = u/2: ordinary least squares.  τ only says which residuals count as `within_inflection`."""

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
    """Quadratic up to τ, linear beyond.  Convex: gross outliers still pull."""

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
    """ψ = τ²(√(1+v) − 1): Huber without the corner.  Convex."""

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
    """ψ = τ²/2 · log(1+v), ω = 1/(1+v).  Grows without bound, slowly."""

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
    """ψ = τ²/2 · v/(1+v), ω = 1/(1+v)².  Redescending."""

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
    """ψ = τ²/2 · (1 − exp(−v)), ω = exp(−v).  Redescending."""

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
    """ψ = τ²/6 · (1 − (1−v)³), ω = (1−v)² with v = min(u/τ², 1).  Redescending."""

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
class TruncatedQuadratic(Kernel):
    """ψ = min(u, τ²)/2, ω = 1 inside τ and 0 beyond.  Redescending, not smooth."""

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

    τ is Barron's c.  His members carry factors of 2 in v that the classes of this file leave out.
    """

    alpha: float = 0.0
    """The shape: the smaller, the less an outlier counts."""

    def __post_init__(self):
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
    """ψ = −(1+ε)/2c · log((exp(−cv) + ε)/(1+ε)) with ε = exp(−c): Gaussian inliers among outliers of even density.

    It is the negative log-likelihood of that, so the weight of a residual is the probability that it is an inlier,
    a half at τ.  The standard deviation of an inlier is τ/√(2c).
    """

    c: float = 6.0
    """How clearly inliers stand out: the logarithm of their density at 0, as a multiple of that of outliers."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.c < np.inf:
            raise ValueError(f"c must be positive and finite, not {self.c!r}")

    @property
    def inlier_radius(self) -> Any:
        """Where ω + 2vω' is 0, by bisection."""
        low, high = 0.0, 1.0
        for _ in range(60):
            v = (low + high) / 2
            q = self._background * np.exp(self.c * v)
            low, high = (v, high) if 1 + q > 2 * self.c * v * q else (low, v)
        return self.tau * np.sqrt(low)

    @property
    def _background(self) -> float:
        """ε"""
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
        v = xp.log(((1 + e) / xp.maximum(w, 1e-300) - 1) / e) / self.c  # where the weight is w
        return xp.maximum(self.unit_psi(v) - w * v / 2, 0.0)


@dataclass(frozen=True)
class Scaled:
    """ψ^η(r) = η² ψ(r/η): the same kernel, `scale` times as wide.  One level of graduated non-convexity."""

    kernel: Any
    scale: Any

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel | Scaled):
            raise ValueError(f"kernel is {self.kernel!r}, expected a kernel such as Huber(tau=1.0)")
        if not hasattr(self.scale, "dtype"):  # arrays, and what JAX traces, have one
            check_positive("scale", self.scale)

    def psi(self, u: Array) -> Array:
        """ψ of the scaled kernel."""
        return self.scale**2 * self.kernel.psi(u / self.scale**2)

    def omega(self, u: Array) -> Array:
        """ω of the scaled kernel."""
        return self.kernel.omega(u / self.scale**2)

    def domega(self, u: Array) -> Array:
        """dω/du of the scaled kernel."""
        return self.kernel.domega(u / self.scale**2) / self.scale**2

    def penalty(self, w: Array) -> Array:
        """Its lifted penalty."""
        return self.scale**2 * self.kernel.penalty(w)

    @property
    def has_penalty(self) -> bool:
        """Whether the kernel can be lifted."""
        return self.kernel.has_penalty

    @property
    def inlier_radius(self) -> Any:
        """‖r‖ at the inflection point."""
        return self.scale * self.kernel.inlier_radius

    @property
    def tau(self) -> Any:
        """Its width."""
        return self.scale * self.kernel.tau

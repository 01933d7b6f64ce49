"""Base class of robust kernels, and kernels scaled in width.

Every kernel is a function of u = ‖r‖², the *squared* norm of a residual:

    psi(u)      cost ψ of one residual, ψ ≈ u/2 near 0
    omega(u)    weight ω = 2 dψ/du = ψ'(‖r‖)/‖r‖, with ω(0) = 1
    domega(u)   dω/du
    penalty(w)  lifted penalty, with ψ(u) = min over w of  w·u/2 + penalty(w)

and is homogeneous in its width τ:  ψ_τ(u) = τ² ψ₁(u/τ²).  A class therefore states its formulas once, for τ = 1, as
functions of v = u/τ².  The formulas run on NumPy arrays and inside JAX.

To add a kernel, derive a class from `Kernel`, write `unit_psi`, `unit_omega` and `unit_domega`, and list the class in
`KERNELS` of `asker.kernels.registry`: the option `--kernel` then accepts its name, and all tests of kernels run for it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from asker._arguments import check_positive

if TYPE_CHECKING:
    import jax

SMALLEST_TAU, LARGEST_TAU = 1e-150, 1e150
"""Range of widths whose squares are finite and positive; beyond it, change the unit of the residuals."""
Array = TypeVar("Array", np.ndarray, "jax.Array", float)
"""Argument and value of a formula: an array of NumPy or JAX, or a number."""


@dataclass(frozen=True)
class Kernel:
    """Robust kernel of width τ, defined by the formulas of its unit kernel."""

    tau: float = 1.0
    """Width: residuals well beyond it are treated as outliers."""

    def __post_init__(self) -> None:
        number = isinstance(self.tau, int | float | np.integer | np.floating) and not isinstance(self.tau, bool)
        is_array = getattr(getattr(self.tau, "dtype", None), "kind", "b") not in "bcOUS"  # including JAX tracers
        if not (number or is_array) or (number and not 0 < self.tau < np.inf):
            raise ValueError(f"tau must be positive, finite and a number, not {self.tau!r}")
        if number and not SMALLEST_TAU <= self.tau <= LARGEST_TAU:
            raise ValueError(f"tau must lie between {SMALLEST_TAU:g} and {LARGEST_TAU:g}, not {self.tau!r}")

    def psi(self, u: Array) -> Array:
        """Return ψ, the cost of residuals with squared norms u."""
        return self.tau**2 * self.unit_psi(u / self.tau**2)

    def omega(self, u: Array) -> Array:
        """Return ω = 2 dψ/du, the weights of residuals with squared norms u."""
        return self.unit_omega(u / self.tau**2)

    def domega(self, u: Array) -> Array:
        """Return dω/du."""
        return self.unit_domega(u / self.tau**2) / self.tau**2

    def penalty(self, w: Array) -> Array:
        """Return the lifted penalty of weights w: ψ(u) is the minimum over w of w·u/2 + penalty(w)."""
        return self.tau**2 * self.unit_penalty(w)

    @classmethod
    def at_efficiency(cls, efficiency: float = 0.95, sigma: float = 1.0, **settings: Any) -> Self:
        """Return the kernel with this asymptotic efficiency under Gaussian noise.

        Parameters
        ----------
        efficiency
            Variance of least squares, relative to the variance of the M-estimator with this kernel.
        sigma
            Standard deviation of the noise.
        **settings
            Further parameters of the kernel, such as `alpha` of `Barron`.

        Raises
        ------
        ValueError
            If no width has this efficiency, as for `Quadratic`.

        Examples
        --------
        >>> asker.Tukey.at_efficiency(0.95)
        Tukey(tau=4.685061...)
        """
        from asker.kernels.tuning import efficiency as quantity
        from asker.kernels.tuning import width_at

        return cls(tau=sigma * width_at(quantity, cls(**settings), float(efficiency)), **settings)

    @classmethod
    def at_breakdown(cls, breakdown: float = 0.5, sigma: float = 1.0, **settings: Any) -> Self:
        """Return the kernel whose S-estimator has this breakdown point and is consistent under Gaussian noise.

        Parameters
        ----------
        breakdown
            Share of outliers that the S-estimator tolerates, at most 0.5.
        sigma
            Standard deviation of the noise.
        **settings
            Further parameters of the kernel.

        Raises
        ------
        ValueError
            If ψ is unbounded, as for `Huber`.
        """
        from asker.kernels.tuning import breakdown as quantity
        from asker.kernels.tuning import width_at

        return cls(tau=sigma * width_at(quantity, cls(**settings), float(breakdown)), **settings)

    @property
    def inlier_radius(self) -> Any:
        """Inflection point: ‖r‖ at which ψ turns from convex to concave.

        `asker.statistics.inliers` classifies by it if the noise cannot be estimated.
        """
        return self.tau * self.unit_inflection

    unit_inflection = 1.0
    """Inflection point for τ = 1."""
    convex = False
    """True if ψ(‖r‖) is convex in r; a convex kernel adds no local minima."""
    quadratic = False
    """True if ω = 1 everywhere; lifting methods then keep the weight at 1."""

    def unit_psi(self, v: Array) -> Array:
        """Return ψ for τ = 1."""
        raise TypeError(f"{type(self).__name__} does not define its cost ψ: write `unit_psi`")

    def unit_omega(self, v: Array) -> Array:
        """Return ω for τ = 1."""
        raise TypeError(f"{type(self).__name__} does not define its weight ω: write `unit_omega`")

    def unit_domega(self, v: Array) -> Array:
        """Return dω/dv for τ = 1."""
        raise TypeError(f"{type(self).__name__} does not define the derivative of ω: write `unit_domega`")

    def unit_penalty(self, w: Array) -> Array:
        """Return the lifted penalty for τ = 1."""
        raise TypeError(f"{type(self).__name__} has no lifted penalty")

    @property
    def has_penalty(self) -> bool:
        """True if the kernel has a lifted penalty."""
        return type(self).unit_penalty is not Kernel.unit_penalty


@dataclass(frozen=True)
class Scaled:
    """Kernel ψ^η(r) = η² ψ(r/η): `scale` times as wide, one level of graduated non-convexity."""

    kernel: Any
    """Kernel to scale; may itself be scaled."""
    scale: Any
    """Factor η of the width."""

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel | Scaled):
            raise ValueError(f"kernel is {self.kernel!r}, expected a kernel such as Huber(tau=1.0)")
        if not hasattr(self.scale, "dtype"):  # arrays and JAX tracers have one
            check_positive("scale", self.scale)

    def psi(self, u: Array) -> Array:
        """Return ψ of the scaled kernel."""
        return self.scale**2 * self.kernel.psi(u / self.scale**2)

    def omega(self, u: Array) -> Array:
        """Return ω of the scaled kernel."""
        return self.kernel.omega(u / self.scale**2)

    def domega(self, u: Array) -> Array:
        """Return dω/du of the scaled kernel."""
        return self.kernel.domega(u / self.scale**2) / self.scale**2

    def penalty(self, w: Array) -> Array:
        """Return the lifted penalty of the scaled kernel."""
        return self.scale**2 * self.kernel.penalty(w)

    @property
    def has_penalty(self) -> bool:
        """True if the kernel has a lifted penalty."""
        return self.kernel.has_penalty

    @property
    def inlier_radius(self) -> Any:
        """Inflection point of the scaled kernel."""
        return self.scale * self.kernel.inlier_radius

    @property
    def tau(self) -> Any:
        """Width of the scaled kernel."""
        return self.scale * self.kernel.tau

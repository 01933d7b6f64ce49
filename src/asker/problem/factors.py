"""Factors: observations of one kind, with the variables that they depend on.

cameras = Variables(poses, manifold=SE3)
points = Variables(xyz)
factors = Factors(reprojection, cameras[i], points[j], data=uv)
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from asker.kernels.kernel import LARGEST_TAU, SMALLEST_TAU, Kernel, Scaled
from asker.kernels.kernels import Quadratic, SmoothTruncated
from asker.problem.residual_function import Compiled, ResidualFunction
from asker.problem.variables import ProblemError, Slot, Variables
from asker.tracing.array_namespace import float64, reject_tracers
from asker.tracing.jaxpr_digest import digest_of_trace

TRACED: dict[bytes, Compiled] = {}
"""Compiled code of the residual functions that this process solved last, by digest of the computation."""
MAX_TRACED = 16
"""Largest number of functions in `TRACED`.  Programs of XLA take 5 MB per function; machine code of LLVM takes 0.1 MB
and is also in the cache folder."""


class Factors(ResidualFunction):
    """Observations of one kind: a residual function and the variables and data that it is applied to."""

    def __init__(
        self,
        residual: Callable[..., Any],
        *slots: Slot,
        data: Any = (),
        kernel: Kernel | Scaled | None = None,
        weight: Any = None,
        tau: Any = None,
        jacobian: Callable[..., Any] | None = None,
        linear: bool = False,
        valid: Callable[..., Any] | None = None,
        name: str | None = None,
    ):
        """
        Parameters
        ----------
        residual
            JAX function of ONE observation, `residual(*variables, *data)`, that returns a number or an array (p,).
        *slots
            `variables[index]`, one per variable argument.  The index has the number of a variable for each observation;
            it may also be a slice, a mask of variables or `...`.
        data
            Array or tuple of arrays with one row per observation.  They are copied.  A JAX function receives 32-bit
            numbers as 64-bit numbers, and all others unchanged.  Each may be a dictionary, a named tuple or a dataclass
            of arrays, also nested; then the residual function receives the same.
        kernel
            Robust kernel ψ.  If neither `kernel` nor `tau` is specified, the noise scale is unknown: `solve` estimates
            it together with a kernel.  With an explicit strategy, `solve` uses the smooth truncated kernel with τ = 1
            instead.
        weight
            Number or array (n,) by which ψ is multiplied.  If the noise scale is unknown, it is the relative precision
            of an observation, whose standard deviation is σ/√weight.  Observations of weight 0 are excluded from the
            solve and from all statistics.
        tau
            Width of the kernel for each observation, (n,).
        jacobian
            Derivatives.  If specified, `residual` and `jacobian` are NumPy functions of ALL observations, and
            `jacobian` returns one array (n, p, tangent) per slot: the derivatives with respect to a step of each
            variable.
        linear
            Whether the residual is affine in the variables.  Only for factors with `jacobian`; for JAX functions asker
            detects it.
        valid
            JAX function of the same arguments as `residual` that returns a number.  It is positive if the observation
            is possible, as the depth of a point in front of a camera.  An impossible observation is never an inlier,
            and no solution benefits from it.
        name
            Name in error messages and results; by default that of the function.

        Raises
        ------
        ProblemError
            If arrays, indices or functions do not fit together.
        """
        super().__init__(residual, slots, data, jacobian, linear, valid, name)
        self.noise_is_known = kernel is not None or tau is not None
        """True if the user has specified the noise scale, by a kernel or its width."""
        self.weight_is_precision = False
        """True if the kernel applies to √weight·r with the width τ, so that the cost is ψ(weight·u): if τ was
        estimated."""
        self.kernel = SmoothTruncated() if kernel is None else self._checked_kernel(kernel)
        self.origin: Factors = self
        """Factors of the user, if these are a copy under another kernel."""
        self.weight = None if weight is None else self._checked_weight(weight)
        self.balance = 1.0
        """Factor of the root of the weight that balances factor groups by their noise (`asker.search.driver`);
        reported noise scales are without it."""
        self.tau = float(self.kernel.tau) if tau is None else self._per_observation("tau", tau)
        self._check_positive(self.tau)
        self._check_width()

    @property
    def is_informative(self) -> np.ndarray:
        """Mask (n,) of the observations with positive weight; all others carry no information."""
        return np.ones(self.n, dtype=bool) if self.weight is None else self.weight > 0

    def __repr__(self) -> str:
        groups = ", ".join(slot.variables.name for slot in self.slots)
        kernel = f"kernel={self.kernel}" if self.noise_is_known else "kernel and noise scale unspecified"
        return f"Factors({self.name!r}, n={self.n}, on {groups}, {kernel})"

    def under(self, kernel: Kernel) -> "Factors":
        """Return the same factors under another kernel, with its width for every observation.

        If the noise scale is unknown, the kernel has an estimated width, which applies to √weight·r.
        """
        if self.noise_is_known and kernel == self.kernel:
            return self
        other = copy(self)
        other.kernel, other.tau, other.noise_is_known = kernel, float(kernel.tau), True
        other.weight_is_precision = self.weight_is_precision or not self.noise_is_known
        if other.weight_is_precision and self.weight is not None:
            other.tau = kernel.tau / np.sqrt(np.where(self.is_informative, self.weight, 1.0))
        return other

    def with_kernel_and_balance_of(self, other: "Factors") -> "Factors":
        """Return the same factors with the kernel and the balance of `other`."""
        balanced = self if other.balance == self.balance else self.balanced(other.balance)
        return balanced.under(other.kernel) if other.noise_is_known else balanced

    def with_kernel(self, kernel: Kernel | Scaled) -> "Factors":
        """Return the same factors under a kernel that the user specifies; its width applies to r, not to √weight·r.

        Weights are those of the user, without a balance.
        """
        other, kernel = copy(self), self._checked_kernel(kernel)
        other.kernel, other.tau, other.noise_is_known = kernel, float(kernel.tau), True
        other.weight_is_precision, other.balance = False, 1.0
        other.weight = None if self.weight is None else self.weight / self.balance**2
        return other

    def balanced(self, balance: float) -> "Factors":
        """Return the same factors with the weights of the user multiplied by balance²."""
        other = copy(self)
        other.weight, other.balance = (np.ones(self.n) if self.weight is None else self.weight) * balance**2, balance
        return other

    def with_data(self, data: Any) -> "Factors":
        """Return the same factors with other data of the same shapes."""
        other = copy(self)
        arrays = data if isinstance(data, tuple) else (data,)
        arrays = arrays if self.data_layout.is_flat else self.data_layout.arrays(data, f"{self.name}: data")
        if len(arrays) != len(self.data):
            raise ProblemError(f"{self.name}: data has {len(arrays)} arrays, expected {len(self.data)}")
        other.data = self._checked_data(arrays)
        if [d.shape for d in other.data] != [d.shape for d in self.data]:
            shapes, expected = ([d.shape for d in f.data] for f in (other, self))
            raise ProblemError(f"{self.name}: data have shapes {shapes}, expected {expected}")
        return other

    def with_weight(self, weight: Any) -> "Factors":
        """Return the same factors with other weights: a number or an array (n,)."""
        other = copy(self)
        other.weight = other._checked_weight(weight)
        other.weight_is_precision, other.balance = False, 1.0
        other._check_width()
        return other

    def with_tau(self, tau: Any) -> "Factors":
        """Return the same factors under the same kernel with another width: a number or an array (n,)."""
        other = copy(self)
        other.tau = other._checked_tau(tau)
        if isinstance(other.tau, float):
            other.kernel = replace(self.kernel, tau=other.tau)
        other.weight_is_precision, other.noise_is_known = False, True
        other._check_width()
        return other

    def with_variables(self, variables: Mapping[Any, Variables]) -> "Factors":
        """Return the same factors with groups of variables replaced: a mapping from old to new groups."""
        other = copy(self)
        other.slots = tuple(Slot(variables.get(slot.variables, slot.variables), slot.index) for slot in self.slots)
        other.__dict__.pop("is_linear", None)
        return other

    def on(self, slots: Sequence[Slot], chosen: np.ndarray) -> "Factors":
        """Return the same residual on other variables, with the data and weights of the `chosen` observations."""
        other = copy(self)
        other.slots = tuple(Slot(slot.variables, slot.index.astype(np.int32)) for slot in slots)
        other.n = len(chosen)
        other.data = tuple(d.take(chosen, axis=0) for d in self.data)
        other.weight = None if self.weight is None else self.weight[chosen]
        other.tau = self.tau[chosen] if isinstance(self.tau, np.ndarray) else self.tau
        return other

    def only(self, chosen: np.ndarray) -> "Factors":
        """Return the same factors, restricted to the observations with the numbers `chosen`."""
        other = self.on([Slot(slot.variables, slot.index[chosen]) for slot in self.slots], chosen)
        other.numbers = np.asarray(self.numbers)[chosen]
        return other

    def condition(self) -> "Factors":
        """Return factors whose residual is 0 if an observation is possible, and 1 if it is not."""
        valid, other = self.valid, copy(self)
        assert valid is not None

        def impossible(*arguments: Any) -> Any:
            import jax.numpy as jnp

            value = jnp.asarray(valid(*arguments))
            if value.size != 1 or value.dtype.kind == "c":
                complex_ones = "complex numbers of" if value.dtype.kind == "c" else "an array of"
                raise ValueError(f"valid returns {complex_ones} shape {value.shape}, expected a number")
            return jnp.where(value.reshape(()) > 0, 0.0, 1.0)

        other.__dict__ = {name: x for name, x in vars(self).items() if name not in ("residual_size", "is_linear")}
        other.residual, other.valid, other.weight, other.name = impossible, None, None, f"{self.name}, valid"
        other.kernel, other.tau = Quadratic(1.0), 1.0
        other.compiled, other.trace = self.compiled.setdefault("valid", Compiled()), self.trace_of_valid
        if self.trace_of_valid:  # already checked at the start of the solve
            other.residual_size = 1
        return other

    def taken(self, mask: np.ndarray) -> "Factors":
        """Return new factors with the observations of a mask."""
        other = Factors(
            self.residual,
            *(Slot(slot.variables, slot.index[mask]) for slot in self.slots),
            data=self.data_layout.like_given([d[mask] for d in self.data]),
            kernel=self.kernel if self.noise_is_known else None,
            weight=None if self.weight is None else self.weight[mask],
            tau=self.tau[mask] if isinstance(self.tau, np.ndarray) else None,
            jacobian=self.jacobian,
            linear=self.linear,
            valid=self.valid,
            name=self.name,
        )
        other.weight_is_precision, other.balance = self.weight_is_precision, self.balance
        return other

    def _checked_kernel(self, kernel: Any) -> Kernel:
        """Return the kernel without `Scaled`, with a scalar τ."""
        plain = _plain(kernel)
        if not isinstance(plain, Kernel):
            raise ProblemError(f"{self.name}: kernel is {kernel!r}, expected a kernel such as Huber(tau=1.0)")
        reject_tracers(f"{self.name}: the kernel's tau", plain.tau)
        if np.ndim(plain.tau):
            raise ProblemError(f"{self.name}: the kernel's tau is an array; Factors(tau=...) takes one per observation")
        return plain

    def _checked_weight(self, weight: Any) -> np.ndarray:
        """Return a copy of the weights, one for each observation."""
        each = self._per_observation("weight", weight)
        if (each < 0).any():
            raise ProblemError(f"{self.name}: weight is negative at index {np.flatnonzero(each < 0)[0]}")
        return each

    def _checked_tau(self, tau: Any) -> Any:
        """Return one width, or one for each observation."""
        checked = float(tau) if np.ndim(tau) == 0 else self._per_observation("tau", tau)
        self._check_positive(checked)
        return checked

    def _check_positive(self, tau: Any) -> None:
        if not np.all((np.asarray(tau) > 0) & np.isfinite(tau)):
            raise ProblemError(f"{self.name}: tau must be positive and finite")

    def _check_width(self) -> None:
        """Check the range of τ·√weight, whose square is the unit of an observation's cost."""
        weight = 1.0 if self.weight is None else np.where(self.is_informative, self.weight, 1.0)
        width = np.broadcast_to(self.tau * np.sqrt(weight), self.n)
        for k in np.flatnonzero((width < SMALLEST_TAU) | (width > LARGEST_TAU))[:1]:
            between = f"between {SMALLEST_TAU:g} and {LARGEST_TAU:g}"
            raise ProblemError(f"{self.name}: tau·√weight must lie {between}, not {width[k]:g} at index {k}")

    @property
    def signature(self) -> tuple[Any, ...]:
        """Everything that compiled code of the residual depends on, except the function itself."""
        groups = [slot.variables for slot in self.slots]
        slots = [(repr(v.manifold), id(type(v.manifold)), v.is_free, bool(v.fixed.any())) for v in groups]
        return (*slots, *((d.shape[1:], str(d.dtype)) for d in self.data), self.weight is None)

    def recall(self) -> None:
        """Set `trace` and `compiled`, the code of a function with the same trace, or none so far.

        The function is traced again, since its computation may have changed since the last solve.
        """
        if self.jacobian is not None:
            return
        self.trace = self._digest()
        self.trace_of_valid = self._digest_of_valid()
        key = self.trace + self.trace_of_valid
        self.compiled = TRACED[key] = TRACED.pop(key, Compiled())  # most recent last
        while len(TRACED) > MAX_TRACED:
            del TRACED[next(iter(TRACED))]

    def _digest_of_valid(self) -> bytes:
        """Return a digest of the current computation of `valid`; empty without such a condition."""
        if self.valid is None:
            return b""
        condition = self.condition()
        condition.residual_size  # noqa: B018  checks the user's function
        return condition._digest()

    def digest(self) -> bytes:
        """Return a digest of the computations of the kernel, the residual and `valid`, without NumPy functions."""
        import jax

        with float64():
            kernel = jax.make_jaxpr(lambda u: (self.kernel.psi(u), self.kernel.omega(u)))(1.0)
        residual = b"" if self.jacobian is not None else digest_of_trace(self._traced())
        return b"\0".join([digest_of_trace(kernel), residual, self._digest_of_valid()])


def _plain(kernel: Any) -> Any:
    """Return the kernel without `Scaled`, with another τ in its place: kernels are homogeneous in τ."""
    return replace(_plain(kernel.kernel), tau=kernel.tau) if isinstance(kernel, Scaled) else kernel

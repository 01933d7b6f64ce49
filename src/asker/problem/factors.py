"""Factors: observations of one kind, and the variables that they tie.

    cameras = Variables(poses, manifold=SE3)
    points = Variables(xyz)
    factors = Factors(reprojection, cameras[i], points[j], data=uv)

Everything is checked here, so that a solver never meets an array that does not fit.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from asker.geometry.manifolds import Euclidean
from asker.kernels.kernel import LARGEST_TAU, SMALLEST_TAU, Kernel, Scaled
from asker.kernels.kernels import Quadratic, SmoothTruncated
from asker.problem.batched import batched_jacobians, batched_residuals, size_of_batched
from asker.problem.variables import ProblemError, Slot, Variables, name_or
from asker.tracing.affine import is_affine
from asker.tracing.array_namespace import Array, as_argument, float64, has_masked
from asker.tracing.jax_compat import load_jax
from asker.tracing.jaxpr_digest import REMEDIES, differentiated_with, digest_of_trace, first_line
from asker.tracing.source_digest import known_by, remembered
from asker.tracing.unsupported_primitives import NOT_COMPILED


class Compiled(dict[Any, Any]):
    """What was made of a residual function, such as code, by its signature.

    It is good for one process: a pickle and a deep copy have none of it, and the next solve makes it again.
    """

    def __reduce__(self) -> tuple[type["Compiled"], tuple[()]]:
        return Compiled, ()


TRACED: dict[bytes, Compiled] = {}
"""What was made of residuals in this process, by what they compute: the last ones that were solved."""
MOST_TRACED = 16
"""XLA's programs for a function take 5 MB, machine code of LLVM's 0.1 MB, which is also in the cache folder."""


class Seen(NamedTuple):
    """What a trace shows of a residual function."""

    size: int
    """p"""
    left_out: str
    """A primitive that the CPU engine does not compile."""
    linear: bool
    """Whether it is affine in all that can move."""
    digest: str
    """What it computes, in hexadecimal digits."""


class Factors:
    """Observations of one kind: a residual function and what it is applied to."""

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
        residual  a JAX function of ONE observation, `residual(*variables, *data) -> (p,)` or a number
        slots     `variables[index]`, one per argument: numbers of variables, a slice, a mask of variables or `...`
        data      an array or a tuple of arrays with one row per observation, copied; a JAX function gets numbers of 32
                  bits in 64, and others as they are
        kernel    ψ; when not given, the noise is not known: `solve` finds it, and a kernel that fits, unless it is
                  told a strategy, which has the smooth truncated kernel with τ = 1 then
        weight    multiplies ψ: a number, or (n,); where the noise is sought, it says how precise an observation is,
                  whose noise is σ/√weight; an observation of weight 0 is left out of the solve and of all statistics
        tau       the kernel's width per observation, (n,)
        jacobian  then `residual` and `jacobian` are NumPy functions of ALL observations, and `jacobian` returns
                  one array (n, p, tangent) per slot: the derivatives with respect to the step of each variable
        linear    with `jacobian`: whether the residual is affine in the variables; without it asker sees that
        valid     a JAX function of the same arguments: a number that is positive where the observation is possible, as
                  the depth of a point in front of a camera; elsewhere it is no inlier, and no solution gains by it
        name      used in errors and results; the function's own when not given
        """
        self.name = name_or(name, str(getattr(residual, "__name__", "residual")))
        for what, function in (("residual", residual), ("jacobian", jacobian), ("valid", valid)):
            if not callable(function) and (function is not None or what == "residual"):
                raise ProblemError(f"{self.name}: {what} is {function!r}, expected a function")
        self.residual, self.jacobian, self.linear = residual, jacobian, linear
        if linear and jacobian is None:
            raise ProblemError(f"{self.name}: linear=True is for factors with `jacobian`; asker sees it in the others")
        self.valid = valid
        if valid is not None and jacobian is not None:
            raise ProblemError(f"{self.name}: valid is for factors without `jacobian`")
        if not slots:
            raise ProblemError(f"{self.name}: needs at least one `variables[index]`")
        copies: dict[int, np.ndarray] = {}
        self.slots = tuple(self._checked_slot(k, slot, copies) for k, slot in enumerate(slots))
        self.n = len(self.slots[0].index)
        self.numbers: Sequence[int] | np.ndarray = range(self.n)
        """The number of each observation among those of the user."""
        self._check_lengths(data if isinstance(data, tuple) else (data,))
        if isinstance(data, list) and len(data) != self.n and any(isinstance(d, np.ndarray) for d in data):
            raise ProblemError(f"{self.name}: data is a list of {len(data)}, expected {self.n}; give arrays as a tuple")
        given = data if isinstance(data, tuple) else (data,)
        self.data = tuple(self._numbers(f"data[{k}]", d) for k, d in enumerate(given))
        self.noise_is_known = kernel is not None or tau is not None
        """Whether the user has given it, by a kernel or its width."""
        self.weight_is_precision = False
        """Whether the kernel is as wide for √weight·r as it says, so that ψ(weight·u) is the cost: where its width was
        found."""
        self.kernel = SmoothTruncated() if kernel is None else self._checked_kernel(kernel)
        self.origin: Factors = self
        """The factors that a user knows, where these are the same under another kernel."""
        self.compiled = Compiled()
        """What was made of the residual, such as code, by its signature; shared with the same factors under other
        kernels."""
        self.trace, self.trace_of_valid = b"", b""
        """What the residual and `valid` compute, as digests, once a solve has begun."""
        self.left_out, self.is_told = "", False
        """A primitive that the CPU engine does not compile, and whether the user was told of it."""
        self.is_long_told = False
        """Whether the user was told that an observation has too many derivatives to be compiled."""
        self.weight = None if weight is None else self._per_observation("weight", weight)
        self.balance = 1.0
        """What the root of the weight was multiplied with, so that these factors count as their noise asks for
        (`asker.search.group_weights`); the noise that is told is without it."""
        if self.weight is not None and (self.weight < 0).any():
            raise ProblemError(f"{self.name}: weight is negative at index {np.flatnonzero(self.weight < 0)[0]}")
        self.tau = float(self.kernel.tau) if tau is None else self._per_observation("tau", tau)
        if not np.all((np.asarray(self.tau) > 0) & np.isfinite(self.tau)):
            raise ProblemError(f"{self.name}: tau must be positive and finite")
        self._check_width()

    @property
    def is_informative(self) -> np.ndarray:
        """(n,): whether the weight of an observation is positive; the others carry no information."""
        return np.ones(self.n, dtype=bool) if self.weight is None else self.weight > 0

    def __repr__(self) -> str:
        groups = ", ".join(slot.variables.name for slot in self.slots)
        kernel = f"kernel={self.kernel}" if self.noise_is_known else "kernel and noise scale unspecified"
        return f"Factors({self.name!r}, n={self.n}, on {groups}, {kernel})"

    def under(self, kernel: Kernel) -> "Factors":
        """The same factors under another kernel; widths of observations are those of the kernel.

        Where the noise is not known, the kernel is one that was found: it is for √weight·r, as the noise is.
        """
        if self.noise_is_known and kernel == self.kernel:
            return self
        other = copy(self)
        other.kernel, other.tau, other.noise_is_known = kernel, float(kernel.tau), True
        other.weight_is_precision = self.weight_is_precision or not self.noise_is_known
        if other.weight_is_precision and self.weight is not None:
            other.tau = kernel.tau / np.sqrt(np.where(self.is_informative, self.weight, 1.0))
        return other

    def solved_as(self, other: "Factors") -> "Factors":
        """The same factors under the kernel and the balance of `other`, those of them that were solved."""
        of = self if other.balance == self.balance else self.balanced(other.balance)
        return of.under(other.kernel) if other.noise_is_known else of

    def with_kernel(self, kernel: Kernel | Scaled) -> "Factors":
        """The same factors under a kernel of the user's, whose width is for r whatever weights there are; they count as
        the user has given them."""
        other, kernel = copy(self), self._checked_kernel(kernel)
        other.kernel, other.tau, other.noise_is_known = kernel, float(kernel.tau), True
        other.weight_is_precision, other.balance = False, 1.0
        other.weight = None if self.weight is None else self.weight / self.balance**2
        return other

    def balanced(self, balance: float) -> "Factors":
        """The same factors, which count so much more or less."""
        other = copy(self)
        other.weight, other.balance = (np.ones(self.n) if self.weight is None else self.weight) * balance**2, balance
        return other

    def with_data(self, data: Any) -> "Factors":
        """The same factors with other data, shaped as they were."""
        other = copy(self)
        given = data if isinstance(data, tuple) else (data,)
        other.data = tuple(self._numbers(f"data[{k}]", d) for k, d in enumerate(given))
        if [d.shape for d in other.data] != [d.shape for d in self.data]:
            shapes, expected = ([d.shape for d in f.data] for f in (other, self))
            raise ProblemError(f"{self.name}: data have shapes {shapes}, expected {expected}")
        return other

    def among(self, variables: Mapping[Any, Variables]) -> "Factors":
        """The same factors on variables that take the place of others."""
        other = copy(self)
        other.slots = tuple(Slot(variables.get(slot.variables, slot.variables), slot.index) for slot in self.slots)
        other.__dict__.pop("is_linear", None)
        return other

    def on(self, slots: Sequence[Slot], chosen: np.ndarray) -> "Factors":
        """The same residual on other variables, with the data and the weight of the chosen observations."""
        other = copy(self)
        other.slots = tuple(Slot(slot.variables, slot.index.astype(np.int32)) for slot in slots)
        other.n = len(chosen)
        other.data = tuple(d.take(chosen, axis=0) for d in self.data)
        other.weight = None if self.weight is None else self.weight[chosen]
        other.tau = self.tau[chosen] if isinstance(self.tau, np.ndarray) else self.tau
        return other

    def only(self, chosen: np.ndarray) -> "Factors":
        """The same factors with the observations of these numbers alone."""
        other = self.on([Slot(slot.variables, slot.index[chosen]) for slot in self.slots], chosen)
        other.numbers = np.asarray(self.numbers)[chosen]
        return other

    def condition(self) -> "Factors":
        """Factors whose residual is 0 where an observation is possible, and 1 where it is not."""
        valid, other = self.valid, copy(self)
        assert valid is not None

        def impossible(*arguments: Any) -> Any:
            import jax.numpy as jnp

            told = jnp.asarray(valid(*arguments))
            if told.size != 1 or told.dtype.kind == "c":
                complex_ones = "complex numbers of" if told.dtype.kind == "c" else "an array of"
                raise ValueError(f"valid returns {complex_ones} shape {told.shape}, expected a number")
            return jnp.where(told.reshape(()) > 0, 0.0, 1.0)

        other.__dict__ = {name: x for name, x in vars(self).items() if name not in ("residual_size", "is_linear")}
        other.residual, other.valid, other.weight, other.name = impossible, None, None, f"{self.name}, valid"
        other.kernel, other.tau = Quadratic(1.0), 1.0
        other.compiled, other.trace = self.compiled.setdefault("valid", Compiled()), self.trace_of_valid
        if self.trace_of_valid:  # checked when the solve began, which asks for it again and again
            other.residual_size = 1
        return other

    def taken(self, mask: np.ndarray) -> "Factors":
        """The same factors with some of the observations alone."""
        other = Factors(
            self.residual,
            *(Slot(slot.variables, slot.index[mask]) for slot in self.slots),
            data=tuple(d[mask] for d in self.data),
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

    def _checked_slot(self, k: int, slot: Slot, copies: dict[int, np.ndarray]) -> Slot:
        """With a copy of its index, from `copies` where another slot has the same."""
        if not isinstance(slot, Slot):
            raise ProblemError(f"{self.name}: argument {k} is {type(slot).__name__}, expected `variables[index]`")
        what = f"{self.name}: the index of argument {k} ({slot.variables.name})"
        if slot.index.ndim != 1 or (slot.index.size and slot.index.dtype.kind not in "iu"):
            raise ProblemError(f"{what} must be a 1-D array of integers, not {slot.index.dtype} {slot.index.shape}")
        n = len(slot.variables)
        bad = np.flatnonzero((slot.index < 0) | (slot.index >= n))
        if bad.size:
            raise ProblemError(f"{what} is {slot.index[bad[0]]} at observation {bad[0]}, allowed are 0 to {n - 1}")
        return Slot(slot.variables, copies.setdefault(id(slot.index), slot.index.astype(np.int32)))

    def _checked_kernel(self, kernel: Any) -> Kernel:
        plain = _plain(kernel)
        if not isinstance(plain, Kernel):
            raise ProblemError(f"{self.name}: kernel is {kernel!r}, expected a kernel such as Huber(tau=1.0)")
        if np.ndim(plain.tau):
            raise ProblemError(f"{self.name}: the kernel's tau is an array; Factors(tau=...) takes one per observation")
        return plain

    def _check_width(self) -> None:
        """τ·√weight, whose square is the unit of an observation's cost."""
        weight = 1.0 if self.weight is None else np.where(self.is_informative, self.weight, 1.0)
        width = np.broadcast_to(self.tau * np.sqrt(weight), self.n)
        for k in np.flatnonzero((width < SMALLEST_TAU) | (width > LARGEST_TAU))[:1]:
            between = f"between {SMALLEST_TAU:g} and {LARGEST_TAU:g}"
            raise ProblemError(f"{self.name}: tau·√weight must lie {between}, not {width[k]:g} at index {k}")

    def _check_lengths(self, data: tuple[Any, ...]) -> None:
        """Indices and data have a row for each observation; where they differ, nobody knows which of them is wrong."""
        arrays = {f"the index of argument {k} ({s.variables.name})": s.index for k, s in enumerate(self.slots)}
        arrays |= {f"data[{k}]": d for k, d in enumerate(data) if isinstance(d, np.ndarray) and d.ndim}
        if any(len(array) != self.n for array in arrays.values()):
            told = ", ".join(f"{what} has shape {array.shape}" for what, array in arrays.items())
            raise ProblemError(f"{self.name}: one row for each observation: {told}")

    def _check_length(self, what: str, array: np.ndarray) -> None:
        if array.ndim == 0 or len(array) != self.n:
            raise ProblemError(f"{self.name}: {what} has shape {array.shape}, expected ({self.n}, ...)")

    def _numbers(self, what: str, array: Any) -> np.ndarray:
        """As an array of finite numbers with one row per observation."""
        if has_masked(array):
            raise ProblemError(f"{self.name}: {what} holds masked entries: leave these observations out")
        try:
            array = np.array(array)  # a copy
        except ValueError as e:
            raise ProblemError(f"{self.name}: {what} is no array: {e}") from None
        self._check_length(what, array)
        if array.dtype.kind not in "fiub":
            raise ProblemError(f"{self.name}: {what} holds {array.dtype}, expected numbers")
        bad = np.flatnonzero(~np.isfinite(array).all(axis=tuple(range(1, array.ndim))))
        if bad.size:
            raise ProblemError(f"{self.name}: {what} holds NaN or infinity at observation {bad[0]}")
        return array

    def _per_observation(self, what: str, array: Any) -> np.ndarray:
        array = self._numbers(what, np.full(self.n, array) if np.ndim(array) == 0 else array)
        if array.ndim > 1:
            raise ProblemError(f"{self.name}: {what} has shape {array.shape}, expected ({self.n},)")
        return array.astype(float, copy=False)

    @property
    def signature(self) -> tuple[Any, ...]:
        """All that code of the residual depends on, beside the function itself."""
        groups = [slot.variables for slot in self.slots]
        slots = [(repr(v.manifold), id(type(v.manifold)), v.is_free, bool(v.fixed.any())) for v in groups]
        return (*slots, *((d.shape[1:], str(d.dtype)) for d in self.data), self.weight is None)

    def recall(self) -> None:
        """Find what was made of the same function before; it may have changed since another solve."""
        if self.jacobian is not None:
            return
        self.trace = self._digest()
        self.trace_of_valid = self._digest_of_valid()
        key = self.trace + self.trace_of_valid
        self.compiled = TRACED[key] = TRACED.pop(key, Compiled())  # the last one now
        while len(TRACED) > MOST_TRACED:
            del TRACED[next(iter(TRACED))]

    @cached_property
    def residual_size(self) -> int:
        """p, found by running the residual function on shapes alone (or, with `jacobian`, on all observations)."""
        if own := self._seen_of_own():
            self.left_out = own.left_out
            return own.size
        return self._found_size()

    def _found_size(self) -> int:
        if self.jacobian is not None:
            return self._batched_size()
        shape = self._traced_shape()
        if len(shape) > 1 or shape == (0,):
            raise ProblemError(f"{self.name}: the residual of one observation has shape {shape}, expected () or (p,)")
        return shape[0] if shape else 1

    @cached_property
    def is_linear(self) -> bool:
        """Whether the residual is seen to be affine in all that can move."""
        if self.jacobian is not None:
            return self.linear
        own = self._seen_of_own()
        return own.linear if own else self._is_affine(self._traced())

    def _digest(self) -> bytes:
        """What the residual computes now."""
        own = self._seen_of_own()
        return bytes.fromhex(own.digest) if own else digest_of_trace(self._traced())

    def _digest_of_valid(self) -> bytes:
        """What `valid` computes now; nothing where there is none."""
        if self.valid is None:
            return b""
        condition = self.condition()
        condition.residual_size  # noqa: B018  checks the user's function
        return condition._digest()

    def _seen_of_own(self) -> Seen | None:
        """What was seen of a residual of asker's own, now or by another process; a user's is traced when asked for."""
        if self.jacobian is not None:
            return None
        moved = [(slot.variables.manifold, slot.variables.is_free) for slot in self.slots]
        key = known_by(self.residual, moved, [(d.shape[1:], str(d.dtype)) for d in self.data])
        return Seen(*remembered(key, self._seen)) if key else None

    def _seen(self) -> Seen:
        self.residual_size = self._found_size()
        trace = self._traced()
        return Seen(self.residual_size, self.left_out, self._is_affine(trace), digest_of_trace(trace).hex())

    def _is_affine(self, trace: Any) -> bool:
        return is_affine(trace, [*(int(s.variables.is_free) for s in self.slots), 1, *[0] * len(self.data)])

    def digest(self) -> bytes:
        """A digest of what the kernel, the residual and `valid` compute; NumPy functions do not enter."""
        import jax

        with float64():
            kernel = jax.make_jaxpr(lambda u: (self.kernel.psi(u), self.kernel.omega(u)))(1.0)
        residual = b"" if self.jacobian is not None else digest_of_trace(self._traced())
        return b"\0".join([digest_of_trace(kernel), residual, self._digest_of_valid()])

    def _traced(self) -> Any:
        """The residual after a step, as a jaxpr."""
        import jax

        rows, data = self._example()
        step = np.zeros(sum(slot.variables.manifold.tangent for slot in self.slots if slot.variables.is_free))
        with float64():
            return jax.make_jaxpr(self.residual_after)(rows, step, data)

    def residual_at(self, rows: Sequence[Array], data: Sequence[Array]) -> Any:
        """The residual (p,) of one observation, from the row of each of its variables and its data."""
        import jax.numpy as jnp

        return jnp.asarray(self._given_at(rows, data)).reshape(self.residual_size)

    def residual_after(self, rows: Sequence[Array], step: Array, data: Sequence[Array]) -> Any:
        """The same after a step: one vector, in which the free slots follow each other."""
        moved, start = list(rows), 0
        for k, slot in enumerate(self.slots):
            if slot.variables.is_free:
                manifold = slot.variables.manifold
                moved[k] = manifold.retract(rows[k], step[start : start + manifold.tangent])
                start += manifold.tangent
        return self.residual_at(moved, data)

    def _given_at(self, rows: Sequence[Array], data: Sequence[Array]) -> Any:
        """What the user's function returns."""
        views = [slot.variables.manifold.view(x) for slot, x in zip(self.slots, rows, strict=True)]
        return self.residual(*views, *data)

    def _example(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Arrays shaped as the rows and the data of one observation."""
        rows = [np.zeros(slot.variables.manifold.ambient) for slot in self.slots]
        return rows, [np.zeros(d.shape[1:], as_argument(d[:0]).dtype) for d in self.data]

    def _traced_shape(self) -> tuple[int, ...]:
        jax = load_jax()
        try:
            with float64():
                out = jax.eval_shape(self._given_at, *self._example())
        except Exception as e:
            raise self._failed("residual", e) from e
        if not hasattr(out, "shape"):
            raise ProblemError(f"{self.name}: the residual function returns {type(out).__name__}, expected an array")
        if out.dtype.kind != "f":
            raise ProblemError(f"{self.name}: the residual function returns {out.dtype}, expected real numbers")
        try:
            self.left_out = differentiated_with(NOT_COMPILED, self._given_at, *self._example())
        except Exception as e:
            why, cure = first_line(e), "pass batched NumPy functions `residual` and `jacobian`"
            raise ProblemError(f"{self.name}: JAX cannot differentiate the residual function: {why}; {cure}") from e
        return out.shape

    def _batched_size(self) -> int:
        """p of batched functions, both of which are called."""
        assert self.jacobian is not None
        what, arguments = "residual", self._all_arguments([s.variables.rows for s in self.slots])
        try:
            r = self.residual(*arguments)
            what = "jacobian"
            J = self.jacobian(*arguments)
        except Exception as e:
            raise self._failed(what, e) from e
        p = size_of_batched(self.name, r, self.n)
        batched_jacobians(self.name, J, self.slots, (self.n, p))
        return p

    def residuals_of_all(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """The residuals (n, p) by the batched function."""
        return batched_residuals(self.name, self.residual(*self._all_arguments(rows)), (self.n, self.residual_size))

    def jacobians_of_all(self, rows: Sequence[np.ndarray]) -> list[np.ndarray | None]:
        """The derivatives (n, p, tangent) for each slot by the batched `jacobian`; None where nothing can move."""
        assert self.jacobian is not None
        given = self.jacobian(*self._all_arguments(rows))
        return batched_jacobians(self.name, given, self.slots, (self.n, self.residual_size))

    def _all_arguments(self, rows: Sequence[np.ndarray]) -> list[Any]:
        return [*self.gather(rows), *self.data]

    def _failed(self, what: str, error: Exception) -> ProblemError:
        kind, said = type(error).__name__, first_line(error)
        if "not a valid JAX type" in said:
            return ProblemError(f"{self.name}: the {what} function returns what is no array of numbers")
        why = REMEDIES.get(kind, said)
        numbers = [s.variables.name for s in self.slots if s.variables.manifold == Euclidean(())]
        if numbers and isinstance(error, IndexError | TypeError):
            why += f" ({numbers[0]} are single numbers: for vectors the start is (n, d), a row each, as [[0.0, 1.0]])"
        return ProblemError(f"{self.name}: the {what} function fails on {self.arguments_told}: {kind}: {why}")

    @property
    def arguments_told(self) -> str:
        """The arguments of the residual function, with the shape that one observation has of each."""
        shapes = [
            f"{s.variables.name} {getattr(s.variables.manifold, 'shape', s.variables.manifold)}" for s in self.slots
        ]
        return ", ".join([*shapes, *(f"data[{k}] {d.shape[1:]}" for k, d in enumerate(self.data))])

    def gather(self, rows: Sequence[np.ndarray]) -> list[Any]:
        """The arguments of a batched residual function: each slot's values for every observation."""

        def values(slot: Slot, x: np.ndarray) -> Any:
            each = x[slot.index] if len(x) > 1 else np.broadcast_to(x, (self.n, x.shape[1]))
            return slot.variables.manifold.unpack(each)

        return [values(slot, x) for slot, x in zip(self.slots, rows, strict=True)]


def _plain(kernel: Any) -> Any:
    """Without `Scaled`: the same kernel with another τ, since all are homogeneous in it."""
    return replace(_plain(kernel.kernel), tau=kernel.tau) if isinstance(kernel, Scaled) else kernel

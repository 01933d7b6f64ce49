"""Residual function of a factor group, with the variables and the data that it is applied to.

All arrays and return values are checked here, so that a solver never receives an array of the wrong shape or type.
"""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from asker.geometry.manifolds import Euclidean
from asker.problem.batched import batched_jacobians, batched_residuals, size_of_batched
from asker.problem.data_layout import DataLayout
from asker.problem.portable_function import portable, restored
from asker.problem.variables import ProblemError, Slot, name_or
from asker.tracing.affine import is_affine
from asker.tracing.array_namespace import Array, as_argument, float64, has_masked, reject_tracers
from asker.tracing.jax_compat import load_jax
from asker.tracing.jaxpr_digest import REMEDIES, differentiated_with, digest_of_trace, first_line
from asker.tracing.source_digest import cached_value, digest_of
from asker.tracing.unsupported_primitives import NOT_COMPILED

FUNCTIONS = ("residual", "jacobian", "valid")
"""Names of the attributes that are functions of the user."""


class Compiled(dict[Any, Any]):
    """Cache of compiled forms of a residual function, such as machine code, by signature.

    It is valid in one process only: pickles and deep copies contain an empty cache.
    """

    def __reduce__(self) -> tuple[type["Compiled"], tuple[()]]:
        return Compiled, ()


class TraceProperties(NamedTuple):
    """Properties of a residual function that its trace determines."""

    size: int
    """p"""
    uncompiled: str
    """JAX primitive that the CPU engine does not compile, "" if there is none."""
    linear: bool
    """True if the function is affine in all free variables."""
    digest: str
    """Digest of the computation, in hexadecimal digits."""


class ResidualFunction:
    """Residual function applied to n observations: to variables by index, and to data by row."""

    def __init__(
        self,
        residual: Callable[..., Any],
        slots: tuple[Slot, ...],
        data: Any,
        jacobian: Callable[..., Any] | None,
        linear: bool,
        valid: Callable[..., Any] | None,
        name: str | None,
    ):
        """The parameters are those of `asker.Factors`."""
        self.name = name_or(name, str(getattr(residual, "__name__", "residual")))
        for what, function in (("residual", residual), ("jacobian", jacobian), ("valid", valid)):
            if not callable(function) and (function is not None or what == "residual"):
                raise ProblemError(f"{self.name}: {what} is {function!r}, expected a function")
        self.residual, self.jacobian, self.linear = residual, jacobian, linear
        if linear and jacobian is None:
            raise ProblemError(
                f"{self.name}: linear=True is for factors with `jacobian`; for JAX functions asker detects linearity"
            )
        self.valid = valid
        if valid is not None and jacobian is not None:
            raise ProblemError(f"{self.name}: valid is for factors without `jacobian`")
        if not slots:
            raise ProblemError(f"{self.name}: needs at least one `variables[index]`")
        copies: dict[int, np.ndarray] = {}
        self.slots = tuple(self._checked_slot(k, slot, copies) for k, slot in enumerate(slots))
        self.n = len(self.slots[0].index)
        self.numbers: Sequence[int] | np.ndarray = range(self.n)
        """Number of each observation in the user's order."""
        self.data_layout = DataLayout.of(data)
        """Structure of the data, whose leaves are in `data`."""
        arrays = self.data_layout.arrays(data, f"{self.name}: data")
        reject_tracers(f"{self.name}: data", arrays)
        self._check_lengths(arrays)
        if isinstance(data, list) and len(data) != self.n and any(isinstance(d, np.ndarray) for d in data):
            raise ProblemError(f"{self.name}: data is a list of {len(data)}, expected {self.n}; pass arrays as a tuple")
        self.data = self._checked_data(arrays)
        self.compiled = Compiled()
        """Cache of compiled forms of the residual; shared with the same factors under other kernels."""
        self.trace, self.trace_of_valid = b"", b""
        """Digests of the computations of the residual and of `valid`; set at the start of a solve."""
        self.uncompiled, self.warned_uncompiled = "", False
        """JAX primitive that the CPU engine does not compile, and whether a warning was issued."""
        self.warned_too_large = False
        """True if a warning was issued that an observation has too many derivatives to be compiled."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickles, with functions that other processes can load."""
        functions = {name: portable(getattr(self, name), f"{name} of {self.name}") for name in FUNCTIONS}
        return vars(self) | functions

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {name: restored(state[name]) for name in FUNCTIONS})

    def _checked_slot(self, k: int, slot: Slot, copies: dict[int, np.ndarray]) -> Slot:
        """Return the slot with a copy of its index; slots with the same index share one copy in `copies`."""
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

    def _check_lengths(self, data: tuple[Any, ...]) -> None:
        """Raise a `ProblemError` that lists all shapes unless indices and data have a row for each observation."""
        arrays = {f"the index of argument {k} ({s.variables.name})": s.index for k, s in enumerate(self.slots)}
        each = zip(self.data_layout.names, data, strict=True)
        arrays |= {name: d for name, d in each if isinstance(d, np.ndarray) and d.ndim}
        if any(len(array) != self.n for array in arrays.values()):
            shapes = ", ".join(f"{what} has shape {array.shape}" for what, array in arrays.items())
            raise ProblemError(f"{self.name}: one row for each observation: {shapes}")

    def _check_length(self, what: str, array: np.ndarray) -> None:
        if array.ndim == 0 or len(array) != self.n:
            raise ProblemError(f"{self.name}: {what} has shape {array.shape}, expected ({self.n}, ...)")

    def _checked_data(self, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """Return copies of the arrays of the data."""
        return tuple(self._checked_array(name, d) for name, d in zip(self.data_layout.names, arrays, strict=True))

    def _checked_array(self, what: str, values: Any) -> np.ndarray:
        """Return a copy of the values as an array of finite numbers with one row per observation."""
        reject_tracers(f"{self.name}: {what}", values)
        if has_masked(values):
            raise ProblemError(f"{self.name}: {what} holds masked entries: leave these observations out")
        try:
            array = np.array(values)
        except ValueError as e:
            raise ProblemError(f"{self.name}: {what} is no array: {e}") from None
        self._check_length(what, array)
        if array.dtype.kind not in "fiub":
            raise ProblemError(f"{self.name}: {what} holds {array.dtype}, expected numbers")
        bad = np.flatnonzero(~np.isfinite(array).all(axis=tuple(range(1, array.ndim))))
        if bad.size:
            raise ProblemError(f"{self.name}: {what} holds NaN or infinity at observation {bad[0]}")
        return array

    def _per_observation(self, what: str, values: Any) -> np.ndarray:
        """Return one checked number per observation; a single number is repeated."""
        reject_tracers(f"{self.name}: {what}", values)
        array = self._checked_array(what, np.full(self.n, values) if np.ndim(values) == 0 else values)
        if array.ndim > 1:
            raise ProblemError(f"{self.name}: {what} has shape {array.shape}, expected ({self.n},)")
        return array.astype(float, copy=False)

    @cached_property
    def residual_size(self) -> int:
        """Number p of residuals per observation.

        The residual function is evaluated on shapes only; with `jacobian`, on all observations.
        """
        if known := self._properties_of_builtin():
            self.uncompiled = known.uncompiled
            return known.size
        return self._evaluated_size()

    def _evaluated_size(self) -> int:
        if self.jacobian is not None:
            return self._batched_size()
        shape = self._traced_shape()
        if len(shape) > 1 or shape == (0,):
            raise ProblemError(f"{self.name}: the residual of one observation has shape {shape}, expected () or (p,)")
        return shape[0] if shape else 1

    @cached_property
    def is_linear(self) -> bool:
        """True if the trace shows that the residual is affine in all free variables."""
        if self.jacobian is not None:
            return self.linear
        known = self._properties_of_builtin()
        return known.linear if known else self._is_affine(self._traced())

    def _digest(self) -> bytes:
        """Return a digest of the current computation of the residual."""
        known = self._properties_of_builtin()
        return bytes.fromhex(known.digest) if known else digest_of_trace(self._traced())

    def _properties_of_builtin(self) -> TraceProperties | None:
        """Return the cached properties of a residual function of asker itself; None for functions of users."""
        if self.jacobian is not None:
            return None
        moved = [(slot.variables.manifold, slot.variables.is_free) for slot in self.slots]
        key = digest_of(self.residual, moved, [(d.shape[1:], str(d.dtype)) for d in self.data], self.data_layout.names)
        return TraceProperties(*cached_value(key, self._properties)) if key else None

    def _properties(self) -> TraceProperties:
        self.residual_size = self._evaluated_size()
        trace = self._traced()
        return TraceProperties(
            self.residual_size, self.uncompiled, self._is_affine(trace), digest_of_trace(trace).hex()
        )

    def _is_affine(self, trace: Any) -> bool:
        return is_affine(trace, [*(int(s.variables.is_free) for s in self.slots), 1, *[0] * len(self.data)])

    def _traced(self) -> Any:
        """Return the residual after a step, as a jaxpr."""
        import jax

        rows, data = self._example()
        step = np.zeros(sum(slot.variables.manifold.tangent for slot in self.slots if slot.variables.is_free))
        with float64():
            return jax.make_jaxpr(self.residual_after)(rows, step, data)

    def residual_at(self, rows: Sequence[Array], data: Sequence[Array]) -> Any:
        """Return the residual (p,) of one observation, from the row of each of its variables and its data."""
        import jax.numpy as jnp

        return jnp.asarray(self._returned_at(rows, data)).reshape(self.residual_size)

    def residual_after(self, rows: Sequence[Array], step: Array, data: Sequence[Array]) -> Any:
        """Return the residual (p,) of one observation after a step: one vector with the steps of all free slots."""
        moved, start = list(rows), 0
        for k, slot in enumerate(self.slots):
            if slot.variables.is_free:
                manifold = slot.variables.manifold
                moved[k] = manifold.retract(rows[k], step[start : start + manifold.tangent])
                start += manifold.tangent
        return self.residual_at(moved, data)

    def _returned_at(self, rows: Sequence[Array], data: Sequence[Array]) -> Any:
        """Return the unchecked value of the user's function."""
        views = [slot.variables.manifold.view(x) for slot, x in zip(self.slots, rows, strict=True)]
        return self.residual(*views, *self.data_layout.arguments(data))

    def _example(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return arrays with the shapes of the rows and of the data of one observation."""
        rows = [np.zeros(slot.variables.manifold.ambient) for slot in self.slots]
        return rows, [np.zeros(d.shape[1:], as_argument(d[:0]).dtype) for d in self.data]

    def _traced_shape(self) -> tuple[int, ...]:
        """Return the shape of the residual of one observation, after all checks of a JAX function."""
        jax = load_jax()
        try:
            with float64():
                out = jax.eval_shape(self._returned_at, *self._example())
        except Exception as e:
            raise self._failed("residual", e) from e
        if not hasattr(out, "shape"):
            raise ProblemError(f"{self.name}: the residual function returns {type(out).__name__}, expected an array")
        if out.dtype.kind != "f":
            raise ProblemError(f"{self.name}: the residual function returns {out.dtype}, expected real numbers")
        try:
            self.uncompiled = differentiated_with(NOT_COMPILED, self._returned_at, *self._example())
        except Exception as e:
            why, cure = first_line(e), "pass batched NumPy functions `residual` and `jacobian`"
            raise ProblemError(f"{self.name}: JAX cannot differentiate the residual function: {why}; {cure}") from e
        return out.shape

    def _batched_size(self) -> int:
        """Return p of batched functions, after evaluating both of them."""
        assert self.jacobian is not None
        what, arguments = "residual", self.all_arguments([s.variables.rows for s in self.slots])
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
        """Return the residuals (n, p) by the batched function."""
        return batched_residuals(self.name, self.residual(*self.all_arguments(rows)), (self.n, self.residual_size))

    def jacobians_of_all(self, rows: Sequence[np.ndarray]) -> list[np.ndarray | None]:
        """Return the derivatives (n, p, tangent) for each slot by the batched `jacobian`; None for fixed variables."""
        assert self.jacobian is not None
        returned = self.jacobian(*self.all_arguments(rows))
        return batched_jacobians(self.name, returned, self.slots, (self.n, self.residual_size))

    def all_arguments(self, rows: Sequence[np.ndarray]) -> list[Any]:
        return [*self.gather(rows), *self.data_layout.arguments(self.data)]

    def gather(self, rows: Sequence[np.ndarray]) -> list[Any]:
        """Return the variable arguments of a batched residual function: the values of each slot, by observation."""

        def values(slot: Slot, x: np.ndarray) -> Any:
            each = x[slot.index] if len(x) > 1 else np.broadcast_to(x, (self.n, x.shape[1]))
            return slot.variables.manifold.unpack(each)

        return [values(slot, x) for slot, x in zip(self.slots, rows, strict=True)]

    def _failed(self, what: str, error: Exception) -> ProblemError:
        """Return the error to raise when the function `what` has failed."""
        kind, reason = type(error).__name__, first_line(error)
        if "not a valid JAX type" in reason:
            return ProblemError(f"{self.name}: the {what} function does not return an array of numbers")
        why = REMEDIES.get(kind, reason)
        if kind == "ConcretizationTypeError" and re.search(r"the `(float|int|complex)` function", str(error)):
            why = "use jax.numpy in place of math, and no float(...) or int(...) of a variable"
        numbers = [s.variables.name for s in self.slots if s.variables.manifold == Euclidean(())]
        if numbers and kind not in REMEDIES and isinstance(error, IndexError | TypeError):
            why += f" ({numbers[0]} are single numbers: for vectors the start is (n, d), a row each, as [[0.0, 1.0]])"
        return ProblemError(f"{self.name}: the {what} function fails on {self.argument_shapes}: {kind}: {why}")

    @property
    def argument_shapes(self) -> str:
        """Text with the arguments of the residual function and their shapes for one observation."""
        shapes = [
            f"{s.variables.name} {getattr(s.variables.manifold, 'shape', s.variables.manifold)}" for s in self.slots
        ]
        return ", ".join(
            [*shapes, *(f"{name} {d.shape[1:]}" for name, d in zip(self.data_layout.names, self.data, strict=True))]
        )

"""Array functions for formulas that run on NumPy arrays and on JAX tracers, and checks of arrays."""

import math
import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from asker.tracing.jax_compat import enable_x64

if TYPE_CHECKING:
    import jax

    Array = np.ndarray | jax.Array
else:
    Array = Any  # JAX takes long to import
"""Array of NumPy or JAX, including tracers."""


class ProblemError(ValueError):
    """Error in the arrays or functions of a problem."""


def namespace(x: Any) -> Any:
    """Return the array namespace of `x`: `jax.numpy` for JAX arrays and tracers, else `numpy`."""
    return x.__array_namespace__() if hasattr(x, "__array_namespace__") else np


def float64() -> AbstractContextManager:
    """Return a context in which JAX computes in float64; the user's JAX settings are unaffected."""
    return enable_x64()


def sum_of_rows(array: np.ndarray, numbers: np.ndarray | None = None) -> int:
    """Return the sum of a hash of each row and its number; sums over parts of an array add up (modulo 2⁶⁴)."""
    kind = np.int64 if array.dtype.kind in "iu" else np.float64
    rows = np.ascontiguousarray(array, dtype=kind).reshape(len(array), math.prod(array.shape[1:]))
    total = (np.arange(len(rows)) if numbers is None else np.asarray(numbers)).astype(np.uint64)
    with np.errstate(over="ignore"):
        for column in (rows + kind(0)).view(np.uint64).T:  # −0 is 0
            total = (total ^ column) * np.uint64(0x9E3779B97F4A7C15)
            total ^= total >> np.uint64(29)
        return int(total.sum(dtype=np.uint64))


def as_argument(data: np.ndarray) -> np.ndarray:
    """Return the data in the type with which a residual function is traced.

    Numbers of 32 bits are converted to 64 bits.  Narrower and unsigned types are kept: JAX computes in them.
    """
    if is_narrow(data.dtype) or data.dtype.kind == "u":
        return np.ascontiguousarray(data)
    return np.ascontiguousarray(data, dtype={"f": np.float64, "i": np.int64, "b": np.bool_}[data.dtype.kind])


def is_narrow(dtype: Any) -> bool:
    """Return whether arithmetic in this type is less precise or overflows earlier than in 64 bits."""
    return dtype.kind != "b" and (dtype.itemsize < 4 or dtype == np.uint32)


def has_masked(values: Any) -> bool:
    """Return whether any entry of an array, or of the arrays in a tuple or list, is masked."""
    parts = values if isinstance(values, tuple | list) else (values,)
    return any(isinstance(x, np.ma.MaskedArray) and bool(np.ma.is_masked(x)) for x in parts)


def reject_tracers(what: str, values: Any) -> None:
    """Raise a `ProblemError` if values contain an array of a JAX program that is being traced, by `jit` or `grad`."""
    jax = sys.modules.get("jax")
    if jax is not None and any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(values)):
        raise ProblemError(
            f"{what}: an array is traced by JAX, as inside jit, grad or vmap, where asker.solve cannot run: build the "
            "problem outside, and call the function asker.differentiable(problem, wrt=[...]) inside"
        )


def dot(x: np.ndarray, y: np.ndarray) -> float:
    """Return Σ xₖyₖ without BLAS, whose threads wait for each other, which is slow on a busy machine."""
    return float(np.einsum("k,k->", x, y))


def dots(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Σ xₖyₖ of each row."""
    return np.einsum("...k,...k->...", x, y)


def numbers(what: str, value: Any) -> np.ndarray:
    """Return an array of real or complex numbers from the user or a user's function; errors name it by `what`."""
    if has_masked(value):
        raise ProblemError(f"{what} holds masked entries: leave these out")
    reject_tracers(what, value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as e:
        raise ProblemError(f"{what} is no array: {e}") from None
    if array.dtype.kind not in "fiubc":
        kind = type(value).__name__ if array.dtype == object else f"an array of {array.dtype}"
        raise ProblemError(f"{what} is {kind}, expected an array of numbers")
    return array


def real_numbers(what: str, value: Any) -> np.ndarray:
    """Return an array of floats from the user or a user's function; complex numbers are rejected."""
    array = numbers(what, value)
    if array.dtype.kind == "c":
        raise ProblemError(f"{what} is complex, expected real numbers")
    return array.astype(float, copy=False)


def shaped(what: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of floats in the expected shape; only axes of length 1 may be missing."""
    array = real_numbers(what, value)
    is_short = array.ndim < len(shape) and _without_ones(array.shape) == _without_ones(shape)
    if array.shape != shape and not is_short:
        raise ProblemError(f"{what} has shape {array.shape}, expected {shape}")
    return array.reshape(shape)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)

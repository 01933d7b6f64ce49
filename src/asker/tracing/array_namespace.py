"""Formulas that run on NumPy arrays and on JAX tracers alike, in double precision."""

import math
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from asker.tracing.jax_compat import enable_x64

if TYPE_CHECKING:
    import jax

    Array = np.ndarray | jax.Array
else:
    Array = Any  # JAX takes long to import
"""What a formula, a manifold or a point holds: an array of NumPy's, or of JAX's (a tracer is one too)."""


class ProblemError(ValueError):
    """The arrays or functions of a problem do not fit together."""


def namespace(x: Any) -> Any:
    """The module whose `sqrt`, `where`, … fit `x`: `jax.numpy` while JAX traces, else NumPy."""
    return x.__array_namespace__() if hasattr(x, "__array_namespace__") else np


def float64() -> AbstractContextManager:
    """While this is open JAX works in float64; the user's own JAX settings stay as they are."""
    return enable_x64()


def sum_of_rows(array: np.ndarray, numbers: np.ndarray | None = None) -> int:
    """A sum over the rows of a hash of each row and its number: of parts of an array they add up (modulo 2⁶⁴)."""
    kind = np.int64 if array.dtype.kind in "iu" else np.float64
    rows = np.ascontiguousarray(array, dtype=kind).reshape(len(array), math.prod(array.shape[1:]))
    total = (np.arange(len(rows)) if numbers is None else np.asarray(numbers)).astype(np.uint64)
    with np.errstate(over="ignore"):
        for column in (rows + kind(0)).view(np.uint64).T:  # −0 is 0
            total = (total ^ column) * np.uint64(0x9E3779B97F4A7C15)
            total ^= total >> np.uint64(29)
        return int(total.sum(dtype=np.uint64))


def as_argument(data: np.ndarray) -> np.ndarray:
    """The same numbers in the type that a residual function is traced with: float64, int64, bool, or a narrow one.

    Numbers of 32 bits become wider.  Narrower and unsigned ones stay as they are: JAX rounds and overflows in them.
    """
    if is_narrow(data.dtype) or data.dtype.kind == "u":
        return np.ascontiguousarray(data)
    return np.ascontiguousarray(data, dtype={"f": np.float64, "i": np.int64, "b": np.bool_}[data.dtype.kind])


def is_narrow(dtype: Any) -> bool:
    """Whether arithmetic in this type rounds or overflows where that in 64 bits does not."""
    return dtype.kind != "b" and (dtype.itemsize < 4 or dtype == np.uint32)


def has_masked(values: Any) -> bool:
    """Whether some entries of an array, or of the arrays in a tuple or list, are masked."""
    parts = values if isinstance(values, tuple | list) else (values,)
    return any(isinstance(x, np.ma.MaskedArray) and bool(np.ma.is_masked(x)) for x in parts)


def dot(x: np.ndarray, y: np.ndarray) -> float:
    """Σ xₖyₖ of long vectors, without BLAS: its threads wait for each other, long where a machine has other work."""
    return float(np.einsum("k,k->", x, y))


def dots(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same of every row."""
    return np.einsum("...k,...k->...", x, y)


def numbers(what: str, value: Any) -> np.ndarray:
    """An array of real or complex numbers that a user gave or a user's function returned; an error names it."""
    if has_masked(value):
        raise ProblemError(f"{what} holds masked entries: leave these out")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as e:
        raise ProblemError(f"{what} is no array: {e}") from None
    if array.dtype.kind not in "fiubc":
        kind = type(value).__name__ if array.dtype == object else f"an array of {array.dtype}"
        raise ProblemError(f"{what} is {kind}, expected an array of numbers")
    return array


def real_numbers(what: str, value: Any) -> np.ndarray:
    """The same as floats; complex numbers are refused."""
    array = numbers(what, value)
    if array.dtype.kind == "c":
        raise ProblemError(f"{what} is complex, expected real numbers")
    return array.astype(float, copy=False)


def shaped(what: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Real numbers in a given shape; axes of length 1 may be missing, and nothing else is reshaped."""
    array = real_numbers(what, value)
    is_short = array.ndim < len(shape) and _without_ones(array.shape) == _without_ones(shape)
    if array.shape != shape and not is_short:
        raise ProblemError(f"{what} has shape {array.shape}, expected {shape}")
    return array.reshape(shape)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)

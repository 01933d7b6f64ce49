"""Small matrices, one for each observation, in structure-of-arrays layout.

An accelerator coalesces accesses to neighbouring memory.  So each entry of a small matrix is an array over all
observations, and the matrix is a NumPy array (i, j) of these: sums and products of matrices are then straight-line
arithmetic, which XLA fuses into few passes over memory.  A matrix with many entries would take long to compile; it is
one JAX array (i, j, n), which supports the same indexing, addition and multiplication.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

MAX_ENTRIES_AS_ARRAYS = 100  # entries of a matrix up to which each is an array

Small = Any
"""A matrix (i, j) or a vector (i,) for each observation."""


def is_narrow(n_numbers: int) -> bool:
    """Return whether matrices with so many entries have an array for each entry."""
    return n_numbers <= MAX_ENTRIES_AS_ARRAYS


def small(values: jax.Array, narrow: bool) -> Small:
    """Return small matrices from an array (n, i) or (n, i, j)."""
    if not narrow:
        return jnp.moveaxis(values, 0, -1)
    shape = values.shape[1:]
    return filled(shape, [values[(slice(None), *at)] for at in np.ndindex(*shape)])


def filled(shape: tuple[int, ...], arrays: list[jax.Array]) -> np.ndarray:
    """Return small matrices from the array of each entry."""
    out = np.empty(shape, dtype=object)
    for at, x in zip(np.ndindex(*shape), arrays, strict=True):
        out[at] = x
    return out


def number(x: jax.Array, like: Small) -> Any:
    """Return one number per observation, (n,), in a form that multiplies all entries of such a matrix."""
    return filled((1,) * like.ndim, [x]) if isinstance(like, np.ndarray) else x


def product(A: Small, B: Small) -> Small:
    """Return AᵀB, (i, j) from (k, i) and (k, j)."""
    return (A[:, :, None] * B[:, None]).sum(axis=0)


def joined(parts: list[Small], axis: int = 0) -> Small:
    """Concatenate small matrices along an axis."""
    return (np if isinstance(parts[0], np.ndarray) else jnp).concatenate(parts, axis=axis)


def rows(x: Small) -> jax.Array:
    """Return a vector as an array (n, i), one row per observation."""
    if not isinstance(x, np.ndarray):
        return x.T
    return jnp.stack(lax.optimization_barrier(tuple(x)), axis=1)  # otherwise each column repeats the computation


def where(mask: Any, A: Small) -> Small:
    """Return the matrix where the mask is true, else 0; the mask is (n,) for all entries, or one per column."""
    if not isinstance(A, np.ndarray):
        return jnp.where(mask, A, 0.0)
    masks = np.broadcast_to(mask, A.shape).ravel() if isinstance(mask, np.ndarray) else [mask] * A.size
    return filled(A.shape, [jnp.where(m, x, 0.0) for m, x in zip(masks, A.ravel(), strict=True)])

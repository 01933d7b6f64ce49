"""Small matrices, one for each observation.

An accelerator reads and writes neighbours at once.  So each number of a small matrix is an array over all
observations, and the matrix is a NumPy array (i, j) of these: sums and products of matrices are then straight-line
arithmetic, which XLA fuses into few passes over memory.  A matrix of many numbers would take long to compile; it is one
JAX array (i, j, n), which is indexed, added and multiplied in the same way.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

MOST = 100  # numbers of a matrix that are arrays of their own

Small = Any
"""A matrix (i, j) or a vector (i,) for each observation."""


def is_narrow(n_numbers: int) -> bool:
    """Whether matrices of so many numbers have an array for each."""
    return n_numbers <= MOST


def small(values: jax.Array, narrow: bool) -> Small:
    """From an array (n, i) or (n, i, j)."""
    if not narrow:
        return jnp.moveaxis(values, 0, -1)
    shape = values.shape[1:]
    return filled(shape, [values[(slice(None), *at)] for at in np.ndindex(*shape)])


def filled(shape: tuple[int, ...], arrays: list[jax.Array]) -> np.ndarray:
    """From the array of each number."""
    out = np.empty(shape, dtype=object)
    for at, x in zip(np.ndindex(*shape), arrays, strict=True):
        out[at] = x
    return out


def number(x: jax.Array, like: Small) -> Any:
    """One number for each observation, (n,), as a factor of all entries of such a matrix."""
    return filled((1,) * like.ndim, [x]) if isinstance(like, np.ndarray) else x


def product(A: Small, B: Small) -> Small:
    """AᵀB, (i, j) from (k, i) and (k, j)."""
    return (A[:, :, None] * B[:, None]).sum(axis=0)


def joined(parts: list[Small], axis: int = 0) -> Small:
    """One beside the other."""
    return (np if isinstance(parts[0], np.ndarray) else jnp).concatenate(parts, axis=axis)


def rows(x: Small) -> jax.Array:
    """A vector as an array (n, i): what belongs to an observation lies together."""
    if not isinstance(x, np.ndarray):
        return x.T
    return jnp.stack(lax.optimization_barrier(tuple(x)), axis=1)  # else all is computed again for each column


def where(mask: Any, A: Small) -> Small:
    """The matrix where the mask holds, else 0: one mask (n,) for all, or a vector of them, one for each column."""
    if not isinstance(A, np.ndarray):
        return jnp.where(mask, A, 0.0)
    masks = np.broadcast_to(mask, A.shape).ravel() if isinstance(mask, np.ndarray) else [mask] * A.size
    return filled(A.shape, [jnp.where(m, x, 0.0) for m, x in zip(masks, A.ravel(), strict=True)])

"""Sums over pairs of observations as a kernel of our own, on NVIDIA's GPUs.

XLA loads each number of a pair twelve times, once for every number of the block that the pair adds to.  Here a thread
has a row of the block, or a part of one: it walks through the pairs of a chunk and adds up in registers.

Without such a GPU `blocks.summed_products` does the same in plain JAX; the tests run both.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

THREADS = 32  # of a program: one warp


def there_is_one(device: Any) -> bool:
    """Whether the kernel runs on a device: JAX's Pallas makes it for CUDA, in the versions that have these names."""
    if "cuda" not in getattr(device.client, "platform_version", "").lower():
        return False
    try:
        from jax.experimental.pallas import triton
    except ImportError:
        return False
    return all(hasattr(triton, name) for name in ("load", "store", "CompilerParams"))


def chunk_sums(
    A: jax.Array, B: jax.Array, left: jax.Array, right: jax.Array, columns: tuple[slice, slice], interpret: bool = False
) -> jax.Array:
    """Σ AᵀB over the pairs of each chunk: (chunks, i, j) from these columns of (n, k, ·), and (chunks, width) pairs."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    n_chunks, width = left.shape
    i, j = (c.stop - c.start for c in columns)
    lanes = 1 << (i - 1).bit_length()  # of a row of threads, one for each row of the block
    parts = 2 if j > 3 and 2 * lanes <= THREADS else 1
    at_once = max(1, THREADS // (lanes * parts))  # chunks of a program
    n_programs = -(-n_chunks // at_once)
    fill = ((0, n_programs * at_once - n_chunks), (0, 0))
    pairs = [jnp.pad(x, fill, constant_values=len(X) - 1).ravel() for x, X in ((left, A), (right, B))]
    kernel = partial(_kernel, width, (at_once, lanes * parts), (A.shape[1], i, j), (A.shape[2], B.shape[2]), columns)
    out = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((n_programs * at_once * i * j,), A.dtype),
        grid=(n_programs,),
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=1, num_stages=1),
    )(*pairs, A.ravel(), B.ravel())
    return out.reshape(-1, i, j)[:n_chunks]


def _kernel(width, tile, sizes, strides, columns, left, right, A, B, out):
    """One program: a tile (chunks, threads).  A thread has row `i` of a block, of it `own` columns from `first`."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    k, n_rows, n_columns = sizes
    lanes = 1 << (n_rows - 1).bit_length()
    own = -(-n_columns // (tile[1] // lanes))
    thread = lax.broadcasted_iota(jnp.int32, tile, 1)
    chunk = pl.program_id(0) * tile[0] + lax.broadcasted_iota(jnp.int32, tile, 0)
    i, first = thread % lanes, thread // lanes * own
    has_row = i < n_rows
    has = [has_row & (first + t < n_columns) for t in range(own)]

    def add(w, sums):
        a_row = triton.load(left.at[chunk * width + w]) * (k * strides[0]) + columns[0].start
        b_row = triton.load(right.at[chunk * width + w]) * (k * strides[1]) + columns[1].start
        sums = list(sums)
        for q in range(k):
            a = triton.load(A.at[a_row + q * strides[0] + i], mask=has_row, other=0.0)
            for t in range(own):
                b = triton.load(B.at[b_row + q * strides[1] + first + t], mask=has[t], other=0.0)
                sums[t] = sums[t] + a * b
        return tuple(sums)

    sums = lax.fori_loop(0, width, add, tuple(jnp.zeros(tile, out.dtype) for _ in range(own)))
    for t in range(own):
        triton.store(out.at[(chunk * n_rows + i) * n_columns + first + t], sums[t], mask=has[t])

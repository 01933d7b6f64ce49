"""Sums over pairs of observations, as a Pallas kernel for NVIDIA GPUs.

XLA loads each number of a pair twelve times, once for every number of the block that the pair is added to.  Here one
thread computes a row of the block, or a part of a row: it loops over the pairs of a chunk and accumulates in registers.

On other devices `blocks.summed_products` computes the same in plain JAX; the tests compare both.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

THREADS = 32  # per program: one warp


def is_supported(device: Any) -> bool:
    """Return whether the kernel runs on a device: Pallas compiles it for CUDA, in JAX versions with these names."""
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
    """Return Σ AᵀB over the pairs of each chunk: (chunks, i, j) from columns of (n, k, ·) and (chunks, width) pairs."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    n_chunks, width = left.shape
    i, j = (c.stop - c.start for c in columns)
    lanes = 1 << (i - 1).bit_length()  # threads, one for each row of the block, rounded up to a power of 2
    parts = 2 if j > 3 and 2 * lanes <= THREADS else 1
    chunks_per_program = max(1, THREADS // (lanes * parts))
    n_programs = -(-n_chunks // chunks_per_program)
    fill = ((0, n_programs * chunks_per_program - n_chunks), (0, 0))
    pairs = [jnp.pad(x, fill, constant_values=len(X) - 1).ravel() for x, X in ((left, A), (right, B))]
    tile = chunks_per_program, lanes * parts
    kernel = partial(_kernel, width, tile, (A.shape[1], i, j), (A.shape[2], B.shape[2]), columns)
    out = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((n_programs * chunks_per_program * i * j,), A.dtype),
        grid=(n_programs,),
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=1, num_stages=1),
    )(*pairs, A.ravel(), B.ravel())
    return out.reshape(-1, i, j)[:n_chunks]


def _kernel(
    width: int,
    tile: tuple[int, int],
    sizes: tuple[int, int, int],
    strides: tuple[int, int],
    columns: tuple[slice, slice],
    left: Any,
    right: Any,
    A: Any,
    B: Any,
    out: Any,
) -> None:
    """Run one program on a tile (chunks, threads); a thread computes `n` columns of row `i` of a block."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    k, n_rows, n_columns = sizes
    lanes = 1 << (n_rows - 1).bit_length()
    n = -(-n_columns // (tile[1] // lanes))
    thread = lax.broadcasted_iota(jnp.int32, tile, 1)
    chunk = pl.program_id(0) * tile[0] + lax.broadcasted_iota(jnp.int32, tile, 0)
    i, first = thread % lanes, thread // lanes * n
    has_row = i < n_rows
    has = [has_row & (first + t < n_columns) for t in range(n)]

    def add(w: Any, sums: Any) -> tuple[jax.Array, ...]:
        a_row = triton.load(left.at[chunk * width + w]) * (k * strides[0]) + columns[0].start
        b_row = triton.load(right.at[chunk * width + w]) * (k * strides[1]) + columns[1].start
        sums = list(sums)
        for q in range(k):
            a = triton.load(A.at[a_row + q * strides[0] + i], mask=has_row, other=0.0)
            for t in range(n):
                b = triton.load(B.at[b_row + q * strides[1] + first + t], mask=has[t], other=0.0)
                sums[t] = sums[t] + a * b
        return tuple(sums)

    sums = lax.fori_loop(0, width, add, tuple(jnp.zeros(tile, out.dtype) for _ in range(n)))
    for t in range(n):
        triton.store(out.at[(chunk * n_rows + i) * n_columns + first + t], sums[t], mask=has[t])

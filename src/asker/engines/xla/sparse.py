"""Multifrontal sparse Cholesky factorisation on a device, in batches of fronts (fronts.py).

The right-hand side is the last row of every front, so that the factorisation includes its forward substitution.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from asker.engines.xla.fronts import Batch, Children

MIN_PIVOTS_UNBATCHED = 2048
"""Number of pivots from which the fronts of a batch are factorised one by one: a single one occupies the device."""
MAX_PIVOTS_BATCHED_SOLVE = 256
"""Number of pivots up to which a batched triangular solve is used; on an H200 it is faster for 230 pivots, but not for
500."""
BLOCK_PIVOTS = 64
"""Number of pivots of wider fronts that are substituted back at a time, by the inverse of their block of L."""


def sparse_cholesky(
    takes: tuple[tuple[int, ...], ...],
    fronts: tuple[tuple[Batch, tuple[Children, ...]], ...],
    values: jax.Array,
    b: jax.Array,
) -> jax.Array:
    """Return the solution of A x = b, which contains NaN if A is not positive definite.

    Parameters
    ----------
    takes, fronts
        The fields `takes` and `arrays` of `Fronts`.
    values
        The values of A, as `SchurPattern.entries` numbers them.
    """
    updates: list[jax.Array] = []
    panels: list[tuple[jax.Array, jax.Array]] = []
    right = jnp.append(b, 0.0)
    for (batch, children), below in zip(fronts, takes, strict=True):
        F = _filled(batch, values, right)
        for child, k in zip(children, below, strict=True):
            update = updates[k][child.number]
            at = child.parent[:, None, None], child.row[:, :, None], child.row[:, None, :]
            F = F.at[at].add(update, mode="drop")
        w = batch.pivots.shape[1]
        L = _cholesky(F[:, :w, :w])
        B = lax.linalg.triangular_solve(L, F[:, w:, :w], left_side=False, lower=True, transpose_a=True)
        updates.append(F[:, w:, w:] - jnp.einsum("nik,njk->nij", B, B))
        panels.append((L, B))
    wide = {k: _padded(L) for k, (L, _) in enumerate(panels) if len(L) > 1 and L.shape[1] > MAX_PIVOTS_BATCHED_SOLVE}
    inverses = dict(zip(wide, _inverses(list(wide.values())), strict=True))
    x = jnp.zeros(len(right))
    for k in reversed(range(len(fronts))):
        (batch, _), (L, B) = fronts[k], panels[k]
        y = B[:, -1] - jnp.einsum("nik,ni->nk", B[:, :-1], x[batch.coupled])
        solution = _solve_by_blocks(wide[k], inverses[k], y) if k in wide else _solve_by_call(L, y)
        x = x.at[batch.pivots].set(jnp.where(batch.pivots < len(b), solution, 0.0))
    return x[:-1]


def _solve_by_call(L: jax.Array, y: jax.Array) -> jax.Array:
    """Return L⁻ᵀy."""
    return lax.linalg.triangular_solve(L, y[:, :, None], left_side=True, lower=True, transpose_a=True)[:, :, 0]


def _padded(L: jax.Array) -> jax.Array:
    """Return L extended by an identity matrix to a whole number of blocks."""
    width = L.shape[1]
    n = -width % BLOCK_PIVOTS
    return jnp.pad(L, ((0, 0), (0, n), (0, n))).at[:, width:, width:].set(jnp.eye(n)) if n else L


def _inverses(panels: list[jax.Array]) -> list[jax.Array]:
    """Return the inverses of the diagonal blocks of L of each batch, (blocks, n, size, size), by one call for all."""
    if not panels:
        return []
    blocks, size = [], BLOCK_PIVOTS
    for L in panels:
        n, m = len(L), L.shape[1] // size
        blocks.append(L.reshape(n, m, size, m, size)[:, np.arange(m), :, np.arange(m)])
    all_blocks = jnp.concatenate([D.reshape(-1, size, size) for D in blocks])
    eye = jnp.broadcast_to(jnp.eye(size), all_blocks.shape)
    inverse = lax.linalg.triangular_solve(all_blocks, eye, left_side=True, lower=True)
    ends = np.cumsum([D.shape[0] * D.shape[1] for D in blocks])[:-1]
    return [part.reshape(D.shape) for part, D in zip(jnp.split(inverse, ends), blocks, strict=True)]


def _solve_by_blocks(L: jax.Array, D: jax.Array, y: jax.Array) -> jax.Array:
    """Return L⁻ᵀy, block by block from the last one, with L from `_padded` and D from `_inverses`.

    A product with an inverse is less accurate than substitution, so each block has one step of iterative refinement.
    """
    n_blocks, width = len(D), y.shape[1]
    y = jnp.pad(y, ((0, 0), (0, L.shape[1] - width)))

    def solve_block(k: jax.Array, solution: jax.Array) -> jax.Array:
        first = (n_blocks - 1 - k) * BLOCK_PIVOTS
        columns = lax.dynamic_slice_in_dim(L, first, BLOCK_PIVOTS, axis=2)
        block, inverse = lax.dynamic_slice_in_dim(columns, first, BLOCK_PIVOTS, axis=1), D[n_blocks - 1 - k]
        right = lax.dynamic_slice_in_dim(y, first, BLOCK_PIVOTS, axis=1) - _transposed_product(columns, solution)
        x = _transposed_product(inverse, right)
        x = x + _transposed_product(inverse, right - _transposed_product(block, x))
        return lax.dynamic_update_slice_in_dim(solution, x, first, axis=1)

    return lax.fori_loop(0, n_blocks, solve_block, jnp.zeros_like(y))[:, :width]


def _transposed_product(A: jax.Array, x: jax.Array) -> jax.Array:
    """Return Aᵀx of each front; a sum is faster than a batched product here."""
    return jnp.sum(A * x[:, :, None], axis=1)


def _filled(batch: Batch, values: jax.Array, right: jax.Array) -> jax.Array:
    """Return the fronts with the entries of the matrix and the right-hand side, and a padded diagonal of 1."""
    (n, w), l = batch.pivots.shape, batch.coupled.shape[1]
    F = jnp.zeros((n, w + l + 1, w + l + 1))
    F = F.at[tuple(batch.target)].add(values[batch.source])
    k = jnp.arange(w)
    F = F.at[:, k, k].add(jnp.where(batch.pivots == len(right) - 1, 1.0, 0.0))
    return F.at[:, -1, :w].set(right[batch.pivots])


def _cholesky(A: jax.Array) -> jax.Array:
    if A.shape[1] < MIN_PIVOTS_UNBATCHED or len(A) == 1:
        return lax.linalg.cholesky(A, symmetrize_input=False)
    return jnp.stack([lax.linalg.cholesky(a, symmetrize_input=False) for a in A])

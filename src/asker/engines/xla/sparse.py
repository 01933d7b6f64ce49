"""Sparse Cholesky on a device: batches of fronts, one after the other (fronts.py).

The right-hand side is a last row of every front, so that it is substituted forward as the matrix is factorised.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from asker.engines.xla.fronts import Batch, Children

ALONE = 2048
"""Pivots from which the fronts of a batch are factorised one by one: the device is busy with one."""
WIDE = 256
"""Pivots up to which a call for a batch of triangular solves is the faster way; on an H200 it is at 230, not at 500."""
BLOCK = 64
"""Pivots of wider fronts that are substituted back at once, with the inverse of their block of L."""


def sparse_cholesky(
    takes: tuple[tuple[int, ...], ...],
    fronts: tuple[tuple[Batch, tuple[Children, ...]], ...],
    values: jax.Array,
    b: jax.Array,
) -> jax.Array:
    """x with A x = b; NaN in it where A is not positive definite.  `takes` and `fronts`: of `Fronts`."""
    left: list[jax.Array] = []
    panels: list[tuple[jax.Array, jax.Array]] = []
    right = jnp.append(b, 0.0)
    for (batch, children), below in zip(fronts, takes, strict=True):
        F = _filled(batch, values, right)
        for child, k in zip(children, below, strict=True):
            rest = left[k][child.number]
            at = child.parent[:, None, None], child.place[:, :, None], child.place[:, None, :]
            F = F.at[at].add(rest, mode="drop")
        w = batch.pivots.shape[1]
        L = _cholesky(F[:, :w, :w])
        B = lax.linalg.triangular_solve(L, F[:, w:, :w], left_side=False, lower=True, transpose_a=True)
        left.append(F[:, w:, w:] - jnp.einsum("nik,njk->nij", B, B))
        panels.append((L, B))
    wide = {k: _padded(L) for k, (L, _) in enumerate(panels) if len(L) > 1 and L.shape[1] > WIDE}
    inverses = dict(zip(wide, _inverses(list(wide.values())), strict=True))
    x = jnp.zeros(len(right))
    for k in reversed(range(len(fronts))):
        (batch, _), (L, B) = fronts[k], panels[k]
        y = B[:, -1] - jnp.einsum("nik,ni->nk", B[:, :-1], x[batch.coupled])
        own = _by_blocks(wide[k], inverses[k], y) if k in wide else _by_a_call(L, y)
        x = x.at[batch.pivots].set(jnp.where(batch.pivots < len(b), own, 0.0))
    return x[:-1]


def _by_a_call(L: jax.Array, y: jax.Array) -> jax.Array:
    """L⁻ᵀy"""
    return lax.linalg.triangular_solve(L, y[:, :, None], left_side=True, lower=True, transpose_a=True)[:, :, 0]


def _padded(L: jax.Array) -> jax.Array:
    """With a diagonal of 1 up to a whole number of blocks."""
    width = L.shape[1]
    more = -width % BLOCK
    return jnp.pad(L, ((0, 0), (0, more), (0, more))).at[:, width:, width:].set(jnp.eye(more)) if more else L


def _inverses(panels: list[jax.Array]) -> list[jax.Array]:
    """(blocks, n, BLOCK, BLOCK) of each batch: the inverses of the diagonal blocks of its L, all in one call."""
    if not panels:
        return []
    blocks = []
    for L in panels:
        n, m = len(L), L.shape[1] // BLOCK
        blocks.append(L.reshape(n, m, BLOCK, m, BLOCK)[:, np.arange(m), :, np.arange(m)])
    together = jnp.concatenate([D.reshape(-1, BLOCK, BLOCK) for D in blocks])
    eye = jnp.broadcast_to(jnp.eye(BLOCK), together.shape)
    inverse = lax.linalg.triangular_solve(together, eye, left_side=True, lower=True)
    ends = np.cumsum([D.shape[0] * D.shape[1] for D in blocks])[:-1]
    return [part.reshape(D.shape) for part, D in zip(jnp.split(inverse, ends), blocks, strict=True)]


def _by_blocks(L: jax.Array, D: jax.Array, y: jax.Array) -> jax.Array:
    """The same, block by block from the last one; L of `_padded`, D of `_inverses`.

    A product with an inverse is less exact than substitution; so what it leaves is solved for once more.
    """
    n_blocks, width = len(D), y.shape[1]
    y = jnp.pad(y, ((0, 0), (0, L.shape[1] - width)))

    def of_block(k: jax.Array, found: jax.Array) -> jax.Array:
        first = (n_blocks - 1 - k) * BLOCK
        columns = lax.dynamic_slice_in_dim(L, first, BLOCK, axis=2)
        own, inverse = lax.dynamic_slice_in_dim(columns, first, BLOCK, axis=1), D[n_blocks - 1 - k]
        rest = lax.dynamic_slice_in_dim(y, first, BLOCK, axis=1) - _transposed_product(columns, found)
        x = _transposed_product(inverse, rest)
        x = x + _transposed_product(inverse, rest - _transposed_product(own, x))
        return lax.dynamic_update_slice_in_dim(found, x, first, axis=1)

    return lax.fori_loop(0, n_blocks, of_block, jnp.zeros_like(y))[:, :width]


def _transposed_product(A: jax.Array, x: jax.Array) -> jax.Array:
    """Aᵀx of each; as a sum, which costs less than a call."""
    return jnp.sum(A * x[:, :, None], axis=1)


def _filled(batch: Batch, values: jax.Array, right: jax.Array) -> jax.Array:
    """The fronts with what the matrix and the right-hand side have for them; 1 on the diagonal where it is padded."""
    (n, w), l = batch.pivots.shape, batch.coupled.shape[1]
    F = jnp.zeros((n, w + l + 1, w + l + 1))
    F = F.at[tuple(batch.target)].add(values[batch.source])
    k = jnp.arange(w)
    F = F.at[:, k, k].add(jnp.where(batch.pivots == len(right) - 1, 1.0, 0.0))
    return F.at[:, -1, :w].set(right[batch.pivots])


def _cholesky(A: jax.Array) -> jax.Array:
    if A.shape[1] < ALONE or len(A) == 1:
        return lax.linalg.cholesky(A, symmetrize_input=False)
    return jnp.stack([lax.linalg.cholesky(a, symmetrize_input=False) for a in A])

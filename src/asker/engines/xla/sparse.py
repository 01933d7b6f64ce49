"""Sparse Cholesky on a device: batches of fronts, one after the other (fronts.py).

The right-hand side is a last row of every front, so that it is substituted forward as the matrix is factorised.
"""

import jax
import jax.numpy as jnp
from jax import lax

from asker.engines.xla.fronts import Batch, Children

ALONE = 2048
"""Pivots from which the fronts of a batch are factorised one by one: the device is busy with one."""


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
    x = jnp.zeros(len(b) + 1)
    for (batch, _), (L, B) in zip(reversed(fronts), reversed(panels), strict=True):
        known = x[batch.coupled]
        y = B[:, -1] - jnp.einsum("nik,ni->nk", B[:, :-1], known)
        own = lax.linalg.triangular_solve(L, y[:, :, None], left_side=True, lower=True, transpose_a=True)
        x = x.at[batch.pivots].set(jnp.where(batch.pivots < len(b), own[:, :, 0], 0.0))
    return x[:-1]


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

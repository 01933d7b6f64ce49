"""Operations on arrays of small blocks, and sums of them, for the linear system on a device."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from asker.engines.xla.layout import Chunks
from asker.engines.xla.pair_sums_pallas import chunk_sums
from asker.engines.xla.small_matrices import Small, is_narrow, joined, number, product, rows

AXIS = "points"
"""Mesh axis over which eliminated variables and observations are distributed."""
INFINITE_DIAGONAL = 1e200
"""Diagonal entry that dominates every number of a matrix with unit diagonal."""
GATHERED_COLUMNS = 8
"""Number of columns of an observation that one gather reads: two sectors of memory."""

CgState = tuple[jax.Array, jax.Array, jax.Array, Any, jax.Array, jax.Array]
"""x, r, the search direction, rᵀz, the number of steps, and whether the curvature was not positive."""


def conjugate_gradients(
    product: Callable[[jax.Array], jax.Array],
    precondition: Callable[[jax.Array], jax.Array],
    b: jax.Array,
    tol: jax.Array,
    max_iterations: int,
) -> tuple[jax.Array, jax.Array]:
    """Solve Ax = b by preconditioned conjugate gradients; return x and the number of steps.

    The iteration stops at ‖b − Ax‖ ≤ tol ‖b‖, or if the curvature along a direction is not positive.  The conditions of
    the loop are averaged over the devices, so that all devices leave it together.
    """
    target = tol * jnp.linalg.norm(b)
    r = b
    z = precondition(r)

    def unfinished(state: CgState) -> jax.Array:
        _, r, _, _, k, stopped = state
        far = lax.pmean(jnp.linalg.norm(r) - target, AXIS) > 0
        return (k < max_iterations) & ~stopped & far

    def step(state: CgState) -> CgState:
        x, r, p, rz, k, _ = state
        Ap = product(p)
        curvature = lax.pmean(p @ Ap, AXIS)
        stopped = ~(curvature > 0)
        alpha = jnp.where(stopped, 0.0, rz / curvature)
        x, r = x + alpha * p, r - alpha * Ap
        z = precondition(r)
        rz, before = lax.pmean(r @ z, AXIS), rz
        return x, r, z + (rz / before) * p, rz, k + 1, stopped

    state = (jnp.zeros_like(b), r, z, lax.pmean(r @ z, AXIS), jnp.array(0), jnp.array(False))
    x, _, _, _, k, _ = lax.while_loop(unfinished, step, state)
    return x, k


def summed_rows(x: Small, chunks: Chunks[jax.Array], n_segments: int) -> jax.Array:
    """Return the sums (n_segments, i) of a vector (i,) over the members of each segment, for one slab."""
    (members,) = chunks.members

    def sums_of(x: Small) -> jax.Array:
        X = lax.optimization_barrier(rows(x))  # otherwise XLA gathers columns instead of rows
        terms = jnp.sum(X.at[members].get(mode="fill", fill_value=0.0), axis=1)
        terms = lax.optimization_barrier(terms)  # otherwise XLA sums within the scatter, with few threads
        return jnp.zeros((n_segments, X.shape[1])).at[chunks.segment].add(terms)

    return jnp.concatenate([sums_of(x[k : k + GATHERED_COLUMNS]) for k in range(0, len(x), GATHERED_COLUMNS)], axis=1)


def summed_products(
    A: jax.Array,
    B: jax.Array,
    columns: tuple[slice, slice],
    chunks: Chunks[jax.Array],
    n_segments: int,
    has_pair_kernel: bool = False,
) -> jax.Array:
    """Return Σ AᵀB over the pairs of each segment: (n_segments, i, j) from these columns of (n, k, ·)."""
    n_sums = chunks.segment.shape[1] * math.prod(c.stop - c.start for c in columns)
    by_kernel = has_pair_kernel and max(A.size, B.size, n_sums) < 1 << 31

    def add(total: jax.Array, slab: Any) -> tuple[jax.Array, None]:
        (left, right), segment = slab
        if by_kernel:
            terms = chunk_sums(A, B, left, right, columns)
        else:  # XLA fuses the two gathers with the products, so that their results are not stored
            a, b = gathered(A, left)[..., columns[0], None], gathered(B, right)[..., None, columns[1]]
            terms = jnp.sum(a * b, axis=(1, 2))
        return total.at[segment].add(terms, indices_are_sorted=True), None

    def gathered(X: jax.Array, at: jax.Array) -> jax.Array:
        """Return blocks of X, each gathered as one row of memory."""
        return X.reshape(len(X), -1)[at].reshape(*at.shape, *X.shape[1:])

    total = jnp.zeros((n_segments, *(c.stop - c.start for c in columns)))
    if len(chunks.segment) == 1:
        return add(total, jax.tree.map(lambda x: x[0], tuple(chunks)))[0]
    return lax.scan(add, total, tuple(chunks))[0]


def add_blocks(M: jax.Array, row: jax.Array, column: jax.Array, blocks: jax.Array) -> jax.Array:
    """Add blocks (n, i, j) to M, each at its first row and column."""
    i, j = (jnp.arange(size, dtype=jnp.int32) for size in blocks.shape[1:])
    return M.at[row[:, None, None] + i[:, None], column[:, None, None] + j].add(blocks)


def add_below(M: jax.Array, row: jax.Array, column: jax.Array, blocks: jax.Array) -> jax.Array:
    """Return the lower triangle of M + B + Bᵀ, where B consists of blocks as in `add_blocks`."""
    i, j = (jnp.arange(size, dtype=jnp.int32) for size in blocks.shape[1:])
    row, column = row[:, None, None] + i[:, None], column[:, None, None] + j
    blocks = jnp.where(row == column, 2.0, 1.0) * blocks
    return M.at[jnp.maximum(row, column), jnp.minimum(row, column)].add(blocks)


def solved_by_cholesky(S: jax.Array) -> jax.Array:
    """Return the solution of A x = b, from the lower triangle of A, which has a unit diagonal, with b as the last row.

    The factorisation of this matrix includes the forward substitution of b.
    """
    n = len(S) - 1
    C = lax.linalg.cholesky(S.at[n, n].set(INFINITE_DIAGONAL), symmetrize_input=False)
    y = C[n].at[n].set(0.0)
    return lax.linalg.triangular_solve(C, y[:, None], left_side=True, lower=True, transpose_a=True)[:n, 0]


def unit_of_damping(diagonal: jax.Array) -> jax.Array:
    """Return the factor of λ in relative damping; 1 where the diagonal is 0, since the gradient is 0 there too."""
    return jnp.where(diagonal > 0, diagonal, 1.0)


def cholesky(V: jax.Array, g: jax.Array, damping: jax.Array, relative: bool) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Factorise V + λI (relative: V + λ diag V) = L Lᵀ, with V and L packed row by row.

    Returns L, z = L⁻¹g, and a mask of the blocks that are not positive definite.
    """
    d = g.shape[1]
    L: list[list[jax.Array]] = []
    z: list[jax.Array] = []
    bad = jnp.zeros(len(V), dtype=bool)
    for q in range(d):
        first = q * (q + 1) // 2
        row: list[jax.Array] = []
        for s in range(q):
            terms = sum((row[m] * L[s][m] for m in range(s)), jnp.zeros(()))
            row.append((V[:, first + s] - terms) / L[s][s])
        diagonal = V[:, first + q]
        added = damping * (unit_of_damping(diagonal) if relative else jnp.ones_like(diagonal))
        pivot = diagonal + added - sum((x * x for x in row), jnp.zeros(()))
        pivot = jnp.where(pivot < added, added, pivot)  # smaller only by rounding
        bad = bad | ~(pivot > 0)
        L.append([*row, jnp.sqrt(jnp.where(pivot > 0, pivot, 1.0))])
        z.append((g[:, q] - sum((row[m] * z[m] for m in range(q)), jnp.zeros(()))) / L[q][q])
    return jnp.stack([x for row in L for x in row], axis=1), jnp.stack(z, axis=1), bad


def coupling(J: Small, N: Small, L: Small) -> Small:
    """Return Yᵀ = L⁻¹ (JᵀN)ᵀ, (d, K), from J (p, K), N (p, d) and the packed L of each observation."""
    W = product(N, J)
    out: list[Small] = []
    for s in range(len(W)):
        first = s * (s + 1) // 2
        y = W[s]
        for m in range(s):
            y = y - out[m] * number(L[first + m], y)
        out.append(y / number(L[first + s], y))
    return joined([y[None] for y in out])


def solve_lower(L: jax.Array, b: jax.Array) -> jax.Array:
    """Return L⁻¹b."""
    d = b.shape[1]
    x: list[jax.Array] = []
    for q in range(d):
        first = q * (q + 1) // 2
        y = b[:, q] - sum((L[:, first + m] * x[m] for m in range(q)), jnp.zeros(()))
        x.append(y / L[:, first + q])
    return jnp.stack(x, axis=1)


def solve_transposed(L: jax.Array, b: jax.Array) -> jax.Array:
    """Return L⁻ᵀb."""
    d = b.shape[1]
    x: dict[int, jax.Array] = {}
    for q in reversed(range(d)):
        y = b[:, q] - sum((L[:, m * (m + 1) // 2 + q] * x[m] for m in range(q + 1, d)), jnp.zeros(()))
        x[q] = y / L[:, q * (q + 1) // 2 + q]
    return jnp.stack([x[q] for q in range(d)], axis=1)


def safe_inverse(whole: jax.Array, YY: jax.Array) -> jax.Array:
    """Return the inverse of whole − YY, of `whole` if that is nearly singular, or the identity if both are."""
    d = whole.shape[-1]
    eye = jnp.broadcast_to(jnp.eye(d), whole.shape)
    (reduced, good), (full, fair) = (_inverse(B) for B in (whole - YY, whole))
    return jnp.where(good[:, None, None], reduced, jnp.where(fair[:, None, None], full, eye))


def _inverse(B: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the inverse of each block, and whether it is safely positive definite; all numbers are finite."""
    n, d = B.shape[:2]
    eye = jnp.broadcast_to(jnp.eye(d), B.shape)
    if is_narrow(d * d):  # one batched LAPACK call takes as long as ten products of the matrix
        i, j = np.tril_indices(d)
        L, _, bad = cholesky(B[:, i, j], jnp.zeros((n, d)), jnp.zeros(()), False)
        diagonal = L[:, np.arange(1, d + 1).cumsum() - 1]
    else:
        C = lax.linalg.cholesky(B, symmetrize_input=False)
        diagonal = jnp.diagonal(C, axis1=1, axis2=2)
        bad = ~(jnp.min(diagonal, axis=1) > 0)
    good = ~bad & (jnp.min(diagonal, axis=1) ** 2 > 1e-12 * jnp.max(jnp.abs(B), axis=(1, 2)))
    if is_narrow(d * d):
        return jnp.stack([solve_transposed(L, solve_lower(L, eye[:, k])) for k in range(d)], axis=2), good
    return jax.scipy.linalg.cho_solve((jnp.where(good[:, None, None], C, eye), True), eye), good

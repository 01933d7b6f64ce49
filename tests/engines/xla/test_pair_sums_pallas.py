"""The Pallas kernel for sums over pairs agrees with plain JAX; it is interpreted here and only compiled on a GPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asker.engines.xla.blocks import summed_products
from asker.engines.xla.layout import collect
from asker.engines.xla.pair_sums_pallas import chunk_sums, is_supported
from asker.tracing.array_namespace import float64

CASES = [(3, 6, 6), (3, 9, 6), (2, 3, 3), (1, 1, 2), (3, 17, 5), (2, 40, 7)]
"""Sizes k, and the columns of A and B."""


def pairs(rng, n, n_segments):
    key = np.sort(rng.integers(0, n_segments, 120))
    left, right = rng.integers(0, n - 1, (2, 120))
    return key, left, right


@pytest.mark.parametrize("sizes", CASES, ids=str)
def test_the_kernel_gives_the_sums(sizes):
    (k, i, j), n, n_segments = sizes, 30, 9
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(n, k, i + 2)), rng.normal(size=(n, k, j + 1))
    A[-1] = B[-1] = 0.0  # the dummy
    columns = slice(2, 2 + i), slice(0, j)
    key, left, right = pairs(rng, n, n_segments)
    expected = np.zeros((n_segments, i, j))
    np.add.at(expected, key, np.einsum("nki,nkj->nij", A[left][..., columns[0]], B[right][..., columns[1]]))
    with float64():
        chunks = jax.tree.map(
            jnp.asarray, collect([key], [(left, right)], (n - 1, n - 1), n_segments, lambda size: size)
        )
        plain = summed_products(jnp.asarray(A), jnp.asarray(B), columns, chunks, n_segments)
        of_chunks = chunk_sums(
            jnp.asarray(A), jnp.asarray(B), chunks.members[0][0], chunks.members[1][0], columns, interpret=True
        )
        ours = jnp.zeros((n_segments, i, j)).at[chunks.segment[0]].add(of_chunks)
    np.testing.assert_allclose(plain, expected, atol=1e-12)
    np.testing.assert_allclose(ours, expected, atol=1e-12)


def test_a_cpu_has_no_such_kernel():
    assert not is_supported(jax.devices("cpu")[0])

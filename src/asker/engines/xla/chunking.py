"""Loops over slabs of observations, which bound the memory for intermediate results."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from asker.engines.xla.layout import Chunks, Observations, n_slabs


def over_slabs(
    function: Callable[..., tuple[Any, Any]], carry: Any, o: Observations[jax.Array], *arrays: Any
) -> tuple[Any, Any]:
    """Call `function(carry, o, *arrays)` for each slab; it returns the next carry and arrays (n, …)."""
    n = len(o.indices[0])
    k = n_slabs(n)
    m = n // k
    per_observation, by_kept = (o.indices, o.data, o.tau, o.root_weight, arrays), o.by_kept
    per_observation = jax.tree.map(lambda x: x.reshape(k, m, *x.shape[1:]), per_observation)
    n_used = jnp.clip(o.n_used - m * jnp.arange(k, dtype=jnp.int32), 0, m)[:, None]

    def of_slab(carry: Any, slab: Any) -> tuple[Any, Any]:
        n_used, (indices, data, tau, root_weight, arrays), by_kept = slab
        return function(carry, Observations(n_used, indices, data, tau, root_weight, by_kept), *arrays)

    slabs = n_used, per_observation, by_kept
    if k == 1:
        return of_slab(carry, jax.tree.map(lambda x: x[0], slabs))
    carry, outs = lax.scan(of_slab, carry, slabs)
    return carry, jax.tree.map(lambda x: x.reshape(n, *x.shape[2:]), outs)


def in_all_slabs(chunks: Chunks[jax.Array], n: int) -> jax.Array:
    """Return positions among all `n` observations of a device, the last of which is a dummy."""
    (members,) = chunks.members
    k = len(members)
    m = n // k
    return jnp.where(members < m, members + m * jnp.arange(k, dtype=jnp.int32)[:, None, None], n - 1)

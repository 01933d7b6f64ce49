"""The devices: which there are, how much they hold, and how several hosts come together."""

from typing import Any

import jax
import numpy as np

Array = Any


def available(n: int | None = None) -> list[Any]:
    found = jax.devices()
    if n is not None and n > len(found):
        raise ValueError(f"{n} devices were asked for, and JAX finds {len(found)}")
    return found[:n]


def shard_map(function, mesh, in_specs, out_specs):
    """JAX's, under the name it has in this version; what is replicated is known here, not proved."""
    if hasattr(jax, "shard_map"):
        return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    from jax.experimental.shard_map import shard_map as older

    return older(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_rep=False)


def fetch(x: Array) -> np.ndarray:
    """The whole array on this host."""
    if getattr(x, "is_fully_addressable", True) or x.is_fully_replicated:
        return np.asarray(x)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(x, tiled=True)


def estimate(layout, solver):
    return 0


def check_memory(need, devices):
    pass


def check_same(problem):
    pass

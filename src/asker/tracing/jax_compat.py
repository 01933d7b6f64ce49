"""Differences between the supported versions of JAX, 0.5 to 0.12.  No other module depends on the version.

    0.5    oldest version that is tested (`make matrix`)
    0.6    `jax.shard_map` leaves `jax.experimental`
    0.7    the primitive `pjit` is called `jit`; `enable_x64` leaves `jax.experimental` in 0.8
    0.9    an index out of bounds raises during tracing; before, the nearest element is read silently
    0.11   `scan` describes its constants and its carry by trees, `ft_in`, instead of two numbers
    0.12   `eval_jaxpr` replaces `closed_call`; new primitives: `log2`, `one_minus_square`, `polynomial`

New primitives need rules in `asker.engines.cpu.compiler.arithmetic_rules`; `test_jax_versions.py` lists the primitives
without a rule.
"""

import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from asker.io.interrupts import interrupts_wait

CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",  # up to 0.6
    "closed_call": "call_jaxpr",  # up to 0.11
    "eval_jaxpr": "call_jaxpr",  # from 0.12 on
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",  # up to 0.5
    "remat2": "jaxpr",
}
"""Primitives that call a jaxpr, and the parameter that contains it."""

IGNORABLE_PARAMETERS = frozenset({
    "_split_transpose", "accuracy", "axis_index_groups", "axis_name", "backend", "branches_platforms", "bwd",
    "compiler_options_kvs", "conjugate_a", "ctx_mesh", "debug_info", "device", "differentiated", "donated_invars",
    "effects", "exponent_bits", "fwd_jaxpr_thunk", "in_layouts", "in_shardings", "inline", "is_hi_fn", "jvp",
    "jvp_fun", "jvp_jaxpr_fun", "jvp_jaxpr_thunk", "keep_unused", "layout", "linear", "mantissa_bits", "name",
    "num_consts", "out_layouts", "out_sharding", "out_shardings", "out_trees", "out_type", "policy", "precision",
    "preferred_element_type", "prevent_cse", "resource_env", "sharding", "symbolic_zeros", "unroll", "weak_type",
})  # fmt: skip
"""Parameters that do not affect values: placement, precision, names, and derivatives that were already computed."""


@cache
def traced_with() -> str:
    """Return the versions of the packages that trace a function."""
    return f"jax {version('jax')}, numpy {version('numpy')}"


def called_jaxpr(name: str, params: Any) -> Any:
    """Return the jaxpr that a primitive calls.  Up to 0.6, `custom_vjp_call` has it as `fun_jaxpr`."""
    key = CALLS[name]
    return params["fun_jaxpr"] if key not in params and "fun_jaxpr" in params else params[key]


def scan_counts(params: Any, n_inputs: int) -> tuple[int, int]:
    """Return the numbers of constants and of carried values among the inputs of a `scan`."""
    if "ft_in" in params:  # from 0.11 on
        consts, carry, _ = params["ft_in"].update(list(range(n_inputs))).unpack()
        return len(list(consts)), len(list(carry))
    return params["num_consts"], params["num_carry"]


def platform_index(params: Any) -> int:
    """Return the branch for CPUs: the one that names them, else the default, which is None (up to 0.6: the last)."""
    platforms = params["platforms"]
    return next((k for k, names in enumerate(platforms) if names is None or "cpu" in names), len(platforms))


_loading = threading.Lock()
_loaded: Any = None


def load_jax() -> Any:
    """Return the module `jax`.

    Interrupts wait for the import: one that is interrupted by Ctrl-C may crash later or swallow the interrupt.
    """
    global _loaded
    if _loaded is None:
        with _loading, interrupts_wait():
            import jax
        _loaded = jax
    return _loaded


def enable_x64() -> AbstractContextManager:
    """Return a context in which JAX computes in float64."""
    jax = load_jax()
    if hasattr(jax, "enable_x64"):  # from 0.8 on
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]

    return enable_x64(True)


_forked_after_xla = False
"""True if XLA had run in the process that this one was forked from, whose threads do not exist here."""


def _after_fork() -> None:
    """Update the state of this module in a forked process."""
    global _forked_after_xla, _loading
    _loading = threading.Lock()
    bridge = sys.modules.get("jax._src.xla_bridge")
    _forked_after_xla = _forked_after_xla or bool(getattr(bridge, "_backends", None))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def check_xla() -> None:
    """Raise a `RuntimeError` if XLA would deadlock in this forked process.  Tracing does not need XLA."""
    if _forked_after_xla:
        raise RuntimeError(
            "this process was forked from one in which JAX had run, so JAX cannot run here: "
            "start processes with multiprocessing's `spawn`"
        )


def shard_map(function: Callable[..., Any], mesh: Any, in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """Return `function` mapped over the shards of each device, without the check of replication."""
    import jax

    if hasattr(jax, "shard_map"):  # from 0.6 on
        return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    from jax.experimental.shard_map import shard_map as older

    return older(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_rep=False)


def is_random_key(x: Any) -> bool:
    """Return whether x is an array of keys of `jax.random`, for which NumPy has no type."""
    if isinstance(x, np.ndarray) or not hasattr(x, "dtype"):
        return False
    import jax

    return bool(jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key))

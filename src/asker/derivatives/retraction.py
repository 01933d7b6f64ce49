"""Retractions of all variables of a group and their derivatives, by the compiled loops of the CPU engine.

These functions may be called within a callback of a JAX program, where XLA itself might wait for the callback to end.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.engines.cpu.compiler import Argument
from asker.engines.cpu.factor_loops import AnyLoop, compiled_loop
from asker.engines.sparsity import is_long
from asker.problem.variables import Variables
from asker.tracing.source_digest import digest_of

Floats = NDArray[np.float64]
MAX_LOOPS = 64
"""Number of manifolds whose loops are cached."""


def retracted(v: Variables, rows: Floats, steps: Floats) -> Floats:
    """Return rows ⊞ steps, (n, ambient)."""
    out = np.empty_like(rows)
    _loop(v, "moved")(len(rows), [rows, np.ascontiguousarray(steps)], [out])
    return out


def retraction_slopes(v: Variables, rows: Floats) -> Floats:
    """Return the derivatives (n, ambient, tangent) of the rows with respect to steps."""
    manifold = v.manifold
    if not manifold.tangent:
        return np.zeros((len(rows), manifold.ambient, 0))
    out = np.empty((len(rows), manifold.ambient, manifold.tangent))
    _loop(v, "slopes")(len(rows), [np.ascontiguousarray(rows)], [out])
    return out


def _loop(v: Variables, what: str) -> AnyLoop:
    manifold: Any = v.manifold
    try:
        return _loop_on(manifold, what, v.name)
    except TypeError:  # a user-defined manifold may not be hashable
        return _loop_on.__wrapped__(manifold, what, v.name)


@lru_cache(MAX_LOOPS)
def _loop_on(m: Any, what: str, name: str) -> AnyLoop:
    def moved(x: Any, delta: Any) -> Any:
        return (m.retract(x, delta),), ()

    def slopes(x: Any) -> Any:
        import jax

        return (jax.jacfwd(lambda delta: m.retract(x, delta))(np.zeros(m.tangent)),), ()

    functions: dict[str, Callable[..., Any]] = {"moved": moved, "slopes": slopes}
    arguments = [Argument("each", (m.ambient,)), Argument("each", (m.tangent,))][: 2 if what == "moved" else 1]
    function, batched = functions[what], is_long(m.ambient, m.tangent)
    return compiled_loop(
        what, arguments, function, what=f"the steps of {name}", digest=digest_of(function), quiet=True, batched=batched
    )

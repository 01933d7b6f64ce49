"""Traced functions: whether JAX can differentiate one, and what it computes, as a digest.

The digest is the same for the same function in every process.  A jaxpr has equations on numbered values.  All that
decides what comes out enters the digest: primitives, their parameters, types, literals, constants that the function
closes over, and the jaxprs inside; addresses in memory do not.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from asker.arrays import float64
from asker.jax_versions import PASSED_OVER

ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def why_no_derivatives(function: Callable[[Any, Any], Any], x: Any, data: Any) -> str:
    """What JAX says where it cannot differentiate `function(x, data)` with respect to x, for many at once; else ""."""
    import jax

    def forwards(x: Any, data: Any) -> Any:
        return jax.jvp(lambda x: function(x, data), (x,), (x,))

    def backwards(x: Any, data: Any) -> Any:
        value, pull = jax.vjp(lambda x: function(x, data), x)
        return pull(value)

    many = jax.tree.map(lambda array: array[None], (x, data))
    errors = []
    for way in (forwards, backwards):
        try:
            with float64():
                jax.eval_shape(jax.vmap(way), *many)
            return ""
        except Exception as e:
            errors.append(e)
    return first_line(errors[0])


def digest_of_trace(closed_jaxpr: Any) -> bytes:
    """Of what `jax.make_jaxpr` gives."""
    return hashlib.sha256("\n".join(_value(closed_jaxpr)).encode()).digest()


def _value(x: Any) -> Iterator[str]:
    """A parameter, or anything inside one."""
    if hasattr(x, "jaxpr") and hasattr(x, "consts"):
        yield from _value(x.consts)
        yield from _jaxpr(x.jaxpr)
    elif hasattr(x, "eqns"):
        yield from _jaxpr(x)
    elif isinstance(x, dict):
        for key in sorted(x, key=str):
            yield f"{key}:"
            yield from _value(x[key])
    elif isinstance(x, set | frozenset):
        yield from sorted(ADDRESS.sub("", repr(item)) for item in x)
    elif isinstance(x, tuple | list):
        yield f"{len(x)} items"
        for item in x:
            yield from _value(item)
    elif isinstance(x, np.ndarray | np.generic) or hasattr(x, "__array__"):
        array = np.asarray(x)
        yield f"{array.dtype} {array.shape} {array.tobytes().hex()}"
    else:
        yield ADDRESS.sub("", repr(x))


def _jaxpr(jaxpr: Any) -> Iterator[str]:
    numbers: dict[Any, int] = {}

    def name(variable: Any) -> str:
        return f"{numbers.setdefault(variable, len(numbers))}:{variable.aval}"

    yield " ".join(map(name, [*jaxpr.constvars, *jaxpr.invars]))
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for atom in eqn.invars:
            yield from _value(atom.val) if hasattr(atom, "val") else [name(atom)]
        yield from _value({key: value for key, value in eqn.params.items() if key not in PASSED_OVER})
        yield " ".join(map(name, eqn.outvars))
    for atom in jaxpr.outvars:
        yield from _value(atom.val) if hasattr(atom, "val") else [name(atom)]

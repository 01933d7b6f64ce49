"""Properties of traced functions: differentiability, the primitives that are used, and a digest of the computation.

A function has the same digest in every process.  The digest covers everything in the jaxpr that determines the result:
primitives, their parameters, types, literals, constants that the function closes over, and nested jaxprs, but not
addresses in memory.
"""

import hashlib
import re
from collections.abc import Callable, Container, Iterator
from typing import Any

import numpy as np

from asker.tracing.array_namespace import float64
from asker.tracing.jax_compat import CALLS, IGNORABLE_PARAMETERS, called_jaxpr, is_random_key

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
REMEDIES = {
    "TracerArrayConversionError": "use jax.numpy in place of numpy",
    "TracerBoolConversionError": "use jnp.where in place of `if`",
    "TracerIntegerConversionError": "an index must not depend on a variable",
    "ConcretizationTypeError": "shapes and loops must not depend on a variable",
}
"""Remedies for errors of JAX."""


def first_line(error: Exception) -> str:
    """Return the first line of the message of an error."""
    return (str(error).splitlines() or [""])[0]


def differentiated_with(names: Container[str], function: Callable[[Any, Any], Any], x: Any, data: Any) -> str:
    """Return one of the named primitives that JAX uses to differentiate a function, "" if it uses none of them.

    The batched derivative of `function(x, data)` with respect to x is traced in forward and in reverse mode.  The
    result is "" if one of them uses none of the primitives.  If both modes fail, the error of JAX is raised.
    """
    import jax

    def forwards(x: Any, data: Any) -> Any:
        return jax.jvp(lambda x: function(x, data), (x,), (x,))

    def backwards(x: Any, data: Any) -> Any:
        value, pull = jax.vjp(lambda x: function(x, data), x)
        return pull(value)

    many = jax.tree.map(lambda array: array[None], (x, data))
    names_used, errors = [], []
    for mode in (forwards, backwards):
        try:
            with float64():
                trace = jax.make_jaxpr(jax.vmap(mode))(*many)
        except Exception as e:
            errors.append(e)
            continue
        used = [name for name in applied(trace) if name in names]
        if not used:
            return ""
        names_used += used
    if not names_used:
        raise errors[0]
    return names_used[0]


def applied(closed_jaxpr: Any) -> list[str]:
    """Return the primitives applied to values that depend on the arguments, in order, including nested ones."""
    jaxpr = closed_jaxpr.jaxpr
    return list(dict.fromkeys(_applied(jaxpr, [True] * len(jaxpr.invars))[0]))


def _applied(jaxpr: Any, dependent: list[bool]) -> tuple[list[str], list[bool]]:
    """Return the primitives applied to dependent values of a jaxpr, and a mask of its dependent outputs."""
    import jax

    names: list[str] = []
    depends = dict(zip(jaxpr.invars, dependent, strict=True))
    for eqn in jaxpr.eqns:
        inputs = [not hasattr(atom, "val") and depends.get(atom, False) for atom in eqn.invars]
        name, outs = eqn.primitive.name, [any(inputs)] * len(eqn.outvars)
        if any(inputs):
            names.append(name)
            if name in CALLS:
                inner = called_jaxpr(name, eqn.params)
                more, outs = _applied(getattr(inner, "jaxpr", inner), inputs)
                names += more
            elif name != "cond" or inputs[0]:  # a condition that is constant selects one branch
                inside: list[Any] = [getattr(x, "jaxpr", x) for x in jax.tree.leaves(list(eqn.params.values()))]
                names += [n for j in inside if hasattr(j, "eqns") for n in _applied(j, [True] * len(j.invars))[0]]
        depends.update(zip(eqn.outvars, outs, strict=True))
    return names, [not hasattr(atom, "val") and depends.get(atom, False) for atom in jaxpr.outvars]


def digest_of_trace(closed_jaxpr: Any) -> bytes:
    """Return the digest of the result of `jax.make_jaxpr`."""
    return hashlib.sha256("\n".join(_value(closed_jaxpr)).encode()).digest()


def _value(x: Any) -> Iterator[str]:
    """Yield text that identifies a parameter or a nested value of one."""
    import jax

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
        array = np.asarray(jax.random.key_data(x) if is_random_key(x) else x)
        yield f"{x.dtype} {array.shape} {array.tobytes().hex()}"
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
        yield from _value({key: value for key, value in eqn.params.items() if key not in IGNORABLE_PARAMETERS})
        yield " ".join(map(name, eqn.outvars))
    for atom in jaxpr.outvars:
        yield from _value(atom.val) if hasattr(atom, "val") else [name(atom)]

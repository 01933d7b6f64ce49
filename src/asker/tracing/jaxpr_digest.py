"""Traced functions: whether JAX can differentiate one, which primitives it uses, and what it computes, as a digest.

The digest is the same for the same function in every process.  A jaxpr has equations on numbered values.  All that
decides what comes out enters the digest: primitives, their parameters, types, literals, constants that the function
closes over, and the jaxprs inside; addresses in memory do not.
"""

import hashlib
import re
from collections.abc import Callable, Container, Iterator
from typing import Any

import numpy as np

from asker.tracing.array_namespace import float64
from asker.tracing.jax_compat import CALLS, PASSED_OVER, called_jaxpr, is_random_key

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
REMEDIES = {
    "TracerArrayConversionError": "use jax.numpy in place of numpy",
    "TracerBoolConversionError": "use jnp.where in place of `if`",
    "TracerIntegerConversionError": "an index must not depend on a variable",
    "ConcretizationTypeError": "shapes and loops must not depend on a variable",
}
"""What helps against JAX's errors."""


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def differentiated_with(names: Container[str], function: Callable[[Any, Any], Any], x: Any, data: Any) -> str:
    """One of these primitives that JAX uses to differentiate `function(x, data)` with respect to x, for many at once.

    "" where it uses none of them, forwards or backwards; its error where it can do neither.
    """
    import jax

    def forwards(x: Any, data: Any) -> Any:
        return jax.jvp(lambda x: function(x, data), (x,), (x,))

    def backwards(x: Any, data: Any) -> Any:
        value, pull = jax.vjp(lambda x: function(x, data), x)
        return pull(value)

    many = jax.tree.map(lambda array: array[None], (x, data))
    found, errors = [], []
    for way in (forwards, backwards):
        try:
            with float64():
                trace = jax.make_jaxpr(jax.vmap(way))(*many)
        except Exception as e:
            errors.append(e)
            continue
        used = [name for name in applied(trace) if name in names]
        if not used:
            return ""
        found += used
    if not found:
        raise errors[0]
    return found[0]


def applied(closed_jaxpr: Any) -> list[str]:
    """The primitives that are applied to what depends on the arguments, also inside of others, in their order."""
    jaxpr = closed_jaxpr.jaxpr
    return list(dict.fromkeys(_applied(jaxpr, [True] * len(jaxpr.invars))[0]))


def _applied(jaxpr: Any, given: list[bool]) -> tuple[list[str], list[bool]]:
    """Those of a jaxpr of whose arguments some depend on those of the whole, and which of its outputs do."""
    import jax

    names: list[str] = []
    depends = dict(zip(jaxpr.invars, given, strict=True))
    for eqn in jaxpr.eqns:
        of = [not hasattr(atom, "val") and depends.get(atom, False) for atom in eqn.invars]
        name, outs = eqn.primitive.name, [any(of)] * len(eqn.outvars)
        if any(of):
            names.append(name)
            if name in CALLS:
                inner = called_jaxpr(name, eqn.params)
                more, outs = _applied(getattr(inner, "jaxpr", inner), of)
                names += more
            elif name != "cond" or of[0]:  # of branches that are chosen beforehand one is taken
                inside: list[Any] = [getattr(x, "jaxpr", x) for x in jax.tree.leaves(list(eqn.params.values()))]
                names += [n for j in inside if hasattr(j, "eqns") for n in _applied(j, [True] * len(j.invars))[0]]
        depends.update(zip(eqn.outvars, outs, strict=True))
    return names, [not hasattr(atom, "val") and depends.get(atom, False) for atom in jaxpr.outvars]


def digest_of_trace(closed_jaxpr: Any) -> bytes:
    """Of what `jax.make_jaxpr` gives."""
    return hashlib.sha256("\n".join(_value(closed_jaxpr)).encode()).digest()


def _value(x: Any) -> Iterator[str]:
    """A parameter, or anything inside one."""
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
        yield from _value({key: value for key, value in eqn.params.items() if key not in PASSED_OVER})
        yield " ".join(map(name, eqn.outvars))
    for atom in jaxpr.outvars:
        yield from _value(atom.val) if hasattr(atom, "val") else [name(atom)]
